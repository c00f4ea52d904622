"""The trainers at their edges: arguments, values that cannot travel, exceptions that leave fit, runs that are finished. No framework."""

import contextlib
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import warnings

import support
import unisono
from unisono import _driver, _unisono, train
from unisono.train import (Checkpoint, CheckpointConfig, DataConfig, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig, SyncConfig, Trainer,
                           TrainingCallback)
from unisono.train.callbacks import JsonLoggerCallback, MLflowLoggerCallback, TBXLoggerCallback
from unisono.train.horovod import HorovodConfig, HorovodTrainer
from unisono.train.tensorflow import TensorflowTrainer
from unisono.train.torch import TorchConfig, TorchTrainer, prepare_model


def nothing():
    pass


def fit(function, config=None, **keywords):
    return DataParallelTrainer(function, train_loop_config=config, **keywords).fit()


@contextlib.contextmanager
def told():
    """What is written to stderr meanwhile."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        yield out


class Arguments(unittest.TestCase):
    def test_a_misspelled_argument_names_the_nearest(self):
        for call, near in ((lambda: ScalingConfig(num_worker=2), "num_workers"), (lambda: RunConfig(storage="x"), "storage_path"),
                           (lambda: FailureConfig(max_failure=2), "max_failures"), (lambda: CheckpointConfig(num_keep=2), "num_to_keep"),
                           (lambda: DataParallelTrainer(nothing, scaling_conf=None), "scaling_config"),
                           (lambda: TorchTrainer(nothing, run_conf=None), "run_config"), (lambda: TorchConfig(back_end="gloo"), "backend"),
                           (lambda: TensorflowTrainer(nothing, dataset=None), "datasets"), (lambda: HorovodTrainer(nothing, run_confg=None), "run_config"),
                           (lambda: Trainer("none", workers=2), "num_workers"), (lambda: Trainer("none").run(nothing, callback=[]), "callbacks"),
                           (lambda: Checkpoint("x").to_directory(pth="y"), "path"), (lambda: Result.from_path(pat="x"), "path"),
                           (lambda: JsonLoggerCallback(file_name="x"), "filename"), (lambda: prepare_model(model=1, move_to_devise=True), "move_to_device"),
                           (lambda: unisono.init(num_cpu=2), "num_cpus"), (lambda: train.get_dataset_shard(dataset="x"), "dataset_name")):
            with self.assertRaisesRegex(TypeError, r"got an unexpected keyword argument.*; did you mean '%s'\?" % near):
                call()

    def test_arguments_without_an_effect_are_refused_by_name(self):
        for call, name in ((lambda: unisono.init(runtime_env={"pip": ["x"]}), "init\\(runtime_env="), (lambda: unisono.init(local_mode=True), "local_mode"),
                           (lambda: unisono.init(include_dashboard=True), "include_dashboard"), (lambda: unisono.util.connect("auto", True), "positional"),
                           (lambda: unisono.util.connect("auto", secure=True), "secure"),
                           (lambda: ScalingConfig(placement_strategy="SPREAD"), "placement_strategy"),
                           (lambda: ScalingConfig(accelerator_type="A100"), "accelerator_type"), (lambda: ScalingConfig(use_tpu=True), "use_tpu"),
                           (lambda: RunConfig(log_to_file=True), "log_to_file"), (lambda: RunConfig(progress_reporter=object()), "progress_reporter"),
                           (lambda: RunConfig(worker_runtime_env={"pip": []}), "worker_runtime_env"), (lambda: SyncConfig(sync_artifacts=True), "sync_artifacts"),
                           (lambda: DataConfig(execution_options=object()), "execution_options"), (lambda: HorovodConfig(ssh_port=22), "ssh_port"),
                           (lambda: HorovodConfig(nics={"eth0"}), "nics"), (lambda: MLflowLoggerCallback(registry_uri="x"), "registry_uri"),
                           (lambda: FailureConfig(preemption_grace_s=3.0), "preemption_grace_s"),
                           (lambda: TorchTrainer(nothing, validation_config=object()), "validation_config"),
                           (lambda: DataParallelTrainer.restore("x", storage_filesystem=object()), "storage_filesystem"),
                           (lambda: DataParallelTrainer(nothing, dataset_config={"train": 1}), "dataset_config"),
                           (lambda: prepare_model(1, True, "fsdp"), "parallel_strategy='fsdp'")):
            with self.assertRaisesRegex(TypeError, name):
                call()
        with self.assertRaisesRegex(TypeError, "train_loop_config must be a dictionary, not str"):
            DataParallelTrainer(nothing, train_loop_config="x")
        with self.assertRaisesRegex(ValueError, r"CheckpointConfig\(checkpoint_frequency=5\) is not supported by DataParallelTrainer"):
            fit(nothing, run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=5)))

    def test_the_peers_defaults_ask_for_nothing(self):
        ScalingConfig(None, 2, False, None, "PACK", accelerator_type=None, use_tpu=False, label_selector=None)
        RunConfig(log_to_file="DEPRECATED", verbose="DEPRECATED", stop="DEPRECATED", sync_config="DEPRECATED", worker_runtime_env={})
        unisono.init(include_dashboard=False, ignore_reinit_error=True, logging_level="warning", runtime_env={})
        unisono.shutdown(_exiting_interpreter=False)

    def test_no_function_of_the_package_has_ignored_keywords(self):
        folder = os.path.dirname(unisono.__file__)
        found = [path for path in pathlib.Path(folder).rglob("*.py") if "**ignored" in path.read_text(encoding="utf-8")]
        self.assertEqual([path for path in found if not {"keras", "tf", "tune", "horovod", "data"}.intersection(path.parts)], [])

    def test_init_s_resources_are_what_cluster_resources_says(self):
        unisono.init(num_cpus=7, num_gpus=1, resources={"licence": 2})
        self.addCleanup(unisono.shutdown)
        self.assertEqual(unisono.cluster_resources(), {"CPU": 7.0, "GPU": 1.0, "licence": 2.0})
        unisono.shutdown()
        self.assertEqual(set(unisono.cluster_resources()), {"CPU"})

    def test_log_to_driver_false_keeps_worker_output_in_the_logs(self):
        def function():
            print("from the worker")

        unisono.init(log_to_driver=False)
        self.addCleanup(unisono.shutdown)
        with support.printed() as out:
            result = fit(function)
        self.assertEqual(out.getvalue(), "")
        with open(os.path.join(result.path, "logs", "rank_0.log"), encoding="utf-8") as file:
            self.assertIn("from the worker", file.read())

    def test_get_has_a_timeout(self):
        class Slow:
            def sleep(self, seconds):
                time.sleep(seconds)
                return seconds

            def late(self):
                raise TimeoutError("the method's own")

        group = Trainer("none", 1).to_worker_group(Slow)
        future = group[0].sleep.remote(1.5)
        with self.assertRaises(TimeoutError):
            unisono.get(future, timeout=0.1)
        self.assertEqual(unisono.get([future], timeout=60), [1.5])
        with self.assertRaisesRegex(TimeoutError, "own"):
            unisono.get(group[0].late.remote())
        group[0].sleep.remote(600)
        begin = time.monotonic()
        group.shutdown(patience_s=0.2)
        self.assertLess(time.monotonic() - begin, 60)


class Plans(unittest.TestCase):
    def test_a_plan_binds_no_port(self):
        for backend, name in (("tensorflow", "TF_CONFIG"), ("torch", "MASTER_PORT")):
            planned = _unisono.Trainer(worker_program=[sys.executable], backend=backend, num_workers=2).plan()["workers"][1]["environment"]
            self.assertIn(planned[name], ('{"cluster": {"worker": ["127.0.0.1:0", "127.0.0.1:0"]}, "task": {"type": "worker", "index": 1}}', "0"))


class Places(unittest.TestCase):
    def test_file_urls_are_paths(self):
        self.assertEqual(Checkpoint("file:///x/a%20b").path, "/x/a b")
        self.assertEqual(RunConfig(storage_path="file:///data").storage_path, "/data")
        with tempfile.TemporaryDirectory() as folder:
            result = fit(lambda: train.report({"x": 1}), run_config=RunConfig(name="u", storage_path="file://" + folder))
            self.assertTrue(result.path.startswith(folder))
            self.assertEqual(Result.from_path("file://" + result.path).metrics["x"], 1)
            self.assertTrue(DataParallelTrainer.can_restore("file://" + os.path.join(folder, "u")))

    def test_other_schemes_are_refused(self):
        for call in (lambda: Checkpoint("s3://bucket/x"), lambda: RunConfig(storage_path="gs://bucket"), lambda: Trainer("none", logdir="hdfs://x"),
                     lambda: Result.from_path("s3://x"), lambda: Checkpoint("file://host/x")):
            with self.assertRaisesRegex(ValueError, "not supported|not a path of this machine"):
                call()
        self.assertFalse(os.path.exists("s3:"))


    def test_an_empty_path_is_not_the_default(self):
        for call in (lambda: RunConfig(storage_path=""), lambda: Checkpoint(""), lambda: DataParallelTrainer.restore(""), lambda: Result.from_path("")):
            with self.assertRaisesRegex(ValueError, "is empty: give a path"):
                call()


class NothingRuns(unittest.TestCase):
    def test_generators_and_coroutines(self):
        """A train function that yields did nothing, and the run succeeded."""
        def yields(config):
            yield train.report({"loss": 1})

        async def awaits(config):
            train.report({"loss": 1})

        async def both(config):
            yield train.report({"loss": 1})

        for function, word in ((yields, "generator"), (awaits, "coroutine"), (both, "async_generator")):
            with self.assertRaisesRegex(TypeError, "has returned a %s, so nothing of it has run" % word):
                try:
                    fit(function)
                except Exception as error:
                    raise error.__cause__ or error
            trainer = Trainer(backend="none", num_workers=1)
            trainer.start()
            with self.assertRaisesRegex(TypeError, "has returned a %s" % word):
                trainer.run(function)
            trainer.shutdown()

    def test_no_workers(self):
        with self.assertRaisesRegex(ValueError, "num_workers must be a positive integer, not None"):
            ScalingConfig(num_workers=None)

    def test_empty_arguments(self):
        def loop(config):
            train.report({"keys": len(config)})

        result = fit(loop, {}, datasets={}, metadata={}, run_config=RunConfig(callbacks=[], stop={}),
                     scaling_config=ScalingConfig(num_workers=1, resources_per_worker={}))
        self.assertEqual(result.metrics["keys"], 0)


class Reports(unittest.TestCase):
    def test_checkpoint_by_position(self):
        result = fit(lambda: train.report({"x": 1}, Checkpoint.from_dict({"a": 2})))
        self.assertEqual((result.metrics["x"], result.checkpoint.to_dict()["a"]), (1, 2))
        self.assertNotIn("checkpoint", result.metrics)

    def test_ray_s_keywords_are_not_metrics(self):
        def function(config):
            try:
                train.report({"x": 1}, **config)
            except TypeError as error:
                return str(error)

        for name, value in (("checkpoint_dir_name", "best"), ("validation", True), ("checkpoint_upload_fn", len), ("losss", 3)):
            self.assertIn(name, fit(function, {name: value}).return_value)

    def test_keywords_are_metrics_in_v1(self):
        group = Trainer("none", 1)
        group.start()
        seen = list(group.run_iterator(lambda: train.report(validation=0.5, checkpoint_dir_name="a")))
        group.shutdown()
        self.assertEqual((seen[0][0]["validation"], seen[0][0]["checkpoint_dir_name"]), (0.5, "a"))


class Values(unittest.TestCase):
    def test_a_value_that_cannot_be_pickled_does_not_fail_a_finished_run(self):
        def function():
            train.report({"x": 1})
            return threading.Lock()

        with self.assertWarnsRegex(RuntimeWarning, "return value on rank 0 is lost: a lock cannot be pickled"):
            result = fit(function)
        self.assertEqual((result.metrics["x"], result.error, result.return_value), (1, None, None))
        self.assertEqual(fit(lambda: {"a": 3}).return_value, {"a": 3})
        group = Trainer("none", 2)
        group.start()
        with self.assertWarnsRegex(RuntimeWarning, "rank 1"):
            self.assertEqual(group.run(lambda: threading.Lock() if train.world_rank() else 7), [7, None])
        group.shutdown()

    def test_a_variable_that_cannot_be_pickled_is_named(self):
        lock = threading.Lock()

        def inner():
            return lock

        def outer():
            return inner()

        for function in (inner, outer):
            with self.assertRaisesRegex(TypeError, "the variable 'lock', a lock, cannot be pickled .cannot pickle '_thread.lock' object"):
                fit(function)
        with self.assertRaisesRegex(TypeError, r"config\['lock'\], a lock, cannot be pickled"):
            fit(lambda config: None, {"lock": lock})


class Loggers(unittest.TestCase):
    def test_a_subclass_of_a_logger_writes(self):
        class Named(TBXLoggerCallback):
            calls = []

            def start_training(self, logdir, config, **info):
                self.calls.append("start")

            def handle_result(self, results, **info):
                self.calls.append(results[0]["x"])
                super().handle_result(results, **info)

        class Json(JsonLoggerCallback):
            pass

        result = fit(lambda: train.report({"x": 1}), run_config=RunConfig(callbacks=[Named(), Json()]))
        self.assertEqual(Named.calls, ["start", 1])
        names = os.listdir(result.path)
        self.assertTrue(any("tfevents" in name for name in names) and "results.json" in names, names)
        group = Trainer("none", 1)
        group.start()
        logger = Json()
        group.run(lambda: train.report(x=1), callbacks=[logger])
        group.shutdown()
        self.assertTrue(logger.log_path.exists())

    def test_results_that_a_subclass_changed_are_refused(self):
        class Fewer(JsonLoggerCallback):
            def handle_result(self, results, **info):
                super().handle_result([{"y": 2}], **info)

        with self.assertRaisesRegex(NotImplementedError, "Fewer writes each report as it was reported"):
            fit(lambda: train.report({"x": 1}), run_config=RunConfig(callbacks=[Fewer()]))

    def test_exceptions_of_callbacks_reach_the_user(self):
        class Bad(TrainingCallback):
            def __init__(self, where):
                self.where, self.error = where, None

            def start_training(self, logdir, config, **info):
                if self.where == "start":
                    raise LookupError("in start")

            def handle_result(self, results, **info):
                if self.where == "handle":
                    raise LookupError("in handle")

            def finish_training(self, error=False, **info):
                self.error = error
                if self.where == "finish":
                    raise LookupError("in finish")

        for where in ("start", "handle", "finish"):
            other = Bad(None)
            try:
                fit(lambda: train.report({"x": 1}), run_config=RunConfig(callbacks=[Bad(where), other]))
                self.fail("the exception is lost")
            except LookupError as error:
                self.assertEqual(str(error), "in " + where)
                self.assertIn(where, traceback.extract_tb(error.__traceback__)[-1].name)
            self.assertEqual(other.error, where != "finish")

    def test_the_run_s_error_is_not_hidden_by_a_callback_s(self):
        class Bad(TrainingCallback):
            def finish_training(self, error=False, **info):
                raise LookupError("in finish")

        def function():
            raise KeyError("the cause")

        with told() as out, self.assertRaises(KeyError):
            group = Trainer("none", 1)
            group.start()
            try:
                group.run(function, callbacks=[Bad()])
            finally:
                group.shutdown()
        self.assertIn("LookupError: in finish", out.getvalue())


class TwoArguments(Exception):
    """Cannot be made from its args again."""

    def __init__(self, code, place):
        super().__init__("failed with %d in %s" % (code, place))
        self.code, self.place, self.lock = code, place, threading.Lock()


class Exceptions(unittest.TestCase):
    def raised(self, error):
        """What v1's run and fit raise when the function raises it."""
        def function():
            if isinstance(error, type):
                raise error(7, "there")
            raise error

        out = []
        group = Trainer("none", 1)
        group.start()
        for call in (lambda: group.run(function), lambda: fit(function)):
            try:
                call()
            except Exception as caught:
                out.append(caught)
        group.shutdown()
        return out

    def test_own_type_message_attributes_and_traceback(self):
        class Local(TwoArguments):
            pass

        for kind in (TwoArguments, Local):
            plain, failed = self.raised(kind)
            cause = failed.__cause__
            for each in (plain, cause):
                self.assertEqual((type(each).__name__, str(each), each.code, each.place, each.rank), (kind.__name__, "failed with 7 in there", 7, "there", 0))
                self.assertIn("raise error(7", str(each.__cause__))
            self.assertIn("%s: failed with 7 in there" % kind.__name__, str(failed))

    def test_sys_exit_in_a_worker_does_not_end_the_driver(self):
        for error in self.raised(SystemExit("no more")):
            self.assertIsInstance(error, unisono.Error)
            self.assertIn("SystemExit: no more", str(error))


