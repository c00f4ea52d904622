"""unisono.keras: arguments that no other test passes, each with its effect."""

import contextlib
import io
import os
import tempfile
import unittest

import numpy as np

import support
from unisono import keras

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 12
Y = X.sum(axis=1, keepdims=True)


class Scale(keras.layers.Layer):
    def __init__(self, regularizer=None, **common):
        super().__init__(**common)
        self.factor = self.add_weight(shape=(), initializer="ones", dtype="float32", regularizer=regularizer, name="factor")

    def call(self, x):
        return x * self.factor


class Absolute(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


def model(rate=0.1, metrics=None):
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", name="last")])
    made.compile(keras.optimizers.SGD(rate), "mse", metrics=metrics)
    return made


class Bases(unittest.TestCase):
    def test_layer(self):
        layer = Scale(name="mine", trainable=False, dtype="float32")
        layer(X)
        self.assertEqual((layer.name, layer.trainable, layer.trainable_weights), ("mine", False, []))
        made = keras.layers.Layer.__init__
        one = Scale.__new__(Scale)
        made(one, name="by_hand", trainable=False, dtype="float32")
        self.assertEqual((one.name, one.trainable), ("by_hand", False))
        with self.assertRaisesRegex(TypeError, "dtype"):
            Scale(dtype="float16")

    def test_regularizer_of_a_weight(self):
        for given, wanted in ((None, 0.0), (keras.regularizers.L2(0.5), 0.5), (keras.regularizers.L1(0.25), 0.25)):
            made = keras.Sequential([keras.Input((2,)), Scale(regularizer=given)])
            made.compile("sgd", "mse")
            self.assertAlmostEqual(made.evaluate(X, X, verbose=0), wanted, places=6)

    def test_weight_of_another_type(self):
        layer = Scale()
        with self.assertRaisesRegex(TypeError, "dtype"):
            layer.add_weight(shape=(2,), dtype="float16")
        with self.assertRaisesRegex(TypeError, "constrain"):
            layer.add_weight(shape=(2,), constrain="non_neg")

    def test_loss(self):
        true, pred = np.zeros((2, 1), np.float32), np.asarray([[1.0], [3.0]], np.float32)
        for reduction, wanted in (("sum", 4.0), ("sum_over_batch_size", 2.0), ("none", [1.0, 3.0])):
            loss = Absolute(name="mine", reduction=reduction, dtype="float32")
            self.assertEqual(loss.name, "mine")
            np.testing.assert_allclose(np.asarray(loss(true, pred)), wanted)

    def test_optimizer(self):
        with self.assertRaisesRegex(NotImplementedError, "SGD, Adam"):
            keras.optimizers.Optimizer()
        for name in ("learning_rate", "clipnorm", "name"):
            with self.assertRaisesRegex(TypeError, name):
                keras.optimizers.Optimizer(**{name: 0.5})

    def test_initializers_and_regularizers(self):
        for kind in (keras.initializers.Initializer, keras.regularizers.Regularizer):
            with self.assertRaisesRegex(TypeError, "gain"):
                kind(gain=2)
            self.assertEqual(kind().get_config(), {})

    def test_variable(self):
        variable = keras.Variable([1.0, 2.0], trainable=False, dtype="float32")
        variable.assign_add(value=[1.0, 1.0])
        variable.assign_sub(value=[0.5, 0.0])
        self.assertEqual((variable.numpy().tolist(), variable.trainable), ([1.5, 3.0], False))
        with self.assertRaisesRegex(TypeError, "float16"):
            keras.Variable([1.0], dtype="float16")

    def test_symbols(self):
        self.assertEqual(keras.KerasTensor(spec=("float32", (None, 2)), name="here").name, "here")
        self.assertEqual(tuple(keras.Input(batch_shape=(None, 3)).shape), (None, 3))
        for layer in (keras.layers.InputLayer(shape=(3,)), keras.layers.InputLayer(batch_shape=(None, 3))):
            self.assertEqual(keras.Sequential([layer, keras.layers.Dense(2)]).get_weights()[0].shape, (3, 2))
        for call in (lambda: keras.Input(batch_shape=(8, 3)), lambda: keras.layers.InputLayer(batch_shape=(8, 3)), lambda: keras.Input((3,), batch_size=8)):
            with self.assertRaisesRegex(TypeError, "batch_s"):
                call()


class Functions(unittest.TestCase):
    def test_ops(self):
        self.assertEqual(tuple(keras.ops.max(X, axis=1, keepdims=True).shape), (6, 1))
        np.testing.assert_array_equal(np.asarray(keras.ops.max(X, axis=1, keepdims=True)), X.max(axis=1, keepdims=True))
        np.testing.assert_allclose(np.asarray(keras.ops.mean(X, axis=0, keepdims=True)), X.mean(axis=0, keepdims=True), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(keras.ops.one_hot(x=[2, 0], num_classes=3)), np.eye(3)[[2, 0]])
        np.testing.assert_array_equal(np.asarray(keras.ops.subtract(x1=X, x2=X[::-1])), X - X[::-1])
        np.testing.assert_allclose(np.asarray(keras.activations.hard_sigmoid(x=X * 8 - 4)), np.clip((X * 8 - 4) / 6 + 0.5, 0, 1), atol=1e-6)
        np.testing.assert_allclose(np.asarray(keras.activations.swish(x=X)), X / (1 + np.exp(-X)), rtol=1e-5)

    def test_top_k(self):
        true, pred = np.asarray([[0, 1, 1], [1, 0, 0]], np.float32), np.asarray([[0.1, 0.9, 0.8], [0.2, 0.7, 0.6]], np.float32)
        for kind in (keras.metrics.Precision, keras.metrics.Recall):
            values = [float(kind(top_k=k)(true, pred)) for k in (1, 2, 3)]
            # what Keras 3 gives for them
            np.testing.assert_allclose(values, [1 / 2, 2 / 4, 3 / 6] if kind is keras.metrics.Precision else [1 / 3, 2 / 3, 1.0], rtol=1e-6)


class Refusals(unittest.TestCase):
    def test_layers(self):
        for call, word in ((lambda: keras.layers.Dropout(0.5, noise_shape=(1, 2)), "noise_shape"),
                           (lambda: keras.layers.BatchNormalization(moving_mean_initializer="ones"), "moving_mean_initializer"),
                           (lambda: keras.layers.BatchNormalization(moving_variance_initializer="zeros"), "moving_variance_initializer"),
                           (lambda: keras.layers.MultiHeadAttention(1, 2, activity_regularizer="l2"), "activity_regularizer"),
                           (lambda: keras.layers.Normalization(axis=None), "axis"), (lambda: keras.layers.Normalization(axis=1), "axis"),
                           (lambda: keras.layers.TextVectorization(dtype="float16"), "dtype"),
                           (lambda: keras.layers.TextVectorization(output_mode="count", dtype="int64"), "dtype"),
                           (lambda: keras.layers.SentenceEmbedding(2, dtype="float16"), "dtype")):
            with self.assertRaisesRegex(TypeError, word):
                call()

    def test_defaults_pass(self):
        layer = keras.layers.BatchNormalization(moving_mean_initializer=keras.initializers.Zeros(), moving_variance_initializer="ones")
        for each in (layer, keras.layers.Normalization(axis=-1), keras.layers.Dropout(0.5, None), keras.layers.TextVectorization(dtype="int64")):
            self.assertEqual(type(each).from_config(each.get_config()).get_config(), each.get_config())


class Text(unittest.TestCase):
    TEXTS = ["The cat.", "the dog"]

    def test_none_is_a_value(self):
        layer = keras.layers.TextVectorization(standardize=None)
        layer.adapt(self.TEXTS)
        self.assertEqual(sorted(layer.get_vocabulary(include_special_tokens=False)), ["The", "cat.", "dog", "the"])
        layer = keras.layers.TextVectorization(split=None)
        layer.adapt(self.TEXTS)
        self.assertEqual(sorted(layer.get_vocabulary(include_special_tokens=False)), ["the cat", "the dog"])

    def test_special_tokens(self):
        """Only output_mode="int" has a word for padding."""
        for mode, special in (("int", ["", "[UNK]"]), ("count", ["[UNK]"]), ("multi_hot", ["[UNK]"])):
            layer = keras.layers.TextVectorization(output_mode=mode)
            layer.set_vocabulary(vocabulary=["the", "cat"])
            self.assertEqual(layer.get_vocabulary(), special + ["the", "cat"])
            self.assertEqual(layer.get_vocabulary(include_special_tokens=False), ["the", "cat"])

    def test_words_of_an_embedding(self):
        layer = keras.layers.SentenceEmbedding(2, vocabulary=["red", "green"])
        self.assertEqual((layer.get_vocabulary(), layer.vocabulary_size()), (["red", "green"], 2))
        self.assertEqual(type(layer).from_config(layer.get_config()).get_vocabulary(), ["red", "green"])
        with self.assertRaisesRegex(ValueError, "hashed into 50 buckets"):
            keras.layers.SentenceEmbedding(2, buckets=50).get_vocabulary()


class Batches(unittest.TestCase):
    def test_weights_of_samples(self):
        made, weight = model(), np.asarray([0, 0, 0, 0, 0, 6], np.float32)
        off = float((made.predict(X, verbose=0)[5, 0] - Y[5, 0] - 1) ** 2)
        target = Y + 1
        self.assertAlmostEqual(made.evaluate(X, target, sample_weight=weight, verbose=0), off, places=5)
        self.assertAlmostEqual(made.test_on_batch(X, target, sample_weight=weight), off, places=5)
        self.assertEqual(list(made.test_on_batch(X, target, return_dict=True)), ["loss"])
        made.train_on_batch(X, target, sample_weight=np.zeros(6, np.float32))
        np.testing.assert_array_equal(made.get_weights()[0], np.ones((2, 1)))
        made.train_on_batch(X, np.ones((6, 1)), class_weight={1: 0.0})
        np.testing.assert_array_equal(made.get_weights()[0], np.ones((2, 1)))
        made.train_on_batch(X, np.ones((6, 1)), class_weight={1: 2.0})
        self.assertFalse(np.array_equal(made.get_weights()[0], np.ones((2, 1))))

    def test_predict(self):
        made, seen = model(), []
        count = keras.callbacks.LambdaCallback(on_predict_batch_end=lambda batch, logs: seen.append(batch))
        np.testing.assert_allclose(made.predict(X, batch_size=2, callbacks=[count], verbose=0), Y, rtol=1e-6)
        self.assertEqual(len(seen), 3)
        self.assertEqual(made.predict(X, batch_size=2, steps=2).shape, (4, 1))
        np.testing.assert_allclose(made.predict_on_batch(x=X), Y, rtol=1e-6)
        seen.clear()
        made.evaluate(X, Y, batch_size=3, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_test_batch_end=lambda batch, logs: seen.append(batch))])
        self.assertEqual(len(seen), 2)

    def test_files(self):
        made = model()
        self.assertEqual(made.get_layer(index=0).name, "last")
        clone = keras.models.clone_model(model=made)
        self.assertEqual(clone.get_config()["config"]["layers"], made.get_config()["config"]["layers"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.weights.h5")
            made.save_weights(path, overwrite=False)
            with self.assertRaises(FileExistsError):
                made.save_weights(path, overwrite=False)
            path = os.path.join(folder, "a.keras")
            made.save(path)
            self.assertIsNotNone(keras.models.load_model(path, compile=True).optimizer)
            loaded = keras.models.load_model(path, compile=False)
            self.assertIsNone(loaded.optimizer)
            with self.assertRaisesRegex(ValueError, "compile"):
                loaded.fit(X, Y, verbose=0)


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def fit(self, *callbacks, epochs=3, rate=0.1, **options):
        made = model(rate)
        made.fit(X, Y + 1, epochs=epochs, batch_size=3, shuffle=False, verbose=0, callbacks=list(callbacks), **options)
        return made

    def test_functions(self):
        seen = []
        self.fit(keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: seen.append("begin"), on_epoch_begin=lambda epoch, logs: seen.append(epoch),
            on_train_batch_begin=lambda batch, logs: seen.append("<"), on_train_batch_end=lambda batch, logs: seen.append(">"),
            on_epoch_end=lambda epoch, logs: seen.append(-epoch), on_train_end=lambda logs: seen.append("end")), epochs=2)
        self.assertEqual(seen, ["begin", 0, "<", ">", "<", ">", 0, 1, "<", ">", "<", ">", -1, "end"])

    def test_table(self):
        path = self.at("a.csv")
        self.fit(keras.callbacks.CSVLogger(path, separator=";"), epochs=1)
        self.fit(keras.callbacks.CSVLogger(path, separator=";", append=True), epochs=1)
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        self.assertEqual((lines[0], len([each for each in lines if each])), ("epoch;loss", 3))
        self.fit(keras.callbacks.CSVLogger(path, append=False), epochs=1)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(file.read().split("\n")), 3)

    def test_verbose(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.fit(keras.callbacks.EarlyStopping(monitor="loss", min_delta=100, verbose=1), keras.callbacks.LearningRateScheduler(lambda epoch: 0.25, verbose=1))
        self.assertIn("early stopping", out.getvalue())
        self.assertIn("learning rate to 0.25", out.getvalue())
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.fit(keras.callbacks.EarlyStopping(monitor="loss", min_delta=100, verbose=0), keras.callbacks.LearningRateScheduler(lambda epoch: 0.25, verbose=0))
        self.assertEqual(out.getvalue(), "")

    def native(self, make):
        """What the engine's own callbacks print on descriptors 1 and 2."""
        kept = os.dup(1), os.dup(2)
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                self.fit(make)
            finally:
                os.dup2(kept[0], 1)
                os.dup2(kept[1], 2)
                os.close(kept[0])
                os.close(kept[1])
            file.seek(0)
            return file.read().decode()

    def test_verbose_of_the_engine(self):
        path = self.at("{epoch}.keras")
        for verbose in (0, 1):
            text = self.native(keras.callbacks.ModelCheckpoint(path, verbose=verbose))
            self.assertEqual(self.at("1.keras") in text, bool(verbose), text)
            text = self.native(keras.callbacks.ReduceLROnPlateau(monitor="loss", min_delta=100, patience=1, verbose=verbose))
            self.assertEqual("learning rate" in text, bool(verbose), text)

    def test_checkpoint(self):
        for mode, wanted in (("min", 3), ("max", 1)):
            path = self.at(mode + "{epoch}.keras")
            self.fit(keras.callbacks.ModelCheckpoint(path, monitor="loss", mode=mode, save_best_only=True))
            self.assertEqual(len([each for each in os.listdir(self.folder.name) if each.startswith(mode)]), wanted)
        path = self.at("often{epoch}-{batch}.weights.h5")
        self.fit(keras.callbacks.ModelCheckpoint(path, save_freq=1, save_weights_only=True), epochs=1)
        self.assertEqual(len([each for each in os.listdir(self.folder.name) if each.startswith("often")]), 2)

    def test_backup(self):
        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if self.params["epochs"] == 3 and batch == 1:
                    raise KeyboardInterrupt

        for keep in (False, True):
            folder = self.at("backup%d" % keep)
            with self.assertRaises(KeyboardInterrupt):
                self.fit(keras.callbacks.BackupAndRestore(folder, save_freq=1), Stop())
            self.assertTrue(os.listdir(folder))
            self.fit(keras.callbacks.BackupAndRestore(backup_dir=folder, save_freq=1, delete_checkpoint=not keep), epochs=2)
            self.assertEqual(bool(os.path.exists(folder) and os.listdir(folder)), keep)

    def test_hooks_of_a_backup(self):
        backup = keras.callbacks.BackupAndRestore(backup_dir=self.at("b"), save_freq="epoch")
        made = model()
        backup.set_model(model=made)
        backup.set_params(params={"epochs": 1})
        self.assertEqual((backup.model, backup.params), (made, {"epochs": 1}))

    def test_tensorboard(self):
        found = {}
        for name, callback in (("plain", keras.callbacks.TensorBoard(self.at("plain"))),
                               ("histogram", keras.callbacks.TensorBoard(self.at("histogram"), histogram_freq=1)),
                               ("batch", keras.callbacks.TensorBoard(self.at("batch"), update_freq="batch"))):
            self.fit(callback)
            data = b""
            for where, _, files in os.walk(self.at(name)):
                for each in files:
                    with open(os.path.join(where, each), "rb") as file:
                        data += file.read()
            found[name] = (b"histogram" in data, b"batch_loss" in data)
        self.assertEqual(found, {"plain": (False, False), "histogram": (True, False), "batch": (False, True)})


if __name__ == "__main__":
    support.main()
