"""unisono.keras: the arguments that all classes of a kind have do what they say: name, trainable, dtype, seed. One table of how each class is made."""

import inspect
import unittest

import numpy as np

import support
from unisono import keras

BUILT = (4, 4, 2)  # of layers without a row: pooling, padding, normalisation, merging
# what a class needs (None: it is left out), and the shape of one sample for layers that are built here
LAYERS = {
    "AveragePooling1D": (dict(pool_size=2), (4, 2)), "AveragePooling2D": (dict(pool_size=2), BUILT), "SentenceEmbedding": (None, None),
    "Activation": (dict(activation="relu"), (4,)), "Attention": (None, None), "AdditiveAttention": (None, None), "Bidirectional": (None, None),
    "Conv1D": (dict(filters=2, kernel_size=2), (6, 3)), "Conv2D": (dict(filters=2, kernel_size=2), (6, 6, 3)), "Dense": (dict(units=2), (4,)),
    "DepthwiseConv2D": (dict(kernel_size=2), (6, 6, 3)), "Dropout": (dict(rate=0.5), (4,)), "Embedding": (dict(input_dim=5, output_dim=2), (3,)),
    "GRU": (dict(units=2), (3, 4)), "LSTM": (dict(units=2), (3, 4)), "SimpleRNN": (dict(units=2), (3, 4)), "InputLayer": (None, None),
    "MultiHeadAttention": (dict(num_heads=1, key_dim=2), None), "Permute": (dict(dims=(2, 1)), (3, 4)), "Reshape": (dict(target_shape=(2, 2)), (4,)),
    "RepeatVector": (dict(n=2), (4,)), "Rescaling": (dict(scale=0.5), (4,)), "TextVectorization": (dict(), None), "StringLookup": (dict(), None),
    "SeparableConv2D": (dict(filters=2, kernel_size=2), (6, 6, 3)), "Normalization": (dict(mean=0.0, variance=1.0), (4,)),
    "TimeDistributed": (None, None), "Lambda": (None, None), "Layer": (None, None), "Wrapper": (None, None), "RNN": (None, None),
    "LSTMCell": (dict(units=2), None), "GRUCell": (dict(units=2), None), "SimpleRNNCell": (dict(units=2), None), "StackedRNNCells": (None, None),
    "GaussianNoise": (dict(stddev=0.5), (4,)), "GaussianDropout": (dict(rate=0.5), (4,)), "SpatialDropout1D": (dict(rate=0.5), (3, 4)),
}


def classes(module, base):
    """(name, class) of a module's own classes below a base."""
    for name in sorted(set(getattr(module, "__all__", None) or dir(module))):
        kind = getattr(module, name, None)
        if inspect.isclass(kind) and issubclass(kind, base) and kind is not base and not name.startswith("_"):
            yield name, kind


def layers():
    for name, kind in classes(keras.layers, keras.layers.Layer):
        needs, shape = LAYERS.get(name, ({}, BUILT))
        if needs is not None:
            yield name, kind, needs, shape


class OfLayers(unittest.TestCase):
    def test_name(self):
        for name, kind, needs, _ in layers():
            with self.subTest(name):
                layer = kind(**needs, name="given")
                self.assertEqual((layer.name, layer.get_config()["name"]), ("given", "given"))

    def test_trainable(self):
        checked = 0
        for name, kind, needs, shape in layers():
            with self.subTest(name):
                self.assertEqual([kind(**needs, trainable=word).trainable for word in (True, False)], [True, False])
                if shape is None:
                    continue
                try:
                    made = [keras.Sequential([keras.Input(shape), kind(**needs, trainable=word)]) for word in (True, False)]
                    free, frozen = ([tuple(weight.shape) for weight in model.trainable_weights] for model in made)
                except (ValueError, RuntimeError):  # a layer of several inputs, or of another number of dimensions
                    continue
                checked += bool(free)
                self.assertEqual(frozen, [])
        self.assertGreater(checked, 6)

    def test_dtype(self):
        for name, kind, needs, _ in layers():
            with self.subTest(name):
                if name not in ("TextVectorization", "StringLookup"):  # of text
                    kind(**needs, dtype="float32")
                    with self.assertRaisesRegex(TypeError, "dtype"):
                        kind(**needs, dtype="float16")