class Interrupted(unittest.TestCase):
    def _alarm(self, **keywords):
        class Alarm(Exception):
            pass

        def handler(number, frame):
            raise Alarm("time is up")

        def function(config):
            for i in range(2000):
                train.report({"i": i})
                with open(config["file"], "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(0.05)

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        path = os.path.join(os.environ["TMPDIR"], "pid-%d" % len(keywords))
        def wait_and_alarm():
            while not os.path.exists(path) or not os.path.getsize(path):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGALRM)
        threading.Thread(target=wait_and_alarm, daemon=True).start()
        with self.assertRaisesRegex(Alarm, "time is up"):
            fit(function, {"file": path}, **keywords)
        with open(path) as file:
            worker = int(file.read())
        with self.assertRaises(ProcessLookupError):
            os.kill(worker, 0)

    def test_a_signal_handler_s_exception_ends_the_run(self):
        self._alarm()

    def test_also_with_callbacks(self):
        self._alarm(run_config=RunConfig(callbacks=[TrainingCallback()]))


class Finished(unittest.TestCase):
    def test_restore_of_a_finished_run_gives_its_result(self):
        first = fit(lambda: train.report({"x": 5}, Checkpoint.from_dict({"a": 1})), run_config=RunConfig(name="finished"))
        folder = os.path.dirname(first.path)
        self.assertTrue(DataParallelTrainer.can_restore(folder))
        with told() as out:
            again = DataParallelTrainer.restore(folder).fit()
        self.assertEqual((again.path, again.metrics["x"], again.checkpoint.to_dict()["a"], again.error), (first.path, 5, 1, None))
        self.assertIn("is finished: fit() returns its result", out.getvalue())

    def test_restore_shows_only_new_lines(self):
        flag = os.path.join(os.environ["TMPDIR"], "flag")

        def function(config):
            print("line of %s" % ("the second" if os.path.exists(config["flag"]) else "the first"))
            train.report({"x": 1}, Checkpoint.from_dict({}))
            if not os.path.exists(config["flag"]):
                raise RuntimeError("for now")

        with support.printed() as out, self.assertRaises(RuntimeError):
            fit(function, {"flag": flag}, run_config=RunConfig(name="lines"))
        self.assertIn("line of the first", out.getvalue())
        open(flag, "w").close()
        with support.printed() as out, told() as err:
            DataParallelTrainer.restore(os.path.join(os.environ["UNISONO_RESULTS"], "lines")).fit()
        self.assertIn("line of the second", out.getvalue())
        self.assertNotIn("line of the first", out.getvalue())
        self.assertRegex(err.getvalue(), "^unisono: resuming from checkpoint_000001\n$")

    def test_a_large_function_says_that_restore_needs_it(self):
        weight = bytes(40 << 20)

        def function(config):
            train.report({"size": len(weight) + config["a"]})
            raise RuntimeError("for now")

        with told() as out, self.assertRaises(RuntimeError):
            fit(function, {"a": 1}, run_config=RunConfig(name="large"))
        self.assertRegex(out.getvalue(), "warning: the train function and its config are 40 MB, too large to be saved for restore")
        folder = os.path.join(os.environ["UNISONO_RESULTS"], "large")
        self.assertTrue(DataParallelTrainer.can_restore(folder))
        with self.assertRaisesRegex(ValueError, "too large to be saved .40 MB.*train_loop_per_worker"):
            DataParallelTrainer.restore(folder)
        self.assertEqual(DataParallelTrainer.restore(folder, lambda config: train.report(config), {"a": 4}).fit().metrics["a"], 4)


