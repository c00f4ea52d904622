"""Import paths, `python -m unisono.ray`, and names that are not offered."""

import os
import subprocess
import sys
import tempfile
import unittest

import support

SCRIPT = """
import ray
import ray.train.torch
from ray import train
from ray.train import Trainer, TrainingCallback, CheckpointStrategy, ScalingConfig, RunConfig, Checkpoint
from ray.train.callbacks import JsonLoggerCallback, TBXLoggerCallback, PrintCallback
from ray.train.callbacks.results_preprocessors import IndexedResultsPreprocessor
from ray.train.tensorflow import TensorflowTrainer, TensorflowConfig, prepare_dataset_shard
from ray.train.torch import TorchTrainer, TorchConfig
from ray.train.horovod import HorovodTrainer, HorovodConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.air import session
from ray.air import Checkpoint as AirCheckpoint
from ray.air.checkpoint import Checkpoint as OtherCheckpoint
from ray.air.config import ScalingConfig as AirScalingConfig
from ray.air.result import Result
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.integration.mlflow import MLflowLoggerCallback as TuneMLflow
from ray.tune.logger import TBXLoggerCallback as TuneTBX
from ray.util.sgd.tf import TFTrainer
from ray.util.sgd.tf.tf_trainer import TFTrainer as SameTrainer
import unisono.train
assert Checkpoint is AirCheckpoint is OtherCheckpoint and SameTrainer is TFTrainer and ray.train is unisono.train is train
assert train.__name__ == "unisono.train", train.__name__
ray.init(num_cpus=2)
assert ray.is_initialized()
import helper
def function():
    from ray.train import world_size
    import ray.air.session
    ray.train.report(x=helper.VALUE)
    return world_size(), ray.air.session.get_world_rank()
trainer = Trainer(backend="none", num_workers=2)
trainer.start()
print(trainer.run(function))
trainer.shutdown()
ray.shutdown()
"""


class AsRay(unittest.TestCase):
    def test_an_untouched_script(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write(SCRIPT)
            with open(os.path.join(folder, "helper.py"), "w") as file:
                file.write("VALUE = 7\n")
            done = subprocess.run([sys.executable, "-m", "unisono.ray", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.strip().splitlines()[-1], "[(2, 0), (2, 1)]")

    def test_arguments_and_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("import sys, ray\nprint(sys.argv[1:], __name__)\nsys.exit(3)\n")
            done = subprocess.run([sys.executable, "-m", "unisono.ray", path, "--n", "2"], text=True, stdout=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (3, "['--n', '2'] __main__"))


class Missing(unittest.TestCase):
    def say(self, module, name):
        import importlib

        with self.assertRaises(AttributeError) as caught:
            getattr(importlib.import_module(module), name)
        return str(caught.exception)

    def test_names_that_are_not_offered(self):
        self.assertIn("unisono.train.Trainer", self.say("unisono.train", "Trainr"))
        self.assertIn("actors", self.say("unisono", "remote"))
        self.assertIn("not offered", self.say("unisono.tune", "run"))
        self.assertIn("not offered", self.say("unisono.data", "read_csv"))
        self.assertIn("prepare_model", self.say("unisono.train.torch", "prepare_modell"))

    def test_modules_that_are_not_offered(self):
        code = "from unisono import ray; ray.install()\ntry:\n    import ray.serve\nexcept ImportError as error:\n    print(error)"
        done = subprocess.run([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, check=True)
        self.assertIn("ray.serve", done.stdout)
        self.assertIn("not offered", done.stdout)

    def test_a_backend_that_is_not_installed(self):
        from unisono import _driver

        saved = dict(_driver.NEEDS)
        _driver.NEEDS["torch"] = ("no_such_module_here", "pip install it")
        try:
            from unisono.train import Trainer

            with self.assertRaisesRegex(ImportError, "no_such_module_here.*pip install it"):
                Trainer("torch", 1)
        finally:
            _driver.NEEDS.update(saved)

    def test_clusters(self):
        import unisono

        for arguments in (dict(address="10.0.0.1:6379"), dict(launcher="mpi"), dict(hosts="a:2")):
            with self.assertRaises(NotImplementedError):
                unisono.init(**arguments)


if __name__ == "__main__":
    support.main()
