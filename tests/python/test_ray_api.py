"""Every name, import path and error that users of Ray's documents rely on, without a framework. What needs one is in test_frameworks.py."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tempfile
import unittest

import support
from unisono import train
from unisono.train import (Checkpoint, CheckpointConfig, CheckpointStrategy, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig,
                           Trainer, TrainingCallback)
from unisono.train.callbacks import JsonLoggerCallback, MLflowLoggerCallback, TBXLoggerCallback, TrainCallbackLogdirManager
from unisono.train.callbacks import results_preprocessors as preprocessors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python", "unisono")
OTHERS = ()
NOT_PUBLIC = ("_driver.py", "_template.py", "_worker.py", "train/_horovod_worker.py", "train/tensorflow/_worker.py", "train/torch/_worker.py")  # start-up

# module -> names, as the documents and the examples that they include write them (below ray, and below unisono).
PATHS = {
    "": "init is_initialized shutdown train tune air data util",
    "train": "Trainer TrainingCallback CheckpointStrategy TrainingIterator report save_checkpoint load_checkpoint world_rank local_rank world_size "
             "get_dataset_shard ScalingConfig RunConfig FailureConfig CheckpointConfig SyncConfig DataConfig Checkpoint Result get_context get_checkpoint "
             "TrainContext BackendConfig Backend torch tensorflow horovod",
    "train.trainer": "Trainer TrainingIterator",
    "train.backend": "Backend BackendConfig",
    "train.base_trainer": "BaseTrainer TrainingFailedError",
    "train.checkpoint": "CheckpointStrategy CheckpointManager",
    "train.constants": "TRAINING_ITERATION ENABLE_DETAILED_AUTOFILLED_METRICS_ENV",
    "train.session": "get_accelerator set_accelerator report",
    "train.error": "SessionMisuseError",
    "train.callbacks": "TrainingCallback PrintCallback JsonLoggerCallback TBXLoggerCallback MLflowLoggerCallback TorchTensorboardProfilerCallback "
                       "TrainCallbackLogdirManager",
    "train.callbacks.results_preprocessors": "ResultsPreprocessor IndexedResultsPreprocessor ExcludedKeysResultsPreprocessor SequentialResultsPreprocessor "
                                             "AverageResultsPreprocessor MaxResultsPreprocessor WeightedAverageResultsPreprocessor",
    "train.data_parallel_trainer": "DataParallelTrainer",
    "train.torch": "TorchTrainer TorchConfig TorchCheckpoint prepare_model prepare_data_loader get_device",
    "train.tensorflow": "TensorflowTrainer TensorflowConfig TensorflowCheckpoint prepare_dataset_shard",
    "train.tensorflow.keras": "",
    "train.horovod": "HorovodTrainer HorovodConfig",
    "air": "session Checkpoint ScalingConfig RunConfig FailureConfig CheckpointConfig Result",
    "air.session": "report get_checkpoint get_world_size get_world_rank get_local_rank get_dataset_shard",
    "air.result": "Result",
    "air.checkpoint": "Checkpoint",
    "air.config": "ScalingConfig RunConfig FailureConfig CheckpointConfig",
    "air.integrations.keras": "",
    "air.integrations.mlflow": "MLflowLoggerCallback",
    "tune": "run Tuner TuneConfig ResultGrid grid_search choice uniform loguniform report",
    "tune.integration.mlflow": "MLflowLoggerCallback",
    "tune.logger": "TBXLoggerCallback",
    "util": "connect sgd",
    "util.sgd.tf": "TFTrainer TFTrainable",
    "util.sgd.tf.tf_trainer": "TFTrainer TFTrainable",
}
NEEDS_NUMPY = {"data": "from_items read_csv read_parquet Dataset", "data.dataset_pipeline": "DatasetPipeline"}

# Methods, properties and arguments: class -> names.
MEMBERS = {
    "train.Trainer": "start run run_iterator shutdown to_tune_trainable to_worker_group create_logdir create_run_dir load_checkpoint logdir latest_run_dir "
                     "latest_checkpoint_dir latest_checkpoint best_checkpoint_path best_checkpoint checkpoint_manager load_checkpoint_from_path",
    "train.TrainingIterator": "is_finished get_final_results",
    "train.TrainingCallback": "start_training process_results handle_result finish_training results_preprocessor RESERVED_KEYS",
    "train.callbacks.JsonLoggerCallback": "logdir log_path",
    "train.TrainContext": "get_experiment_name get_world_size get_world_rank get_local_rank get_local_world_size get_node_rank get_storage get_metadata "
                          "get_trial_name get_trial_id get_trial_resources get_trial_dir get_dataset_shard",
    "train.Checkpoint": "from_directory to_directory as_directory get_metadata set_metadata update_metadata from_dict to_dict path filesystem",
    "train.Result": "from_path get_best_checkpoint metrics_dataframe best_checkpoints config log_dir filesystem",
    "train.ScalingConfig": "total_resources num_cpus_per_worker num_gpus_per_worker additional_resources_per_worker as_placement_group_factory",
    "train.DataParallelTrainer": "fit restore can_restore",
    "train.tensorflow.TensorflowCheckpoint": "from_model from_h5 from_saved_model get_model",
    "train.torch.TorchCheckpoint": "from_model from_state_dict get_model",
    "tune.ResultGrid": "get_best_result get_dataframe num_errors num_terminated errors",
    "tune.Tuner": "fit restore",
    "util.sgd.tf.TFTrainer": "train validate get_model save restore shutdown",
    "util.sgd.tf.TFTrainable": "setup step save_checkpoint load_checkpoint cleanup",
}


def look_up(dotted):
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module("unisono." + module), name)


class Names(unittest.TestCase):
    def paths(self):
        out = dict(PATHS)
        if importlib.util.find_spec("numpy"):
            out.update(NEEDS_NUMPY)
        return out

    def test_every_import_path_below_unisono(self):
        for module, names in self.paths().items():
            module = {"data.dataset_pipeline": "data._pipeline"}.get(module, module)
            found = importlib.import_module("unisono" + ("." + module if module else ""))
            for name in names.split():
                self.assertTrue(hasattr(found, name), "%s.%s" % (module, name))

    def test_every_import_path_below_ray(self):
        lines = ["import ray"]
        for module, names in self.paths().items():
            where = "ray" + ("." + module if module else "")
            lines += ["import " + where] + (["from %s import %s" % (where, ", ".join(names.split()))] if names else [])
        lines += ["import unisono.train", "assert ray.train is unisono.train and ray.train.Trainer is unisono.train.Trainer", "print('all')"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("\n".join(lines))
            done = subprocess.run([sys.executable, "-m", "unisono.ray", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "all"), done.stdout)

    def test_every_member(self):
        for dotted, names in MEMBERS.items():
            kind = look_up(dotted)
            for name in names.split():
                self.assertTrue(hasattr(kind, name), "%s.%s" % (dotted, name))

    def test_the_page_maps_them(self):
        page = ""
        for name in ("coming-from-ray.md", "ray-v1.md", "ray-air.md", "ray-sgd.md"):
            with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
                page += file.read()
        public = {name for names in PATHS.values() for name in names.split() if not name.islower() and not name.isupper()} - {"SessionMisuseError"}
        public |= {name for names in MEMBERS.values() for name in names.split()} - {"RESERVED_KEYS"}
        missing = sorted(name for name in public if not re.search(r"\b%s\b" % name, page))
        self.assertEqual(missing, [])

    def test_what_is_not_offered_says_what_is(self):
        for dotted, what in (("remote", "train function"), ("put", "object store"), ("train.Trainr", "unisono.train.Trainer"),
                             ("train.torch.TorchPredictor", "TorchCheckpoint.get_model"), ("air.ScalingConfg", "ScalingConfig"),
                             ("util.conect", "unisono.util.connect"), ("train.tensorflow.prepare_dataset", "prepare_dataset_shard")):
            module, _, name = ("unisono." + dotted).rpartition(".")
            with self.assertRaises(AttributeError) as caught:
                getattr(importlib.import_module(module), name)
            self.assertIn("unisono." + dotted, str(caught.exception))
            self.assertIn(what, str(caught.exception))
        code = "from unisono import ray; ray.install()\nimport ray.train.xgboost"
        done = subprocess.run([sys.executable, "-c", code], text=True, stderr=subprocess.PIPE, check=False)
        self.assertIn("ray.train.xgboost", done.stderr)
        self.assertIn("DataParallelTrainer", done.stderr)


def nothing():
    pass


class Errors(unittest.TestCase):
    """The errors of the API's description, with what they say."""

    def test_wrong_arguments(self):
        for call, kind, what in (
                (lambda: Trainer("none", 0), ValueError, "num_workers.*positive"),
                (lambda: Trainer("jax", 1), ValueError, "'jax'.*horovod.*tensorflow.*torch"),
                (lambda: Trainer(7, 1), TypeError, "BackendConfig, not int"),
                (lambda: Trainer("none", 1, resources_per_worker={"GPU": 1}), ValueError, "use_gpu.*False"),
                (lambda: Trainer("none", 1, use_gpu=True, resources_per_worker={"GPU": 0}), ValueError, "use_gpu.*True"),
                (lambda: Trainer("none", 1, resources_per_worker={"TPU": 1}), ValueError, "CPU, GPU and memory, not TPU"),
                (lambda: CheckpointStrategy(num_to_keep=-1), ValueError, "num_to_keep.*-1"),
                (lambda: CheckpointStrategy(num_to_keep="two"), ValueError, "num_to_keep.*'two'"),
                (lambda: CheckpointStrategy(checkpoint_score_order="best"), ValueError, "max.*min.*'best'"),
                (lambda: ScalingConfig(num_workers=0), ValueError, "num_workers"),
                (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), ValueError, "use_gpu"),
                (lambda: FailureConfig(max_failures=-2), ValueError, "-1 or more"),
                (lambda: FailureConfig(fail_fast="maybe"), ValueError, "fail_fast.*'maybe'"),
                (lambda: FailureConfig(fail_fast=True, max_failures=2), ValueError, "fail_fast needs max_failures=0"),
                (lambda: CheckpointConfig(num_to_keep=0), ValueError, "at least 1"),
                (lambda: CheckpointConfig(checkpoint_frequency=-1), ValueError, "checkpoint_frequency"),
                (lambda: CheckpointConfig(checkpoint_score_order="up"), ValueError, "'up'"),
                (lambda: RunConfig(local_dir="x"), DeprecationWarning, "storage_path"),
                (lambda: RunConfig(storage_filesystem=object()), TypeError, "storage_path"),
                (lambda: DataParallelTrainer(lambda a, b: None), ValueError, "0 or 1 arguments"),
                (lambda: DataParallelTrainer(nothing, datasets=[1]), TypeError, 'dictionary such as {"train": dataset}, not list'),
                (lambda: DataParallelTrainer(nothing, datasets={"train": 1}).fit(), TypeError, "'train' must be a Dataset.*not int"),
                (lambda: DataParallelTrainer(nothing, run_config=5), TypeError, "RunConfig"),
                (lambda: DataParallelTrainer(nothing, resume_from_checkpoint="x"), TypeError, "Checkpoint, not str"),
                (lambda: DataParallelTrainer.restore("/nowhere"), ValueError, "nothing can be restored"),
                (lambda: Result.from_path("/nowhere"), RuntimeError, "not a run directory"),
                (lambda: Checkpoint.from_dict([1]), TypeError, "dictionary, not list"),
                (lambda: os.fspath(Checkpoint("/tmp")), TypeError, "as_directory"),
                (lambda: preprocessors.IndexedResultsPreprocessor("a"), TypeError, "'a'"),
                (lambda: preprocessors.IndexedResultsPreprocessor([]), ValueError, "empty"),
                (lambda: preprocessors.IndexedResultsPreprocessor(["a"]), TypeError, "integers"),
                (lambda: JsonLoggerCallback(workers_to_log="a"), TypeError, "'a'"),
                (lambda: TBXLoggerCallback(worker_to_log="a"), TypeError, "worker_to_log"),
                (lambda: TBXLoggerCallback(worker_to_log=-1), ValueError, "negative"),
                (lambda: TrainCallbackLogdirManager().logdir_path, RuntimeError, "not known before training")):
            with self.assertRaisesRegex(kind, what):
                call()

    def test_two_ways_to_give_the_backend(self):
        from unisono.train.tensorflow import TensorflowConfig, TensorflowTrainer
        from unisono.train.torch import TorchConfig

        with self.assertRaisesRegex(ValueError, "only one of tensorflow_config and tensorflow_backend"):
            TensorflowTrainer(nothing, tensorflow_config=TensorflowConfig(), tensorflow_backend=TensorflowConfig())
        with self.assertRaisesRegex(ValueError, "env.*tcp.*'file'"):
            TorchConfig(init_method="file")

    def test_before_start_and_after_shutdown(self):
        trainer = Trainer("none", 1)
        for state in ("never started", "shut down"):
            with self.assertRaisesRegex(RuntimeError, "not active.*start"):
                trainer.run(nothing)
            trainer.start()
            for call in (trainer.to_worker_group, trainer.to_tune_trainable):  # while it is started
                with self.assertRaisesRegex(RuntimeError, "not started"):
                    call(nothing)
            trainer.shutdown()
        with self.assertRaisesRegex(TypeError, "needs a class"):
            trainer.to_worker_group(nothing)
        with self.assertRaisesRegex(TypeError, "CheckpointStrategy, not int"):
            trainer.start()
            try:
                trainer.run(nothing, checkpoint_strategy=5)
            finally:
                trainer.shutdown()

    def test_a_file_in_the_place_of_a_directory(self):
        with tempfile.NamedTemporaryFile() as file:
            with self.assertRaises(FileExistsError):
                TrainCallbackLogdirManager(file.name).setup_logdir("/tmp")

    def test_datasets_by_name(self):
        if not importlib.util.find_spec("numpy"):
            self.skipTest("numpy is not installed")
        from unisono import data

        def asks():
            from unisono import train as here

            here.get_dataset_shard()

        trainer = Trainer("none", 1)
        trainer.start()
        with self.assertRaisesRegex(RuntimeError, "say which one"):
            trainer.run(asks, dataset={"a": data.range(4), "b": data.range(4)})
        trainer.shutdown()


