"""What needs PyTorch and TensorFlow in one process: their tensors in dictionary checkpoints, the checkpoints that make models of themselves, torch's
profiler, a notebook, mypy, and the code blocks of the pages on TensorFlow. Frameworks are imported once for all of them."""

import collections
import os
import re
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch

import support
from unisono import _codec, train
from unisono.train import Checkpoint, Trainer
from unisono.train.tensorflow import TensorflowCheckpoint
from unisono.train.torch import TorchCheckpoint, TorchWorkerProfiler

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Thing:
    """Neither data nor a tensor."""

    def __init__(self, value):
        self.value = value


class Dictionaries(unittest.TestCase):
    def through_a_directory(self, value, **options):
        folder = tempfile.mkdtemp()
        Checkpoint.from_dict(value).to_directory(folder)
        return Checkpoint.from_directory(folder).to_dict(**options)

    def test_tensors_are_data(self):
        value = {
            "numpy": np.arange(6, dtype=np.int16).reshape(2, 3), "scalar": np.float32(1.5), "bool": np.array([True, False]), "empty": np.zeros((0, 3)),
            "torch": torch.arange(4.0).reshape(2, 2), "grad": torch.ones(3, requires_grad=True), "half": torch.ones(2, dtype=torch.bfloat16),
            "long": torch.tensor(7), "tensorflow": tf.constant([[1, 2], [3, 4]]), "variable": tf.Variable([1.0, 2.0]),
            "state": collections.OrderedDict([("weight", torch.zeros(2, 2)), ("bias", torch.ones(2))]),
            "nested": (1, [torch.ones(1), {"a": (np.ones(1),)}]), "weights": [np.ones((4, 1), np.float32), np.zeros(1, np.float32)]}
        out = self.through_a_directory(value)
        for name in ("torch", "grad", "half", "long"):
            self.assertIs(type(out[name]), torch.Tensor)
            self.assertEqual((out[name].dtype, tuple(out[name].shape), out[name].requires_grad),
                             (value[name].dtype, tuple(value[name].shape), value[name].requires_grad))
            self.assertTrue(torch.equal(out[name].detach(), value[name].detach()))
        for name in ("tensorflow", "variable"):
            self.assertTrue(tf.is_tensor(out[name]))
            np.testing.assert_array_equal(out[name].numpy(), value[name].numpy())
        for name in ("numpy", "bool", "empty"):
            self.assertEqual((out[name].dtype, out[name].shape), (value[name].dtype, value[name].shape))
            np.testing.assert_array_equal(out[name], value[name])
        self.assertIs(type(out["scalar"]), np.float32)
        self.assertIs(type(out["state"]), collections.OrderedDict)
        self.assertEqual(list(out["state"]), ["weight", "bias"])
        self.assertIs(type(out["nested"]), tuple)
        self.assertIs(type(out["nested"][1][1]["a"]), tuple)
        model = torch.nn.Linear(2, 2)
        model.load_state_dict(out["state"])  # as a script would

    def test_no_pickle_is_in_them(self):
        folder = tempfile.mkdtemp()
        Checkpoint.from_dict({"w": torch.ones(3), "t": tf.ones(2), "n": np.ones(2), "o": collections.OrderedDict(a=(1,))}).to_directory(folder)
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                self.assertNotIn(b"\x80\x05\x95", file.read(), name)  # the beginning of a pickle

    def test_pickled_parts_need_the_key(self):
        folder = tempfile.mkdtemp()
        Checkpoint.from_dict({"thing": Thing(3), "w": torch.ones(2)}).to_directory(folder)
        self.assertEqual(Checkpoint(folder).to_dict()["thing"].value, 3)
        saved = os.environ["XDG_CONFIG_HOME"]
        os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # somebody else
        try:
            with self.assertRaisesRegex(_codec.PickleRefused, "allow_pickle=True"):
                Checkpoint(folder).to_dict()
            self.assertEqual(Checkpoint(folder).to_dict(allow_pickle=True)["thing"].value, 3)
        finally:
            os.environ["XDG_CONFIG_HOME"] = saved


