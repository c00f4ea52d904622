"""examples/python: every script for real, with unisono in its imports, and with ray in them under `python -m unisono.ray`. What they print is compared
with what the guides print (shapes, keys, numbers that do not depend on chance).

test_examples.py GROUP runs one group (none, torch, tensorflow): each group is one test program, because the frameworks are in different interpreters.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
import unittest

import support
from unisono import _driver

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "python")
GROUP = os.environ.get("UNISONO_TEST_GROUP", "none")
LATE = re.compile(r"unisono: warning: rank \d+ \(pid \d+\) (has been silent|is heard again)")  # true, and no fault, on a crowded machine


def as_ray(text):
    """The script as it would say it with Ray."""
    return re.sub(r"\bunisono\b(?!\.horovod)", "ray", text)


class Script(unittest.TestCase):
    needs = ()
    group = "none"

    def setUp(self):
        if self.group != GROUP:
            self.skipTest("of the group " + self.group)
        for module in self.needs:
            if not _driver.is_installed(module):
                self.skipTest(module + " is not installed")

    def run_script(self, name, *arguments, ray=False, command=()):
        path = os.path.join(EXAMPLES, name)
        results = tempfile.TemporaryDirectory()  # of its own: the default name of an experiment is its second
        self.addCleanup(results.cleanup)
        environment = dict(os.environ, UNISONO_OFFLINE="1", TF_CPP_MIN_LOG_LEVEL="3", UNISONO_RESULTS=results.name)
        with tempfile.TemporaryDirectory() as folder:
            if ray:
                with open(path, encoding="utf-8") as file:
                    text = as_ray(file.read())
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            words = [*command, sys.executable, *(["-m", "unisono.ray"] if ray else []), path, *arguments]
            done = subprocess.run(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        return [line for line in done.stdout.splitlines() if not line.startswith("(rank") and not LATE.match(line)], done.stdout

    def both(self, name, *arguments):
        for ray in (False, True):
            yield self.run_script(name, *arguments, ray=ray)[0]

    # ---- without a framework ----

    def check_config(self, *arguments):
        for lines in self.both("v1_config.py", *arguments):
            self.assertEqual([ast.literal_eval(line) for line in lines[:2]], [[[0, 1]] * 2, [[0, 1, 2, 3, 4]] * 2])
            self.assertRegex(lines[2], r"/train_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$")
            self.assertEqual(lines[3], lines[2] + "/run_002")

    def check_callbacks(self, *arguments):
        for lines in self.both("v1_callbacks.py", *arguments):
            for i in range(3):
                reports = ast.literal_eval(lines[i])
                self.assertEqual([list(report) for report in reports], [["epoch", "_timestamp", "_time_this_iter_s", "_training_iteration"]] * 2)
                self.assertEqual([(report["epoch"], report["_training_iteration"]) for report in reports], [(i, i + 1)] * 2)
            self.assertEqual(lines[3:], ["reports in results.json: 3"] + ["epochs [%d, %d]" % (i, i) for i in range(3)] + ["finished True [None, None]"])

    def check_strategy(self, *arguments):
        for lines in self.both("v1_checkpoint_strategy.py", *arguments):
            self.assertEqual(lines[0], "2 None")
            self.assertTrue(lines[1].endswith("/run_002/checkpoints/checkpoint_000003"), lines[1])
            self.assertEqual(lines[2], os.path.dirname(lines[1]))
            self.assertEqual(lines[3], "['checkpoint_000001', 'checkpoint_000003']")


class WithoutFramework(Script):
    def test_config(self):
        self.check_config("--backend", "none")

    def test_callbacks(self):
        self.check_callbacks("--backend", "none")

    def test_checkpoint_strategy(self):
        self.check_strategy("--backend", "none")

    def test_tune(self):
        for lines in self.both("v1_tune.py", "--backend", "none"):
            self.assertEqual(lines[-1], "{'num_epochs': 2, 'input': 3}")

    def test_mlflow_and_tensorboard(self):
        for lines in self.both("mlflow_simple.py", "--v1", "--backend", "none"):
            folder = lines[-1].partition("Run directory: ")[2]
            names = os.listdir(folder)
            self.assertIn("mlruns", names)
            self.assertTrue(any(name.startswith("events.out.tfevents") for name in names), names)


class WithTorch(Script):
    group = "torch"
    needs = ("torch", "numpy")

    def test_config(self):
        self.check_config()

    def test_datasets(self):
        for lines in self.both("v1_datasets.py"):
            self.assertEqual(lines, ["validation loss falls: True", "rows of each epoch by rank: [[50, 50, 50], [50, 50, 50]]"])

    def test_callbacks(self):
        self.check_callbacks()

    def test_checkpoint_strategy(self):
        self.check_strategy()

    def test_checkpoints(self):
        import torch

        bias, weight = r"\('bias', tensor\(\[.*\]\)\)", r"\('weight', tensor\(\[\[.*\]\]\)\)"
        # Its function that takes the prefix "module." away sorted the names once, and keeps their order in PyTorch 2.
        pair = [bias, weight] if int(torch.__version__.partition(".")[0]) < 2 else [weight, bias]
        for lines in self.both("v1_torch_checkpoints.py"):
            self.assertRegex(" ".join(lines[:-2]), r"^\{'epoch': 3, 'model_weights': OrderedDict\(\[%s, %s\]\), '_timestamp': \d{10}\}$" % tuple(pair))
            self.assertTrue(lines[-2].endswith("/run_002/checkpoints"))
            self.assertTrue(lines[-1].endswith("/run_002/checkpoints/checkpoint_000002"), lines[-1])

    def test_ddp_prepared_and_by_hand(self):
        for lines in self.both("v1_torch_ddp.py"):
            self.assertEqual(lines[-1], "workers agree: True")

    def test_mlflow_and_tensorboard(self):
        lines, _ = self.run_script("mlflow_simple.py")
        folder = lines[-1].partition("Run directory: ")[2]
        self.assertIn("run_001", os.listdir(folder))

    def test_horovod(self):
        self.assertIn("workers agree: True", self.run_script("horovod_torch.py", "--trainer")[0])
        command = os.environ.get("UNISONO_COMMAND")
        if command:
            self.assertIn("size 2 loss below 1: True", self.run_script("horovod_torch.py", command=[command, "run", "-n", "2", "--"])[1])


class WithTorchMetrics(Script):
    group = "torch"
    needs = ("torch", "torchmetrics")

    def test_accuracy(self):
        reports = ast.literal_eval(self.run_script("torchmetrics_accuracy.py")[0][0])
        self.assertEqual([list(report) for report in reports], [["accuracy", "_timestamp", "_time_this_iter_s", "_training_iteration"]] * 2)


class WithTensorflow(Script):
    group = "tensorflow"
    needs = ("tensorflow", "tf_keras")
    NUMBER = r"\[ *-?[\d.e+-]+ *\]"
    WEIGHTS = (r"'model_weights': \[array\(\[" + NUMBER + r",\s+" + NUMBER + r",\s+" + NUMBER + r",\s+" + NUMBER + r"\], dtype=float32\), array\(" + NUMBER +
               r", dtype=float32\)\]")

    def test_datasets(self):
        self.assertTrue(self.run_script("tensorflow_datasets.py")[0][-1].endswith("True"))

    def test_v1_checkpoints(self):
        text = "\n".join(self.run_script("v1_tensorflow_checkpoints.py")[0])
        self.assertRegex(text, r"(?s)\{'epoch': 4, " + self.WEIGHTS + r", '_timestamp': \d{10}\}")

    def test_air_checkpoints(self):
        text = "\n".join(self.run_script("air_tensorflow_checkpoints.py", ray=True)[0])
        for number in (4, 3):
            self.assertRegex(text, r"(?s)\{'epoch': 4, " + self.WEIGHTS +
                             r", '_timestamp': \d{10}, '_preprocessor': None, '_current_checkpoint_id': %d\}" % number)

    def test_directory_checkpoints(self):
        lines, _ = self.run_script("tensorflow_checkpoints.py", ray=True)
        self.assertRegex(lines[-3], r"^Checkpoint\(filesystem=local, path=.*/checkpoint_00000\d\)$")
        self.assertEqual(lines[-2:], ["['checkpoint.json', 'model.keras']", "['loss', 'mse'] 2"])

    def test_autoencoder(self):
        lines, _ = self.run_script("tensorflow_autoencoder.py", ray=True)
        self.assertEqual(lines[-1], "['binary_crossentropy', 'loss'] 2")

    def test_quick_start(self):
        lines, everything = self.run_script("tensorflow_quick_start.py", "-n", "2", "--epochs", "1", "--steps", "4")
        self.assertEqual(lines[-1], "done")
        self.assertEqual(everything.count("replicas 2 metrics ['accuracy', 'loss']"), 2)
        self.assertEqual(everything.count("keras.datasets.mnist gives 4166 samples"), 3)

    def test_sgd(self):
        lines, everything = self.run_script("sgd_tensorflow.py", "-n", "2")
        stats = [ast.literal_eval(line) for line in lines if line.startswith("{")]
        names = ["loss", "mean_squared_error"]
        self.assertEqual([sorted(each) for each in stats], [sorted("%s_%s" % (kind, name) for kind in ("train", "validation") for name in names)] * 2 +
                         [["validation_" + name for name in names]])
        self.assertIn(lines[-1], ("success!", "training sanity check failed. loss increased!"))

    def test_horovod_keras(self):
        command = os.environ.get("UNISONO_COMMAND")
        if not command:
            self.skipTest("UNISONO_COMMAND is not set")
        _, everything = self.run_script("horovod_keras.py", command=[command, "run", "-n", "2", "--"])
        self.assertIn("size 2 loss fell: True", everything)


if __name__ == "__main__":
    support.main()
