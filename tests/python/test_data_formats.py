"""Datasets in Python: what goes in and comes out of memory, batches for other libraries."""

import pickle
import threading
import time
import unittest

import cloudpickle
import numpy

import support
import unisono
from data_files import InDirectory
from unisono import data

try:
    import pandas
except ImportError:
    pandas = None
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


class Memory(unittest.TestCase):
    def test_numpy_is_shared(self):
        values = numpy.arange(12, dtype=numpy.float32).reshape(6, 2)
        batches = list(data.from_numpy(values).iter_batches(batch_size=3))
        self.assertTrue(numpy.shares_memory(batches[0]["data"], values))
        self.assertEqual([batch["data"].shape for batch in batches], [(3, 2), (3, 2)])

    @unittest.skipUnless(pandas, "needs pandas")
    def test_pandas(self):
        frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, None, 2.0]})
        ds = data.from_pandas(frame)
        self.assertEqual([row["b"] for row in ds.take_all()], ["x", None, "z"])
        back = ds.to_pandas()
        self.assertEqual(back["a"].tolist(), [1, 2, 3])
        self.assertTrue(numpy.isnan(back["c"][1]))
        out = ds.map_batches(lambda frame_: frame_.assign(d=frame_["a"] * 2), batch_format="pandas")
        self.assertEqual([row["d"] for row in out.take_all()], [2, 4, 6])

    @unittest.skipUnless(pandas, "needs pandas")
    def test_text_in_data_frames(self):
        """The frame that pandas makes of the same strings, whatever it keeps them in."""
        names = ["caf\udce9", "caf\xe9"]  # a path that is not UTF-8
        for texts in (["x", None, "y\xe9", "", "a\0b"], [None, None], ["only"], names):
            ds = data.from_items([{"text": text, "n": number} for number, text in enumerate(texts)])
            column = pandas.Series(texts, dtype=object) if texts is names else numpy.array(texts, dtype=object)
            wanted = pandas.DataFrame({"text": column, "n": range(len(texts))})
            for got in (ds.to_pandas(), next(iter(ds.iter_batches(batch_size=None, batch_format="pandas")))):
                pandas.testing.assert_frame_equal(got, wanted)
            if len(texts) > 2:
                part = next(iter(ds.limit(4).iter_batches(batch_size=2, batch_format="pandas")))
                pandas.testing.assert_frame_equal(part, wanted[:2])

    def test_items_and_objects(self):
        self.assertEqual(data.from_items([3, 4]).take_all(), [{"item": 3}, {"item": 4}])
        rows = data.from_items([(1, "a"), (2, "b")])
        self.assertEqual(rows.take_all(), [(1, "a"), (2, "b")])
        out = rows.map_batches(lambda batch: {"n": numpy.array([number for number, _ in batch])})
        self.assertEqual(out.take_all(), [{"n": 1}, {"n": 2}])

    def test_what_is_kept_in_memory_stays_as_it_is(self):
        """A loop that scales its batches in place would scale them again in every epoch: batches of kept tables are read only, functions get copies."""
        values = numpy.full(8, 255.0, numpy.float32)
        ds = data.from_numpy(values)
        for batch in ds.iter_batches(batch_size=4):
            with self.assertRaisesRegex(ValueError, "read-only"):
                batch["data"] /= 255
            self.assertEqual((batch["data"] / 255).tolist(), [1.0] * 4)

        def scale(batch):
            batch["data"] /= 255
            return batch

        scaled = ds.map_batches(scale)
        for _ in range(2):
            self.assertEqual([row["data"] for row in scaled.take_all()], [1.0] * 8)
        self.assertEqual(values.tolist(), [255.0] * 8)
        for batch in data.range(8).iter_batches(batch_size=4):  # made for this batch: the loop's own
            batch["id"] += 1

    def test_generator_and_datasource(self):
        class Squares(data.Datasource):
            def prepare_read(self, parallelism, n):
                from unisono.data.datasource import ReadTask

                return [ReadTask(lambda begin=begin: [[{"x": i * i} for i in range(begin, begin + 5)]]) for begin in range(0, n, 5)]

        self.assertEqual([row["x"] for row in data.read_datasource(Squares(), n=10).take_all()], [i * i for i in range(10)])
        ds = data.from_generator(lambda: ({"i": i} for i in range(1000)))
        self.assertEqual([ds.count(), ds.count()], [1000, 1000])

    def test_statistics_while_a_source_is_let_go(self):
        """The thread that lets go of a Python source wants the GIL, and must not hold back who asks with it."""
        from unisono._unisono import Dataset
        from unisono.data import _incoming

        class Source:
            def __init__(self):
                self.left, self.ended = [_incoming.from_columns({"i": numpy.arange(3)})], False

            def __iter__(self):
                return self

            def __next__(self):
                self.ended = not self.left
                if self.ended:
                    raise StopIteration
                return self.left.pop()

            def __del__(self):
                if self.ended:  # read to its end, by a thread of the iterator
                    closing.set()
                    time.sleep(0.2)

        closing = threading.Event()
        native = Dataset.from_python(Source, [], "source", -1).iterate({"batch_size": 3, "epochs": 1})
        self.assertTrue(closing.wait(20))
        self.assertEqual(native.stats()["rows"], 0)
        self.assertEqual(native.next().num_rows, 3)
        native.close()

    def test_errors_of_functions_come_back(self):
        def bad(row):
            raise KeyError("column q")

        with self.assertRaises(KeyError):
            data.range(10).map(bad).take_all()
        with self.assertRaises(TypeError):
            data.range(10).map_batches(lambda batch: 5).take_all()
        with self.assertRaisesRegex(ValueError, "different numbers of rows"):
            data.range(10).map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take_all()
        with self.assertRaises(unisono.Error):
            data.range(10).select_columns(["nothing"])