class Models(unittest.TestCase):
    def test_torch_checkpoint(self):
        model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        for checkpoint in (TorchCheckpoint.from_model(model), TorchCheckpoint.from_state_dict(model.state_dict()),
                           TorchCheckpoint.from_state_dict({"module." + key: value for key, value in model.state_dict().items()})):
            with torch.no_grad():
                other.weight.zero_()
            self.assertIs(checkpoint.get_model(other), other)
            self.assertTrue(torch.equal(other.weight, model.weight))
            with self.assertRaisesRegex(ValueError, "only the weights"):
                checkpoint.get_model()

    def test_tensorflow_checkpoint(self):
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
        x = np.ones((1, 3), np.float32)
        folder = tempfile.mkdtemp()
        h5, saved = os.path.join(folder, "model.h5"), os.path.join(folder, "saved")
        model.save(h5)
        model.save(saved, save_format="tf")
        for checkpoint in (TensorflowCheckpoint.from_model(model), TensorflowCheckpoint.from_h5(h5), TensorflowCheckpoint.from_saved_model(saved)):
            np.testing.assert_allclose(checkpoint.get_model().predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)
        weights = TensorflowCheckpoint.from_dict({"model_weights": model.get_weights()})
        with self.assertRaisesRegex(ValueError, "only the weights"):
            weights.get_model()
        again = weights.get_model(lambda: tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))]))
        np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
        for wrong in (saved, os.path.join(folder, "none.h5"), __file__):
            with self.assertRaisesRegex(ValueError, "from_h5 needs an .h5 file"):
                TensorflowCheckpoint.from_h5(wrong)
        with self.assertRaisesRegex(ValueError, "saved_model.pb"):
            TensorflowCheckpoint.from_saved_model(folder)


class Profiler(unittest.TestCase):
    def test_traces_of_the_workers(self):
        from unisono.train.callbacks import TorchTensorboardProfilerCallback

        def function():
            from torch.profiler import ProfilerActivity, profile, schedule

            profiler = TorchWorkerProfiler()
            with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=0, active=1), on_trace_ready=profiler.trace_handler) as running:
                for epoch in range(2):
                    torch.ones(4).sum()
                    running.step()
                    train.report(epoch=epoch, **profiler.get_and_clear_profile_traces())

        trainer = Trainer("none", 2)
        trainer.start()
        trainer.run(function, callbacks=[TorchTensorboardProfilerCallback()])
        trainer.shutdown()
        names = os.listdir(trainer.latest_run_dir / "pytorch_profiler")
        self.assertEqual(sorted({re.search(r"worker_(\d)", name).group(1) for name in names}), ["0", "1"], names)
        self.assertTrue(all(name.endswith(".json") for name in names), names)


class Notebook(unittest.TestCase):
    def test_functions_of_cells(self):
        try:
            import ipykernel
            import nbformat
            from nbclient import NotebookClient
        except ImportError as error:
            self.skipTest("%s is not installed" % error.name)
        cells = ["from unisono import train\nfrom unisono.train import Trainer, DataParallelTrainer, ScalingConfig\nfactor = 5",
                 "def function(config):\n    print('hello')\n    train.report(x=config['x'])\n    return train.world_rank() * factor",
                 "trainer = Trainer('none', 2); trainer.start(); print(trainer.run(function, config={'x': 1})); trainer.shutdown()",
                 "result = DataParallelTrainer(lambda: train.report({'y': factor}), scaling_config=ScalingConfig(num_workers=2)).fit()\nprint(result.metrics['y'])",
                 "try:\n    DataParallelTrainer(lambda: 1 / 0).fit()\nexcept ZeroDivisionError as error:\n    print('came back', error.rank)"]
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "kernels", "here"))
            with open(os.path.join(folder, "kernels", "here", "kernel.json"), "w") as file:
                file.write('{"argv": ["%s", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here", "language": "python"}' % sys.executable)
            saved, os.environ["JUPYTER_PATH"] = os.environ.get("JUPYTER_PATH"), folder
            try:
                NotebookClient(book, timeout=90, kernel_name="here").execute()
            finally:
                os.environ.pop("JUPYTER_PATH") if saved is None else os.environ.update(JUPYTER_PATH=saved)
        text = ["".join(output.get("text", "") for output in cell.outputs) for cell in book.cells]
        self.assertIn("[0, 5]", text[2])
        self.assertIn("(rank 1) hello", text[2])
        self.assertIn("5", text[3])
        self.assertIn("came back 0", text[4])


