"""Datasets in Python without a framework: transforms, order, shards, resume, pipelines."""

import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

import cloudpickle
import numpy

import support
import unisono
from data_files import InDirectory
from unisono import data
from unisono.data._dataset import shard_of

try:
    import pandas
except ImportError:
    pandas = None


class Transforms(unittest.TestCase):
    def test_map_batches_gets_the_rows_it_asks_for(self):
        sizes = []

        def noted(batch):
            sizes.append(len(batch["id"]))
            return batch

        for batch_size in (64, 4096):  # of the loop
            sizes.clear()
            self.assertEqual(sum(len(batch["id"]) for batch in data.range(20000).map_batches(noted, batch_size=1000).iter_batches(batch_size=batch_size)), 20000)
            self.assertEqual(sizes.count(1000), 20)

    def test_rows(self):
        ds = data.range(100)
        self.assertEqual(ds.filter(lambda row: row["id"] % 2 == 0).count(), 50)
        self.assertEqual(ds.map(lambda row: {"x": row["id"] * 2}).take(2), [{"x": 0}, {"x": 2}])
        self.assertEqual(ds.flat_map(lambda row: [row] * (row["id"] % 3)).count(), 99)
        self.assertEqual(ds.limit(3).union(ds.skip(98)).take_all(), [{"id": i} for i in (0, 1, 2, 98, 99)])
        self.assertEqual(sum(part.count() for part in ds.split(3)), 100)
        self.assertEqual([part.count() for part in ds.split(3, equal=True)], [33, 33, 33])
        self.assertEqual([part.count() for part in ds.split_at_indices([10, 30])], [10, 20, 70])
        train, test = ds.train_test_split(0.2, shuffle=True, seed=1)
        self.assertEqual(sorted(row["id"] for part in (train, test) for row in part.take_all()), list(range(100)))
        self.assertEqual(test.count(), 20)
        self.assertEqual(ds.zip(ds.rename_columns({"id": "other"})).take(1), [{"id": 0, "other": 0}])
        self.assertEqual((ds.sum("id"), ds.mean("id"), ds.max("id")), (4950, 49.5, 99))
        self.assertAlmostEqual(ds.std("id"), numpy.arange(100).std(ddof=1))

    def test_aggregates_of_several_columns(self):
        """As in Ray: a number of one column, a dictionary of several; no column is left out."""
        ds = data.from_items([{"x": 1, "y": 2.5}, {"x": 3, "y": 4.5}])
        self.assertEqual((ds.sum(["x"]), ds.sum(["y", "x"]), ds.max()), (4, {"sum(y)": 7.0, "sum(x)": 4}, {"max(x)": 3, "max(y)": 4.5}))
        self.assertEqual(ds.repeat(2).sum(), {"sum(x)": 8, "sum(y)": 14.0})
        for wrong in (0, [], {}, ""):
            with self.subTest(wrong), self.assertRaises((TypeError, ValueError, KeyError, unisono.Error)):
                ds.sum(wrong)

    def test_columns(self):
        ds = data.from_numpy({"a": numpy.arange(4), "b": numpy.ones((4, 2))})
        self.assertEqual(ds.concat_columns(["a", "b"], "x").take_batch(4)["x"].tolist(), [[i, 1, 1] for i in range(4)])
        self.assertEqual(ds.cast("a", "float32").take_batch(1)["a"].dtype, numpy.float32)
        self.assertEqual(ds.add_column("c", lambda batch: batch["a"] + 1, batch_format="numpy").take(1)[0]["c"], 1)
        self.assertEqual(ds.drop_columns(["b"]).columns(), ["a"])

    def test_processes(self):
        def slow(batch):
            return {"pid": numpy.full(len(batch["id"]), os.getpid()), "id": batch["id"]}

        ds = data.range(64).map_batches(slow, batch_size=8, concurrency=2)
        rows = ds.take_all()
        self.assertEqual([row["id"] for row in rows], list(range(64)))
        self.assertNotIn(os.getpid(), {row["pid"] for row in rows})
        with self.assertRaises(ZeroDivisionError):
            data.range(4).map_batches(lambda batch: 1 / 0, concurrency=2).take_all()

    def test_a_class_is_made_once(self):
        class Add:
            made = 0

            def __init__(self, amount):
                Add.made += 1
                self.amount = amount

            def __call__(self, batch):
                return {"id": batch["id"] + self.amount}

        ds = data.range(1000).map_batches(Add, fn_constructor_args=(5,), batch_size=10)
        self.assertEqual(ds.take(1), [{"id": 5}])
        ds.take_all()
        self.assertEqual(Add.made, 1)

    def test_materialized(self):
        calls = []
        ds = data.range(10).map_batches(lambda batch: calls.append(1) or batch).materialize()
        before = len(calls)
        ds.take_all()
        self.assertEqual(len(calls), before)