class FailFast(unittest.TestCase):
    def test_no_restart(self):
        def function(config):
            with open(config["file"], "a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        for word in (True, "raise"):
            path = os.path.join(os.environ["TMPDIR"], "attempts-%s" % word)
            with self.assertRaisesRegex(unisono.Error, "signal 9"):
                fit(function, {"file": path}, run_config=RunConfig(failure_config=FAIL_FAST[word]))
            self.assertEqual(os.path.getsize(path), 1)


FAIL_FAST = {True: FailureConfig(fail_fast=True), "raise": FailureConfig(fail_fast="raise")}


class Timeouts(unittest.TestCase):
    def test_a_run_without_progress_ends(self):
        def function():
            train.report({"x": 1})
            time.sleep(600)

        with self.assertRaisesRegex(unisono.Error, r"no rank has reported for 1 s .progress_timeout."):
            fit(function, run_config=RunConfig(failure_config=FailureConfig(progress_timeout=1)))
        group = Trainer("none", 1, max_retries=0, progress_timeout=1.0)
        group.start()
        with self.assertRaisesRegex(unisono.Error, "progress_timeout"):
            group.run(function)
        group.shutdown()
        for wrong in (0, -1, "soon", True):
            with self.assertRaisesRegex(ValueError, "progress_timeout must be None or a positive number of seconds"):
                FailureConfig(progress_timeout=wrong)


class Objects(unittest.TestCase):
    def test_a_result_is_what_it_is_made_of(self):
        checkpoint, error = Checkpoint("/x"), ValueError("y")
        result = Result(metrics={"a": 1}, checkpoint=checkpoint, error=error, path="/run", metrics_dataframe="frame",
                        best_checkpoints=[(checkpoint, {"a": 1})], return_value=5)
        self.assertEqual((result.metrics, result.checkpoint, result.error, result.path), ({"a": 1}, checkpoint, error, "/run"))
        self.assertEqual((result.metrics_dataframe, result.best_checkpoints, result.return_value), ("frame", [(checkpoint, {"a": 1})], 5))
        self.assertIs(result.get_best_checkpoint(metric="a", mode="max"), checkpoint)

    def test_the_best_checkpoint_is_last_and_the_newest_is_the_result_s(self):
        def function():
            for loss in (2.0, 4.0, float("nan"), 1.0, 3.0):
                train.report({"loss": loss}, Checkpoint.from_dict({"loss": loss}))

        for order, expected in (("min", [4, 3, 2, 1]), ("max", [1, 2, 3, 4])):
            config = CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order=order)
            result = fit(function, run_config=RunConfig(checkpoint_config=config))
            for each in (result, Result.from_path(result.path)):
                self.assertEqual([metrics["loss"] for _, metrics in each.best_checkpoints][1:], expected)
                self.assertEqual(each.checkpoint.to_dict()["loss"], 3)
        plain = fit(function)
        self.assertEqual([checkpoint.to_dict()["loss"] for checkpoint, _ in plain.best_checkpoints][-2:], [1, 3])

    def test_synchronous_checkpoints_are_complete_when_report_returns(self):
        def function():
            for i in range(1, 4):
                train.report({"i": i}, Checkpoint.from_dict({"data": bytes(4 << 20)}))
                path = os.path.join(train.get_context().get_trial_dir(), "checkpoints", "checkpoint_%06d" % i, ".unisono-manifest.json")
                assert train.world_rank() > 0 or os.path.exists(path), path  # a dictionary is rank 0's

        fit(function, run_config=RunConfig(checkpoint_config=CheckpointConfig(synchronous=True)), scaling_config=ScalingConfig(num_workers=2))

    def test_metadata_of_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint.from_directory(path=folder)
            checkpoint.set_metadata(metadata={"a": 1})
            checkpoint.update_metadata(metadata={"b": 2})
            self.assertEqual(Checkpoint(folder).get_metadata(), {"a": 1, "b": 2})

    def test_a_trainer_does_not_checkpoint_by_itself(self):
        for config in (CheckpointConfig(checkpoint_frequency=2), CheckpointConfig(checkpoint_at_end=True)):
            with self.assertRaisesRegex(ValueError, "is not supported by DataParallelTrainer: the train function saves when it reports"):
                fit(nothing, run_config=RunConfig(checkpoint_config=config))


