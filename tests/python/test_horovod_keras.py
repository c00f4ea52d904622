"""unisono.horovod for Keras 3, TensorFlow and tf_keras: the same numbers as one process with all the data."""

import os
import unittest

import numpy

import support
from unisono import _driver
from unisono.train import Trainer


def run(function, workers=2, environment=()):
    """One fit in fresh workers; what the function returned, by rank."""
    trainer = Trainer("horovod", workers)
    saved = {name: os.environ.get(name) for name, _ in environment}
    os.environ.update(environment)
    try:
        trainer.start()
        return trainer.run(function)
    finally:
        trainer.shutdown()
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def data(n=64):
    random = numpy.random.default_rng(1)
    return random.normal(0, 1, (n, 6)).astype("float32"), random.uniform(0, 1, (n, 1)).astype("float32")


def build(keras, wrap=lambda optimizer: optimizer, **options):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=wrap(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse", metrics=["mae"], **options)
    return model


def fit_alone(keras, epochs=2):
    model, (inputs, targets) = build(keras), data()
    history = model.fit(inputs, targets, batch_size=16, shuffle=False, epochs=epochs, verbose=0)
    return [numpy.asarray(weights) for weights in model.get_weights()], history.history


def shard(hvd, inputs, targets, batch=16):
    """This rank's half of every batch: together they are the batches of one process."""
    part = batch // hvd.size()
    rows = [i for i in range(len(inputs)) if i % batch // part == hvd.rank()]
    return inputs[rows], targets[rows], part


class Keras3(unittest.TestCase):
    def test_local_variables_stay_each_rank_s_own(self):
        def loop():
            import keras
            import unisono.horovod.keras as hvd

            hvd.init()
            model = build(keras, hvd.DistributedOptimizer)
            model.set_weights([weights + 7 * hvd.rank() for weights in model.get_weights()])
            inputs, targets, batch = shard(hvd, *data())
            own = model.layers[-1].bias
            model.fit(inputs, targets, batch_size=batch, shuffle=False, epochs=1, verbose=0,
                      callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[own])])
            return model.get_weights()

        first, second = run(loop, environment=(("KERAS_BACKEND", "tensorflow"),))
        for each, other in zip(first[:-1], second[:-1]):
            numpy.testing.assert_array_equal(each, other)
        numpy.testing.assert_allclose(second[-1] - first[-1], 7, rtol=1e-5)

    def test_fit_as_one_process_with_all_the_data(self):
        def loop():
            import keras
            import tempfile
            import unisono.horovod.keras as hvd

            hvd.init()
            alone, history = fit_alone(keras) if hvd.rank() == 0 else (None, None)
            model = build(keras, hvd.DistributedOptimizer)
            if hvd.rank() == 1:
                model.set_weights([weights + 7 for weights in model.get_weights()])
            inputs, targets, batch = shard(hvd, *data())
            done = model.fit(inputs, targets, batch_size=batch, shuffle=False, epochs=2, verbose=0,
                             callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.keras")
                model.save(path)
                plain = keras.models.load_model(path)  # needs nothing of ours
                again = hvd.load_model(path)
            return {"weights": model.get_weights(), "history": done.history, "alone": alone, "history alone": history,
                    "plain": type(plain.optimizer).__mro__[0].__module__, "steps": int(again.optimizer.iterations),
                    "allreduce": hvd.allreduce(hvd.rank() + 1.0, average=False).tolist()}

        first, second = run(loop)
        for mine, other, alone in zip(first["weights"], second["weights"], first["alone"]):
            self.assertTrue((mine == other).all())
            self.assertLess(abs(mine - alone).max(), 1e-5)
        self.assertEqual(first["history"], second["history"])
        for name, values in first["history alone"].items():
            self.assertLess(abs(numpy.array(values) - first["history"][name]).max(), 1e-3, name)
        self.assertEqual((first["steps"], first["allreduce"]), (8, 3.0))
        self.assertTrue(first["plain"].startswith("keras."))

    def test_on_torch(self):
        def loop():
            import keras
            import unisono.horovod.keras as hvd

            hvd.init()
            alone = fit_alone(keras)[0] if hvd.rank() == 0 else None
            model = build(keras, hvd.DistributedOptimizer)
            inputs, targets, batch = shard(hvd, *data())
            model.fit(inputs, targets, batch_size=batch, shuffle=False, epochs=2, verbose=0,
                      callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
            return keras.backend.backend(), model.get_weights(), alone

        if not _driver.is_installed("torch"):
            self.skipTest("torch is not installed")
        first, second = run(loop, environment=[("KERAS_BACKEND", "torch")])
        self.assertEqual(first[0], "torch")
        for mine, other, alone in zip(first[1], second[1], first[2]):
            self.assertTrue((mine == other).all())
            self.assertLess(abs(mine - alone).max(), 1e-5)

    def test_learning_rates(self):
        def loop():
            import keras
            import unisono.horovod.keras as hvd

            hvd.init()
            model = build(keras, hvd.DistributedOptimizer)
            inputs, targets, batch = shard(hvd, *data())
            done = model.fit(inputs, targets, batch_size=batch, shuffle=False, epochs=4, verbose=0, callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.08, warmup_epochs=2, verbose=1),
                hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.08, multiplier=lambda epoch: 0.5 ** (epoch - 2), start_epoch=2)])
            return done.history["lr"], float(model.optimizer.momentum)

        rates, momentum = run(loop)[0]
        # Warm-up from 0.04 to 0.08 in two epochs, then halved.
        for rate, wanted in zip(rates, (0.06, 0.08, 0.08, 0.04)):
            self.assertAlmostEqual(rate, wanted, places=5)
        self.assertAlmostEqual(momentum, 0.9)


