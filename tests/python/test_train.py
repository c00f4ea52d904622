"""Ray Train 2.x on real workers, no framework."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support
from unisono import train
from unisono.train import (Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig, TrainingCallback,
                           TrainingFailedError)
from unisono.train.callbacks import MLflowLoggerCallback, TBXLoggerCallback

TWO = ScalingConfig(num_workers=2)


def fit(function, config=None, **keywords):
    keywords.setdefault("scaling_config", TWO)
    return DataParallelTrainer(function, train_loop_config=config, **keywords).fit()


def save_directories(config):
    checkpoint, start = train.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "state.json")) as file:
                start = json.load(file)["epoch"] + 1
    for epoch in range(start, config["num_epochs"]):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump({"epoch": epoch, "rank": train.get_context().get_world_rank()}, file)
            with open(os.path.join(folder, "rank_%d" % train.get_context().get_world_rank()), "w") as file:
                file.write("mine")
            train.report({"loss": config["losses"][epoch] if "losses" in config else 1 / (epoch + 1), "start": start},
                         checkpoint=Checkpoint.from_directory(folder))
        if config.get("die") == epoch and start == 0 and train.get_context().get_world_rank() == 1:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)


class Fit(unittest.TestCase):
    def test_metrics_are_rank_0_s(self):
        def function():
            for i in range(3):
                train.report({"i": i, "rank": train.get_context().get_world_rank()})

        result = fit(function)
        self.assertEqual((result.metrics["i"], result.metrics["rank"], result.metrics["training_iteration"]), (2, 0, 3))
        self.assertIsNone(result.error)
        self.assertIsNone(result.checkpoint)
        self.assertTrue(os.path.isdir(result.path))
        self.assertTrue(repr(result).startswith("Result(\n  metrics={"))

    def test_keys_of_any_kind(self):
        metrics = fit(lambda: train.report({1: "a", "nested": {2: (3, None)}})).metrics
        self.assertEqual((metrics["1"], metrics["nested"]), ("a", {"2": [3, None]}))

    def test_only_one_rank_reports(self):
        def function():
            if train.world_rank() == 0:
                train.report({"x": 1})

        self.assertEqual(fit(function).metrics["x"], 1)

    def test_context(self):
        def function():
            context = train.get_context()
            train.report({"size": context.get_world_size(), "local": context.get_local_rank(), "local_size": context.get_local_world_size(),
                          "node": context.get_node_rank(), "name": context.get_experiment_name(), "dir": context.get_trial_dir(),
                          "storage": context.get_storage(), "metadata": context.get_metadata(), "resources": context.get_trial_resources()})

        result = fit(function, metadata={"a": 1}, run_config=RunConfig(name="context"))
        metrics = result.metrics
        self.assertEqual((metrics["size"], metrics["local"], metrics["local_size"], metrics["node"], metrics["name"]), (2, 0, 2, 0, "context"))
        self.assertEqual((metrics["dir"], metrics["metadata"], metrics["resources"]), (result.path, {"a": 1}, {"CPU": 1}))
        self.assertEqual(metrics["storage"], os.environ["UNISONO_RESULTS"])

    def test_many_reports(self):
        def function():
            begin = time.perf_counter()
            for i in range(20000):
                train.report({"i": i, "loss": 0.5})
            return time.perf_counter() - begin

        result = fit(function)
        self.assertEqual(result.metrics["i"], 19999)

    def test_callbacks_and_loggers(self):
        class Record(TrainingCallback):
            seen = []

            def handle_result(self, results, **info):
                self.seen.append([result.get("i") for result in results])

        def function():
            for i in range(3):
                train.report({"i": i, "nested": {"x": i}})

        record = Record()
        result = fit(function, run_config=RunConfig(callbacks=[record, TBXLoggerCallback(), MLflowLoggerCallback(experiment_name="mine")]))
        self.assertEqual(record.seen, [[0, 0], [1, 1], [2, 2]])
        names = os.listdir(result.path)
        self.assertTrue(any("tfevents" in name for name in names), names)
        self.assertIn("mlruns", names)


class Directories(unittest.TestCase):
    def test_files_of_all_ranks_are_merged(self):
        result = fit(save_directories, {"num_epochs": 2})
        with result.checkpoint.as_directory() as folder:
            self.assertEqual(sorted(os.listdir(folder)), [".unisono-manifest.json", "rank_0", "rank_1", "state.json"])
            with open(os.path.join(folder, "state.json")) as file:
                self.assertEqual(json.load(file), {"epoch": 1, "rank": 0})
        self.assertEqual(len(result.best_checkpoints), 2)

    def test_resume_from_checkpoint(self):
        first = fit(save_directories, {"num_epochs": 2})
        second = fit(save_directories, {"num_epochs": 5}, resume_from_checkpoint=first.checkpoint)
        self.assertEqual((second.metrics["start"], second.metrics["training_iteration"]), (2, 3))

    def test_resume_from_a_directory_of_one_s_own(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump({"epoch": 6}, file)
            result = fit(save_directories, {"num_epochs": 8}, resume_from_checkpoint=Checkpoint(folder))
        self.assertEqual(result.metrics["start"], 7)

    def test_state_of_each_rank(self):
        def function(config):
            checkpoint = train.get_checkpoint()
            step = checkpoint.to_dict()["step"] if checkpoint else 0
            kept = train.get_state("place")
            expected = None if step == 0 else b"%d of rank %d" % (step, train.world_rank())
            assert kept == expected, (kept, expected)
            while step < 6:
                step += 1
                train.set_state("place", b"%d of rank %d" % (step, train.world_rank()))
                train.set_state("other", bytearray(b"x"))
                train.set_state("other", None)
                assert train.get_state("other") is None
                train.report({"step": step, "begun": kept is not None}, checkpoint=Checkpoint.from_dict({"step": step}))
                if step == 4 and kept is None and train.world_rank() == 1:
                    while train.load_checkpoint() is None:  # rank 0, whose dictionary counts, may not have begun
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGKILL)

        result = fit(function, run_config=RunConfig(failure_config=FailureConfig(max_failures=1), verbose=0))
        self.assertTrue(result.metrics["begun"])
        self.assertIsNone(train.get_state("place"))  # outside of a run

    def test_killed_worker(self):
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            result = fit(save_directories, {"num_epochs": 5, "die": 2}, run_config=RunConfig(failure_config=FailureConfig(max_failures=1)))
        self.assertGreater(result.metrics["start"], 0)
        self.assertRegex(told.getvalue(), r"unisono: rank 1 \(pid \d+\) was killed by signal 9.*\nunisono: restart 1 from checkpoint_00000\d\n")
        with self.assertRaisesRegex(TrainingFailedError, "rank 1"):
            fit(save_directories, {"num_epochs": 5, "die": 2})

    def test_keep_best(self):
        config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
        result = fit(save_directories, {"num_epochs": 4, "losses": [2, 4, 1, 3]}, run_config=RunConfig(checkpoint_config=config))
        self.assertEqual(sorted(metrics["loss"] for _, metrics in result.best_checkpoints), [1, 2])
        self.assertEqual(result.get_best_checkpoint("loss", "min").path, result.best_checkpoints[1][0].path)
        with self.assertRaisesRegex(RuntimeError, "accuracy"):
            result.get_best_checkpoint("accuracy", "min")
        with self.assertRaises(ValueError):
            result.get_best_checkpoint("loss", "best")

    def test_result_from_path(self):
        result = fit(save_directories, {"num_epochs": 2})
        again = Result.from_path(result.path)
        self.assertEqual(again.metrics, result.metrics)
        self.assertEqual(again.checkpoint.path, result.checkpoint.path)
        with self.assertRaises(RuntimeError):
            Result.from_path(os.environ["TMPDIR"] + "/nothing")

    def test_metadata_and_copies(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint.from_directory(folder)
            checkpoint.update_metadata({"a": 1})
            checkpoint.update_metadata({"b": 2})
            self.assertEqual(checkpoint.get_metadata(), {"a": 1, "b": 2})
            copy = checkpoint.to_directory()
            self.assertEqual(Checkpoint(copy).get_metadata(), {"a": 1, "b": 2})
            with self.assertRaisesRegex(TypeError, "as_directory"):
                os.fspath(checkpoint)
            with self.assertRaisesRegex(ValueError, "not a dictionary"):
                checkpoint.to_dict()


class Failures(unittest.TestCase):
    def test_fit_raises_what_the_loop_raised(self):
        def function():
            raise LookupError("here")

        with self.assertRaises(LookupError) as caught:
            fit(function)
        self.assertIsInstance(caught.exception, TrainingFailedError)
        self.assertIsInstance(caught.exception.__cause__, LookupError)
        self.assertIn("here", str(caught.exception))

        def conflict():
            raise OSError(5, "disk")

        with self.assertRaises(TrainingFailedError) as caught:
            fit(conflict)
        self.assertEqual(caught.exception.__cause__.errno, 5)

    def test_leaves_the_same_way_with_and_without_callbacks(self):
        """A failed run: the exception, what is on disk, and nothing that still runs."""
        class Seen(TrainingCallback):
            ends = []

            def finish_training(self, error=False, **info):
                self.ends.append(error)

        def function():
            train.report({"pid": os.getpid()})
            time.sleep(0.2)
            if train.world_rank() == 1:
                raise LookupError("here")
            time.sleep(60)

        seen = []
        for callbacks in ([], [Seen()]):
            with self.assertRaises(LookupError) as caught:
                fit(function, run_config=RunConfig(callbacks=callbacks))
            path = str(caught.exception).split(" failed: ")[0].removeprefix("the run in ")
            with open(os.path.join(path, "run.json")) as file:
                about = json.load(file)
            seen.append((str(caught.exception).split(" failed: ")[1], caught.exception.rank, about["status"], about["cause"]["class"], sorted(os.listdir(path))))
            with open(os.path.join(path, "results.jsonl")) as file:
                pids = re.findall(r'"pid":\s*(\d+)', file.read())
            self.assertEqual([os.path.exists("/proc/" + pid) for pid in pids], [False, False])
        self.assertEqual(seen[0], seen[1])
        self.assertEqual((seen[0][1:4], Seen.ends), ((1, "failed", "error"), [True]))

    def test_exception_with_too_much_in_it(self):
        """What does not fit into the message that ends the function is left out; what the user reads is not."""
        def function():
            error = ValueError("too much")
            error.data = bytes(10 << 20)
            raise error

        with self.assertRaises(TrainingFailedError) as caught:
            fit(function)
        cause = caught.exception.__cause__
        self.assertEqual(str(cause), "ValueError: too much")
        self.assertIn(cause.rank, (0, 1))
        self.assertIn("raise error", str(cause.__cause__))

    def test_wrong_arguments(self):
        for call in (lambda: ScalingConfig(num_workers=0), lambda: ScalingConfig(resources_per_worker={"GPU": 1}),
                     lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0}), lambda: CheckpointConfig(num_to_keep=0),
                     lambda: CheckpointConfig(checkpoint_score_order="best"), lambda: CheckpointConfig(checkpoint_frequency=-1),
                     lambda: FailureConfig(max_failures=-2), lambda: FailureConfig(fail_fast="yes"),
                     lambda: FailureConfig(fail_fast=True, max_failures=1), lambda: DataParallelTrainer(lambda a, b: None)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(DeprecationWarning):
            RunConfig(local_dir="x")
        with self.assertRaises(TypeError):
            DataParallelTrainer(lambda: None, resume_from_checkpoint={"a": 1})
        with self.assertRaisesRegex(ValueError, "checkpoint /not/there does not exist"):
            DataParallelTrainer(lambda: None, resume_from_checkpoint=Checkpoint("/not/there"))
        with self.assertRaisesRegex(ValueError, "checkpoint /not/there does not exist"):
            Checkpoint("/not/there").to_dict()
        with self.assertRaisesRegex(TypeError, "must be text, not 5"):
            RunConfig(name=5)
        with self.assertRaisesRegex(TypeError, "Checkpoint.from_dict"):
            fit(lambda: train.report({}, checkpoint={"a": 1}))

    def test_configurations_show_what_is_not_default(self):
        self.assertEqual(repr(ScalingConfig(num_workers=2)), "ScalingConfig(num_workers=2)")
        self.assertEqual(ScalingConfig(num_workers=3).total_resources, {"CPU": 4})
        factory = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}).as_placement_group_factory()
        self.assertEqual((factory.bundles, factory.required_resources, factory.strategy), ([{"CPU": 1}, {"CPU": 2}, {"CPU": 2}], {"CPU": 5}, "PACK"))


class Command(unittest.TestCase):
    def test_a_script_below_unisono_run(self):
        import unisono

        command = os.path.join(os.path.dirname(unisono.__file__), "../../src/cli/unisono")
        if not os.path.exists(command):
            self.skipTest("the command is not built")
        script = ("from unisono import train\n"
                  "for i in range(3):\n"
                  "    train.report({'i': i}, checkpoint=train.Checkpoint.from_dict({'i': i}))\n")
        done = subprocess.run([command, "run", "-n", "2", "--name", "below", "--", sys.executable, "-c", script], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        result = Result.from_path(os.path.join(os.environ["UNISONO_RESULTS"], "below"))
        self.assertEqual((result.metrics["i"], result.checkpoint.to_dict()["i"]), (2, 2))


class Restore(unittest.TestCase):
    def test_go_on_after_the_driver_died(self):
        script = """