class Resources(unittest.TestCase):
    def test_memory_is_a_reservation_and_not_a_limit(self):
        def function():
            import resource

            bytes(1 << 29)
            train.report({"limit": resource.getrlimit(resource.RLIMIT_AS)[0]})

        import resource

        result = fit(function, scaling_config=ScalingConfig(resources_per_worker={"memory": 1 << 28}))
        self.assertEqual(result.metrics["limit"], resource.getrlimit(resource.RLIMIT_AS)[0])
        with self.assertRaisesRegex(unisono.Error, r'this machine has .*GiB.*resources_per_worker={"memory": ...}'):
            fit(nothing, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"memory": 1 << 50}))

    def test_the_error_names_the_argument_that_the_user_wrote(self):
        with self.assertRaisesRegex(unisono.Error, r'leave resources_per_worker={"CPU": ...} out'):
            fit(nothing, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 4096}))


class Output(unittest.TestCase):
    def test_what_the_terminal_cannot_show_is_escaped(self):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        _driver.write(stream, "before \N{SNOWMAN} after\nnext\n")
        self.assertEqual(raw.getvalue(), b"before \\u2603 after\nnext\n")

    def test_a_whole_run_with_an_ascii_terminal(self):
        script = ("import sys\n"
                  "from unisono import train\n"
                  "sys.stdout.reconfigure(encoding='ascii')\n"
                  "def function():\n"
                  "    print('one'); print('t\\u00e4st'); print('two')\n"
                  "train.DataParallelTrainer(function).fit()\n")
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.splitlines(), [b"(rank 0) one", b"(rank 0) t\\xe4st", b"(rank 0) two"])

    def test_a_user_s_atexit_handler_runs_in_the_worker(self):
        def function(config):
            import atexit
            import sys
            import types

            sys.modules.setdefault("torch", types.ModuleType("torch"))  # as if a framework were loaded
            atexit.register(lambda: open(config["file"], "w").close())

        path = os.path.join(os.environ["TMPDIR"], "atexit")
        fit(function, {"file": path})
        self.assertTrue(os.path.exists(path))

    def test_a_slow_atexit_handler_ends_before_its_worker(self):
        """Workers were killed two seconds after the run, and nothing said so."""
        def function(config):
            import atexit
            import time

            atexit.register(lambda: (time.sleep(3), open(config["file"], "w").close()))

        path = os.path.join(os.environ["TMPDIR"], "slow_atexit")
        fit(function, {"file": path})
        self.assertTrue(os.path.exists(path))

    def test_folders_of_checkpoints_end_with_their_process(self):
        """Whole models were left in the temporary directory. One that was pickled may be needed elsewhere and stays."""
        code = ("import os, pickle, sys\nfrom unisono.train import Checkpoint\none, other = Checkpoint.from_dict({'x': 1}), Checkpoint.from_dict({'x': 2})\n"
                "print(one.path, other.path)\nassert pickle.loads(pickle.dumps(other)).to_dict() == {'x': 2}\n"
                "child = os.fork()\nif child == 0:\n    sys.exit()\nos.waitpid(child, 0)\nassert one.to_dict() == {'x': 1} and os.path.isdir(one.path)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        gone, kept = done.stdout.split()
        self.addCleanup(shutil.rmtree, os.path.dirname(kept), True)
        self.assertFalse(os.path.exists(os.path.dirname(gone)))
        self.assertEqual(Checkpoint(kept).to_dict(), {"x": 2})


if __name__ == "__main__":
    warnings.simplefilter("default")
    support.main()
