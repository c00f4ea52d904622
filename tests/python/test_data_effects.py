"""Datasets in Python: what each argument of Ray's changes. Every argument that is accepted is passed here, and its effect asserted."""

import importlib.util
import os
import tempfile
import unittest

import numpy

import support
from unisono import data
from unisono.data import preprocessors


def ids(batches):
    return [[int(value) for value in batch["id"]] for batch in batches]


def flat(lists):
    return [value for each in lists for value in each]


class AddNumber:
    """A class for map and its relatives: state from its constructor, and arguments of each call."""

    def __init__(self, number, more=0):
        self.number = number + more

    def __call__(self, row, factor=1, plus=0):
        return {"id": row["id"] * factor + plus + self.number}


class AddTwice(AddNumber):
    def __call__(self, row, factor=1, plus=0):
        return [super().__call__(row, factor, plus)] * 2


def where(batch):
    batch["pid"] = numpy.full(len(batch["id"]), os.getpid())
    return batch


def where_row(row):
    return [dict(row, pid=os.getpid())]


def pid_column(batch):
    return numpy.full(len(batch["id"]), os.getpid())


def not_here(row, pid):
    return os.getpid() != pid


class Batches(unittest.TestCase):
    def test_iter_batches(self):
        ds = data.range(100)
        plain = ids(ds.iter_batches(batch_size=30))
        self.assertEqual(plain, [list(range(begin, min(begin + 30, 100))) for begin in (0, 30, 60, 90)])
        self.assertEqual(ids(ds.iter_batches(batch_size=30, prefetch_batches=3)), plain)
        self.assertEqual(ids(ds.iter_batches(batch_size=30, drop_last=True)), plain[:3])
        mixed = [flat(ids(data.range(100).iter_batches(batch_size=30, local_shuffle_buffer_size=20, local_shuffle_seed=seed))) for seed in (0, 0, 1)]
        self.assertEqual(sorted(mixed[0]), list(range(100)))
        self.assertNotEqual(mixed[0], list(range(100)))
        self.assertEqual(mixed[0], mixed[1])  # 0 is a seed
        self.assertNotEqual(mixed[0], mixed[2])
        with self.assertRaisesRegex(ValueError, "prefetch_batches must be at least -1"):
            list(ds.iter_batches(prefetch_batches=-2))

    def test_take_batch(self):
        taken = data.range(5).take_batch(3, batch_format="numpy")
        self.assertEqual(taken["id"].tolist(), [0, 1, 2])
        with self.assertRaisesRegex(ValueError, "batch_format"):
            data.range(5).take_batch(3, batch_format="nothing")

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "needs pandas")
    def test_take_batch_pandas(self):
        self.assertEqual(list(data.range(5).take_batch(3, batch_format="pandas")["id"]), [0, 1, 2])