class Order(unittest.TestCase):
    def ids(self, ds):
        return [row["id"] for row in ds.iter_rows()]

    def test_epochs_differ_and_repeat(self):
        ds = data.range(1000).random_shuffle(seed=7)
        first, second = self.ids(ds), self.ids(ds)
        self.assertNotEqual(first, second)
        self.assertEqual(sorted(first), list(range(1000)))
        self.assertEqual(self.ids(data.range(1000).random_shuffle(seed=7)), first)
        same = data.range(1000).shuffle(100, seed=1, reshuffle_each_iteration=False)
        self.assertEqual(self.ids(same), self.ids(same))

    def test_shards_cover(self):
        ds = data.range(103).random_shuffle(seed=2)
        whole = []
        for rank in range(4):
            shard = shard_of(ds, rank, 4)
            whole += [int(i) for batch in shard.iter_batches(batch_size=8) for i in batch["id"]]
        self.assertEqual(len(set(whole)), len(whole))
        self.assertGreaterEqual(len(whole), 100)
        steps = {len(list(shard_of(ds, rank, 4).iter_batches(batch_size=8))) for rank in range(4)}
        self.assertEqual(len(steps), 1)

    def test_pipeline(self):
        pipe = data.range(20).repeat(3).random_shuffle_each_window(seed=1)
        epochs = [self.ids(epoch) for epoch in pipe.iter_epochs()]
        self.assertEqual([sorted(epoch) for epoch in epochs], [list(range(20))] * 3)
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)
        self.assertEqual(pipe.count(), 60)
        halves = [[row["id"] for row in next(part.iter_epochs()).iter_rows()] for part in pipe.split(2)]
        self.assertEqual(sorted(halves[0] + halves[1]), list(range(20)))
        windows = data.range(100).repartition(10).window(blocks_per_window=2).repeat().random_shuffle_each_window(seed=1)
        first = self.ids(next(windows.iter_epochs()))
        self.assertEqual([sorted(first[i:i + 20]) for i in range(0, 100, 20)], [list(range(i, i + 20)) for i in range(0, 100, 20)])
        self.assertNotEqual(first, list(range(100)))

    def test_a_loader_that_was_made_before_the_epochs(self):
        ds = data.range(100).random_shuffle(seed=3)
        for loader, ids in ((ds.iter_batches(batch_size=7), lambda batch: batch["id"].tolist()), (ds.iter_rows(), lambda row: [row["id"]]), (ds, lambda row: [row["id"]])):
            epochs = [[i for each in loader for i in ids(each)] for _ in range(3)]
            for epoch in epochs:
                self.assertEqual(sorted(epoch), list(range(100)))
            self.assertNotEqual(epochs[0], epochs[1])  # each in its own order
        pipe = ds.repeat(2)
        for loader, count in ((pipe.iter_batches(batch_size=7), 30), (pipe.iter_rows(), 200)):
            self.assertEqual([len(list(loader)) for _ in range(2)], [count, count])

    def test_a_filter_that_leaves_no_rows_keeps_the_columns(self):
        base = data.range(10).map(lambda row: {"a": row["id"], "b": "x"})
        none = base.filter(lambda row: row["a"] > 100)
        for ds, want in ((none, ["a", "b"]), (none.rename_columns({"a": "c"}).filter(lambda row: True), ["c", "b"]), (none.select_columns(["b"]), ["b"]), (none.limit(3), ["a", "b"]),
                         (none.materialize(), ["a", "b"]), (none.random_shuffle(), ["a", "b"]), (none.filter(lambda row: True, concurrency=2), ["a", "b"]),
                         (none.union(base), ["a", "b"])):
            self.assertEqual(ds.columns(), want)
        self.assertEqual(list(none.take_batch(5)), ["a", "b"])
        self.assertEqual(list(none.to_numpy()), ["a", "b"])
        self.assertEqual(none.to_numpy()["a"].dtype, numpy.int64)

    def test_errors_of_functions_are_their_own(self):
        def wrong(row):
            return row.nothing

        for ds in (lambda: data.range(3).map(wrong).take_all(), lambda: data.range(3).map(wrong).rename_columns({"a": "b"}), lambda: data.range(3).map(wrong).materialize(),
                   lambda: data.range(3).filter(wrong).repartition(2).take_all(), lambda: data.from_generator(lambda: iter([wrong({})]))):
            try:
                ds()
                self.fail("no error")
            except AttributeError as error:
                self.assertEqual(str(error), "'dict' object has no attribute 'nothing'")
                self.assertIn("wrong", [frame.name for frame in traceback.extract_tb(error.__traceback__)])

    def test_std(self):
        self.assertTrue(numpy.isnan(data.range(1).std("id")))
        self.assertEqual(data.range(1).std("id", ddof=0), 0.0)
        self.assertEqual(data.range(2).std("id"), 0.5 ** 0.5)

    def test_items_with_gaps(self):
        rows = data.from_items([3, None]).take_all()
        self.assertEqual((rows[0], list(rows[1])), ({"item": 3.0}, ["item"]))
        self.assertEqual(data.from_items(["x", None]).take_all(), [{"item": "x"}, {"item": None}])
        self.assertEqual(data.from_items([None]).columns(), ["item"])

    def test_paths_that_are_not_utf_8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(os.fsencode(folder), b"caf\xe9.csv")
            with open(path, "wb") as file:
                file.write(b"a\n1\n")
            for given in (path, os.fsdecode(path), os.fsdecode(folder)):
                ds = data.read_csv(given)
                self.assertEqual((ds.take_all(), [os.fsencode(name) for name in ds.input_files()]), ([{"a": 1}], [path]))
            rows = data.read_binary_files(path, include_paths=True).take_all()
            self.assertEqual(os.fsencode(rows[0]["path"]), path)

    def test_a_pass_by_hand(self):
        loader = data.range(10).iter_batches(batch_size=4)
        self.assertEqual(next(loader)["id"].tolist(), [0, 1, 2, 3])
        self.assertEqual([batch["id"].tolist() for batch in loader], [[4, 5, 6, 7], [8, 9]])  # goes on
        self.assertEqual([len(batch["id"]) for batch in loader], [4, 4, 2])
        self.assertEqual([len(next(loader)["id"]) for _ in range(3)], [4, 4, 2])
        self.assertRaises(StopIteration, next, loader)
        self.assertEqual([len(batch["id"]) for batch in loader], [4, 4, 2])

    def test_a_worker_s_pipeline_is_read_once_and_says_so(self):
        from unisono.data._cursor import Cursor

        pipe = shard_of(data.range(10).repeat(2), 0, 1)
        pipe._shard, pipe._cursor = None, Cursor(tracked=True)
        self.assertEqual(len(list(pipe.iter_rows())), 20)
        with self.assertRaisesRegex(RuntimeError, "all 2 epochs of this pipeline were read"):
            list(pipe.iter_rows())

    def test_resume(self):
        ds = data.range(100).random_shuffle(seed=3)
        whole = self.ids(data.range(100).random_shuffle(seed=3))
        iterator = ds.iter_batches(batch_size=7)
        taken = [int(i) for _ in range(5) for i in next(iterator)["id"]]
        state = pickle.loads(pickle.dumps(ds.state_dict()))
        iterator.close()
        again = data.range(100).random_shuffle(seed=3)
        again.load_state_dict(state)
        rest = [int(i) for batch in again.iter_batches(batch_size=7) for i in batch["id"]]
        self.assertEqual(taken + rest, whole)

    def test_resume_when_one_rank_was_through(self):
        def shard(rank):
            return shard_of(data.range(1000).filter(lambda row: True), rank, 2)

        first, second = shard(0), shard(1)
        seen = self.ids(first)
        iterator = second.iter_batches(batch_size=7)
        seen += [int(i) for _ in range(5) for i in next(iterator)["id"]]
        states = pickle.loads(pickle.dumps([first.state_dict(), second.state_dict()]))
        iterator.close()
        for rank in range(2):
            again = shard(rank)
            again.load_state_dict(states)
            seen += self.ids(again)
        self.assertEqual(sorted(seen), list(range(1000)))

    def test_resume_with_a_local_shuffle(self):
        options = {"batch_size": 7, "local_shuffle_buffer_size": 20, "local_shuffle_seed": 4}
        whole = [int(i) for batch in data.range(100).iter_batches(**options) for i in batch["id"]]
        ds = data.range(100)
        iterator = ds.iter_batches(**options)
        taken = [int(i) for _ in range(5) for i in next(iterator)["id"]]
        state = ds.state_dict()
        iterator.close()
        again = data.range(100)
        again.load_state_dict(state)
        rest = [int(i) for batch in again.iter_batches(**options) for i in batch["id"]]
        self.assertEqual((taken + rest, sorted(whole)), (whole, list(range(100))))

    def test_what_cannot_be_is_refused(self):
        for size in (0, -1):
            with self.assertRaisesRegex(ValueError, "batch_size must be positive"):
                list(data.range(10).iter_batches(batch_size=size))
        with self.assertRaisesRegex(NotImplementedError, "stratify"):
            data.range(10).train_test_split(0.5, stratify="id")

    @unittest.skipIf(pandas is None, "no pandas")
    def test_to_pandas_has_a_limit(self):
        self.assertEqual(len(data.range(10).to_pandas(limit=10)), 10)
        with self.assertRaisesRegex(ValueError, "more than 9 rows"):
            data.range(10).to_pandas(limit=9)

    def test_recipe_travels(self):
        ds = data.range(50).map(lambda row: {"x": row["id"] + 1}).random_shuffle(seed=1)
        there = cloudpickle.loads(cloudpickle.dumps(ds))
        self.assertEqual(there.take_all(), ds.take_all())
        part = cloudpickle.loads(cloudpickle.dumps(data.from_numpy({"a": numpy.arange(6), "s": list("abcdef")}).split(2)[1]))
        self.assertEqual(part.take_all(), [{"a": i, "s": "abcdef"[i]} for i in (3, 4, 5)])

    def test_an_iterator_left_alone_ends_with_the_program(self):
        code = ("from unisono import data\nds = data.range(10**9).map(lambda row: row)\n"
                "it = ds.iter_batches(batch_size=10)\nnext(it)\nprint('over')")
        done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "over"), done.stderr)


