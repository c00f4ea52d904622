"""unisono.keras on the native engine: what a user of Keras's Model relies on. Numbers are checked against NumPy."""

import contextlib
import gc
import io
import os
import pickle
import signal
import tempfile
import threading
import time
import unittest

import numpy as np

import support
import unisono
import unisono.tf as tf
from keras_support import L, classifier, points
from unisono import keras


class Models(unittest.TestCase):
    def test_fit_evaluate_predict(self):
        keras.utils.set_random_seed(1)
        x, y = points()
        model = classifier()
        history = model.fit(x, y, epochs=12, batch_size=32, validation_split=0.25, verbose=0)
        self.assertEqual(list(history.history), ["loss", "accuracy", "val_loss", "val_accuracy"])
        self.assertEqual(history.epoch, list(range(12)))
        self.assertLess(history.history["loss"][-1], history.history["loss"][0])
        prediction = model.predict(x)
        self.assertEqual(prediction.shape, (256, 1))
        loss, accuracy = model.evaluate(x, y, verbose=0)
        self.assertAlmostEqual(accuracy, float(((prediction[:, 0] > 0.5) == y).mean()), places=6)
        p = prediction[:, 0].astype(np.float64)
        self.assertAlmostEqual(loss, float(-np.where(y == 1, np.log(p), np.log(1 - p)).mean()), places=4)

    def test_same_seed_same_numbers(self):
        x, y = points()
        losses = []
        for _ in range(2):
            keras.utils.set_random_seed(5)
            losses.append(classifier().fit(x, y, epochs=2, verbose=0).history["loss"])
        self.assertEqual(*losses)

    def test_forward_is_numpys(self):
        model = classifier()
        x, _ = points(5)
        kernel, bias, kernel2, bias2 = model.get_weights()
        hidden = np.maximum(x @ kernel + bias, 0)
        want = 1 / (1 + np.exp(-(hidden @ kernel2 + bias2)))
        np.testing.assert_allclose(model(x).numpy(), want, rtol=1e-5)
        np.testing.assert_allclose(model.predict(x.astype(np.float64)), want, rtol=1e-5)
        np.testing.assert_allclose(model.predict(np.asfortranarray(x)), want, rtol=1e-5)

    def test_numpy_is_a_copy_and_view_is_the_weight(self):
        model = classifier()
        kernel = model.layers[0].kernel
        self.assertEqual((kernel.name, kernel.path, kernel.shape), ("kernel", "dense/kernel", (8, 16)))
        kernel.view()[...] = 0
        self.assertEqual(float(abs(model.get_weights()[0]).sum()), 0)
        before, view = kernel.numpy(), kernel.view()
        kernel.assign(np.ones((8, 16)))
        self.assertEqual((before.sum(), np.asarray(view).sum()), (0, 128))  # what was read before a step stays as it was
        kernel.view()[...] = 0
        del model, kernel
        gc.collect()
        self.assertEqual(view.sum(), 0)  # the memory lives as long as the view

    def test_functional_graph(self):
        a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
        left = L.Dense(3, activation="relu", name="left")(a)
        self.assertEqual(left.shape, (None, 3))
        both = L.Concatenate()([left, L.Dense(3)(b)]) * 2.0
        model = keras.Model([a, b], [L.Dense(1, name="first")(both), L.Dense(2, name="second")(both)])
        model.compile("sgd", loss={"first": "mse", "second": "mae"}, metrics={"second": ["mse"]})
        data = {"a": np.ones((6, 4), np.float32), "b": np.zeros((6, 4))}
        history = model.fit(data, [np.zeros((6, 1)), np.zeros((6, 2))], verbose=0).history
        self.assertIn("loss", history)
        first, second = model.predict(data)
        self.assertEqual((first.shape, second.shape), ((6, 1), (6, 2)))
        self.assertEqual(model.input_names, ["a", "b"])

    def test_shared_layer_and_causal_attention(self):
        i = keras.Input((6, 4))
        shared = L.Dense(4, name="shared")
        attended = L.MultiHeadAttention(2, 2)(shared(i), shared(i), use_causal_mask=True)
        model = keras.Model(i, attended)
        self.assertEqual(sum("shared" in each.path for each in model.weights), 2)
        x = np.random.default_rng(0).random((1, 6, 4), np.float32)
        changed = x.copy()
        changed[0, 5] += 1  # the future does not change the past
        before, after = model.predict(x), model.predict(changed)
        np.testing.assert_allclose(before[:, :5], after[:, :5], rtol=1e-5, atol=1e-6)
        self.assertGreater(float(abs(before[:, 5] - after[:, 5]).max()), 1e-4)

    def test_files(self):
        x, y = points()
        model = classifier()
        model.fit(x, y, verbose=0)
        want = model.predict(x)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("model.keras", "model.weights.h5", "model.safetensors"):
                model.save(os.path.join(folder, name))
            loaded = keras.models.load_model(os.path.join(folder, "model.keras"))
            np.testing.assert_array_equal(loaded.predict(x), want)
            self.assertEqual(loaded.optimizer.iterations, model.optimizer.iterations)
            for name in ("model.weights.h5", "model.safetensors"):
                other = classifier()
                other.load_weights(os.path.join(folder, name))
                np.testing.assert_array_equal(other.predict(x), want)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), want)
        other = classifier()
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(other.predict(x), want)

    def test_text(self):
        texts = np.array(["the red fox", "a blue bird", "red red", "blue"], object)
        words = L.TextVectorization(output_sequence_length=3)
        words.adapt(texts)
        self.assertEqual(words.get_vocabulary()[:3], ["", "[UNK]", "red"])
        model = keras.Sequential([keras.Input((), dtype="string"), words, L.Embedding(20, 4), L.GlobalAveragePooling1D(), L.Dense(1, activation="sigmoid")])
        model.compile("adam", loss="binary_crossentropy")
        target = np.array([1, 0, 1, 0])
        model.fit(texts, target, epochs=80, verbose=0)
        self.assertTrue(((model.predict(texts)[:, 0] > 0.5) == target).all())
        self.assertEqual(model.predict(["red", b"blue"]).shape, (2, 1))

    def test_batches_by_hand(self):
        x, y = points(64)
        model = classifier()
        logs = model.train_on_batch(x, y, return_dict=True)
        self.assertEqual(sorted(logs), ["accuracy", "loss"])
        self.assertEqual(len(model.test_on_batch(x, y)), 2)

    def test_summary(self):
        lines = []
        classifier().summary(print_fn=lines.append)
        self.assertIn("dense_1 (Dense)", "\n".join(lines))


