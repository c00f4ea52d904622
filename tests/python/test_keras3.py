"""Keras 3 in workers under MultiWorkerMirroredStrategy: the numbers of one process with all the data, in any order of imports."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import support

from unisono.train import Trainer

FRESH = {key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"}


def train(config):
    """Each case under the strategy and beside it, in the same worker; {case: (numbers of two workers, numbers of one process)}."""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    layers, draw = keras.layers, np.random.RandomState(0)
    x, xv = draw.rand(64, 6).astype("f"), draw.rand(32, 6).astype("f")
    y, yv = (x.sum(1) > 3).astype("i4"), (xv.sum(1) > 3).astype("i4")

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = layers.Dense(8, activation="relu", kernel_initializer="ones")
            self.last = layers.Dense(2, kernel_initializer="ones")

        def call(self, x):
            return self.last(self.first(x))

    def chain():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(2)])
        fixed = np.random.RandomState(5)
        model.set_weights([(fixed.rand(*each.shape) - 0.5).astype("f") for each in model.get_weights()])
        return model

    def run(strategy, case):
        with strategy.scope():
            model = Own() if case == "subclass" else chain()
            rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9)
            optimizer = keras.optimizers.Adam(0.01, weight_decay=0.01) if case == "decay" else keras.optimizers.SGD(rate, momentum=0.9)
            model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer, metrics=["accuracy"])
        valid = tf.data.Dataset.from_tensor_slices((xv, yv)).batch(16)
        if case == "arrays":
            history = model.fit(x, y, batch_size=16, shuffle=False, epochs=2, verbose=0, validation_data=(xv, yv))
        else:
            history = model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), epochs=2, verbose=0, validation_data=valid)
        numbers = [value for name in sorted(history.history) for value in history.history[name]] + list(model.evaluate(valid, verbose=0))
        numbers += [float(np.abs(each).sum()) for each in model.get_weights()]
        predicted = model.predict(tf.data.Dataset.from_tensor_slices(xv).batch(16), verbose=0)
        return [float(number) for number in numbers] + [float(np.abs(predicted).sum()), len(predicted)]

    def refused(strategy, **options):
        optimizer = options.pop("optimizer", {})
        with strategy.scope():
            model = chain()
            model.compile(loss="mse", optimizer=keras.optimizers.Adam(**optimizer), **options)
        try:
            model.fit(x[:, :6], np.zeros((64, 2), "f"), verbose=0)
        except ValueError as error:
            return str(error)
        return "accepted"

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    out = {case: (run(strategy, case), run(tf.distribute.get_strategy(), case)) for case in ("chain", "subclass", "decay", "arrays")}
    out["refused"] = [refused(strategy, steps_per_execution=2), refused(strategy, optimizer={"use_ema": True, "ema_overwrite_frequency": 3}),
                      refused(strategy, optimizer={"gradient_accumulation_steps": 2})]
    out["keras"] = keras.__version__
    return out


class Numbers(unittest.TestCase):
    def test_two_workers_are_one_process(self):
        os.environ["TF_USE_LEGACY_KERAS"] = "0"
        try:
            trainer = Trainer("tensorflow", num_workers=2)
            trainer.start()
            ranks = trainer.run(train)
            trainer.shutdown()
        finally:
            del os.environ["TF_USE_LEGACY_KERAS"]
        for out in ranks:
            self.assertTrue(out.pop("keras").startswith("3."))
            for text, name in zip(out.pop("refused"), ("steps_per_execution=2", "ema_overwrite_frequency=3", "gradient_accumulation_steps=2")):
                self.assertTrue(text.startswith(name + ": Keras 3 cannot"), text)
            for case, (both, alone) in out.items():
                self.assertEqual(len(both), len(alone), case)
                for ours, theirs in zip(both, alone):
                    self.assertAlmostEqual(ours, theirs, delta=1e-4 * max(1, abs(theirs)), msg=case)


SCRIPT = """
%s
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = Dense(3)
    def call(self, x):
        return self.layer(x)

def train_func():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), Dense(3)])
        model.compile("sgd", "mse")
        own = Net()
        own.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 2), "f"), np.ones((4, 3), "f"))).batch(2)
    own.fit(data, verbose=0)
    model.fit(data, verbose=0, callbacks=[ReportCheckpointCallback()])
    print("worker", keras.Model.__module__)

from unisono.train.tensorflow.keras import ReportCheckpointCallback
if __name__ == "__main__":
    from unisono.train import ScalingConfig
    result = TensorflowTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
    print("driver", keras.Model.__module__)
    print("shape", keras.models.load_model(result.checkpoint.path + "/model.keras").get_weights()[0].shape)
"""
NUMPY = "import numpy as np\n"
KERAS = NUMPY + "import tensorflow as tf\nfrom tensorflow import keras\nfrom tensorflow.keras.layers import Dense\n"
PURE = NUMPY + "import tensorflow as tf\nimport keras\nfrom keras.layers import Dense\n"
UNISONO = "from unisono.train.tensorflow import TensorflowTrainer\n"


class Orders(unittest.TestCase):
    """Classes imported at the top of a script, subclassed models, and a model opened in the driver."""

    def check(self, imports, kind):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(SCRIPT % imports)
            done = subprocess.run([sys.executable, path], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                  env=dict(FRESH, TF_CPP_MIN_LOG_LEVEL="3"))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = dict(re.findall(r"(worker|driver) (\S+)", done.stdout))
        self.assertEqual(found["worker"], found["driver"])
        self.assertTrue(found["driver"].startswith(kind + "."), found)
        self.assertIn("shape (2, 3)", done.stdout)

    def test_keras_first(self):
        self.check(KERAS + UNISONO, "keras")

    def test_unisono_first(self):
        self.check(UNISONO + KERAS, "tf_keras")

    def test_keras_3_by_its_own_name(self):
        self.check(UNISONO + PURE, "keras")


if __name__ == "__main__":
    support.main()
