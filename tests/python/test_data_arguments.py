"""Datasets in Python: arguments that cannot be are told where they are given, with the argument's name and what to do; nothing is rounded, dropped or passed over."""

import os
import struct
import unittest

import numpy

import support
import unisono
from data_files import InDirectory
from unisono import data


class Methods(unittest.TestCase):
    def test_a_misspelled_argument_names_the_nearest(self):
        rows = data.range(3)
        for call, near in ((lambda: rows.limit(limt=2), "limit"), (lambda: rows.split(2, equl=True), "equal"), (lambda: rows.zip(othr=rows), "other"),
                           (lambda: rows.window(blocks_per_windw=2), "blocks_per_window"), (lambda: rows.train_test_split(0.5, shufle=True), "shuffle"),
                           (lambda: rows.iter_batches(batch_sise=2), "batch_size"), (lambda: rows.take(limt=1), "limit"),
                           (lambda: rows.repeat(2).iter_epochs(max_epoc=1), "max_epoch")):
            with self.assertRaisesRegex(TypeError, r"unexpected keyword argument.*; did you mean '%s'\?" % near):
                call()


class Refused(unittest.TestCase):
    def refuse(self, cases):
        for call, kind, message in cases:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()

    def test_numbers(self):
        ds = data.range(10)
        self.refuse((
            (lambda: data.range(-1), ValueError, "n must be at least 0, not -1"),
            (lambda: data.range(1.5), TypeError, "n must be a whole number, not 1.5"),
            (lambda: ds.limit(-1), ValueError, "limit must be at least 0"),
            (lambda: ds.limit("a"), TypeError, "limit must be a whole number"),
            (lambda: ds.take(-1), ValueError, "limit"),
            (lambda: ds.split(0), ValueError, "n must be positive"),
            (lambda: ds.split_at_indices(2), TypeError, "list of row numbers"),
            (lambda: ds.split_at_indices([2, 1]), ValueError, "ascending"),
            (lambda: ds.split_proportionately([0.7, 0.5]), ValueError, "less than 1 together"),
            (lambda: ds.train_test_split(True), TypeError, "test_size"),
            (lambda: ds.train_test_split(10), ValueError, "less than 10"),
            (lambda: ds.repartition(0), ValueError, "num_blocks must be positive"),
            (lambda: ds.window(blocks_per_window=0), ValueError, "blocks_per_window must be positive"),
            (lambda: ds.repeat(0), ValueError, "times"),
            (lambda: ds.repeat(2.5), TypeError, "times"),
            (lambda: ds.shuffle(-1), ValueError, "buffer_size"),
            (lambda: ds.random_shuffle(seed="x"), TypeError, "seed must be a whole number"),
            (lambda: list(ds.iter_batches(batch_size=2.5)), TypeError, "batch_size"),
            (lambda: ds.map_batches(lambda batch: batch, batch_size=0), ValueError, "batch_size must be positive"),
            (lambda: ds.map_batches(lambda batch: batch, concurrency=0), ValueError, "concurrency must be positive"),
            (lambda: ds.map_batches(lambda batch: batch, concurrency=()), ValueError, "concurrency must be a number or a pair"),
            (lambda: ds.map_batches(lambda batch: batch, compute="taskz"), TypeError, "compute must be None, \"tasks\""),
            (lambda: list(ds.iter_batches(local_shuffle_buffer_size=0)), ValueError, "local_shuffle_buffer_size must be positive"),
            (lambda: ds.prefetch(-2), ValueError, "batches must be at least -1"),
        ))

    def test_functions_of_which_nothing_runs(self):
        """A generator and a coroutine are true: a filter with one kept every row."""
        async def later(row):
            return False

        def some(row):
            yield False

        for function, word in ((later, "coroutine"), (some, "generator")):
            for what in ("filter", "map"):
                with self.assertRaisesRegex(TypeError, r"the function of %s \(.*%s\) returned a %s" % (what, function.__name__, word)):
                    getattr(data.range(3), what)(function).take_all()

    def test_columns(self):
        ds = data.from_numpy({"a": numpy.array([1, 300]), "b": numpy.array([1.5, numpy.nan])})
        self.refuse((
            (lambda: ds.select_columns([]), ValueError, "at least one column"),
            (lambda: ds.select_columns([0]), TypeError, "name of a column"),
            (lambda: ds.drop_columns(["a", "b"]), ValueError, "would leave no column"),
            (lambda: ds.rename_columns(["x"]), ValueError, "all 2 columns"),
            (lambda: ds.rename_columns({"a": "b"}), unisono.Error, "two columns are called b"),
            (lambda: ds.cast("a", "uint8").take(2), unisono.Error, "column a: uint8 cannot hold 300"),
            (lambda: ds.cast("b", "int32").take(2), unisono.Error, "column b: NaN is not a value of int32"),
            (lambda: ds.concat_columns(["a"], "x", "int8").take(2), unisono.Error, "column a: int8 cannot hold 300"),
        ))
        self.assertEqual(ds.rename_columns({"a": "b", "b": "a"}).take(1), [{"b": 1, "a": 1.5}])
        self.assertEqual(ds.cast("a", "int16").take_batch(2)["a"].tolist(), [1, 300])

    def test_other_datasets(self):
        ds = data.range(3)
        self.refuse((
            (lambda: ds.zip([1, 2, 3]), TypeError, "zip needs a Dataset, not list"),
            (lambda: ds.union([ds]), TypeError, "union needs a Dataset, not list"),
            (lambda: ds.zip(data.range(4)), unisono.Error, "3 rows and 4 rows"),
            (lambda: ds.union(data.from_items([{"id": 1.5}])), unisono.Error, r"id int64 and id float64; .*\(cast, rename\)"),
        ))
        one, other = data.from_items([{"a": 1, "b": 2}]), data.from_items([{"b": 3, "a": 4}])
        self.assertEqual(one.union(other).take_all(), [{"a": 1, "b": 2}, {"a": 4, "b": 3}])

    def test_functions(self):
        ds = data.range(3)
        self.refuse((
            (lambda: ds.map(5), TypeError, "map needs a function"),
            (lambda: ds.map(lambda row: None).take_all(), TypeError, "returned None"),
            (lambda: ds.map(lambda row: {}).take_all(), ValueError, "at least one column"),
            (lambda: ds.flat_map(lambda row: row).take_all(), TypeError, "list of rows, not dict"),
            (lambda: ds.flat_map(lambda row: None).take_all(), TypeError, "list of rows, not NoneType"),
            (lambda: ds.filter(expr="id > 1"), TypeError, "lambda row"),
            (lambda: ds.map_batches(lambda batch: batch.update(x=1)).take_all(), TypeError, "is a return missing"),
            (lambda: ds.map_batches(lambda batch: {"x": 5}).take_all(), ValueError, "'x' is a single value"),
            (lambda: ds.map_batches(lambda batch: batch, batch_format="polars"), ValueError, "polars"),
            (lambda: ds.map_batches(lambda batch: batch, bogus=1), TypeError, "map_batches.* unexpected keyword argument 'bogus'"),
            (lambda: ds.map_batches(lambda batch, k: batch, fn_args="ab"), TypeError, "fn_args must be a list"),
        ))
        self.assertEqual(ds.map(lambda row, k: {"x": row["id"] * k}, fn_args=[2]).take_all(), [{"x": 0}, {"x": 2}, {"x": 4}])
        made = ds.map_batches(lambda batch: iter([{"x": numpy.ones(2, numpy.float32)}, {"x": numpy.zeros(1, numpy.float32)}]))
        self.assertEqual(made.take_batch(3)["x"].dtype, numpy.float32)  # batches of a generator keep their types

    def test_rows_given(self):
        self.refuse((
            (lambda: data.from_items({"a": [1]}), TypeError, "from_numpy takes a dictionary"),
            (lambda: data.from_items("abc"), TypeError, "list of rows, not str"),
            (lambda: data.from_items([{}]), ValueError, "at least one column"),
            (lambda: data.from_items([{"a": b"x"}, {"a": "x"}]), TypeError, "both str and bytes"),
            (lambda: data.from_items([{"a": "\ud800"}]), ValueError, "column 'a' has text that is not Unicode"),
            (lambda: data.from_items([{"a": numpy.ones((2, 2))}, {"a": numpy.ones((3, 2))}]), TypeError, "of the shapes"),
            (lambda: data.from_numpy([]), TypeError, "an empty list"),
            (lambda: data.from_numpy([numpy.ones((2, 2)), numpy.ones((2, 3))]), ValueError, "different shapes"),
            (lambda: data.from_numpy(numpy.ones(2, numpy.longdouble)), TypeError, "column 'data'"),
            (lambda: data.from_pandas({"a": [1]}), TypeError, "a pandas data frame is needed, not dict"),
            (lambda: data.from_generator(iter([])), TypeError, "called once an epoch"),
            (lambda: data.from_generator(lambda: None).take(1), TypeError, "must give an iterator"),
            (lambda: data.range(3, foo=1), TypeError, "range.* unexpected keyword argument 'foo'"),
        ))
        self.assertEqual(data.from_items([{"a": [2 ** 60 + 1]}, {"a": []}, {"a": None}]).take(1)[0]["a"].tolist(), [2 ** 60 + 1])
        self.assertEqual(data.from_items([{"a": True}, {"a": None}]).take_all(), [{"a": True}, {"a": None}])
        self.assertEqual(data.from_numpy(numpy.ma.array([1, 2 ** 60], mask=[True, False])).take_all(), [{"data": None}, {"data": 2 ** 60}])
        self.assertEqual(data.range(10, parallelism=5).num_blocks(), 5)

    def test_batches_of_a_generator(self):
        batches = data.from_generator(lambda: iter([{"a": numpy.arange(3)}, {"a": numpy.arange(1)}]))  # the last one is smaller
        self.assertEqual(batches.count(), 4)
        rows = data.from_generator(lambda: iter([{"a": numpy.ones(4), "b": numpy.ones(4)}]), batches=False)
        self.assertEqual(rows.take_batch(1)["a"].shape, (1, 4))


