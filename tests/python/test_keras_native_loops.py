"""unisono.tf on the native engine: gradient tapes, loops of one's own and strategies. Numbers are checked against NumPy."""

import gc
import unittest
import weakref

import numpy as np

import support
import unisono.tf as tf
from keras_support import L, classifier, points
from unisono import keras


class Tape(unittest.TestCase):
    def test_gradients_are_right(self):
        x, y = points(32)
        w, b = tf.Variable(np.full((8, 1), 0.1)), tf.Variable([0.5])
        target = y[:, None].astype(np.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - target))
        gw, gb = tape.gradient(loss, [w, b])
        error = x @ w.numpy() + 0.5 - target
        np.testing.assert_allclose(gw.numpy(), 2 * x.T @ error / 32, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(gb.numpy(), [2 * error.mean()], rtol=1e-4)
        keras.optimizers.SGD(0.1).apply_gradients([(gw, w), (gb, b)])
        np.testing.assert_allclose(b.numpy(), [0.5 - 0.2 * error.mean()], rtol=1e-5)

    def test_saturated_outputs(self):
        """Losses and metrics know the logits of a prediction, on its tape and after it."""
        logits = np.array([[300, -200, 0], [-150, 250, -100]], np.float32)
        names, two = ("CategoricalCrossentropy", "SparseCategoricalCrossentropy", "BinaryCrossentropy"), (500 + np.log(2)) / 6
        for name, activation, want in zip(names, ("softmax", "softmax", "sigmoid"), (250, 250, two)):
            model = keras.Sequential([keras.Input((3,)), L.Dense(3, activation=activation, use_bias=False)])
            model.set_weights([np.eye(3, dtype=np.float32)])
            y = np.array([1, 1]) if name[0] == "S" else np.array([[0, 1, 0], [0, 1, 0]], np.float32)
            loss, metric = getattr(keras.losses, name)(), getattr(keras.metrics, name)()
            with tf.GradientTape() as tape:
                p = model(logits)
                value = loss(y, p)
            (gradient,) = tape.gradient(value, model.trainable_variables)
            slope = np.array([[1, -1, 0], [0, 0, 0]]) / 2 if name[0] != "B" else np.array([[1, -1, 0.5], [0, 0, 0]]) / 6
            np.testing.assert_allclose(gradient.numpy(), logits.T @ slope, rtol=1e-5, atol=1e-3)
            model(logits * 0)  # the step of p is gone
            metric.update_state(y, p)
            for got in (value, loss(y, p), loss(y, model(logits)), metric.result()):
                self.assertAlmostEqual(float(got), want, 3)
            self.assertLess(float(loss(y, p.numpy())), 17)  # of numbers nothing is known but the numbers

    def test_operators(self):
        a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_allclose(((a + 1) * 2 - a / 2 @ a ** 2).numpy(), (a.numpy() + 1) * 2 - a.numpy() / 2 @ a.numpy() ** 2)
        np.testing.assert_allclose((1.0 - a).numpy(), 1 - a.numpy())
        np.testing.assert_allclose((np.ones((2, 2), np.float32) * a).numpy(), a.numpy())
        self.assertEqual((a > 2).numpy().tolist(), [[False, False], [True, True]])
        self.assertEqual(a[0, 1:].numpy().tolist(), [2.0])
        self.assertEqual(a[..., None].shape, (2, 2, 1))
        self.assertEqual(f"{tf.reduce_sum(a):.2f}", "10.00")
        self.assertEqual(float(tf.reduce_mean(a, axis=0)[0]), 2.0)
        self.assertEqual(np.from_dlpack(a).tolist(), a.numpy().tolist())

    def test_tensors_outlive_their_step(self):
        model, kept = classifier(), []
        x, y = points(8)
        for step in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x * step, training=True))
            kept.append((loss, float(loss)))
            tape.gradient(loss, model.trainable_variables)
        self.assertEqual([float(loss) for loss, _ in kept], [value for _, value in kept])

    def test_loop_equals_fit(self):
        x, y = points(128)
        keras.utils.set_random_seed(2)
        one = classifier()
        one.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0)
        keras.utils.set_random_seed(2)
        two, optimizer = classifier(), keras.optimizers.Adam(0.01)
        loss_object = keras.losses.BinaryCrossentropy()
        for _ in range(2):
            for begin in range(0, 128, 32):
                with tf.GradientTape() as tape:
                    loss = loss_object(y[begin:begin + 32, None], two(x[begin:begin + 32], training=True))
                optimizer.apply_gradients(zip(tape.gradient(loss, two.trainable_variables), two.trainable_variables))
        for a, b in zip(one.get_weights(), two.get_weights()):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)

    def test_only_what_is_given_is_updated(self):
        model, optimizer = classifier(), keras.optimizers.Adam(0.1)
        x, _ = points(8)
        before = model.get_weights()
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x, training=True))
            some = model.layers[1].trainable_variables
            gradients = tape.gradient(loss, some)
            optimizer.apply_gradients([(gradient * 0.5, variable) for gradient, variable in zip(gradients, some)])
        after = model.get_weights()
        for index in (0, 1):
            np.testing.assert_array_equal(before[index], after[index])
        self.assertFalse(np.array_equal(before[2], after[2]))

    def test_a_long_loop_keeps_its_size(self):
        model, optimizer = classifier(), keras.optimizers.SGD(0.01)
        x, y = points(64)

        def steps(count):
            for _ in range(count):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(x, training=True) - y[:, None]))
                optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096

        steps(300)
        before = resident()
        steps(3000)
        self.assertLess(resident() - before, 2 << 20)

    def test_what_the_tape_refuses(self):
        model = classifier()
        x, _ = points(4)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
            with self.assertRaises(NotImplementedError):
                with tf.GradientTape():
                    pass
        tape.gradient(loss, model.trainable_variables)
        with self.assertRaises(NotImplementedError):
            tape.gradient(loss, model.trainable_variables)
        with self.assertRaisesRegex(ValueError, "no gradients"):
            keras.optimizers.SGD().apply_gradients([(None, model.weights[0])])

    def test_functions_of_the_user(self):
        def my_loss(y_true, y_pred):
            return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1)

        def my_metric(y_true, y_pred):
            return tf.abs(y_true - y_pred)

        x, y = points(64)
        target = y[:, None].astype(np.float32)
        histories = []
        for loss, metric in ((my_loss, my_metric), ("mse", "mae")):
            keras.utils.set_random_seed(4)
            model = keras.Sequential([keras.Input((8,)), L.Dense(1)])
            model.compile("sgd", loss=loss, metrics=[metric])
            histories.append(list(model.fit(x, target, epochs=2, verbose=0).history.values()))
        np.testing.assert_allclose(histories[0], histories[1], rtol=1e-5)

    def test_nothing_leaks(self):
        model = classifier()
        x, y = points(32)
        model.fit(x, y, verbose=0)
        gone = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(gone())