class Formats(InDirectory):
    """Batches as people want them, and sources of their own."""

    def frame(self):
        return data.from_items([{"x": i, "name": "row %d" % i, "v": [float(i), i + 0.5]} for i in range(10)])

    def test_numpy(self):
        batch = next(self.frame().iter_batches(batch_size=4, batch_format="numpy"))
        self.assertEqual((batch["x"].tolist(), batch["v"].shape, batch["name"][3]), ([0, 1, 2, 3], (4, 2), "row 3"))
        with self.assertRaisesRegex(ValueError, "batch_format must be one of"):
            next(self.frame().iter_batches(batch_format="lists"))

    @unittest.skipIf(pandas is None, "no pandas")
    def test_pandas(self):
        frame = next(self.frame().iter_batches(batch_size=4, batch_format="pandas"))
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual((frame["x"].tolist(), frame["name"][1], frame["v"][2].tolist()), ([0, 1, 2, 3], "row 1", [2.0, 2.5]))

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_pyarrow(self):
        table = next(self.frame().iter_batches(batch_size=4, batch_format="pyarrow"))
        self.assertIsInstance(table, pyarrow.Table)
        self.assertEqual((table["x"].to_pylist(), table["name"].to_pylist()[0], table["v"].to_pylist()[1]), ([0, 1, 2, 3], "row 0", [1.0, 1.5]))
        back = data.from_arrow(pyarrow.table({"a": [1, None, 3], "s": ["x", None, "z"]}))
        self.assertEqual([row["s"] for row in back.take_all()], ["x", None, "z"])
        self.assertEqual([row["a"] for row in back.take_all()][::2], [1, 3])
        twice = data.from_arrow([pyarrow.table({"a": [1]}), pyarrow.table({"a": [2]})])
        self.assertEqual([row["a"] for row in twice.take_all()], [1, 2])

    def test_a_datasource_of_ones_own(self):
        class Squares(data.Datasource):
            def __init__(self, n):
                self.n = n

            def get_read_tasks(self, parallelism):
                return [data.ReadTask(lambda first=first: [[{"square": i * i} for i in range(first, min(first + 4, self.n))]])
                        for first in range(0, self.n, 4)]

        ds = data.read_datasource(Squares(10), parallelism=2)
        self.assertEqual([row["square"] for row in ds.take_all()], [i * i for i in range(10)])
        self.assertEqual(sorted(row["square"] for row in ds.random_shuffle(seed=1).take_all()), [i * i for i in range(10)])

        class Old(data.Datasource):
            def prepare_read(self, parallelism, count):
                return [data.ReadTask(lambda: [{"i": numpy.arange(count)}])]

        self.assertEqual(data.read_datasource(Old(), count=3).take_all(), [{"i": 0}, {"i": 1}, {"i": 2}])
        with self.assertRaisesRegex(NotImplementedError, "get_read_tasks"):
            data.read_datasource(data.Datasource())

    def test_tensor_columns(self):
        from unisono.data.extensions import TensorArray

        column = TensorArray(numpy.arange(12).reshape(3, 2, 2))
        self.assertEqual((column.shape, len(column), column[1].tolist()), ((3, 2, 2), 3, [[4, 5], [6, 7]]))
        batch = data.range(3).map_batches(lambda batch: {"image": TensorArray(numpy.ones((len(batch["id"]), 4, 4)))}).take_batch(2)
        self.assertEqual(batch["image"].shape, (2, 4, 4))
        self.assertEqual(data.range_tensor(5, shape=(2, 2)).take_batch(5)["data"].shape, (5, 2, 2))

    def test_bad_rows_are_named(self):
        path = self.path("bad.csv")
        with open(path, "w") as file:
            file.write("a,b\n1,2\n3\n4,5\n")
        with self.assertRaisesRegex(unisono.Error, r"bad\.csv:3"):
            data.read_csv(path).take_all()
        with open(path, "w") as file:
            file.write("a,b\n1,2\n3,x\n")
        with self.assertRaisesRegex(unisono.Error, r"bad\.csv:3:2"):
            data.read_csv(path, types={"b": "float64"}).take_all()
        skipped = data.read_csv(path, types={"b": "float64"}, on_error="skip")
        self.assertEqual(skipped.take_all(), [{"a": 1, "b": 2.0}])
        with self.assertRaisesRegex((unisono.Error, KeyError), "nothing"):
            data.read_csv(path).select_columns(["nothing"])