class Functions(unittest.TestCase):
    def test_arguments_of_functions(self):
        ds = data.range(3)
        out = ds.map(AddNumber, fn_args=[10], fn_kwargs={"plus": 1}, fn_constructor_args=[100], fn_constructor_kwargs={"more": 1000})
        self.assertEqual(flat(ids(out.iter_batches())), [1101, 1111, 1121])
        out = ds.map_batches(AddNumber, fn_args=[10], fn_kwargs={"plus": 1}, fn_constructor_args=[100], fn_constructor_kwargs={"more": 1000})
        self.assertEqual(flat(ids(out.iter_batches())), [1101, 1111, 1121])
        out = ds.flat_map(AddTwice, fn_args=[10], fn_kwargs={"plus": 1}, fn_constructor_args=[100], fn_constructor_kwargs={"more": 1000})
        self.assertEqual(flat(ids(out.iter_batches())), [1101, 1101, 1111, 1111, 1121, 1121])

    def test_arguments_that_cannot_be(self):
        ds = data.range(3)
        for given, words in (({"fn_kwargs": [1]}, "fn_kwargs must be a dictionary"), ({"fn_kwargs": 0}, "fn_kwargs"), ({"fn_args": "ab"}, "fn_args must be a list"),
                             ({"fn_args": 0}, "fn_args"), ({"fn_constructor_kwargs": ""}, "fn_constructor_kwargs"),
                             ({"fn_constructor_args": [1]}, "for a class"),
                             ({"fn_kwarg": {}}, "did you mean 'fn_kwargs'")):
            for method in (ds.map, ds.flat_map, ds.map_batches):
                with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                    method(lambda row: row, **given)

    def test_processes(self):
        here, two = os.getpid(), data.ActorPoolStrategy(size=2)
        ds = data.range(64, override_num_blocks=4)

        def pids(dataset):
            return {row["pid"] for row in dataset.take_all()}

        self.assertEqual(pids(ds.map_batches(where)), {here})
        self.assertEqual(pids(ds.map_batches(where, compute=data.ActorPoolStrategy(size=1))), {here})
        for strategy in (two, data.ActorPoolStrategy(min_size=1, max_size=2), data.ActorPoolStrategy(min_size=2, initial_size=2, max_tasks_in_flight_per_actor=4)):
            self.assertNotIn(here, pids(ds.map_batches(where, compute=strategy)))
        self.assertNotIn(here, pids(ds.flat_map(where_row, compute=two)))
        self.assertNotIn(here, pids(ds.flat_map(where_row, concurrency=2)))
        self.assertNotIn(here, pids(ds.add_column("pid", pid_column, batch_format="numpy", compute=two)))
        self.assertNotIn(here, pids(ds.add_column("pid", pid_column, batch_format="numpy", concurrency=2)))
        self.assertEqual(ds.filter(not_here, fn_args=[here]).count(), 0)
        self.assertEqual(ds.filter(not_here, fn_args=[here], compute=two).count(), 64)
        self.assertEqual([data.ActorPoolStrategy(min_size=2, max_size=5).size, data.ActorPoolStrategy(3).size, data.ActorPoolStrategy().size], [5, 3, 1])
        with self.assertRaisesRegex(ValueError, "size must be positive"):
            data.ActorPoolStrategy(size=0)


class Order(unittest.TestCase):
    def test_seeds_and_blocks(self):
        def order(dataset):
            return flat(ids(dataset.iter_batches()))

        ds = data.range(100)
        self.assertEqual(ds.random_shuffle(seed=1, num_blocks=7).num_blocks(), 7)
        self.assertEqual(sorted(order(ds.random_shuffle(seed=1, num_blocks=7))), list(range(100)))
        self.assertEqual(order(ds.randomize_block_order(seed=0)), order(ds.randomize_block_order(seed=0)))
        self.assertNotEqual(order(ds.randomize_block_order(seed=0)), order(ds.randomize_block_order(seed=1)))
        self.assertEqual(order(ds.repartition(4, shuffle=False)), list(range(100)))
        mixed = ds.repartition(4, shuffle=True)
        self.assertEqual((mixed.num_blocks(), sorted(order(mixed))), (4, list(range(100))))
        self.assertNotEqual(order(mixed), list(range(100)))


class WithArguments(data.Datasource):
    def prepare_read(self, parallelism, rows):
        return [data.ReadTask(lambda: [[{"id": each} for each in range(rows)]], metadata=None, schema=None)]


class Modern(data.Datasource):
    def __init__(self, rows=1):
        self.rows = rows

    def get_read_tasks(self, parallelism):
        return [data.ReadTask(lambda: [[{"id": each} for each in range(self.rows)]])]