class TensorFlow(unittest.TestCase):
    def test_tape_and_operations(self):
        def loop():
            import tensorflow as tf
            import unisono.horovod.tensorflow as hvd

            hvd.init()
            rank = hvd.rank()
            weight = tf.Variable([1.0, 2.0])
            hvd.broadcast_variables([weight], root_rank=0)

            @tf.function
            def step(number):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(weight * number)
                tape = hvd.DistributedGradientTape(tape)
                gradient = tape.gradient(loss, [weight])
                return gradient[0], hvd.allreduce(loss, op=hvd.Sum), hvd.allgather(tf.fill([rank + 1], rank))

            graph = [value.numpy().tolist() for value in step(tf.constant(float(rank + 1)))]
            with tf.GradientTape() as tape:
                through = tf.reduce_sum(hvd.allreduce(weight * float(rank + 1), op=hvd.Sum))
            slices = hvd.allreduce(tf.IndexedSlices(tf.constant([[1.0 + rank]]), tf.constant([rank]), tf.constant([2, 1])), op=hvd.Sum)
            rows, came = hvd.alltoall(tf.range(4) + 10 * rank, splits=[1, 3])
            return {"graph": graph, "through": tape.gradient(through, weight).numpy().tolist(), "broadcast": hvd.broadcast(tf.constant([rank]), 1).numpy()[0],
                    "slices": tf.convert_to_tensor(slices).numpy().tolist(), "scatter": hvd.reducescatter(tf.range(4.0), op=hvd.Sum).numpy().tolist(),
                    "alltoall": (rows.numpy().tolist(), came.numpy().tolist()),
                    "fp16": hvd.allreduce(tf.constant([1.0]), compression=hvd.Compression.fp16).dtype.name,
                    "grouped": [t.numpy().tolist() for t in hvd.grouped_allreduce([tf.ones(2), tf.ones(1, tf.int32)], op=hvd.Sum)]}

        for rank, out in enumerate(run(loop)):
            self.assertEqual(out["graph"], [[1.5, 1.5], 9.0, [0, 1, 1]])
            # The sum over both ranks' gradients of rank+1 each: 2 * (rank + 1).
            self.assertEqual(out["through"], [2.0 * (rank + 1)] * 2)
            self.assertEqual((out["broadcast"], out["slices"], out["fp16"]), (1, [[1.0], [2.0]], "float32"))
            self.assertEqual(out["scatter"], [[0.0, 2.0], [4.0, 6.0]][rank])
            self.assertEqual(out["alltoall"], [([0, 10], [1, 1]), ([1, 2, 3, 11, 12, 13], [3, 3])][rank])
            self.assertEqual(out["grouped"], [[2.0, 2.0], [2]])

    def test_tf_keras(self):
        def loop():
            import tensorflow as tf
            import horovod.tensorflow.keras as hvd  # as Horovod's own scripts say

            hvd.init()
            alone = fit_alone(tf.keras)[0] if hvd.rank() == 0 else None
            model = build(tf.keras, hvd.DistributedOptimizer)
            inputs, targets, batch = shard(hvd, *data())
            model.fit(inputs, targets, batch_size=batch, shuffle=False, epochs=2, verbose=0,
                      callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
            return tf.keras.Model.__module__, [numpy.asarray(weights) for weights in model.get_weights()], alone, hvd.__name__

        if not _driver.is_installed("tf_keras"):
            self.skipTest("tf_keras is not installed")
        first, second = run(loop, environment=[("TF_USE_LEGACY_KERAS", "1")])
        self.assertTrue(first[0].startswith("tf_keras."), first[0])
        self.assertEqual(first[3], "unisono.horovod.tensorflow.keras")
        for mine, other, alone in zip(first[1], second[1], first[2]):
            self.assertTrue((mine == other).all())
            self.assertLess(abs(mine - alone).max(), 1e-5)


def every_argument():
    """Values of 2 ranks (1 and 2); the expected numbers are by hand."""
    import tempfile

    import keras
    import tensorflow as tf
    import unisono.horovod.keras as khvd
    import unisono.horovod.tensorflow as hvd
    import unisono.horovod.tensorflow.keras as thvd

    class Own(keras.optimizers.SGD):
        pass

    hvd.init()
    rank, all_, half = hvd.rank(), hvd.global_process_set, hvd.Compression.fp16
    mine, two = tf.constant([1.0 + rank]), tf.constant([1.0 + rank, 3.0 * (rank + 1)])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(rank))])
    model.compile(Own(0.1), "mse")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded = khvd.load_model(path, custom_optimizers=[Own], compression=half)
        objects = khvd.load_model(path, custom_objects={"Own": Own})
        third = thvd.load_model(path, custom_optimizers=[Own], custom_objects={}, compression=half)
    khvd.broadcast_global_variables(root_rank=1, model=model)
    thvd.broadcast_global_variables(root_rank=1, model=third)
    made = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), name="mine", average_aggregated_gradients=True, backward_passes_per_step=2, process_set=all_)
    return {
        "tf": [hvd.grouped_allreduce([mine], average=False, compression=half, prescale_factor=2.0, postscale_factor=10.0, process_set=all_)[0].numpy().tolist(),
               hvd.allgather(mine, name="a", process_set=all_).numpy().tolist(), hvd.broadcast(mine, 1, name="b", process_set=all_).numpy().tolist(),
               hvd.alltoall(two, name="c", process_set=all_).numpy().tolist()[0] - rank * 2, hvd.allgather_object(rank, name="d", process_set=all_),
               hvd.broadcast_object(rank, 1, name="e", process_set=all_)],
        "scatter": hvd.reducescatter(two, op=hvd.Sum, name="f", compression=half, process_set=all_, prescale_factor=2.0, postscale_factor=10.0).numpy().tolist(),
        "keras": [khvd.allreduce(1.0001, name="g", op=khvd.Sum, compression=half).tolist(), khvd.allgather([rank], name="h").tolist(),
                  khvd.broadcast([rank], 1, name="i").tolist()],
        "part": khvd.reducescatter([1.0, 3.0], name="j", op=khvd.Sum).tolist(),
        "loaded": [type(each.optimizer).__name__ for each in (loaded, objects, third)],
        "kernel": [float(each.get_weights()[0][0, 0]) for each in (model, third)],
        "optimizer": (made.name, made.get_config()["gradient_accumulation_steps"]),
    }


class Arguments(unittest.TestCase):
    def test_each_has_its_effect(self):
        for rank, out in enumerate(run(every_argument)):
            self.assertEqual(out["tf"], [[60.0], [1.0, 2.0], [2.0], 1.0, [0, 1], 1])
            self.assertEqual((out["scatter"], out["part"]), ([[60.0], [180.0]][rank], [[2.0], [6.0]][rank]))
            self.assertEqual(out["keras"], [2.0, [0, 1], [1]])
            self.assertEqual((out["loaded"], out["kernel"], out["optimizer"]), (["Own"] * 3, [1.0, 1.0], ("mine", 2)))


if __name__ == "__main__":
    support.main()