class Files(InDirectory):
    def idx(self, name, array, tail=b""):
        path = os.path.join(self.dir, name)
        array = numpy.asarray(array, numpy.uint8)
        with open(path, "wb") as file:
            file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(">%dI" % array.ndim, *array.shape) + array.tobytes() + tail)
        return path

    def test_idx(self):
        images = numpy.arange(18).reshape(2, 3, 3)
        ds = data.read_idx(image=self.idx("images", images), label=self.idx("labels", [1, 0]))
        self.assertEqual(ds.take_batch(2)["image"].tolist(), images.tolist())
        for call, message in ((lambda: data.read_idx(self.idx("x", [1])), "a file for each column"), (lambda: data.read_idx(), "a file for each column"),
                              (lambda: data.read_idx(x=self.idx("x", [1], b"more")), "5 bytes of data, its header says 1"),
                              (lambda: data.read_idx(a=self.idx("x", [1]), b=self.idx("y", [1, 2])), "has 2 rows")):
            with self.subTest(message), self.assertRaisesRegex(Exception, message):
                call()

    def test_readers(self):
        path = os.path.join(self.dir, "a.csv")
        with open(path, "w") as file:
            file.write("a,b\n1,2\n")
        self.assertEqual(data.read_csv("file://" + path).count(), 1)
        for call, message in ((lambda: data.read_csv("s3://bucket/a.csv"), "fetch the file first"), (lambda: data.read_csv(path, block_bytes=0), "block_bytes"),
                              (lambda: data.read_csv(path, types=["float32"]), "types must be a dictionary"),
                              (lambda: data.read_csv(path, max_errors="x"), "max_errors"), (lambda: data.read_images(path, size=3), "height, width"),
                              (lambda: data.read_sql("select 1", 5), "function that makes a connection")):
            with self.subTest(message), self.assertRaisesRegex(Exception, message):
                call()


if __name__ == "__main__":
    support.main()