class Mypy(unittest.TestCase):
    def errors(self, program):
        try:
            import mypy
        except ImportError:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "user.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", folder, "--follow-imports=silent", "--ignore-missing-imports", path],
                                  env=dict(os.environ, MYPYPATH=os.path.join(ROOT, "python")), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        return [line for line in done.stdout.splitlines() if ": error:" in line]

    def test_the_package(self):
        errors = self.errors(USER)
        self.assertEqual(len(errors), 2, errors)
        self.assertIn("num_workers", errors[0])
        self.assertIn("int", errors[1])

    def test_keras_and_tune(self):
        errors = self.errors(KERAS_AND_TUNE)
        self.assertEqual(len(errors), 3, errors)
        for error, words in zip(errors, ("epochs", "get_best_result", "learning_rate")):
            self.assertIn(words, error)


# Programs of users under --strict: fine but for the last lines, which are wrong.
KERAS_AND_TUNE = '''
import numpy as np

from unisono import keras, tune
from unisono.tune import ResultGrid, TuneConfig


def build(width: int) -> keras.Sequential:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-3, clipnorm=1.0), loss="mse", metrics=["mae"])
    return model


x = np.zeros((10, 8), "float32")
history = build(4).fit(x, x.sum(axis=1), epochs=2, verbose=0, callbacks=[keras.callbacks.EarlyStopping(patience=2)])
losses: list[float] = history.history["loss"]
build(4).save("x.keras")


def objective(config: dict[str, float]) -> None:
    tune.report(loss=config["x"] ** 2)


grid: ResultGrid = tune.Tuner(objective, param_space={"x": tune.uniform(-1, 1), "n": tune.grid_search([1, 2]), "k": tune.choice(["a", "b"])},
                              tune_config=TuneConfig(metric="loss", mode="min", num_samples=2)).fit()
best = grid.get_best_result()
print(best.metrics, best.path, [each.path for each in grid])
analysis = tune.run(objective, config={"x": tune.loguniform(0.1, 1)}, metric="loss", mode="min", num_samples=2, max_concurrent_trials=2)
config: dict[str, float] = analysis.best_config
print(analysis.get_best_trial().trial_id, config)
build(4).fit(x, epochs="2")
grid.get_best_resutl()
keras.optimizers.SGD(learning_rate="fast")
'''

# Two lines of it are wrong.
USER = '''
from typing import Any

from unisono import train
from unisono.train import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, Trainer, TrainingCallback


class Printing(TrainingCallback):
    """A callback."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        print(results)


def loop(config: dict[str, Any]) -> int:
    train.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 1}))
    return train.world_rank()


trainer = Trainer("none", num_workers=2)
trainer.start()
print(trainer.run(loop, config={"a": 1}, callbacks=[Printing()]), trainer.latest_run_dir)
result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(failure_config=FailureConfig(max_failures=1))).fit()
print(result.path)
ScalingConfig(num_workers="two")
train.world_rank() + "a"
'''


class Pages(unittest.TestCase):
    """The code blocks of the getting-started pages, in both languages."""

    def blocks(self, path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return re.findall(r"```python\n(.*?)```", file.read(), re.S)

    def run_blocks(self, path):
        blocks = self.blocks(path)
        self.assertTrue(blocks)
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "page.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write("\n".join(blocks))
            done = subprocess.run([sys.executable, script], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        return done.stdout

    def test_chinese(self):
        self.assertRegex(self.run_blocks("docs/zh/tensorflow.md"), r"Checkpoint\(filesystem=local, path=.*checkpoint_00000\d\)")

    def test_both_languages_have_the_same_code(self):
        def code(path):  # without comments, which are in the page's language
            return [re.sub(r"#.*", "", block).split() for block in self.blocks(path)]

        self.assertEqual(code("docs/zh/tensorflow.md"), code("docs/tensorflow.md"))


if __name__ == "__main__":
    support.main()