class Data(unittest.TestCase):
    def test_generator_and_sequence(self):
        x, y = points(64)

        def batches():
            while True:
                yield x[:16], y[:16]

        class Rows(keras.utils.PyDataset):
            ended = 0

            def __len__(self):
                return 4

            def __getitem__(self, index):
                return x[index * 16:index * 16 + 16], y[index * 16:index * 16 + 16]

            def on_epoch_end(self):
                self.ended += 1

        self.assertEqual(len(classifier().fit(batches(), steps_per_epoch=3, epochs=2, verbose=0).history["loss"]), 2)
        rows = Rows()
        classifier().fit(rows, epochs=3, validation_data=rows, verbose=0)
        self.assertGreaterEqual(rows.ended, 2)

    def test_exception_of_the_data_comes_back(self):
        def batches():
            yield points(16)
            raise LookupError("row 17 is broken")

        with self.assertRaisesRegex(LookupError, "row 17"):
            classifier().fit(batches(), verbose=0)

    def test_dataset(self):
        x, y = points(50)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=1).batch(16)
        self.assertEqual(len(dataset), 4)
        first, second = [[batch.numpy() for batch, _ in dataset] for _ in range(2)]
        self.assertEqual([len(each) for each in first], [16, 16, 16, 2])
        self.assertFalse(np.array_equal(first[0], second[0]))  # a new order an epoch
        np.testing.assert_allclose(np.sort(np.concatenate(first).sum(1)), np.sort(x.sum(1)), rtol=1e-6)
        classifier().fit(dataset, validation_data=dataset, steps_per_epoch=2, epochs=3, verbose=0)
        mapped = dataset.map(lambda a, b: (a * 2.0, b)).take(2)
        self.assertEqual([tuple(a.shape) for a, _ in mapped], [(16, 8), (16, 8)])
        self.assertEqual(len(classifier().fit(mapped, verbose=0).history["loss"]), 1)
        self.assertEqual([int(each) for each in tf.data.Dataset.range(5).filter(lambda each: each > 2)], [3, 4])

    def test_lists_and_wrong_data(self):
        model = classifier()
        model.fit([[0.0] * 8, [1.0] * 8], [0, 1], verbose=0)
        with self.assertRaisesRegex(ValueError, r"expects \(None, 8\), got"):
            model.fit(np.zeros((4, 9)), np.zeros(4), verbose=0)
        with self.assertRaises(ValueError):
            model.fit(np.zeros((4, 8)), np.zeros(5), verbose=0)
        with self.assertRaisesRegex(TypeError, "complex"):
            model.fit(np.zeros((4, 8), complex), np.zeros(4), verbose=0)
        with self.assertRaises(TypeError):
            model.predict(np.array([["text"] * 8]))
        with self.assertRaisesRegex(ValueError, "NaN"):
            model.fit(np.full((4, 8), np.nan, np.float32), np.zeros(4), verbose=0)