class WorkerGroups(unittest.TestCase):
    def test_objects_in_workers(self):
        import unisono

        class Counter:
            def __init__(self, start, step=1):
                from unisono import train as here

                self.value, self.step, self.rank = start, step, here.world_rank()

            def add(self, times=1):
                self.value += self.step * times
                return self.rank, self.value

            def fail(self):
                raise LookupError("on rank %d" % self.rank)

        group = Trainer("none", num_workers=2).to_worker_group(Counter, 10, step=5)
        self.assertEqual(len(group), 2)
        self.assertEqual(unisono.get([worker.add.remote() for worker in group]), [(0, 15), (1, 15)])
        later = [group[1].add.remote(times=2), group[1].fail.remote(), group[1].add.remote()]
        self.assertEqual(unisono.get(later[2]), (1, 30))  # in any order
        self.assertEqual(later[0].result(), (1, 25))
        with self.assertRaisesRegex(LookupError, "on rank 1") as caught:
            unisono.get(later[1])
        self.assertEqual(caught.exception.rank, 1)
        self.assertIn("in fail", str(caught.exception.__cause__))
        with self.assertRaisesRegex(TypeError, r"add\.remote"):
            group[0].add()
        with self.assertRaisesRegex(TypeError, "object store"):
            unisono.get(5)
        group.shutdown(patience_s=5)
        with self.assertRaisesRegex(RuntimeError, "shut down"):
            group[0].add.remote()

    def test_a_worker_that_dies(self):
        class Mortal:
            def die(self):
                os.kill(os.getpid(), 9)

        import unisono

        group = Trainer("none", num_workers=2).to_worker_group(Mortal)
        with self.assertRaisesRegex(RuntimeError, "rank 1"):
            unisono.get(group[1].die.remote())
        group.shutdown()

    def test_a_constructor_that_fails(self):
        class Broken:
            def __init__(self):
                raise ValueError("no")

        with self.assertRaisesRegex(ValueError, "no"):
            group = Trainer("none", num_workers=1).to_worker_group(Broken)
            group[0].anything.remote().result()