class NoDefaults(unittest.TestCase):
    """A value that Keras refuses, or that means something to it, does not become the default."""

    def test_layers(self):
        layers = keras.layers
        for call, words in ((lambda: layers.Conv2D(2, 3, strides=0), "strides"), (lambda: layers.Conv2D(2, 3, strides=None), "strides"),
                            (lambda: layers.Conv1D(2, 3, dilation_rate=1.5), "dilation_rate"), (lambda: layers.Conv2D(2, 3, groups=None), "groups"),
                            (lambda: layers.MaxPooling2D(0), "pool_size"), (lambda: layers.MaxPooling2D(2, strides=0), "strides"),
                            (lambda: layers.BatchNormalization(momentum=None), "momentum"), (lambda: layers.BatchNormalization(epsilon=""), "epsilon"),
                            (lambda: layers.Concatenate(axis=None), "axis"), (lambda: layers.ReLU(negative_slope=None), "negative_slope"),
                            (lambda: layers.ZeroPadding2D(None), "padding"), (lambda: layers.Dense(2, use_bias=0), "use_bias")):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words + " must be"):
                call()
        self.assertEqual(layers.MaxPooling2D(2, strides=None)(np.ones((1, 4, 4, 1))).shape, (1, 2, 2, 1))

    def test_kinds(self):
        """Of another kind than declared: an error that names the argument."""
        layers, optimizers, losses, metrics, callbacks = keras.layers, keras.optimizers, keras.losses, keras.metrics, keras.callbacks
        schedules = optimizers.schedules
        for call, words in ((lambda: layers.Flatten(data_format=0), "data_format"), (lambda: layers.ZeroPadding2D(""), "padding"),
                            (lambda: layers.Conv2D(2, 3, padding=0), "padding"), (lambda: layers.MultiHeadAttention(1, 2, value_dim=""), "value_dim"),
                            (lambda: layers.ActivityRegularization(l1=-1), "l1"), (lambda: layers.BatchNormalization(axis=None), "axis"),
                            (lambda: layers.TextVectorization(output_mode=0), "output_mode"), (lambda: layers.TextVectorization(max_tokens=""), "max_tokens"),
                            (lambda: layers.TextVectorization(vocabulary="words.txt"), "vocabulary"), (lambda: layers.Normalization(variance=2.0), "mean and variance"),
                            (lambda: layers.LSTM(2, bias_initializer=None), "bias_initializer"), (lambda: layers.Dense(2, trainable=None), "trainable"),
                            (lambda: keras.Input(""), "shape"), (lambda: keras.Input((2, 1.5)), "shape"), (lambda: layers.InputLayer(), "shape"),
                            (lambda: optimizers.Adam(beta_1=None), "beta_1"), (lambda: optimizers.SGD(learning_rate=True), "learning_rate"),
                            (lambda: optimizers.RMSprop(centered="no"), "centered"), (lambda: optimizers.SGD(clipnorm=""), "clipnorm"),
                            (lambda: schedules.CosineDecay("", 3), "initial_learning_rate"), (lambda: schedules.ExponentialDecay(0.1, 3, None), "decay_rate"),
                            (lambda: losses.Huber(delta=None), "delta"), (lambda: losses.BinaryCrossentropy(from_logits=""), "from_logits"),
                            (lambda: metrics.BinaryAccuracy(threshold=None), "threshold"), (lambda: metrics.F1Score(average=0), "average"),
                            (lambda: metrics.Recall(top_k=0), "top_k"), (lambda: metrics.Precision(thresholds=[]), "thresholds"),
                            (lambda: callbacks.CSVLogger("x.csv", separator=""), "separator"), (lambda: callbacks.BackupAndRestore("x", save_freq=1.5), "save_freq"),
                            (lambda: callbacks.EarlyStopping(patience=None), "patience"), (lambda: callbacks.ReduceLROnPlateau(min_delta=""), "min_delta"),
                            (lambda: callbacks.ModelCheckpoint("x.keras", monitor=0), "monitor"), (lambda: callbacks.LearningRateScheduler(0.1), "schedule"),
                            (lambda: keras.initializers.Constant(None), "value"), (lambda: keras.initializers.RandomNormal(stddev=""), "stddev"),
                            (lambda: keras.regularizers.L2(-1.0), "l2"), (lambda: keras.regularizers.L1(float("nan")), "l1")):
            with self.subTest(words), self.assertRaisesRegex((TypeError, ValueError), words):
                call()
        self.assertFalse(layers.Dense(2, trainable=0).trainable)
        self.assertEqual(optimizers.SGD(np.float32(0.5), momentum=np.float64(0.0)).learning_rate, 0.5)

    def test_auto_mode(self):
        """A metric whose name does not tell which direction is better needs a mode, as in Keras."""
        for make in (lambda **more: keras.callbacks.EarlyStopping(**more), lambda **more: keras.callbacks.ModelCheckpoint("x.keras", **more),
                     lambda **more: keras.callbacks.ReduceLROnPlateau(**more)):
            with self.assertRaisesRegex(ValueError, "give mode='max'"):
                make(monitor="val_score")
            make(monitor="val_score", mode="max")
        for name, grows in (("val_loss", False), ("accent_loss", False), ("fbeta_score", True), ("top_k_accuracy", True), ("mse", False)):
            self.assertEqual(keras.callbacks.EarlyStopping(monitor=name)._grows, grows)

    def test_delta_zero(self):
        y, p = np.array([[0.0, 1.0]], np.float32), np.array([[0.2, 0.8]], np.float32)
        self.assertEqual(float(keras.losses.Huber(delta=0.0)(y, p)), 0.0)

    def test_no_activation_is_linear(self):
        x = np.full((1, 3, 2), 5.0, np.float32)
        for kind in (keras.layers.LSTM, keras.layers.GRU):
            none, linear, tanh = (kind(1, activation=each, kernel_initializer="ones", recurrent_initializer="ones")(x).numpy()
                                  for each in (None, "linear", "tanh"))
            np.testing.assert_array_equal(none, linear)
            self.assertGreater(abs(float(none[0, 0]) - float(tanh[0, 0])), 1e-4)

    def test_fit(self):
        class Yields(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                yield epoch

        class Awaits(keras.callbacks.Callback):
            async def on_train_begin(self, logs=None):
                raise LookupError

        x, y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        for callback, hook in ((Yields(), "on_epoch_end"), (Awaits(), "on_train_begin")):
            with self.assertRaisesRegex(TypeError, hook + " uses yield or async def"):
                model.fit(x, y, verbose=0, callbacks=[callback])
        with self.assertRaisesRegex(ValueError, "factor must be"):
            keras.callbacks.ReduceLROnPlateau(factor=1.5)
        self.assertEqual(len(model.fit(x, y, verbose=0, class_weight={}).history["loss"]), 1)

    def test_one_weight_of_one_sample(self):
        loss = keras.losses.CategoricalCrossentropy(reduction="none")
        self.assertEqual(tuple(loss(np.array([0.0, 1]), np.array([0.5, 0.5]), sample_weight=np.array([2.0])).shape), ())


class OfOthers(unittest.TestCase):
    def check(self, module, base, needs=None):
        found = 0
        for name, kind in classes(module, base):
            with self.subTest(name):
                made = kind(**(needs or {}).get(name, {}), name="given")
                self.assertEqual((made.name, made.get_config()["name"]), ("given", "given"))
                found += 1
        self.assertGreater(found, 3)

    def test_name_of_losses(self):
        self.check(keras.losses, keras.losses.Loss)

    def test_name_of_metrics(self):
        self.check(keras.metrics, keras.metrics.Metric, {"MeanMetricWrapper": {"fn": len}, "TopKCategoricalAccuracy": {"k": 2}})

    def test_name_of_optimizers(self):
        self.check(keras.optimizers, keras.optimizers.Optimizer)

    def test_dtype_of_losses_and_metrics(self):
        for module, base in ((keras.losses, keras.losses.Loss), (keras.metrics, keras.metrics.Metric)):
            for name, kind in classes(module, base):
                with self.subTest(name):
                    kind(dtype="float32")
                    with self.assertRaisesRegex(TypeError, "dtype"):
                        kind(dtype="float16")


class OfInitializers(unittest.TestCase):
    def weights(self, kind, seed, model_seed):
        keras.utils.set_random_seed(model_seed)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6, kernel_initializer=kind(seed=seed))])
        return model.get_weights()[0]

    def test_seed(self):
        for name in ("RandomUniform", "RandomNormal", "TruncatedNormal", "GlorotUniform", "GlorotNormal", "HeUniform", "HeNormal", "LecunUniform", "LecunNormal",
                     "Orthogonal"):
            kind = getattr(keras.initializers, name)
            with self.subTest(name):
                np.testing.assert_array_equal(self.weights(kind, 7, 1), self.weights(kind, 7, 1))
                self.assertFalse(np.array_equal(self.weights(kind, 7, 1), self.weights(kind, 8, 1)))


if __name__ == "__main__":
    support.main()