class Strategies(unittest.TestCase):
    def run_loop(self, replicas):
        keras.utils.set_random_seed(3)
        x, y = points(100)
        strategy = tf.distribute.MirroredStrategy(replicas)
        with strategy.scope():
            model = keras.Sequential([keras.Input((8,)), L.Dense(16, use_bias=False), L.BatchNormalization(), L.Activation("relu"), L.Dropout(0.3),
                                      L.Dense(1, activation="sigmoid")])
            optimizer, accuracy = keras.optimizers.Adam(0.01), keras.metrics.BinaryAccuracy()
            loss_object = keras.losses.BinaryCrossentropy(reduction="none")

        def step(inputs):
            features, labels = inputs
            with tf.GradientTape() as tape:
                predictions = model(features, training=True)
                loss = tf.nn.compute_average_loss(loss_object(labels, predictions), global_batch_size=32)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            accuracy.update_state(labels, predictions)
            return loss

        losses = []
        for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y[:, None])).batch(32)):
            losses.append(float(strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(batch,)), axis=None)))
        return losses, float(accuracy.result()), model.get_weights()

    def test_replicas_change_nothing(self):
        one, two, three = (self.run_loop(replicas) for replicas in (1, 2, 3))
        for other in (two, three):
            np.testing.assert_allclose(other[0], one[0], rtol=1e-4)
            self.assertEqual(other[1], one[1])
            for a, b in zip(one[2], other[2]):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)

    def test_fit_in_scope(self):
        x, y = points(100)
        results = []
        for replicas in (1, 2):
            keras.utils.set_random_seed(6)
            with tf.distribute.MirroredStrategy(replicas).scope():
                model = classifier()
            results.append(model.fit(x, y, epochs=2, verbose=0).history["loss"])
        np.testing.assert_allclose(*results, rtol=1e-4)

    def test_errors(self):
        strategy = tf.distribute.MirroredStrategy(2)
        with strategy.scope():
            model, mean = classifier(), keras.losses.MeanSquaredError()

        def fails():
            raise LookupError("replica %d" % tf.distribute.get_replica_context().replica_id_in_sync_group)

        with self.assertRaisesRegex(LookupError, "replica"):
            strategy.run(fails)
        with self.assertRaisesRegex(ValueError, "reduction"):
            strategy.run(lambda: mean(np.zeros((2, 1)), np.zeros((2, 1))))

        def changes():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(points(4)[0], training=True))
            return tape.gradient(loss, model.trainable_variables)[0].numpy()

        with self.assertRaisesRegex(ValueError, "clipnorm"):
            strategy.run(changes)
        values = strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group)
        self.assertEqual(values.values, (0, 1))
        self.assertEqual(float(strategy.reduce("MEAN", values)), 0.5)

    def test_devices(self):
        for devices in (["cpu:0"], ["/cpu:0", "CPU:1"], ["/device:CPU:0"], ["/job:localhost/replica:0/task:0/device:CPU:0"],
                        tf.config.list_physical_devices("CPU")):
            self.assertEqual(tf.distribute.MirroredStrategy(devices).num_replicas_in_sync, len(devices))
        self.assertEqual(tf.distribute.OneDeviceStrategy("/cpu:0").num_replicas_in_sync, 1)
        for devices, words in ((["/gpu:9"], "no device '/gpu:9'.*CPUs only"), (["GPU:0", "GPU:1"], "CPUs only"), (["nonsense"], "'nonsense' is not the name of a device"),
                               (["/cpu:x"], "not the name"), ([""], "not the name"), ([0, 1], "0 is not the name"), (["cpu:0", "/CPU:0"], "twice"), ([], "number of replicas"),
                               ("cpu:0", "list of devices")):
            with self.assertRaisesRegex(ValueError, words):
                tf.distribute.MirroredStrategy(devices)
        with self.assertRaisesRegex(ValueError, "CPUs only"):
            tf.distribute.OneDeviceStrategy("/gpu:0")


if __name__ == "__main__":
    support.main()
