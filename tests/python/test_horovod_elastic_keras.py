"""hvd.elastic with Keras 3 on TensorFlow, tf_keras, and a loop with a tape: a rank is killed, and all end with the weights of a run that was left alone."""

import importlib.util
import unittest

import elastic_support
import support

FIT = """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy
%(import_)s
import %(flavour)s as hvd

hvd.init()
keras.utils.set_random_seed(5)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", jit_compile=False)
random = numpy.random.default_rng(3)
x, y = random.normal(size=(80, 4)).astype("float32"), random.normal(size=(80, 1)).astype("float32")


def batches(first):
    place = first * 4
    while True:
        yield x[place %% 80:place %% 80 + 4], y[place %% 80:place %% 80 + 4]
        place += 4


class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if "%%d.%%d of %%d" %% (state.epoch, state.batch, hvd.rank()) in os.environ.get("DIE", "").split(","):
            die("%%d.%%d" %% (state.epoch, state.batch))
        seen.append((state.epoch, state.batch))


@hvd.elastic.run
def train(state):
    say(entered=hvd.rank(), size=hvd.size(), epoch=state.epoch, batch=state.batch)
    callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state, batches_per_commit=2), Kill()]
    if state.epoch < 3:
        model.fit(batches(state.epoch * 6 + state.batch), steps_per_epoch=6, epochs=3 - state.epoch, callbacks=callbacks, verbose=0)


seen = []
state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)
say(weights=[weight.tolist() for weight in model.get_weights()], iterations=int(model.optimizer.iterations), seen=seen)
"""
LOOP = """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy
import tensorflow as tf
import unisono.horovod.tensorflow as hvd

hvd.init()
weight = tf.Variable([[1.0], [2.0]])


@tf.function
def step(x, y):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)
    weight.assign_sub(0.1 * tape.gradient(loss, [weight])[0])


@hvd.elastic.run
def train(state):
    say(entered=hvd.rank(), size=hvd.size())
    while state.batch < 12:
        step(tf.constant([[1.0, float(state.batch) / 16]]), tf.constant([[float(state.batch) / 8]]))
        if "%d of %d" % (state.batch, hvd.rank()) in os.environ.get("DIE", "").split(","):
            die(str(state.batch))
        state.batch += 1
        if state.batch % 3 == 0:
            state.commit()


state = hvd.elastic.TensorFlowState([weight], batch=0)
train(state)
say(weights=weight.numpy().tolist(), batch=state.batch)
"""


class Killed(unittest.TestCase):
    def same(self, script, die, *options, env=None):
        calm = elastic_support.run(script, *(options or ("-n", "2")), env=env, timeout=240)
        self.assertEqual(calm.code, 0, calm.output)
        killed = elastic_support.run(script, *(options or ("-n", "2")), "--max-failures", "4", env=dict(env or {}, DIE=die), timeout=240)
        self.assertEqual(killed.code, 0, killed.output)
        self.assertNotIn("restart 1", killed.output)
        self.assertEqual(len(killed.pids()), 2 + len(die.split(",")), killed.output)
        for ended in (calm, killed):
            self.assertEqual(len(ended.of("weights")), 2, ended.output)
        for each in killed.of("weights"):
            self.assertEqual(each["weights"], calm.of("weights")[0]["weights"])
        return calm, killed

    def test_keras_3(self):
        calm, killed = self.same(FIT % {"import_": "import keras", "flavour": "unisono.horovod.keras"}, "0.3 of 1,1.5 of 0")
        self.assertEqual({each["iterations"] for each in killed.of("iterations")}, {18})
        self.assertEqual(calm.of("seen")[0]["seen"], [[epoch, batch] for epoch in range(3) for batch in range(1, 7)])
        # The epoch that is continued has what was left of it.
        again = [line for line in killed.of("entered") if (line["epoch"], line["batch"]) != (0, 0)]
        self.assertEqual({(line["epoch"], line["batch"]) for line in again}, {(0, 2), (1, 4)})

    def test_keras_3_alone_for_a_while(self):
        """The graph that a rank has traced while it was alone reduces when it is not alone any more."""
        script = FIT % {"import_": "import keras", "flavour": "unisono.horovod.keras"}
        ended = elastic_support.run(script.replace("        seen.append", "        time.sleep(0.4)\n        seen.append"), "--workers", "1:2", "-n", "2", "--max-failures", "4",
                                    env={"DIE": "0.3 of 1"}, timeout=240)
        self.assertEqual(ended.code, 0, ended.output)
        last = ended.of("weights")
        self.assertEqual([each["weights"] for each in last], [last[0]["weights"]] * len(last))
        self.assertIn(1, {line["size"] for line in ended.of("entered")}, ended.output)

    @unittest.skipUnless(importlib.util.find_spec("tf_keras"), "tf_keras is not installed")
    def test_tf_keras(self):
        self.same(FIT % {"import_": "import tensorflow as tf\nkeras = tf.keras", "flavour": "unisono.horovod.tensorflow.keras"}, "1.3 of 0", env={"TF_USE_LEGACY_KERAS": "1"})

    def test_a_loop_with_a_tape(self):
        self.same(LOOP, "4 of 1,7 of 0")


if __name__ == "__main__":
    support.main()