class Missing(unittest.TestCase):
    """Values that are not there, and numbers that other types cannot hold."""

    def test_whole_numbers_stay_exact(self):
        rows = data.from_items([{"a": 2 ** 60 + 1}, {"a": None}]).take()
        self.assertEqual([row["a"] for row in rows], [2 ** 60 + 1, None])
        rows = data.from_items([{"a": 1}, {"a": None}]).take()
        self.assertTrue(rows[0]["a"] == 1.0 and numpy.isnan(rows[1]["a"]))
        for items in ([2 ** 63 + 1, -1], [2 ** 60 + 1, 0.5], [2 ** 70 + 1]):
            with self.assertRaisesRegex(TypeError, "would be rounded"):
                data.from_items([{"a": item} for item in items])

    def test_what_no_column_can_hold(self):
        with self.assertRaisesRegex(TypeError, "complex"):
            data.from_numpy(numpy.array([1j]))
        with self.assertRaisesRegex(TypeError, "needs an array of rows"):
            data.from_numpy(numpy.array(3.0))
        with self.assertRaisesRegex(TypeError, "read_datasource needs a Datasource"):
            data.read_datasource(5)

    @unittest.skipUnless(pandas, "needs pandas")
    def test_pandas(self):
        frame = pandas.DataFrame({"d": pandas.to_datetime(["2020-01-01", None]), "i": pandas.array([2 ** 60 + 1, None], dtype="Int64")})
        rows = data.from_pandas(frame).take()
        self.assertEqual(rows[0], {"d": 1577836800000000000, "i": 2 ** 60 + 1})
        self.assertEqual(rows[1], {"d": None, "i": None})
        with self.assertRaisesRegex(ValueError, "two columns of the data frame are called 'a'"):
            data.from_pandas(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
        images = data.range(4).map_batches(lambda batch: pandas.DataFrame({"x": data.TensorArray(numpy.ones((len(batch), 2, 3)))}),
                                           batch_format="pandas")
        self.assertEqual(images.take_batch(4)["x"].shape, (4, 2, 3))

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_arrow(self):
        table = pyarrow.table({"l": [[1, 2], None, [3]], "t": pyarrow.array([[1.0, 2.0], None, [3.0, 4.0]], pyarrow.list_(pyarrow.float32(), 2)),
                               "h": pyarrow.array([numpy.float16(1), None, None], pyarrow.float16())})
        ds = data.from_arrow(table)
        self.assertEqual(next(iter(ds.iter_batches(batch_format="pyarrow"))).select(["l"]).to_pydict(), {"l": [[1, 2], None, [3]]})
        batch = ds.take_batch(3)
        self.assertIsNone(batch["l"][1])
        self.assertEqual(batch["t"].dtype, numpy.float32)
        self.assertTrue(numpy.isnan(batch["t"][1]).all())
        self.assertEqual(batch["h"].dtype, numpy.float16)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_arrow_of_every_kind(self):
        def rows(column):
            return [row["a"] for row in data.from_arrow(pyarrow.table({"a": column})).take_all()]

        with self.assertRaisesRegex(TypeError, "column 'a' .*missing elements of int64"):  # they were 0
            rows(pyarrow.array([[1, None], [3]]))
        with self.assertRaisesRegex(TypeError, "missing elements of int64"):
            rows(pyarrow.array([[1, None], [3, 4]], type=pyarrow.list_(pyarrow.int64(), 2)))
        numpy.testing.assert_equal(rows(pyarrow.array([[1.5, None], [3.0]]))[0], [1.5, numpy.nan])
        numpy.testing.assert_equal(rows(pyarrow.array([None, [None, 4.5]], type=pyarrow.list_(pyarrow.float64(), 2)))[1], [numpy.nan, 4.5])
        tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.arange(8).reshape(2, 2, 2))
        self.assertEqual(rows(tensors)[1].tolist(), [[4, 5], [6, 7]])
        self.assertEqual(rows(pyarrow.array([b"ab", b"cd"], type=pyarrow.binary(2))), [b"ab", b"cd"])
        self.assertEqual(rows(pyarrow.array([7], type=pyarrow.time32("s"))), [7])
        large = 10 ** 20 + 1
        self.assertEqual(rows(pyarrow.array([large], type=pyarrow.decimal128(38, 0))), [str(large)])
        self.assertEqual(rows(pyarrow.array([12], type=pyarrow.decimal128(9, 0))), [12])
        self.assertEqual(data.from_arrow(pyarrow.RecordBatch.from_pydict({"a": [1]})).take_all(), [{"a": 1}])
        with self.assertRaisesRegex(TypeError, "struct<x: int64>"):
            rows(pyarrow.array([{"x": 1}]))

    def test_gaps_in_columns_put_side_by_side(self):
        ds = data.from_items([{"a": 2 ** 60 + 1, "b": 0.1}, {"a": None, "b": 2.0}])
        self.assertTrue(numpy.isnan(ds.concat_columns(["a", "b"], "f").take()[1]["f"][0]))
        with self.assertRaisesRegex(unisono.Error, "missing values, which int64 cannot hold"):
            ds.concat_columns(["a", "b"], "f", "int64").take()
        from unisono.data.preprocessors import Concatenator

        numbers = data.from_items([{"a": 2 ** 40 + 1, "b": 0.1}])
        for dtype, expected in (("float64", [2.0 ** 40 + 1, 0.1]), ("int64", [2 ** 40 + 1, 0])):
            joined = pickle.loads(pickle.dumps(Concatenator(columns=["a", "b"], dtype=dtype)))
            self.assertEqual(joined.transform(numbers).take()[0]["concat_out"].tolist(), expected)

    def test_aggregates(self):
        ds = data.from_items([{"a": 2 ** 62, "f": 1.5, "s": "x"}] * 3 + [{"a": 1, "f": None, "s": "y"}])
        self.assertEqual(ds.sum("a"), 3 * 2 ** 62 + 1)
        self.assertEqual((ds.max("a"), ds.min("a")), (2 ** 62, 1))
        self.assertEqual((ds.sum("f"), ds.mean("f"), ds.max("f")), (4.5, 1.5, 1.5))
        self.assertAlmostEqual(data.range(10).std("id"), numpy.arange(10).std(ddof=1))
        with self.assertRaisesRegex(TypeError, "column 's' holds no numbers"):
            ds.sum("s")


if __name__ == "__main__":
    support.main()
