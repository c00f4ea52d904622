"""Shards in Python: every rank gets as many batches, each row is used once an epoch, also after a kill in its middle and with another number of workers."""

import collections
import itertools
import json
import os
import random
import signal
import tempfile
import time
import unittest

import numpy

import support
from unisono import _session, data, train
from unisono.data._dataset import shard_of
from unisono.train import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, Trainer

ROWS = 1013  # a prime


def write_csv(folder, rows=ROWS, name="rows.csv"):
    """Lines of different lengths, so that blocks have different numbers of rows; more than the 4 MiB that would be kept in memory."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write("id,text\n")
        for i in range(rows):
            file.write("%d,%s\n" % (i, "x" * (3500 + i * i % 1997)))
    return path


def lines(path):
    return data.read_csv(path, block_bytes=65536).select_columns(["id"])


def stream(rows=ROWS):
    return data.from_generator(lambda: ({"id": i} for i in range(rows)))


class Shares(unittest.TestCase):
    """In one process: all ranks one after the other, as a group in step would be."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        path = write_csv(self.folder.name)
        self.datasets = {
            "global": lambda: data.range(ROWS),
            "global, shuffled": lambda: data.range(ROWS).random_shuffle(seed=3),
            "global, map": lambda: data.range(ROWS).map(lambda row: row).random_shuffle(seed=4),
            "global, filter": lambda: data.range(2 * ROWS).filter(lambda row: row["id"] < ROWS),
            "blocks": lambda: lines(path),
            "blocks, shuffled": lambda: lines(path).random_shuffle(seed=5),
            "blocks, a buffer": lambda: lines(path).shuffle(100, seed=6),
            "blocks, filter": lambda: lines(path).union(lines(path)).filter(lambda row: True).limit(ROWS),
            "stream": stream,
            "stream, shuffled": lambda: stream().shuffle(50, seed=7),
        }

    def tearDown(self):
        self.folder.cleanup()

    def shards(self, name, count, place=None):
        out = [shard_of(self.datasets[name](), rank, count, equal=True) for rank in range(count)]
        for shard in out:
            shard._cursor.go_on(place)
        return out

    def test_kinds(self):
        kinds = {name: make()._native.shape()["kind"] for name, make in self.datasets.items()}
        self.assertEqual(kinds, {name: name.partition(",")[0].rstrip("s") for name in self.datasets})
        self.assertGreater(self.datasets["blocks"]().num_blocks(), 10)

    def test_equal_batches_and_every_row_once(self):
        for name in self.datasets:
            for workers in (2, 3, 5):
                for size in (1, 3, 64):
                    with self.subTest(dataset=name, workers=workers, batch_size=size):
                        batches = [[batch["id"].tolist() for batch in shard.iter_batches(batch_size=size)] for shard in self.shards(name, workers)]
                        self.assertEqual(len({len(each) for each in batches}), 1)
                        sizes = [len(batch) for each in batches for batch in each]
                        self.assertTrue(0 < min(sizes) and max(sizes) <= size + 1, (min(sizes), max(sizes)))
                        ids = sorted(i for each in batches for batch in each for i in batch)
                        self.assertEqual(ids, list(range(ROWS)))

    def test_drop_last_gives_whole_batches(self):
        for name in self.datasets:
            with self.subTest(dataset=name):
                batches = [[len(batch["id"]) for batch in shard.iter_batches(batch_size=16, drop_last=True)] for shard in self.shards(name, 3)]
                self.assertEqual(set(batches[0] + batches[1] + batches[2]), {16})
                self.assertEqual(len(batches[0]), ROWS // 48)
                self.assertEqual([len(each) for each in batches], [len(batches[0])] * 3)

    def test_another_number_of_workers_goes_on(self):
        """Three groups one after the other, each of which dies in the middle of the epoch; the last one ends it and begins the next."""
        chance = random.Random(5)
        for name in self.datasets:
            for trial in range(6):
                used, place = collections.Counter(), None
                counts = [chance.randint(1, 4) for _ in range(3)]
                with self.subTest(dataset=name, workers=counts):
                    for attempt, workers in enumerate(counts):
                        size, last = chance.choice((3, 8)), attempt == 2
                        shards = self.shards(name, workers, place)
                        iterators = [iter(shard.iter_batches(batch_size=size)) for shard in shards]
                        steps = 10 ** 6 if last else chance.randint(1, 30)
                        for iterator in iterators:
                            for batch in itertools.islice(iterator, steps):
                                used.update(batch["id"].tolist())
                        place = json.loads(json.dumps(shards[0].state_dict()["place"]))
                        if place["ended"]:
                            counts[-1] = workers
                            break
                    self.assertTrue(place["ended"])
                    left = [i for i in range(ROWS) if used[i] != 1]
                    self.assertLess(len(left), counts[-1])  # fewer rows than workers were left
                    self.assertTrue(all(used[i] == 0 for i in left), left)
                    again = [batch["id"].tolist() for shard in self.shards(name, 2, place) for batch in shard.iter_batches(batch_size=8)]
                    self.assertEqual(sorted(sum(again, [])), list(range(ROWS)))

    def test_the_order_does_not_depend_on_the_number_of_workers(self):
        """Batches of the global order: the same rows in each round."""
        for name in ("global, shuffled", "global, map"):
            rounds = []
            for workers in (1, 2, 4):
                shards = [list(shard.iter_batches(batch_size=16 // workers)) for shard in self.shards(name, workers)]
                rounds.append([sum((batch["id"].tolist() for batch in each), []) for each in zip(*shards)])
            self.assertEqual(rounds[0][:60], rounds[1][:60])
            self.assertEqual(rounds[0][:60], rounds[2][:60])

    def test_parts_that_nobody_asked_to_be_equal(self):
        """Rounds and streams: as many batches all the same, and none is empty; blocks: each its own."""
        for name in ("global, shuffled", "stream", "blocks"):
            parts = self.datasets[name]().repeat(1).split(3)
            batches = [[batch["id"].tolist() for batch in part.iter_batches(batch_size=16)] for part in parts]
            self.assertTrue(all(batch for each in batches for batch in each), name)
            self.assertEqual(sorted(i for each in batches for batch in each for i in batch), list(range(ROWS)), name)
            if name != "blocks":
                self.assertEqual(len({len(each) for each in batches}), 1, name)

    def test_three_workers_over_seven_blocks(self):
        """Of very different sizes, one of them empty; two workers die in the middle, three go on."""
        sizes = [1, 40, 0, 7, 300, 2, 13]
        ends = [sum(sizes[:i + 1]) for i in range(7)]
        path = os.path.join(self.folder.name, "seven.csv")
        with open(path, "w") as file:
            file.write("id,text\n")
            for block, size in enumerate(sizes):
                for i in range(size):
                    pad = max(1, (1 << 20) // size - 20)  # each block is about a MiB of the file
                    file.write("%d,%s\n" % (ends[block] - size + i, "x" * pad))
        rows = sum(sizes)
        make = lambda: data.read_csv(path, block_bytes=1 << 20).select_columns(["id"])
        counts = numpy.frombuffer(make()._native.count_blocks(), dtype=numpy.int64).tolist()
        self.assertEqual(sum(counts), rows)
        self.assertGreater(max(counts), 10 * min(counts))
        whole = [[batch["id"].tolist() for batch in shard_of(make(), rank, 3, equal=True).iter_batches(batch_size=8)] for rank in range(3)]
        self.assertEqual([len(each) for each in whole], [len(whole[0])] * 3)
        self.assertEqual(sorted(i for each in whole for batch in each for i in batch), list(range(rows)))
        before = [shard_of(make(), rank, 2, equal=True) for rank in range(2)]
        iterators = [iter(shard.iter_batches(batch_size=8)) for shard in before]  # who lets them go has left the epoch
        used = [i for iterator in iterators for batch in itertools.islice(iterator, 9) for i in batch["id"].tolist()]
        after = [shard_of(make(), rank, 3, equal=True) for rank in range(3)]
        for shard in after:
            shard.load_state_dict(before[1].state_dict())
        rest = [[batch["id"].tolist() for batch in shard.iter_batches(batch_size=8)] for shard in after]
        self.assertEqual([len(each) for each in rest], [len(rest[0])] * 3)
        self.assertEqual(sorted(used + [i for each in rest for batch in each for i in batch]), list(range(rows)))

    def test_fewer_rows_than_workers(self):
        shards = [shard_of(data.range(2), rank, 3, equal=True) for rank in range(3)]
        self.assertEqual([len(list(shard.iter_batches(batch_size=4))) for shard in shards], [0, 0, 0])

    def test_a_state_of_other_files_is_refused(self):
        shard = self.shards("global", 2)[0]
        iterator = shard.iter_batches(batch_size=8)
        next(iterator)
        other = shard_of(data.range(ROWS + 1), 0, 2, equal=True)
        other.load_state_dict(shard.state_dict())
        with self.assertRaisesRegex(RuntimeError, "1013 elements, this one has 1014"):
            next(other.iter_batches(batch_size=8))

    def test_seeds_that_nobody_gave_are_kept(self):
        from unisono.data import _recipe

        one, two = data.range(50).random_shuffle(), data.range(50).random_shuffle()
        self.assertNotEqual(one.take_all(), two.take_all())
        again = _recipe.reseeded(two, _recipe.auto_seeds(one))
        self.assertEqual(again.take_all(), data.range(50).random_shuffle(seed=_recipe.auto_seeds(one)[0]).take_all())

    def test_reading_ahead_does_not_count(self):
        shard = self.shards("blocks", 2)[0]
        made = shard._begin(batch_size=8)
        used = 0
        shard._cursor.read_ahead(lambda: used)
        for _ in range(20):
            made.next()
            shard._cursor.note()
        self.assertEqual(shard.state_dict()["place"]["taken"], 0)
        used = 13
        self.assertEqual(shard.state_dict()["place"]["taken"], 13)
        used = 20
        self.assertEqual(shard.state_dict()["place"]["taken"], 20)
        made.finish()


# ---- in workers ----


class Notes:
    """What a worker used, by attempt. What was used behind the checkpoint that the next attempt began with is lost with the attempt, and must be used again."""

    def __init__(self, config, step):
        session = _session.current().session
        self.path = os.path.join(config["folder"], "%d_%02d_%d" % (config["run"], session.attempt, session.world_rank))
        self.config, self.step = config, step
        self.write("from", step)

    def write(self, *record):
        with open(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")

    def use(self, epoch, ids):
        """One batch: the step's number. Rank `victim` is killed by SIGKILL at a step of the first attempt."""
        self.step += 1
        mark = os.path.join(self.config["folder"], "killed")
        if self.step == self.config["kill_at"] and train.world_rank() == self.config["victim"] and not os.path.exists(mark):
            with open(mark, "w"):
                pass
            self.wait_for_others(lambda records: len(records) >= self.step)
            os.kill(os.getpid(), signal.SIGKILL)
        self.write(self.step, epoch, [int(i) for i in ids])
        return self.step

    def wait_for_others(self, far_enough):
        """Until all ranks have come to this step, and what they reported is written."""
        prefix = self.path.rpartition("_")[0]
        while True:
            there = [name for name in (prefix + "_%d" % rank for rank in range(train.world_size())) if os.path.exists(name)]
            if len(there) == train.world_size() and all(far_enough(open(name).readlines()) for name in there):
                break
            time.sleep(0.01)
        time.sleep(0.3)

    def stop(self):
        """The end of the run at this step, when all ranks have come to it."""
        if self.step == self.config.get("stop_at"):
            self.wait_for_others(lambda records: len(records) > self.step)
            raise RuntimeError("stop here")


def loop(config):
    """Reports after every third batch, and at the end of an epoch."""
    shard = train.get_dataset_shard("train")
    saved = train.get_checkpoint().to_dict() if train.get_checkpoint() is not None else {"epoch": 0, "step": 0}
    notes = Notes(config, saved["step"])
    for epoch in range(saved["epoch"], config["epochs"]):
        for batch in shard.iter_batches(batch_size=config["batch_size"], **config.get("options", {})):
            step = notes.use(epoch, batch["id"])
            if step % 3 == 0:
                train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "step": step}))
                notes.stop()
        train.report({"step": notes.step}, checkpoint=Checkpoint.from_dict({"epoch": epoch + 1, "step": notes.step}))


def directory_loop(config):
    """The same with a directory as the checkpoint."""
    shard = train.get_dataset_shard("train")
    saved = {"epoch": 0, "step": 0}
    if train.get_checkpoint() is not None:
        with train.get_checkpoint().as_directory() as folder, open(os.path.join(folder, "saved")) as file:
            saved = json.load(file)
    notes = Notes(config, saved["step"])
    for epoch in range(saved["epoch"], config["epochs"]):
        for batch in shard.iter_batches(batch_size=config["batch_size"]):
            step = notes.use(epoch, batch["id"])
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "saved"), "w") as file:
                    json.dump({"epoch": epoch, "step": step}, file)
                train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder) if train.world_rank() == 0 else None)