class Callbacks(unittest.TestCase):
    def test_order_and_stop(self):
        x, y = points(64)
        seen = []

        class Mine(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                seen.append("begin")

            def on_train_batch_end(self, batch, logs=None):
                seen.append(batch)

            def on_epoch_end(self, epoch, logs=None):
                seen.append(("epoch", epoch, sorted(logs), self.model.predict(x[:1]).shape))
                self.model.stop_training = epoch == 1

            def on_train_end(self, logs=None):
                seen.append("end")

        classifier().fit(x, y, batch_size=32, epochs=9, verbose=0, callbacks=[Mine()])
        epoch = ["accuracy", "loss"], (1, 1)
        self.assertEqual(seen, ["begin", 0, 1, ("epoch", 0) + epoch, 0, 1, ("epoch", 1) + epoch, "end"])

    def test_exceptions_come_back(self):
        class Broken(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                raise KeyError("mine")

        x, y = points(64)
        model = classifier()
        with self.assertRaisesRegex(KeyError, "mine"):
            model.fit(x, y, verbose=0, callbacks=[Broken()])
        model.fit(x, y, verbose=0)  # the model is good for more

    def test_the_engines_own(self):
        x, y = points(64)
        with tempfile.TemporaryDirectory() as folder:
            stop = keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=10)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                history = classifier().fit(x, y, epochs=5, verbose=1, callbacks=[
                    stop, keras.callbacks.CSVLogger(folder + "/log.csv"), keras.callbacks.ModelCheckpoint(folder + "/m{epoch:02d}.keras"),
                    keras.callbacks.TensorBoard(folder + "/tb"), keras.callbacks.EpochDots()])
            self.assertEqual((len(history.epoch), stop.stopped_epoch), (2, 1))
            self.assertEqual(sorted(os.listdir(folder)), ["log.csv", "m01.keras", "m02.keras", "tb"])
            self.assertIn("Epoch 1/5\n", out.getvalue())
            self.assertIn("Epoch: 0, accuracy:", out.getvalue())

    def test_ctrl_c_ends_fit(self):
        x, y = points(256)
        model = classifier()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            model.fit(x, y, epochs=10_000_000, verbose=0)
        self.assertLess(time.monotonic() - begun, 20)

    def test_a_model_belongs_to_one_thread(self):
        x, y = points(256)
        model, raised = classifier(), []
        stop = threading.Event()

        class Until(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                stop.set()
                self.model.stop_training = bool(raised)

        def other():
            stop.wait(20)
            try:
                model.predict(x)
            except unisono.Error as error:
                raised.append(error.code)
        thread = threading.Thread(target=other)
        thread.start()
        model.fit(x, y, epochs=1_000_000, verbose=0, callbacks=[Until()])
        thread.join()
        self.assertEqual(raised, ["EBUSY"])


class Errors(unittest.TestCase):
    def test_sentences(self):
        for call, kind, text in [
                (lambda: L.Dense(-1), ValueError, "units must be a whole number of at least 1"),
                (lambda: L.Dense(3, activation="foo"), ValueError, "no activation"),
                (lambda: L.Dense(3, colour=1), TypeError, "unexpected keyword argument 'colour'"),
                (lambda: keras.losses.get("msee"), ValueError, 'did you mean "mse"'),
                (lambda: keras.optimizers.get("adamm"), ValueError, 'did you mean "adam"'),
                (lambda: keras.models.load_model("nowhere.keras"), FileNotFoundError, "nowhere"),
                (lambda: keras.Sequential([keras.Input((2,)), L.Dense(1)]).fit(np.zeros((2, 2)), np.zeros(2), verbose=0), ValueError, "compiled first"),
                (lambda: tf.argsort, AttributeError, "argsort")]:
            with self.assertRaisesRegex(kind, text):
                call()

    def test_a_layer_belongs_to_one_model(self):
        layer = L.Dense(2)
        keras.Sequential([keras.Input((2,)), layer]).summary(print_fn=lambda text: None)
        with self.assertRaisesRegex(ValueError, "belongs to a model already"):
            keras.Sequential([keras.Input((2,)), layer])

    def test_a_model_that_cannot_be_made_leaves_its_layers(self):
        layer = L.Conv2D(4, 3)
        bad = keras.Sequential([keras.Input((5,)), layer])
        with self.assertRaises(ValueError):
            bad.summary()
        good = keras.Sequential([keras.Input((8, 8, 1)), layer])
        self.assertEqual(good.output_shape, (None, 6, 6, 4))


if __name__ == "__main__":
    support.main()
