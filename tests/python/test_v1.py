"""Ray Train v1 on real workers, no framework."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import support
from unisono import train
from unisono.train import CheckpointStrategy, Trainer, TrainingCallback
from unisono.train.callbacks import JsonLoggerCallback, PrintCallback


def trainer(num_workers=2, **keywords):
    out = Trainer(backend="none", num_workers=num_workers, **keywords)
    out.start()
    return out


def report_epochs(config):
    results = []
    for epoch in range(config["num_epochs"]):
        train.report(epoch=epoch)
        results.append(epoch)
    return results


class Runs(unittest.TestCase):
    def test_returns_by_rank_and_warm_workers(self):
        def function(config):
            return config["n"], train.world_rank(), train.local_rank(), train.world_size(), os.getpid()

        group = trainer(3)
        first = group.run(function, config={"n": 1})
        second = group.run(function, config={"n": 2})
        group.shutdown()
        self.assertEqual([row[:4] for row in first], [(1, rank, rank, 3) for rank in range(3)])
        self.assertEqual([row[4] for row in first], [row[4] for row in second])

    def test_the_guide_s_config_example(self):
        group = trainer()
        self.assertEqual(group.run(report_epochs, config={"num_epochs": 2}), [[0, 1], [0, 1]])
        self.assertEqual(group.run(report_epochs, config={"num_epochs": 5}), [[0, 1, 2, 3, 4]] * 2)
        group.shutdown()

    def test_any_picklable_value_travels(self):
        class Local:
            value = 3

        offset = 10
        group = trainer(1)
        back = group.run(lambda config: (config["object"], {offset, None}), config={"object": Local()})
        group.shutdown()
        self.assertIsInstance(back[0][0], Local)
        self.assertEqual(back[0][1], {10, None})

    def test_directories(self):
        group = trainer(1, logdir="some/place")
        self.assertIsNone(group.latest_run_dir)
        self.assertEqual(group.logdir, Path(os.environ["UNISONO_RESULTS"]).resolve() / "some/place")
        group.run(lambda: None)
        group.run(lambda: None)
        self.assertEqual(group.latest_run_dir, group.logdir / "run_002")
        self.assertTrue((group.logdir / "run_001").is_dir())
        group.shutdown()

    def test_prints_arrive_with_the_rank(self):
        group = trainer()
        with support.printed() as out:
            group.run(lambda: print("hello", train.world_rank()))
        group.shutdown()
        self.assertEqual(sorted(out.getvalue().splitlines()), ["(rank 0) hello 0", "(rank 1) hello 1"])

    def test_bars_that_go_over_themselves_are_shown_once(self):
        group = trainer(1)
        with support.printed() as out:
            group.run(lambda: print("\r1/5 [=>...]" + "\b" * 11 + "\r5/5 [=====]\n 10%\r100%\nab\b\bcd"))
        group.shutdown()
        self.assertEqual(out.getvalue().splitlines(), ["(rank 0) 5/5 [=====]", "(rank 0) 100%", "(rank 0) cd"])

    def test_config_in_run_json_without_pickles(self):
        group = trainer(1)
        group.run(lambda config: None, config={"lr": 0.1, "model": Trainer})
        about = json.loads((group.latest_run_dir / "run.json").read_text())
        group.shutdown()
        self.assertEqual(about["config"], {"lr": 0.1, "model": "Trainer"})
        self.assertNotIn("attachment", about)

    def test_initialization_hook(self):
        def hook():
            os.environ["HOOKED"] = "yes"

        group = Trainer("none", 1)
        group.start(hook)
        self.assertEqual(group.run(lambda: os.environ.get("HOOKED")), ["yes"])
        group.shutdown()


class Callbacks(unittest.TestCase):
    def test_custom_callback_sees_every_report_of_all_ranks(self):
        class Record(TrainingCallback):
            def __init__(self):
                self.results, self.calls = [], []

            def start_training(self, logdir, config, **info):
                self.calls.append(("start", logdir, config))

            def handle_result(self, results):  # without **info, as v1's own tests have it
                self.results.append(results)

            def finish_training(self, error=False, **info):
                self.calls.append(("finish", error))

        record = Record()
        group = trainer()
        group.run(report_epochs, config={"num_epochs": 3}, callbacks=[record])
        self.assertEqual(record.calls, [("start", str(group.latest_run_dir), {"num_epochs": 3}), ("finish", False)])
        self.assertEqual([[row["epoch"] for row in rows] for rows in record.results], [[0, 0], [1, 1], [2, 2]])
        self.assertEqual([row["_training_iteration"] for row in record.results[2]], [3, 3])
        self.assertEqual(set(record.results[0][0]), {"epoch", "_timestamp", "_time_this_iter_s", "_training_iteration"})
        with self.assertRaises(ZeroDivisionError):
            group.run(lambda: 1 / 0, callbacks=[record])
        self.assertEqual(record.calls[-1], ("finish", True))
        group.shutdown()

    def test_an_exception_of_a_callback_ends_the_run(self):
        class Breaks(TrainingCallback):
            def handle_result(self, results, **info):
                raise LookupError("mine")

        group = trainer()
        with self.assertRaisesRegex(LookupError, "mine"):
            group.run(report_epochs, config={"num_epochs": 1000}, callbacks=[Breaks()])
        self.assertEqual(group.run(lambda: 1), [1, 1])
        group.shutdown()

    def test_print_and_json(self):
        group = trainer()
        logger = JsonLoggerCallback(workers_to_log=[0, 1])
        with support.printed() as out:
            group.run(report_epochs, config={"num_epochs": 2}, callbacks=[PrintCallback(), logger])
        written = json.loads((group.latest_run_dir / "results.json").read_text())
        group.shutdown()
        self.assertEqual([[row["epoch"] for row in rows] for rows in written], [[0, 0], [1, 1]])
        self.assertEqual(json.loads(out.getvalue()[:out.getvalue().index("\n]") + 2])[1]["epoch"], 0)

    def test_lockstep(self):
        """report returns when the callback has seen the report."""
        class Slow(TrainingCallback):
            def handle_result(self, results, **info):
                time.sleep(0.2)

        def function():
            begin = time.monotonic()
            for _ in range(3):
                train.report(x=1)
            return time.monotonic() - begin

        group = trainer()
        times = group.run(function, callbacks=[Slow()])
        group.shutdown()
        self.assertGreater(min(times), 0.5)


class Iterators(unittest.TestCase):
    def test_one_list_for_every_report(self):
        group = trainer()
        iterator = group.run_iterator(report_epochs, config={"num_epochs": 2})
        self.assertFalse(iterator.is_finished())
        self.assertIsNone(iterator.get_final_results())
        self.assertEqual([[row["epoch"] for row in rows] for rows in iterator], [[0, 0], [1, 1]])
        self.assertTrue(iterator.is_finished())
        self.assertEqual(iterator.get_final_results(), [[0, 1], [0, 1]])
        group.shutdown()

    def test_force_drains(self):
        group = trainer()
        iterator = group.run_iterator(report_epochs, config={"num_epochs": 4})
        next(iterator)
        self.assertEqual(iterator.get_final_results(force=True), [[0, 1, 2, 3]] * 2)
        group.shutdown()

    def test_exceptions_and_left_behind_iterators(self):
        def fails():
            train.report(x=1)
            raise FileNotFoundError(2, "not there", "name")

        group = trainer()
        iterator = group.run_iterator(fails)
        with self.assertRaises(FileNotFoundError) as caught:
            list(iterator)
        self.assertEqual(caught.exception.filename, "name")
        self.assertTrue(iterator.is_finished())
        self.assertIsNone(iterator.get_final_results())
        iterator = group.run_iterator(report_epochs, config={"num_epochs": 10000})
        next(iterator)
        del iterator
        self.assertEqual(group.run(lambda: 2), [2, 2])
        group.shutdown()

    def test_uneven_reports(self):
        def uneven():
            for _ in range(3 if train.world_rank() == 0 else 1):
                train.report(x=1)

        group = trainer()
        with self.assertRaises(RuntimeError):
            list(group.run_iterator(uneven))
        with self.assertRaises(RuntimeError):
            group.run(uneven)
        group.shutdown()


class Checkpoints(unittest.TestCase):
    def save(self, losses, **strategy):
        def function(config):
            for loss in config["losses"]:
                train.save_checkpoint(loss=loss, rank=train.world_rank())

        group = trainer()
        group.run(function, config={"losses": losses}, checkpoint_strategy=CheckpointStrategy(**strategy))
        group.shutdown()
        return group

    def names(self, group):
        folder = group.latest_checkpoint_dir
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def test_the_guide_s_best_two(self):
        group = self.save([2, 4, 1, 3], num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
        self.assertEqual(self.names(group), ["checkpoint_000001", "checkpoint_000003"])
        self.assertEqual(group.best_checkpoint_path.name, "checkpoint_000003")
        self.assertEqual(group.best_checkpoint["loss"], 1)
        self.assertEqual(group.latest_checkpoint["loss"], 3)
        self.assertEqual(group.latest_checkpoint["rank"], 0)
        self.assertIsInstance(group.latest_checkpoint["_timestamp"], int)

    def test_nan_is_worst(self):
        group = self.save([float("nan"), 3, 7, 5], num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
        self.assertEqual(self.names(group), ["checkpoint_000002", "checkpoint_000004"])
        self.assertEqual(group.best_checkpoint_path.name, "checkpoint_000002")

    def test_none_on_disk(self):
        group = self.save([1, 2], num_to_keep=0)
        self.assertEqual(self.names(group), [])
        self.assertEqual(group.latest_checkpoint["loss"], 2)
        self.assertIsNone(group.best_checkpoint_path)

    def test_default_keeps_all_and_the_newest_is_best(self):
        group = self.save([1, 2, 3])
        self.assertEqual(len(self.names(group)), 3)
        self.assertEqual(group.best_checkpoint_path.name, "checkpoint_000003")

    def test_load(self):
        def function(config):
            state = train.load_checkpoint()
            start = state["epoch"] + 1 if state else 0
            for epoch in range(start, config["num_epochs"]):
                train.save_checkpoint(epoch=epoch, parts=(1, {2}))
            return start

        group = trainer()
        self.assertEqual(group.run(function, config={"num_epochs": 2}), [0, 0])
        self.assertEqual(group.run(function, config={"num_epochs": 5}, checkpoint=group.latest_checkpoint), [2, 2])
        self.assertEqual(group.run(function, config={"num_epochs": 6}, checkpoint=group.best_checkpoint_path), [5, 5])
        self.assertEqual(group.latest_checkpoint["parts"], (1, {2}))
        with self.assertRaisesRegex(ValueError, "checkpoint /nowhere does not exist"):
            group.run(function, config={"num_epochs": 6}, checkpoint="/nowhere")
        group.shutdown()

    def test_a_rank_that_is_ahead_waits_for_rank_0_s_dictionary(self):
        def function():
            for epoch in range(10):
                if train.world_rank() == 0:
                    time.sleep(0.05)
                train.save_checkpoint(epoch=epoch)
                found = train.load_checkpoint()
                if found is None or found["epoch"] < epoch:
                    return epoch, found
            return "newest"

        group = trainer()
        for keep in (None, 0):
            self.assertEqual(group.run(function, checkpoint_strategy=CheckpointStrategy(num_to_keep=keep)), ["newest"] * 2)
        # Rank 0 returns without a save: nothing is waited for.
        self.assertEqual(group.run(lambda: train.save_checkpoint(x=1) or train.load_checkpoint() and 1 if train.world_rank() else 0), [0, None])
        group.shutdown()

    def test_score_attribute_that_is_not_there(self):
        for strategy, what in ((dict(checkpoint_score_attribute="acc"), "no 'acc'"), (dict(checkpoint_score_attribute="name"), "not a number")):
            group = trainer(1)
            with self.assertRaisesRegex(ValueError, what):
                group.run(lambda: train.save_checkpoint(loss=1, name="x"), checkpoint_strategy=CheckpointStrategy(num_to_keep=1, **strategy))
            group.shutdown()


class Failures(unittest.TestCase):
    def test_exceptions_keep_their_type_and_traceback(self):
        class Mine(Exception):
            def __init__(self, first, second):
                super().__init__(first, second)
                self.second = second

        def function():
            if train.world_rank() == 1:
                raise Mine("one", 2)
            time.sleep(30)

        group = trainer()
        begin = time.monotonic()
        with self.assertRaises(Mine) as caught:
            group.run(function)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual((caught.exception.args, caught.exception.second, caught.exception.rank), (("one", 2), 2, 1))
        self.assertIn('raise Mine("one", 2)', str(caught.exception.__cause__))
        self.assertFalse([name for name in os.listdir(group.latest_run_dir) if name.startswith(".")])
        self.assertEqual(group.run(lambda: 5), [5, 5])
        group.shutdown()

    def test_exceptions_that_cannot_travel(self):
        def function():
            import threading

            class Odd(Exception):
                lock = threading.Lock()  # not even the class can be pickled

            raise Odd("odd thing")

        group = trainer(1)
        with self.assertRaisesRegex(RuntimeError, "Odd: odd thing"):
            group.run(function)
        group.shutdown()

    def test_killed_workers_are_started_again_from_the_checkpoint(self):
        def function(config):
            state = train.load_checkpoint()
            start = state["epoch"] + 1 if state else 0
            for epoch in range(start, 6):
                train.save_checkpoint(epoch=epoch)
                train.report(epoch=epoch)
                if epoch == 3 and start == 0 and train.world_rank() == 1:
                    time.sleep(0.3)
                    os.kill(os.getpid(), signal.SIGKILL)
            return start

        group = trainer()
        starts = group.run(function, config={})
        self.assertGreater(min(starts), 0)
        self.assertEqual(group.latest_checkpoint["epoch"], 5)
        group.shutdown()

    def test_retries_are_counted(self):
        def function(config):
            with open(config["file"], "a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        for retries, starts in ((0, 1), (2, 3)):
            path = os.path.join(os.environ["TMPDIR"], "starts_%d" % retries)
            group = trainer(1, max_retries=retries)
            with self.assertRaisesRegex(RuntimeError, "SIGKILL|signal 9"):
                group.run(function, config={"file": path})
            self.assertEqual(os.path.getsize(path), starts)
            group.shutdown()

    def test_not_active(self):
        group = Trainer("none", 1)
        with self.assertRaisesRegex(RuntimeError, "not active"):
            group.run(lambda: None)
        group.start()
        with self.assertRaisesRegex(RuntimeError, "started already"):
            group.start()
        group.shutdown()
        with self.assertRaisesRegex(RuntimeError, "not active"):
            group.run_iterator(lambda: None)

    def test_wrong_arguments(self):
        for arguments, kind, what in (
                (dict(backend="none", num_workers=0), ValueError, "num_workers"), (dict(backend="none", num_workers=-1), ValueError, "num_workers"),
                (dict(backend="keras", num_workers=1), ValueError, "torch"), (dict(backend=5, num_workers=1), TypeError, "BackendConfig"),
                (dict(backend="none", num_workers=1, resources_per_worker={"GPU": 1}), ValueError, "use_gpu"),
                (dict(backend="none", num_workers=1, use_gpu=True, resources_per_worker={"GPU": 0}), ValueError, "use_gpu")):
            with self.assertRaisesRegex(kind, what):
                Trainer(**arguments)
        with self.assertRaises(ValueError):
            CheckpointStrategy(num_to_keep=-1)
        with self.assertRaises(ValueError):
            CheckpointStrategy(checkpoint_score_order="up")
        group = trainer(1)
        with self.assertRaisesRegex(ValueError, "0 or 1 arguments"):
            group.run(lambda a, b: None)
        with self.assertRaisesRegex(TypeError, "TrainingCallback"):
            group.run(lambda: None, callbacks=[print])
        with self.assertRaisesRegex(TypeError, "Dataset"):
            group.run(lambda: None, dataset=[1])
        group.shutdown()

    def test_keyboard_interrupt_stops_the_group(self):
        script = """