class Sources(unittest.TestCase):
    def test_datasources(self):
        self.assertEqual(data.read_datasource(WithArguments(), rows=3, num_cpus=1).count(), 3)
        self.assertEqual(data.read_datasource(Modern(2)).count(), 2)
        self.assertEqual(data.read_datasource(Modern, rows=4).count(), 4)
        for source, given, words in ((Modern(2), {"rows": 3}, "'rows'.*constructor"), (WithArguments(), {"rows": 1, "row": 3}, "'row'"),
                                     (Modern(2), {"runtime_env": {"pip": []}}, r"runtime_env=.*environment")):
            with self.assertRaisesRegex(TypeError, words):
                data.read_datasource(source, **given)
        self.assertEqual(data.read_datasource(Modern(2), runtime_env=None).count(), 2)

    def test_names_of_ray(self):
        self.assertEqual(data.from_numpy(ndarrays=numpy.arange(3), column="x").columns(), ["x"])
        with self.assertRaisesRegex(TypeError, "did you mean 'column'"):
            data.from_numpy(numpy.arange(3), colum="x")

    def test_from_huggingface(self):
        class Rows:  # what datasets.Dataset has
            def __len__(self):
                return 3

            def __getitem__(self, index):
                return {"id": index * 2}

        self.assertEqual([row["id"] for row in data.from_huggingface(dataset=Rows()).take_all()], [0, 2, 4])

    def test_lines_of_json(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("lines.json", '{"id": 1}\n{"id": 2}\n'), ("list.json", '[{"id": 1}, {"id": 2}]')):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                for lines in (True, False):
                    self.assertEqual([row["id"] for row in data.read_json(path, lines=lines).take_all()], [1, 2])


class OutputColumns(unittest.TestCase):
    """output_columns: the new values are in columns of their own, and the old ones stay."""

    def check(self, preprocessor, rows, expected, made="new"):
        ds = data.from_items(rows)
        out = (preprocessor.fit_transform(ds) if preprocessor._is_fittable else preprocessor.transform(ds)).take_all()
        old = list(rows[0])
        self.assertEqual([[row[name] for name in old] for row in out], [[row[name] for name in old] for row in rows])
        got = [row[made].tolist() if hasattr(row[made], "tolist") else row[made] for row in out]
        numpy.testing.assert_allclose(got, expected, rtol=1e-6)

    def test_numbers(self):
        rows = [{"x": -4.0}, {"x": 0.0}, {"x": 2.0}]
        self.check(preprocessors.MinMaxScaler(["x"], output_columns=["new"]), rows, [0, 2 / 3, 1])
        self.check(preprocessors.MaxAbsScaler(["x"], output_columns=["new"]), rows, [-1, 0, 0.5])
        both = [{"x": 3.0, "y": 4.0}, {"x": 0.0, "y": 2.0}]
        self.check(preprocessors.Normalizer(["x", "y"], output_columns=["new", "other"]), both, [0.6, 0])
        self.check(preprocessors.Normalizer(["x", "y"], output_columns=["new", "other"]), both, [0.8, 1], "other")

    def test_missing(self):
        ds = data.from_numpy({"x": numpy.array([1.0, numpy.nan, 3.0])})
        out = preprocessors.SimpleImputer(["x"], output_columns=["new"]).fit_transform(ds).take_batch(3)
        self.assertEqual(out["new"].tolist(), [1, 2, 3])
        self.assertTrue(numpy.isnan(out["x"][1]))

    def test_categories(self):
        rows = [{"x": "b"}, {"x": "a"}, {"x": "b"}]
        self.check(preprocessors.OrdinalEncoder(["x"], output_columns=["new"]), rows, [1, 0, 1])
        self.check(preprocessors.OneHotEncoder(["x"], output_columns=["new"]), rows, [[0, 1], [1, 0], [0, 1]])
        self.check(preprocessors.Tokenizer(["x"], output_sequence_length=2, output_columns=["new"]), rows, [[2, 0], [3, 0], [2, 0]])
        with self.assertRaisesRegex(TypeError, r"encode_lists=False\) is not supported"):
            preprocessors.OrdinalEncoder(["x"], encode_lists=False)


if __name__ == "__main__":
    support.main()