class Pipelines(unittest.TestCase):
    """The spellings of Ray 1.x."""

    def test_module_paths(self):
        from unisono.data.dataset import Dataset
        from unisono.data.dataset_pipeline import DatasetPipeline

        self.assertIs(DatasetPipeline, data.DatasetPipeline)
        self.assertIs(Dataset, data.Dataset)
        self.assertIsInstance(data.range(4).repeat(2), DatasetPipeline)
        self.assertIsInstance(data.range(4).window(blocks_per_window=1), DatasetPipeline)

    def test_epochs_and_statistics(self):
        pipe = data.range(10).repeat(2)
        self.assertEqual(pipe.stats(), {})
        self.assertEqual([len(batch["id"]) for batch in pipe.iter_batches(batch_size=4)], [4, 4, 2, 4, 4, 2])
        self.assertEqual((pipe.stats()["rows"], pipe.stats()["batches"]), (10, 3))
        self.assertEqual(len(pipe.take_all()), 20)
        self.assertEqual([row["id"] for row in pipe.take(12)], list(range(10)) + [0, 1])
        with self.assertRaisesRegex(ValueError, "more than 19 rows"):
            pipe.take_all(limit=19)
        self.assertEqual((pipe.count(), pipe.sum("id"), pipe.columns()), (20, 90, ["id"]))
        endless = data.range(3).repeat()
        self.assertEqual([row["id"] for row in endless.take(7)], [0, 1, 2, 0, 1, 2, 0])
        with self.assertRaisesRegex(ValueError, "endless"):
            endless.count()
        with support.printed() as out:
            pipe.show(2)
        self.assertEqual(out.getvalue(), "{'id': 0}\n{'id': 1}\n")

    def test_transforms(self):
        pipe = data.range(10).window(blocks_per_window=1).map(lambda row: {"x": 2 * row["id"]}).filter(lambda row: row["x"] > 10).repeat(2)
        self.assertEqual([row["x"] for row in pipe.iter_rows()], [12, 14, 16, 18] * 2)
        doubled = pipe.map_batches(lambda batch: {"x": batch["x"] * 2}).rename_columns({"x": "y"}).add_column("z", lambda frame: frame["y"], batch_format="default")
        self.assertEqual(doubled.take(1), [{"y": 24, "z": 24}])
        self.assertEqual([len(part.take_all()) for part in data.range(9).repeat(2).split_at_indices([3])], [6, 12])

    def test_split(self):
        pipe = data.range(23).repeat(2).random_shuffle_each_window(seed=1)
        parts = pipe.split(2, equal=True, locality_hints=[None, None])
        batches = [[batch["id"].tolist() for batch in part.iter_batches(batch_size=4)] for part in parts]
        self.assertEqual([len(each) for each in batches], [6, 6])
        for epoch in range(2):
            ids = [i for each in batches for batch in each[3 * epoch:3 * epoch + 3] for i in batch]
            self.assertEqual(sorted(ids), list(range(23)))
        with self.assertRaisesRegex(ValueError, "as many locality_hints"):
            pipe.split(2, locality_hints=[None])
        halves = data.range(23).split(2, equal=True, locality_hints=["a", "b"])
        self.assertEqual([half.count() for half in halves], [11, 11])