import os, sys, time
from unisono import train
from unisono.train import Trainer
def function():
    print("up", os.getpid())
    time.sleep(60)
group = Trainer("none", 2)
group.start()
try:
    group.run(function)
except KeyboardInterrupt:
    print("interrupted")
"""
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        self.assertEqual(process.wait(timeout=30), 0)
        self.assertIn("interrupted", rest)
        self.assertLess(time.monotonic() - begin, 20)
        for pid in pids:
            self.assertFalse(os.path.exists("/proc/%d" % pid))


class Outside(unittest.TestCase):
    def test_functions_warn_once_and_do_nothing(self):
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertIsNone(train.report(x=1))
                self.assertIsNone(train.save_checkpoint(x=1))
                self.assertIsNone(train.load_checkpoint())
                self.assertIsNone(train.get_dataset_shard())
        self.assertEqual(sorted(str(item.message).split("`")[1] for item in caught),
                         ["get_dataset_shard", "load_checkpoint", "report", "save_checkpoint"])
        self.assertEqual((train.world_rank(), train.local_rank(), train.world_size()), (0, 0, 1))

    def test_import_is_quick_and_small(self):
        code = "import sys; import unisono, unisono.train; print([m for m in ('numpy', 'torch', 'cloudpickle', 'pandas') if m in sys.modules])"
        out = subprocess.run([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(out.strip(), "[]")


if __name__ == "__main__":
    support.main()