def v1_loop(config):
    """Ray Train v1: save_checkpoint, and reports at other times."""
    shard = train.get_dataset_shard()
    saved = train.load_checkpoint() or {"epoch": 0, "step": 0}
    notes = Notes(config, saved["step"])
    for epoch in range(saved["epoch"], config["epochs"]):
        for batch in shard.iter_batches(batch_size=config["batch_size"]):
            step = notes.use(epoch, batch["id"])
            if step % 5 == 0:
                train.report(step=step)
            if step % 3 == 0:
                train.save_checkpoint(epoch=epoch, step=step)
        train.save_checkpoint(epoch=epoch + 1, step=notes.step)
    return sorted(train.load_checkpoint())


def pipeline_loop(config):
    """Seed 003's pipelines: one dataset an epoch."""
    notes = Notes(config, train.get_checkpoint().to_dict()["step"] if train.get_checkpoint() is not None else 0)
    for epoch in train.get_dataset_shard("train").iter_epochs():
        for batch in epoch.iter_batches(batch_size=config["batch_size"]):
            step = notes.use(epoch._fixed_epoch, batch["id"])
            train.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))


class InWorkers(unittest.TestCase):
    """What tests with kills need."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = write_csv(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def config(self, **more):
        out = {"folder": os.path.join(self.folder.name, "used"), "epochs": 2, "batch_size": 8, "victim": 1, "kill_at": 25, "run": 0}
        os.makedirs(out["folder"], exist_ok=True)
        out.update(more)
        return out

    def used(self, config):
        """{epoch: how often each id was used}, of what was not lost."""
        attempts = collections.defaultdict(list)
        for name in sorted(os.listdir(config["folder"])):
            if name[0].isdigit():
                with open(os.path.join(config["folder"], name)) as file:
                    attempts[name.rpartition("_")[0]].append([json.loads(line) for line in file])
        begun = [min(records[0][1] for records in attempts[key]) for key in sorted(attempts)] + [10 ** 9]
        out = collections.defaultdict(collections.Counter)
        for number, key in enumerate(sorted(attempts)):
            for records in attempts[key]:
                for step, epoch, ids in records[1:]:
                    if step <= begun[number + 1]:
                        out[epoch].update(ids)
        self.begun = begun[:-1]
        return out

    def check(self, config, epochs=2, rows=ROWS):
        used = self.used(config)
        self.assertEqual(sorted(used), list(range(epochs)))
        for epoch in range(epochs):
            wrong = {i: used[epoch][i] for i in range(rows) if used[epoch][i] != 1}
            self.assertEqual((wrong, len(used[epoch])), ({}, rows), "epoch %d" % epoch)

    def fit(self, function, dataset, config, workers=2, failures=1, checkpoint=None):
        trainer = DataParallelTrainer(function, train_loop_config=config, datasets={"train": dataset}, resume_from_checkpoint=checkpoint,
                                      scaling_config=ScalingConfig(num_workers=workers),
                                      run_config=RunConfig(failure_config=FailureConfig(max_failures=failures), verbose=0))
        return trainer.fit()

class Killed(InWorkers):
    def test_global_order(self):
        config = self.config()
        result = self.fit(loop, data.range(ROWS).random_shuffle(seed=1), config)
        self.check(config)
        self.assertTrue(os.path.exists(os.path.join(config["folder"], "killed")))
        self.assertGreater(self.begun[1], 0)  # it went on in the middle
        self.assertEqual([key for key in result.checkpoint.to_dict() if "dataset" in key], [])  # positions have a channel of their own

    def test_blocks_shuffled(self):
        config = self.config(victim=0)
        self.fit(loop, lines(self.path).random_shuffle(seed=1), config)
        self.check(config)

    def test_blocks_with_three_workers_and_a_filter(self):
        config = self.config(kill_at=13, victim=2)
        self.fit(loop, lines(self.path).filter(lambda row: row["id"] % 2 == 0), config, workers=3)
        used = self.used(config)
        for epoch in range(2):
            self.assertEqual({i: count for i, count in used[epoch].items() if count != 1}, {})
            self.assertEqual(sorted(used[epoch]), list(range(0, ROWS, 2)))

    def test_stream_and_a_function_of_batches(self):
        config = self.config(kill_at=20)
        self.fit(loop, stream().map_batches(lambda batch: {"id": batch["id"]}), config)
        self.check(config)

    def test_local_shuffle_without_a_seed(self):
        config = self.config(options={"local_shuffle_buffer_size": 100})
        self.fit(loop, data.range(ROWS), config)
        self.check(config)

    def test_directories(self):
        config = self.config(epochs=1, kill_at=40)
        self.fit(directory_loop, lines(self.path), config)
        self.check(config, epochs=1)

    def test_v1(self):
        config = self.config()
        trainer = Trainer(backend="none", num_workers=2, max_retries=1)
        trainer.start()
        keys = trainer.run(v1_loop, config=config, dataset=data.range(ROWS).random_shuffle(seed=2))
        self.assertEqual(keys[0], ["_timestamp", "epoch", "step"])
        self.assertEqual(sorted(trainer.latest_checkpoint), ["_timestamp", "epoch", "step"])
        trainer.shutdown()
        self.check(config)

    def test_pipeline(self):
        config = self.config(kill_at=90, batch_size=16)
        self.fit(pipeline_loop, lines(self.path).repeat(3).random_shuffle_each_window(), config)
        self.check(config, epochs=3)

    def test_another_number_of_workers(self):
        """A run that fails in the middle of an epoch; another one, with its own datasets and three workers, goes on."""
        for name, make in (("global", lambda: data.range(ROWS).random_shuffle()), ("blocks", lambda: lines(self.path).random_shuffle())):
            for before, after in ((2, 3), (3, 1), (1, 2)):
                with self.subTest(order=name, workers=(before, after)), tempfile.TemporaryDirectory() as folder:
                    config = self.config(folder=folder, kill_at=-1, stop_at=15)
                    with self.assertRaises(RuntimeError) as failed:
                        self.fit(loop, make(), config, workers=before, failures=0)
                    self.assertIn("stop here", str(failed.exception))
                    last = train.Result.from_path(latest_run()).checkpoint
                    self.assertEqual(last.to_dict()["step"], 15)
                    self.fit(loop, make(), dict(config, stop_at=-1, run=1), workers=after, failures=0, checkpoint=last)
                    self.check(config)


def latest_run():
    """The run directory that was made last."""
    root = os.environ["UNISONO_RESULTS"]
    runs = [os.path.join(root, name, run) for name in os.listdir(root) for run in os.listdir(os.path.join(root, name)) if run.startswith("run_")]
    return max(runs, key=os.path.getmtime)


if __name__ == "__main__":
    support.main()
