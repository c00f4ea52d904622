"""Whole programs on the native engine: the course's two (their C twins print the same numbers), and native models in the workers of trainers."""

import csv
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import support
from unisono import keras, train
from unisono.train import DataParallelTrainer, ScalingConfig, Trainer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("UNISONO_TEST_BUILD", "")


def write_texts(path):
    """Sentences of two kinds that a few epochs tell apart."""
    draw = np.random.default_rng(7)
    words = [["red", "green", "blue", "paint", "brush", "canvas"], ["disk", "kernel", "thread", "memory", "cache", "socket"]]
    common = ["the", "a", "of", "with", "my", "and", "one", "some"]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["question_text", "target"])
        for _ in range(800):
            kind = int(draw.integers(2))
            some = list(draw.choice(common, 5)) + list(draw.choice(words[kind], 2))
            draw.shuffle(some)
            writer.writerow([" ".join(some), kind])


class Course(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data = os.path.join(self.folder.name, "texts.csv")
        write_texts(self.data)

    def python(self, name, *options):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "examples/python", name), "--data", self.data] + list(options), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def native(self, name, *options):
        program = os.path.join(BUILD, "examples/engine", name)
        if not BUILD or not os.access(program, os.X_OK):
            return None
        return subprocess.run([program, "--data", self.data] + list(options), text=True, stdout=subprocess.PIPE, timeout=100, check=True).stdout

    def test_model_fit(self):
        for replicas in ("1", "2"):
            out = self.python("native_text_fit.py", "--epochs", "6", "--replicas", replicas, "--output", os.path.join(self.folder.name, replicas))
            self.assertIn("Number of devices: %s\n" % replicas, out)
            line = re.search(r"^Epoch: 0, accuracy:[\d.]+,  loss:[\d.]+,  val_accuracy:[\d.]+,  val_loss:[\d.]+,  $", out, re.M).group()
            self.assertRegex(out, r"\n\.{6}\n \n Time for [\d.]+ ms\n")
            self.assertTrue(os.listdir(os.path.join(self.folder.name, replicas, "nnlm-en-dim128")))
            twin = self.native("engine_text_fit", "--epochs", "6", "--strategy", "mirrored:" + replicas)
            if twin is not None:
                self.assertIn(line, twin)
                self.assertEqual(out.splitlines()[-1], twin.splitlines()[-1])

    def test_custom_loop(self):
        table = r"^Epoch \d+, Loss: [\d.]+, Accuracy: [\d.]+, Valid Loss: [\d.]+, Valid Accuracy: [\d.]+$"
        lines = {}
        for replicas in ("1", "2"):
            out = self.python("native_text_loop.py", "--epochs", "4", "--replicas", replicas, "--output", self.folder.name)
            lines[replicas] = re.findall(table, out, re.M)
            self.assertEqual(len(lines[replicas]), 4, out)
            self.assertGreater(float(re.search(r"The model accuracy : +([\d.]+)%", out).group(1)), 90)
        for replicas, mine in lines.items():
            twin = self.native("engine_text_loop", "--epochs", "4", "--strategy", "mirrored:" + replicas)
            if twin is not None:
                self.assertEqual(mine, re.findall(table, twin, re.M))
        with open(os.path.join(self.folder.name, "history.csv"), encoding="utf-8") as file:
            self.assertEqual(file.readline().strip(), "epochs,train_loss,valid_loss,train_acc,valid_acc")


def train_natively(config):
    import unisono.tf as tf

    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).random((256, 8), np.float32)
    y = (x.sum(1) > 4).astype(np.float32)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1, "sigmoid")])
        model.compile(keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"])
        loop_model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, "sigmoid")])
        optimizer, accuracy = keras.optimizers.Adam(0.01), keras.metrics.BinaryAccuracy()
        loss_object = keras.losses.BinaryCrossentropy(reduction="none")
    history = model.fit(x, y, batch_size=32, epochs=3, verbose=0, callbacks=[keras.callbacks.ReportCheckpointCallback()])

    def step(inputs):
        features, labels = inputs
        with tf.GradientTape() as tape:
            predictions = loop_model(features, training=True)
            loss = tf.nn.compute_average_loss(loss_object(labels, predictions), global_batch_size=48)
        optimizer.apply_gradients(zip(tape.gradient(loss, loop_model.trainable_variables), loop_model.trainable_variables))
        accuracy.update_state(labels, predictions)
        return loss

    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y[:, None])).batch(48))
    losses = [float(strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(batch,)))) for batch in batches]
    return {"fit": history.history["loss"], "loop": losses, "accuracy": float(accuracy.result()), "replicas": strategy.num_replicas_in_sync,
            "rank": train.world_rank()}