class Loggers(unittest.TestCase):
    def test_where_they_wrote(self):
        def reports():
            for epoch in range(2):
                train.report(epoch=epoch)

        class Own(TrainingCallback):
            pass

        trainer = Trainer("none", 2)
        trainer.start()
        json_logger, board = JsonLoggerCallback(), TBXLoggerCallback()
        with self.assertRaises(RuntimeError):
            json_logger.log_path
        for extra in ([], [Own()]):
            trainer.run(reports, callbacks=[json_logger, board] + extra)
            self.assertEqual(json_logger.log_path, trainer.latest_run_dir / "results.json")
            self.assertEqual(board.logdir, trainer.latest_run_dir)
            self.assertTrue(json_logger.log_path.exists())
        trainer.shutdown()

    def test_mlflow_by_the_environment(self):
        def reports(config):
            train.report(loss=0.5)

        saved = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        os.environ["MLFLOW_EXPERIMENT_NAME"] = "by environment"
        trainer = Trainer("none", 1)
        trainer.start()
        try:
            trainer.run(reports, config={"lr": 0.1}, callbacks=[MLflowLoggerCallback(tags={"a": "b"})])
        finally:
            trainer.shutdown()
            if saved is None:
                del os.environ["MLFLOW_EXPERIMENT_NAME"]
        text = "".join(path.read_text() for path in (trainer.latest_run_dir / "mlruns").rglob("meta.yaml"))
        self.assertIn("by environment", text)