import sys
sys.path.insert(0, %r)
import test_train
from unisono.train import *
def loop(config):
    import os, time
    test_train.save_directories(dict(config, num_epochs=3 if train_first(config) else 6))
    if train_first(config):
        time.sleep(60)
def train_first(config):
    import os
    return not os.path.exists(config["flag"])
DataParallelTrainer(loop, train_loop_config={"flag": %r}, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="again")).fit()
"""
        flag = os.path.join(os.environ["TMPDIR"], "second")
        process = subprocess.Popen([sys.executable, "-c", script % (os.path.dirname(os.path.abspath(__file__)), flag)])
        folder = os.path.join(os.environ["UNISONO_RESULTS"], "again")
        wanted = os.path.join(folder, "run_001/checkpoints/checkpoint_000003")
        deadline = time.monotonic() + 60
        while not os.path.exists(wanted) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
        open(flag, "w").close()
        self.assertTrue(DataParallelTrainer.can_restore(folder))
        self.assertFalse(DataParallelTrainer.can_restore(os.environ["TMPDIR"]))
        result = DataParallelTrainer.restore(folder).fit()
        self.assertEqual(result.path, os.path.join(folder, "run_001"))
        self.assertEqual((result.metrics["start"], result.metrics["training_iteration"]), (3, 6))

    def test_a_foreign_trainer_file_is_not_read(self):
        fit(save_directories, {"num_epochs": 1}, run_config=RunConfig(name="foreign"))
        folder = os.path.join(os.environ["UNISONO_RESULTS"], "foreign")
        with open(os.path.join(folder, "trainer.pkl"), "r+b") as file:
            file.write(bytes(32))
        with self.assertRaisesRegex(ValueError, "your key"):
            DataParallelTrainer.restore(folder)


if __name__ == "__main__":
    support.main()