class Workers(unittest.TestCase):
    def test_any_number_of_workers_gives_the_same(self):
        results = {}
        for workers in (1, 2):
            trainer = Trainer(backend="native", num_workers=workers)
            trainer.start()
            results[workers] = trainer.run(train_natively, config={})
            trainer.shutdown()
            self.assertEqual([each["rank"] for each in results[workers]], list(range(workers)))
            self.assertEqual({each["replicas"] for each in results[workers]}, {workers})
        for other in results[2]:
            np.testing.assert_allclose(other["fit"], results[1][0]["fit"], rtol=1e-4)
            np.testing.assert_allclose(other["loop"], results[1][0]["loop"], rtol=1e-4)
            self.assertAlmostEqual(other["accuracy"], results[1][0]["accuracy"], places=6)

    def test_reports_and_checkpoints(self):
        result = DataParallelTrainer(train_natively, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2)).fit()
        self.assertEqual(result.metrics["training_iteration"], 3)
        self.assertIn("accuracy", result.metrics)
        with result.checkpoint.as_directory() as folder:
            model = keras.models.load_model(os.path.join(folder, "model.keras"))
        self.assertEqual(model.predict(np.ones((2, 8), np.float32)).shape, (2, 1))


BY_HAND = """
import json, numpy as np
import unisono.tf as tf
from unisono import keras

keras.utils.set_random_seed(0)
x = np.random.RandomState(3).rand(64, 4).astype("float32")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(x, x.sum(axis=1, keepdims=True), batch_size=16, epochs=3, shuffle=False, verbose=0)
print(json.dumps([strategy.num_replicas_in_sync, history.history["loss"], [float(each.sum()) for each in model.get_weights()]]))
"""


class ByHand(unittest.TestCase):
    """TF_CONFIG that the user has set: the processes train together, and their numbers are those of one."""

    def run_workers(self, configs):
        def environment(config):
            env = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
            return dict(env, TF_CONFIG=json.dumps(config)) if config else env
        running = [subprocess.Popen([sys.executable, "-c", BY_HAND], env=environment(each), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for each in configs]
        done = [each.communicate(timeout=100) + (each.returncode,) for each in running]
        self.assertEqual([code for _, _, code in done], [0] * len(configs), done)
        return [json.loads(out) for out, _, _ in done]

    def test_two_processes(self):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            workers = ["localhost:%d" % each.getsockname()[1] for each in (first, second)]
        together = self.run_workers([{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(2)])
        alone = self.run_workers([None])[0]
        for count, losses, weights in together:
            self.assertEqual(count, 2)
            np.testing.assert_allclose(losses, alone[1], rtol=1e-4)
            np.testing.assert_allclose(weights, alone[2], rtol=1e-4, atol=1e-5)

    def test_mistakes(self):
        import unisono.tf as tf

        for text, why in (("{", "TF_CONFIG is not JSON"), ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 7}}', "worker 7"),
                          ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}', "several hosts"),
                          ('{"cluster": {"worker": ["localhost:1", "localhost:2"]}}', "no task of type chief or worker")):
            before = os.environ.get("TF_CONFIG")
            os.environ["TF_CONFIG"] = text
            try:
                with self.assertRaisesRegex(ValueError, why):
                    tf.distribute.MultiWorkerMirroredStrategy()
            finally:
                os.environ.pop("TF_CONFIG")
                if before is not None:
                    os.environ["TF_CONFIG"] = before



# Rank 1 kills itself before the first step of epoch 4, once; the file says that it has.
KILLED = """
import hashlib, os, signal, sys
import numpy as np
import unisono.tf as tf
from unisono import keras

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(960, 8)).astype("float32")

class Layers(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("epoch %d" % epoch, flush=True)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 4 and os.environ["UNISONO_RANK"] == "1" and len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "x").close()
            os.kill(os.getpid(), signal.SIGKILL)

with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
losses = model.fit(x, x.sum(1, keepdims=True), batch_size=48, epochs=8, verbose=0, callbacks=[Layers()]).history["loss"]
print("final %s %r" % (hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())).hexdigest(), losses), flush=True)
"""