class Reports(unittest.TestCase):
    def run_and_look(self, function, environment=(), **keywords):
        class Look(TrainingCallback):
            def __init__(self):
                self.seen = []

            def handle_result(self, results, **info):
                self.seen.append(results)

        look = Look()
        saved = {key: os.environ.get(key) for key, _ in environment}
        os.environ.update(environment)
        trainer = Trainer("none", num_workers=2)
        try:
            trainer.start()
            trainer.run(function, callbacks=[look] + keywords.pop("callbacks", []), **keywords)
        finally:
            trainer.shutdown()
            for key, value in saved.items():
                os.environ.pop(key) if value is None else os.environ.update({key: value})
        return look.seen, trainer

    def test_detailed_metrics(self):
        basic = {"x", "_timestamp", "_time_this_iter_s", "_training_iteration"}
        seen, _ = self.run_and_look(lambda: train.report(x=1))
        self.assertEqual(set(seen[0][0]), basic)
        seen, _ = self.run_and_look(lambda: train.report(x=1), [("TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS", "1")])
        self.assertEqual(set(seen[0][1]), basic | {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"})
        self.assertNotEqual(seen[0][0]["_pid"], seen[0][1]["_pid"])

    def test_a_time_of_the_caller(self):
        seen, _ = self.run_and_look(lambda: train.report(_time_this_iter_s=7.5))
        self.assertEqual(seen[0][0]["_time_this_iter_s"], 7.5)

    def test_positional_dictionary(self):
        seen, _ = self.run_and_look(lambda: train.report({"loss": 2, "nested": {"a": [1]}}))
        self.assertEqual((seen[0][1]["loss"], seen[0][1]["nested"]), (2, {"a": [1]}))

    def test_numpy_in_results_json(self):
        if not importlib.util.find_spec("numpy"):
            self.skipTest("numpy is not installed")

        def reports():
            import numpy as np

            train.report(array=np.arange(3), flag=np.bool_(True), whole=np.int64(7), number=np.float32(0.5), other=object)

        _, trainer = self.run_and_look(reports, callbacks=[JsonLoggerCallback()])
        import json

        written = json.loads((trainer.latest_run_dir / "results.json").read_text())[0][0]
        self.assertEqual((written["array"], written["flag"], written["whole"], written["number"], written["other"]),
                         ([0, 1, 2], True, 7, 0.5, "<class 'object'>"))

    def test_preprocessors(self):
        nan = float("nan")
        results = [{"loss": 1.0, "n": 1, "text": "a"}, {"loss": 3.0, "n": 3}, {"loss": nan, "n": 0}]
        average = preprocessors.AverageResultsPreprocessor(["loss"]).preprocess(results)
        self.assertEqual([each["avg(loss)"] for each in average], [2.0] * 3)
        self.assertEqual(preprocessors.MaxResultsPreprocessor(["loss"]).preprocess(results)[2]["max(loss)"], 3.0)
        weighted = preprocessors.WeightedAverageResultsPreprocessor(["loss"], "n").preprocess(results[:2])
        self.assertEqual(weighted[0]["weight_avg_n(loss)"], 2.5)
        chain = preprocessors.SequentialResultsPreprocessor([preprocessors.IndexedResultsPreprocessor([0, 1]),
                                                             preprocessors.ExcludedKeysResultsPreprocessor({"n", "text"})])
        self.assertEqual(chain.preprocess(results), [{"loss": 1.0}, {"loss": 3.0}])
        self.assertEqual(preprocessors.IndexedResultsPreprocessor(None).preprocess(results), results)

    def test_reserved_keys_are_for_those_who_list_them(self):
        seen, _ = self.run_and_look(lambda: train.report(x=1, _train_torch_profiler=[["trace", "{}"]]))
        self.assertNotIn("_train_torch_profiler", seen[0][0])


class Launchers(unittest.TestCase):
    SCRIPT = ("import ray\nfrom ray import train\nfrom ray.train import Trainer\nray.init(address='auto')\n"
              "def function():\n    import os\n    return train.world_rank(), train.world_size(), 'OMPI_COMM_WORLD_RANK' in os.environ\n"
              "trainer = Trainer('none', 2)\ntrainer.start()\nprint(trainer.run(function))\ntrainer.shutdown()\n")

    def test_an_unchanged_script_over_mpi(self):
        import shutil

        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write(self.SCRIPT)
            done = subprocess.run([sys.executable, "-m", "unisono.ray", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  env=dict(os.environ, UNISONO_LAUNCHER="mpi", UNISONO_HOSTS="localhost:2", OMPI_ALLOW_RUN_AS_ROOT="1",
                                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"), timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[(0, 2, True), (1, 2, True)]", done.stdout)


class Interactive(unittest.TestCase):
    """Functions of a session without a file: a terminal's, a notebook's."""

    def test_from_stdin(self):
        script = ("from unisono import train\nfrom unisono.train import Trainer\nfactor = 3\nclass Point:\n    def __init__(self, x): self.x = x\n\n"
                  "def function(config):\n    train.report(x=1)\n    return Point(config['n'] * factor * (train.world_rank() + 1))\n\n"
                  "trainer = Trainer('none', 2)\ntrainer.start()\nprint([each.x for each in trainer.run(function, config={'n': 2})])\n"
                  "print(trainer.run(lambda: factor))\ntrainer.shutdown()\n")
        done = subprocess.run([sys.executable, "-i", "-q"], input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
        self.assertEqual(done.stdout.split("\n")[:2], ["[6, 12]", "[3, 3]"], done.stderr)

    def test_inside_of_a_running_event_loop(self):
        async def cell():
            trainer = Trainer("none", 2)
            trainer.start()
            try:
                return trainer.run(lambda: train.world_rank())
            finally:
                trainer.shutdown()

        import asyncio

        self.assertEqual(asyncio.run(cell()), [0, 1])


class Page(unittest.TestCase):
    def test_the_code_of_the_page_runs(self):
        with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        self.assertGreaterEqual(len(blocks), 2)
        out = []
        for block in blocks:
            done = subprocess.run([sys.executable, "-c", block], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            out.append(done.stdout)
        self.assertIn("[0, 1]", out[0])
        self.assertRegex(out[1], "^2 /")


class Annotations(unittest.TestCase):
    """Type hints and docstrings on every public name."""

    def functions(self):
        for folder, _, names in os.walk(PACKAGE):
            for name in names:
                path = os.path.join(folder, name)
                where = os.path.relpath(path, PACKAGE)
                if name.endswith(".py") and where not in NOT_PUBLIC and where.split(os.sep)[0] not in OTHERS:
                    with open(path, encoding="utf-8") as file:
                        yield from self.of(ast.parse(file.read()), where + ": ")

    def of(self, node, prefix):
        for child in node.body:
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                yield prefix + child.name, child
                yield from self.of(child, prefix + child.name + ".")
            elif isinstance(child, ast.FunctionDef) and (not child.name.startswith("_") or child.name == "__init__"):
                yield prefix + child.name, child

    def test_hints(self):
        missing = []
        for name, node in self.functions():
            if isinstance(node, ast.FunctionDef):
                given = node.args
                arguments = given.posonlyargs + given.args + given.kwonlyargs + [each for each in (given.vararg, given.kwarg) if each]
                if any(each.annotation is None and each.arg not in ("self", "cls") for each in arguments) or (
                        node.returns is None and node.name != "__init__"):
                    missing.append(name)
        self.assertEqual(missing, [])

    def test_docstrings(self):
        missing = []
        for name, node in self.functions():
            setter = isinstance(node, ast.FunctionDef) and any(getattr(each, "attr", "") == "setter" for each in node.decorator_list)
            if not ast.get_docstring(node) and not name.endswith("__init__") and not setter:
                missing.append(name)
        self.assertEqual(missing, [])

    def test_the_package_says_so(self):
        self.assertTrue(os.path.exists(os.path.join(PACKAGE, "py.typed")))
        for name in ("_unisono.pyi", "_engine.pyi"):
            with open(os.path.join(PACKAGE, name), encoding="utf-8") as file:
                stub = ast.parse(file.read())
            defined = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            try:
                module = importlib.import_module("unisono." + name[:-4])
            except ImportError:
                continue  # a build without the engine
            self.assertEqual({each for each in dir(module) if not each.startswith("_")} - defined - {"version", "MAX_INPUTS", "SEED_ZERO", "NO_EPOCHS"}, set(), name)


if __name__ == "__main__":
    support.main()
