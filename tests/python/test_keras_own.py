"""unisono.keras: layers and models with a call() of the user's own, models inside of models, arrays without copies."""

import gc
import os
import re
import tempfile
import unittest
import weakref

import numpy as np

import support
from unisono import keras
import unisono.tf as tf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RANDOM = np.random.default_rng(0)
X = RANDOM.random((256, 8), dtype=np.float32)
Y = (X.sum(axis=1, keepdims=True) > 4).astype(np.float32)


class Linear(keras.layers.Layer):
    """Keras's example of a layer of one's own."""

    def __init__(self, units=32, **keywords):
        super().__init__(**keywords)
        self.units = units

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), initializer="glorot_uniform", trainable=True, name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", trainable=True, name="bias")
        self.built = True

    def call(self, inputs):
        return tf.matmul(inputs, self.kernel) + self.bias


class Net(keras.Model):
    """Sublayers, a list of them, a variable made by hand, and a layer that is called in training only."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.first = keras.layers.Dense(16, activation="relu")
        self.dropout = keras.layers.Dropout(0.1)
        self.blocks = [keras.layers.Dense(16, activation="relu") for _ in range(2)]
        self.last = keras.layers.Dense(1, activation="sigmoid")
        self.gain = tf.Variable(np.full(16, 0.5, np.float32), name="gain")

    def call(self, x, training=None):
        x = self.first(x)
        if training:
            x = self.dropout(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x * self.gain)


class Base(unittest.TestCase):
    def setUp(self):
        keras.utils.set_random_seed(3)

    def fit(self, model, epochs=30, **keywords):
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        return model.fit(X, Y, epochs=epochs, verbose=0, **keywords).history["loss"]


class Layers(Base):
    def test_the_same_numbers_as_the_engine_s_own_layer(self):
        for kind in (Linear, keras.layers.Dense):
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input((8,)), kind(16, name="a"), keras.layers.Activation("relu"), kind(1, name="b"),
                                      keras.layers.Activation("sigmoid")])
            losses = self.fit(model)
            if kind is Linear:
                own, names = losses, [weight.path for weight in model.weights]
        self.assertEqual(names, ["a/kernel", "a/bias", "b/kernel", "b/bias"])
        np.testing.assert_allclose(own, losses, rtol=1e-5)

    def test_functional_and_alone(self):
        symbol = keras.Input((8,))
        hidden = Linear(5)(symbol)
        self.assertEqual(hidden.shape, (None, 5))
        model = keras.Model(symbol, keras.layers.Dense(1)(hidden))
        self.assertEqual(model.predict(X[:3], verbose=0).shape, (3, 1))
        layer = Linear(3)
        out = layer(X[:2])
        np.testing.assert_allclose(np.asarray(out), X[:2] @ layer.kernel.numpy() + layer.bias.numpy(), rtol=1e-5)

    def test_weights_of_init_and_states(self):
        class Counter(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.total = self.add_weight(shape=(), initializer="zeros", trainable=False, name="total")
                self.scale = self.add_weight(shape=(8,), initializer=keras.initializers.Constant(2.0), name="scale")
                self.table = self.add_weight(shape=(8,), initializer=lambda shape: np.arange(8), name="table")

            def call(self, x):
                return x * self.scale + self.table

        layer = Counter()
        out = layer(X[:2])
        np.testing.assert_allclose(np.asarray(out), X[:2] * 2 + np.arange(8), rtol=1e-6)
        self.assertEqual([weight.name for weight in layer.trainable_weights], ["scale", "table"])
        self.assertEqual([weight.name for weight in layer.non_trainable_weights], ["total"])

    def test_building_is_not_training(self):
        """call() is tried on zeros to find shapes: that changes no moving average, no variable and no metric."""
        count, mean = keras.Variable(0.0), keras.metrics.Mean()

        class Counts(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.norm = keras.layers.BatchNormalization(momentum=0.5)
                self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

            def build(self, shape):
                self.sums = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="sums")

            def call(self, x, training=None):
                self.calls.assign_add(1.0)
                count.assign_add(1.0)
                mean.update_state(x)
                if training:
                    self.sums.assign(self.sums + keras.ops.sum(x, axis=0))
                return self.norm(x, training=training)

        layer = Counts()
        layer(X, training=True)
        np.testing.assert_allclose(layer.norm.get_weights()[2], X.mean(axis=0) / 2, rtol=1e-5)
        np.testing.assert_allclose(layer.norm.get_weights()[3], 0.5 + X.var(axis=0) / 2, rtol=1e-5)
        np.testing.assert_allclose(layer.sums.numpy(), X.sum(axis=0), rtol=1e-5)
        self.assertEqual((layer.calls.numpy(), count.numpy()), (1, 1))
        self.assertAlmostEqual(float(mean.result()), float(X.mean()), 5)
        inside = Counts()
        model = keras.Sequential([keras.Input((8,)), inside, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=len(X), epochs=3, verbose=0)
        self.assertEqual(inside.calls.numpy(), 3)

    def test_replicas_do_not_each_assign(self):
        """Two replicas would count twice, and average parts of the batch: refused, as in TensorFlow."""
        class Counts(keras.layers.Layer):
            def build(self, shape):
                self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

            def call(self, x):
                self.calls.assign_add(1.0)
                return x

        for replicas in (1, 2):
            model = keras.Sequential([keras.Input((8,)), Counts(), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            if replicas == 1:
                model.fit(X, Y, batch_size=len(X), epochs=2, verbose=0, replicas=replicas)
                self.assertEqual(model.layers[0].calls.numpy(), 2)
            else:
                with self.assertRaisesRegex(NotImplementedError, "assign.. to calls in call"):
                    model.fit(X, Y, batch_size=len(X), epochs=2, verbose=0, replicas=replicas)

    def test_layers_that_were_built_before(self):
        """In the build() of the layer around them, or called alone: they are part of the model, and are trained."""
        class Built(keras.layers.Layer):
            def build(self, shape):
                self.dense = keras.layers.Dense(4)
                self.dense.build(shape)
                self.net = keras.Sequential([keras.layers.Dense(3)])
                self.net.build((None, 4))

            def call(self, x):
                return self.net(self.dense(x))

        class Around(keras.Model):
            def __init__(self, first):
                super().__init__()
                self.first, self.head = first, keras.layers.Dense(1)

            def call(self, x):
                return self.head(self.first(x))

        alone = keras.layers.Dense(4)
        alone(X)
        for first, count in ((Built(), 6), (alone, 4)):
            model = Around(first)
            before = [each.copy() for each in first.get_weights()] if first is alone else None
            model(X)
            if before is not None:
                np.testing.assert_array_equal(model.get_weights()[0], before[0])
            before = model.get_weights()
            self.assertEqual((len(before), len(model.trainable_weights)), (count, count))
            model.compile(keras.optimizers.SGD(0.01), "mse")
            model.fit(X, Y, verbose=0)
            for old, new in zip(before, model.get_weights()):
                self.assertGreater(np.abs(old - new).max(), 0)
        with self.assertRaisesRegex(ValueError, "belongs to a model already"):
            Around(alone)(X)

    def test_the_order_of_weights_is_that_of_keras(self):
        class Mixed(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.state = self.add_weight(shape=(8,), initializer="zeros", trainable=False, name="state")

            def build(self, shape):
                self.other = self.add_weight(shape=(8,), initializer="zeros", trainable=False, name="other")
                self.scale = self.add_weight(shape=(8,), initializer="ones", name="scale")
                self.scale.assign(np.arange(8))

            def call(self, x):
                return x * self.scale + self.state + self.other

        layer = Mixed()
        np.testing.assert_allclose(np.asarray(layer(X)), X * np.arange(8), rtol=1e-6)
        self.assertEqual([each.name for each in layer.weights], ["scale", "state", "other"])

    def test_several_inputs_and_layers_inside(self):
        class Mix(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.left, self.right = Linear(4), keras.layers.Dense(4)

            def call(self, a, b):
                return self.left(a) * self.right(b)

        a, b = keras.Input((8,)), keras.Input((3,))
        model = keras.Model([a, b], keras.layers.Dense(1)(Mix()(a, b)))
        model.compile("sgd", "mse")
        losses = model.fit([X, X[:, :3].copy()], Y, epochs=4, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len(model.weights), 6)

    def test_mistakes(self):
        class Raises(keras.layers.Layer):
            def call(self, x):
                raise LookupError("mine")

        class Two(keras.layers.Layer):
            def call(self, x):
                return x, x

        class Forgets(keras.layers.Layer):
            def __init__(self):
                self.units = 3

            def call(self, x):
                return x

        with self.assertRaisesRegex(LookupError, "mine"):
            keras.Sequential([keras.Input((8,)), Raises()]).output_shape
        with self.assertRaisesRegex(NotImplementedError, "one output"):
            keras.Sequential([keras.Input((8,)), Two()]).output_shape
        with self.assertRaisesRegex(RuntimeError, r"super\(\).__init__"):
            keras.Sequential([keras.Input((8,)), Forgets()])
        with self.assertRaisesRegex(NotImplementedError, "call"):
            keras.layers.Layer()


class Models(Base):
    def test_fit_evaluate_predict(self):
        model = Net()
        losses = self.fit(model, epochs=120)
        self.assertLess(losses[-1], 0.6 * losses[0])
        self.assertEqual(len(model.weights), 9)
        self.assertEqual([layer.name for layer in model.layers], ["dense", "dropout", "dense_1", "dense_2", "dense_3"])
        self.assertGreater(model.evaluate(X, Y, verbose=0)[1], 0.8)
        self.assertEqual(model.predict(X[:5], verbose=0).shape, (5, 1))
        self.assertGreater(np.abs(model.gain.numpy() - 0.5).max(), 0.01)  # the variable was trained
        again = Net()
        again.build((None, 8))
        again.set_weights(model.get_weights())
        np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))

    def test_loop_of_one_s_own(self):
        model, optimizer, loss_of = Net(), keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy()
        losses = []
        for _ in range(60):
            with tf.GradientTape() as tape:
                loss = loss_of(Y, model(X, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            self.assertNotIn(None, gradients)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            losses.append(float(loss))
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_replicas(self):
        def losses(replicas):
            keras.utils.set_random_seed(3)
            strategy = tf.distribute.MirroredStrategy(replicas)
            with strategy.scope():
                model = keras.Sequential([keras.Input((8,)), Linear(16), keras.layers.Activation("relu"), Linear(1),
                                          keras.layers.Activation("sigmoid")])
                model.compile("sgd", "binary_crossentropy")
            return model.fit(X, Y, batch_size=32, epochs=3, verbose=0).history["loss"]

        np.testing.assert_allclose(losses(2), losses(1), rtol=1e-4)

    def test_nothing_is_left(self):
        model = Net()
        self.fit(model, epochs=1)
        gone = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(gone())

    def test_files(self):
        model = Net()
        self.fit(model, epochs=2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.weights.h5")
            model.save_weights(path)
            again = Net()
            again.build((None, 8))
            again.load_weights(path)
            np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))
            with self.assertRaisesRegex(ValueError, "Net"):
                model.save(os.path.join(folder, "net.keras"))

    def test_a_train_step_is_not_overlooked(self):
        kind = type("Stepping", (Net,), {"train_step": lambda self, data: {}})
        model = kind()
        model.compile("sgd", "mse")
        with self.assertRaisesRegex(NotImplementedError, "train_step"):
            model.fit(X, Y)
        for name, call in (("test_step", lambda model: model.evaluate(X, Y)), ("compute_loss", lambda model: model.train_on_batch(X, Y)),
                           ("compute_metrics", lambda model: model.fit(X, Y)), ("predict_step", lambda model: model.predict(X))):
            model = type("Stepping", (Net,), {name: lambda self, *given: {}})()
            model.compile("sgd", "mse")
            with self.assertRaisesRegex(NotImplementedError, "does not call a " + name):
                call(model)

    def test_losses_and_metrics_of_call_are_not_overlooked(self):
        model = Net()
        model.seen = keras.metrics.Mean()
        model.compile("sgd", "mse")
        with self.assertRaisesRegex(NotImplementedError, "self.seen"):
            model.fit(X, Y)
        with self.assertRaisesRegex(NotImplementedError, "add_loss is not supported"):
            model.add_loss(1.0)

    def test_not_built_and_without_call(self):
        with self.assertRaisesRegex(ValueError, "not built"):
            Net().summary()
        with self.assertRaisesRegex(NotImplementedError, "call"):
            type("Empty", (keras.Model,), {})()


class Nesting(Base):
    def test_a_model_keeps_its_weights_inside_of_another(self):
        inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu")], name="inner")
        before = inner.get_weights()
        symbol = keras.Input((8,))
        outer = keras.Model(symbol, keras.layers.Dense(1, name="head")(inner(symbol)))
        np.testing.assert_array_equal(before[0], inner.get_weights()[0])
        self.assertEqual([weight.path for weight in outer.weights], ["inner/dense/kernel", "inner/dense/bias", "head/kernel", "head/bias"])
        self.assertIs(outer.get_layer("inner"), inner)
        outer.compile("sgd", "mse")
        outer.fit(X, Y, verbose=0)
        self.assertFalse((before[0] == inner.get_weights()[0]).all())
        weights = outer.get_weights()
        np.testing.assert_allclose(np.asarray(inner(X[:2])), np.maximum(X[:2] @ weights[0] + weights[1], 0), rtol=1e-4, atol=1e-6)
        self.assertEqual(inner.predict(X[:40]).shape, (40, 4))
        with self.assertRaisesRegex(ValueError, "part of another"):
            inner.fit(X, Y)

    def test_encoder_and_decoder(self):
        encoder_in = keras.Input((8,))
        encoder = keras.Model(encoder_in, keras.layers.Dense(3, activation="relu")(encoder_in), name="encoder")
        decoder_in = keras.Input((3,))
        decoder = keras.Model(decoder_in, keras.layers.Dense(8)(decoder_in), name="decoder")
        whole = keras.Sequential([keras.Input((8,)), encoder, decoder], name="autoencoder")
        whole.compile("adam", "mse")
        losses = whole.fit(X, X, epochs=5, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual([layer.name for layer in whole.layers], ["encoder", "decoder"])
        np.testing.assert_allclose(np.asarray(decoder(encoder(X[:2]))), whole.predict(X[:2], verbose=0), rtol=1e-4, atol=1e-6)
        encoder.trainable = False
        self.assertEqual(len(whole.trainable_weights), 2)

    def test_models_of_one_s_own_inside(self):
        model = keras.Sequential([keras.Input((8,)), keras.Sequential([keras.layers.Dense(6), Linear(6)], name="part"), Net(name="net")])
        losses = self.fit(model)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len(model.weights), 13)

        class Around(keras.Model):
            def __init__(self):
                super().__init__()
                self.inner = keras.Sequential([keras.layers.Dense(6, activation="relu"), keras.layers.Dense(4)])
                self.last = keras.layers.Dense(1, activation="sigmoid")

            def call(self, x):
                return self.last(self.inner(x))

        losses = self.fit(Around())
        self.assertLess(losses[-1], losses[0])


class Page(Base):
    def test_the_code_of_the_page_runs(self):
        with open(os.path.join(ROOT, "docs", "python-engine.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        self.assertEqual(len(blocks), 2)
        names, before = {"tf": tf}, os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                with support.printed():
                    for block in blocks:
                        exec(compile(block, "python-engine.md", "exec"), names)
            finally:
                os.chdir(before)
        model = names["Net"]()
        self.assertEqual(model.predict(X[:3], verbose=0).shape, (3, 1))


def address(array):
    return np.asarray(array).__array_interface__["data"][0]


class WithoutCopies(Base):
    def test_arrays_are_used_where_they_lie(self):
        from unisono.keras._data import columns

        for dtype in ("float32", "float64", "int64", "int32", "uint8", "bool"):
            array = np.zeros((4, 3), dtype)
            self.assertEqual(address(columns(array)[0]), address(array), dtype)
        self.assertEqual(address(tf.constant(X).numpy()), address(X))
        self.assertEqual(address(np.from_dlpack(tf.constant(X))), address(X))
        dataset = tf.data.Dataset.from_tensor_slices((X, Y))
        self.assertIsNotNone(dataset)

    def test_a_weight_is_its_array(self):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        kernel = model.weights[0]
        self.assertEqual(address(kernel.view()), address(kernel.view()))
        kernel.view()[...] = 1.0
        np.testing.assert_allclose(model.predict(X[:2], verbose=0), np.repeat(X[:2].sum(axis=1, keepdims=True), 2, axis=1), rtol=1e-5)

    def test_what_has_dlpack_only(self):
        from unisono.keras._tensor import as_array

        class Tensor:
            """Somebody else's tensor."""

            def __dlpack__(self, **options):
                return X.__dlpack__(**options)

            def __dlpack_device__(self):
                return X.__dlpack_device__()

        self.assertEqual(address(as_array(Tensor())), address(X))


if __name__ == "__main__":
    support.main()