@unittest.skipUnless(BUILD, "needs the command")
class Replaced(unittest.TestCase):
    """A worker that is killed is replaced while the others keep training: the same weights and losses."""

    def run_it(self, folder, name, *words):
        script = os.path.join(folder, "script.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(KILLED)
        done = subprocess.run([os.path.join(BUILD, "src/cli/unisono"), "run", "-n", "3", "--name", name, "--storage", folder, "--", sys.executable, script, *words],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_same_as_undisturbed(self):
        with tempfile.TemporaryDirectory() as folder:
            calm, killed = self.run_it(folder, "calm"), self.run_it(folder, "killed", os.path.join(folder, "once"))
            self.assertTrue(os.path.exists(os.path.join(folder, "once")))
            with open(os.path.join(folder, "killed/run_001/run.json"), encoding="utf-8") as file:
                about = json.load(file)
        self.assertEqual((about["attempt"], about["replaced"]), (1, 1), killed)
        finals = re.findall(r"final .*", calm + killed)
        self.assertEqual(len(finals), 6)
        self.assertEqual(len(set(finals)), 1)
        # Rank 1 died after its callbacks had seen the end of epoch 3 and before its next step: the new process goes through that end again.
        expected = ["epoch %d" % epoch for epoch in range(8) for _ in range(3)] + ["epoch 3"]
        self.assertEqual(sorted(re.findall(r"epoch \d+", killed)), sorted(expected))


# Fit until the file is there; then a loop of its own over all of the data.
GROWN = """
import os, sys
import numpy as np
import unisono.tf as tf
from unisono import keras

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(96, 8)).astype("float32")
strategy = tf.distribute.MultiWorkerMirroredStrategy()

class Ends(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if os.path.exists(sys.argv[1]):
            self.model.stop_training = True

with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(global_clipnorm=1.0, gradient_accumulation_steps=int(sys.argv[2]) or None), loss="mse")
model.fit(x, x.sum(1, keepdims=True), batch_size=48, epochs=1000000, verbose=0, callbacks=[Ends()])
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x,)).batch(48))
total = sum(float(strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda batch: tf.reduce_sum(batch[0]), args=(batch,)))) for batch in batches)
print("total of %d workers: %r" % (strategy.num_replicas_in_sync, abs(total - float(x.sum())) < 1e-3), flush=True)
"""


@unittest.skipUnless(BUILD, "needs the command")
class Grown(unittest.TestCase):
    """A run that begins with one worker gets two more and loses one again; what follows fit sees as many as there are."""

    def run_it(self, folder, accumulation, scales):
        """What the run printed, and what each `unisono scale` did: (exit code, text)."""
        script, end = os.path.join(folder, "script.py"), os.path.join(folder, "end")
        command, answers = os.path.join(BUILD, "src/cli/unisono"), []
        with open(script, "w", encoding="utf-8") as file:
            file.write(GROWN)
        with subprocess.Popen([command, "run", "--workers", "1:3", "-n", "1", "--name", "grown", "--storage", folder, "--", sys.executable, script, end,
                               accumulation], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
            try:
                while running.poll() is None and not os.path.exists(os.path.join(folder, "grown/run_001/run.json")):
                    time.sleep(0.01)
                for workers in scales:
                    done = subprocess.run([command, "scale", "grown", workers, "--storage", folder, "--timeout", "60s"], text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, check=False)
                    answers.append((done.returncode, done.stdout))
            finally:
                with open(end, "w", encoding="utf-8"):
                    pass
            text = running.communicate(timeout=100)[0]
        self.assertEqual(running.returncode, 0, text)
        return text, answers

    def test_scaled(self):
        with tempfile.TemporaryDirectory() as folder:
            text, answers = self.run_it(folder, "0", ("3", "2"))
            with open(os.path.join(folder, "grown/run_001/logs/rank_2.log"), encoding="utf-8") as file:
                log = file.read()
        self.assertEqual([code for code, _ in answers], [0, 0], answers)
        self.assertEqual(re.findall("total of .*", text), ["total of 2 workers: True"] * 2, text)
        self.assertIn("this worker has left the group", log)
        self.assertNotIn("Traceback", log)

    def test_a_fit_that_keeps_its_number(self):
        with tempfile.TemporaryDirectory() as folder:
            text, answers = self.run_it(folder, "2", ("2",))
        self.assertNotEqual(answers[0][0], 0)
        self.assertIn("keeps 1 worker: this fit has gradient_accumulation_steps", answers[0][1])
        self.assertIn("warning: the number of workers stays 1: this fit has gradient_accumulation_steps", text)


if __name__ == "__main__":
    support.main()
