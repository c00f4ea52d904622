"""Import paths, `python -m unisono.ray`, and names that are not offered."""

import os
import shutil
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
        self.assertIn("not offered", self.say("unisono.tune", "no_such_thing"))
        self.assertIn("not offered", self.say("unisono.data", "no_such_thing"))
        self.assertIn("unisono.horovod.allreduce", self.say("unisono.horovod", "all_reduce"))
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

        with self.assertRaisesRegex(NotImplementedError, "hosts="):
            unisono.init(address="10.0.0.1:6379")
        with self.assertRaisesRegex(ValueError, "local, ssh, mpi, slurm"):
            unisono.init(launcher="kubernetes")
        self.assertEqual(unisono.init(hosts={"a": 2, "b": 1})["hosts"], "a:2,b:1")
        self.assertEqual((os.environ["UNISONO_LAUNCHER"], os.environ["UNISONO_HOSTS"], unisono.is_initialized()), ("ssh", "a:2,b:1", True))
        unisono.shutdown()
        self.assertEqual((os.environ.get("UNISONO_LAUNCHER"), os.environ.get("UNISONO_HOSTS"), unisono.is_initialized()), (None, None, False))
        self.assertEqual(unisono.util.connect("auto")["launcher"], "local")
        unisono.shutdown()

    def test_accelerators(self):
        from unisono.train import Trainer
        from unisono.train.error import SessionMisuseError
        from unisono.train.session import get_accelerator, set_accelerator

        for call in (lambda: get_accelerator(dict), lambda: set_accelerator({})):
            with self.assertRaises(SessionMisuseError):
                call()

        def loop():
            from unisono.train import get_accelerator, set_accelerator

            set_accelerator({"mine": 1})
            try:
                set_accelerator({})
            except RuntimeError:
                return get_accelerator(dict)

        trainer = Trainer("none", 1)
        trainer.start()
        self.assertEqual(trainer.run(loop), [{"mine": 1}])
        trainer.shutdown()

    def test_as_ray_by_the_command(self):
        command = os.environ.get("UNISONO_COMMAND")
        if not command:
            self.skipTest("UNISONO_COMMAND is not set")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("import ray, sys\nprint(ray.__name__, sys.argv[1:])\n")
            done = subprocess.run([command, "run", "--as-ray", path, "--num-workers", "3"], text=True, stdout=subprocess.PIPE, check=False,
                                  env=dict(os.environ, UNISONO_PYTHON=sys.executable))
            self.assertEqual((done.returncode, done.stdout.strip()), (0, "unisono ['--num-workers', '3']"))
            done = subprocess.run([command, "run", "-n", "2", "--as-ray", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 64)
            self.assertIn("the script itself sets", done.stdout)

    def test_the_command_brings_its_package(self):
        """`unisono run --as-ray` of a build tree or a prefix: nothing needs to be in PYTHONPATH, and what is missing is said."""
        command = os.environ.get("UNISONO_COMMAND")
        if not command:
            self.skipTest("UNISONO_COMMAND is not set")
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("import ray, sys, helper\nprint(ray.__name__, helper.x, sys.argv)\n")
            with open(os.path.join(folder, "helper.py"), "w") as file:
                file.write("x = 7\n")

            def run(command, script):
                return subprocess.run([command, "run", "--as-ray", script, "a"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      check=False, cwd="/", env=dict(bare, UNISONO_PYTHON=sys.executable))

            done = run(command, path)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, "unisono 7 ['%s', 'a']" % path), done.stderr)
            done = run(command, path + "x")
            self.assertEqual(done.returncode, 125)
            self.assertIn("cannot read the script", done.stderr)
            alone = os.path.join(folder, "unisono")
            shutil.copy(command, alone)
            done = run(alone, path)
            if done.returncode == 0:
                self.skipTest("this interpreter has unisono installed")
            self.assertEqual(done.returncode, 1)
            self.assertIn("has no package unisono", done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    support.main()