class Functions(InDirectory):
    """What a user's function may do, and what becomes of it."""

    def ids(self, ds, **options):
        return [int(i) for batch in ds.iter_batches(**options) for i in batch["id"]]

    def test_functions_see_no_batches_of_no_rows(self):
        ds = data.read_csv(self.write("e.csv", "id,s\n" + "".join("%d,%s\n" % (i, "x" * 50) for i in range(5000))), block_bytes=1000)
        few = ds.filter(lambda row: row["id"] % 1000 == 7).map_batches(lambda batch: {"id": batch["id"], "most": batch["id"].max() + batch["id"] * 0})
        expected = [7, 1007, 2007, 3007, 4007]
        self.assertEqual(self.ids(few), expected)
        self.assertEqual(sorted(self.ids(few.select_columns(["id"]).random_shuffle(seed=1))), expected)
        self.assertEqual(few.materialize().count(), 5)
        doubled = ds.flat_map(lambda row: [{"id": row["id"]}] * 2 if row["id"] % 1000 == 7 else []).random_shuffle(seed=2)
        self.assertEqual(sorted(self.ids(doubled)), sorted(2 * expected))
        self.assertEqual(ds.filter(lambda row: False).columns(), ["id", "s"])

    def test_exceptions_come_through_every_transform(self):
        ds = data.range(500).map(lambda row: {"x": 1 // (row["id"] - 400)})
        for use in (lambda: ds.sum("x"), lambda: ds.select_columns(["x"]).take(500), lambda: ds.filter(lambda row: True).split(2),
                    lambda: ds.filter(lambda row: True).union(ds).count(), lambda: ds.materialize()):
            with self.assertRaises(ZeroDivisionError):
                use()
        varying = data.range(300000).map_batches(lambda batch: {"x": batch["id"] if batch["id"][0] < 1000 else batch["id"] * 0.5})
        with self.assertRaisesRegex(unisono.Error, "the same columns and types for every batch"):
            list(varying.iter_batches(batch_size=100000))

    def test_endless_epochs_of_nothing_end(self):
        self.assertEqual(list(data.range(0).repeat().iter_batches()), [])
        self.assertEqual(list(data.range(10).filter(lambda row: False).repeat().iter_rows()), [])

    def test_columns_behind_a_filter_that_leaves_no_rows(self):
        none = data.range(10).filter(lambda row: False)
        made = none.map(lambda row: {"x": row["id"] * 2, "y": 0.5})
        self.assertEqual((made.columns(), made.select_columns(["x"]).columns(), made.count(), made.take(2)), (["x", "y"], ["x"], 0, []))
        self.assertEqual(none.map_batches(lambda batch: {"z": batch["id"] * 0.5}).filter(lambda row: True).columns(), ["z"])
        self.assertEqual(none.flat_map(lambda row: [row, row]).columns(), ["id"])
        both = made.union(data.range(1).map(lambda row: {"x": 1, "y": 2.0}))
        self.assertEqual(both.take(3), [{"x": 1, "y": 2.0}])
        # A function that cannot take what the filter keeps from it: the columns are not known, and that is no error.
        unknown = none.map(lambda row: {"x": 1 // 0})
        self.assertEqual((unknown.columns(), unknown.take(1), unknown.count()), ([], [], 0))

    def test_rows_that_become_large_and_slow(self):
        import resource

        ds = data.range(100000).map_batches(lambda batch: {"image": numpy.ones((len(batch["id"]), 100, 100, 3), numpy.uint8)})
        before, rows = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
        for batch in ds.iter_batches(batch_size=64):  # 131072 rows of a task were 3.9 GB
            rows += len(batch["image"])
            if rows > 10000:
                break
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 320 << 10)
        # What limit and take read ahead of the rows that they need: 200 rows of 30 MB would be 6 GB.
        large = numpy.ones(30 << 20, numpy.uint8)
        made = (data.range(200).flat_map(lambda row: [{"x": large}]), data.range(200).filter(lambda row: True).map(lambda row: {"x": large}))
        for ds in made:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.assertEqual((ds.limit(3).count(), len(ds.take(3)), ds.count()), (3, 3, 200))
            self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 640 << 10)
        start = time.monotonic()
        next(iter(data.range(100000).map(lambda row: (time.sleep(0.002), row)[1]).iter_batches(batch_size=32)))
        next(iter(data.range(100000).filter(lambda row: (time.sleep(0.0005), True)[1]).iter_batches(batch_size=32)))
        self.assertLess(time.monotonic() - start, 15)  # it was all rows of a task: minutes

    def test_an_interrupt_ends_the_wait(self):
        program = """
import os, signal, threading, time
from unisono import data
def slow(row):
    time.sleep(0.02)
    return row
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    %s
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 10)
"""
        for use in ("list(data.range(100000).map(slow).iter_batches(batch_size=50000))", "data.range(100000).filter(slow).count()",
                    "data.range(100000).filter(slow).materialize()"):
            done = subprocess.run([sys.executable, "-c", program % use], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.stdout, "interrupted True\n", done.stderr)


if __name__ == "__main__":
    support.main()
