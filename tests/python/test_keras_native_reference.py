"""The native engine against real Keras with the same weights and data: predictions, losses of a few steps, weights after them, files both ways."""

import os
import tempfile
import unittest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.pop("TF_USE_LEGACY_KERAS", None)

import keras as real
import numpy as np

import support
from unisono import keras


def build(k):
    i = k.Input((12, 12, 3))
    h = k.layers.Conv2D(6, 3, padding="same", use_bias=False)(i)
    h = k.layers.BatchNormalization()(h)
    h = k.layers.Activation("relu")(h)
    side = k.layers.Conv2D(6, 1)(i)
    h = k.layers.Add()([h, side])
    h = k.layers.MaxPooling2D()(h)
    h = k.layers.Flatten()(h)
    h = k.layers.Dense(20, activation="gelu", kernel_regularizer=k.regularizers.L2(1e-3))(h)
    return k.Model(i, k.layers.Dense(5)(h))


def build_sequence(k):
    return k.Sequential([k.Input((7,)), k.layers.Embedding(30, 8), k.layers.LSTM(6, return_sequences=True), k.layers.GRU(5), k.layers.LayerNormalization(),
                         k.layers.Dense(5)])


class AgainstKeras(unittest.TestCase):
    def compare(self, build_model, x, y):
        theirs, ours = build_model(real), build_model(keras)
        ours.set_weights(theirs.get_weights())
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), rtol=1e-5, atol=1e-5)
        losses = []
        for k, model in ((real, theirs), (keras, ours)):
            model.compile(optimizer=k.optimizers.SGD(0.05, momentum=0.9), loss=k.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
            history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
            losses.append((history["loss"], history["accuracy"]))
        np.testing.assert_allclose(losses[1][0], losses[0][0], rtol=1e-5)
        np.testing.assert_allclose(losses[1][1], losses[0][1], rtol=1e-6)
        for a, b in zip(ours.get_weights(), theirs.get_weights()):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
        with tempfile.TemporaryDirectory() as folder:
            ours.save(folder + "/ours.keras")
            np.testing.assert_allclose(real.models.load_model(folder + "/ours.keras").predict(x, verbose=0), ours.predict(x), rtol=1e-4, atol=1e-5)
            theirs.save(folder + "/theirs.keras")
            np.testing.assert_allclose(keras.models.load_model(folder + "/theirs.keras").predict(x), theirs.predict(x, verbose=0), rtol=1e-4, atol=1e-5)

    def test_convolutions(self):
        draw = np.random.default_rng(1)
        self.compare(build, draw.random((24, 12, 12, 3), np.float32), draw.integers(0, 5, 24))

    def test_sequences(self):
        draw = np.random.default_rng(2)
        self.compare(build_sequence, draw.integers(0, 30, (24, 7)), draw.integers(0, 5, 24))


class Saturated(unittest.TestCase):
    """Outputs of exactly 0 and 1, as unscaled pixels give them: Keras computes cross-entropies from what the sigmoid or softmax was applied to."""

    def setUp(self):
        draw = np.random.default_rng(3)
        self.x = draw.integers(0, 256, (48, 6)).astype(np.float32)
        self.classes = draw.integers(0, 3, 48)
        self.targets = {"sparse_categorical_crossentropy": self.classes, "categorical_crossentropy": np.eye(3, dtype=np.float32)[self.classes],
                        "binary_crossentropy": (self.classes > 0).astype(np.float32)[:, None]}
        self.weights = [draw.normal(size=shape).astype(np.float32) for shape in ((6, 8), (8,), (8, 3), (3,))]

    def outputs(self, k, loss):
        """The forms of an output layer; the last one hides the logits from Keras, too."""
        count, name = (1, "sigmoid") if loss == "binary_crossentropy" else (3, "softmax")
        layers = k.layers
        return [lambda: [layers.Dense(count, activation=name)], lambda: [layers.Dense(count), layers.Activation(name)],
                lambda: [layers.Dense(count, activation=name), layers.Dropout(0.5), layers.Activation("linear")],
                lambda: [layers.Dense(count, activation="sigmoid" if count > 1 else "softmax")],
                lambda: [layers.Dense(count, activation=name), layers.Reshape((count,))]]

    def run_one(self, k, loss, form, **options):
        model = k.Sequential([k.Input((6,)), k.layers.Dense(8, activation="relu")] + self.outputs(k, loss)[form]())
        count = 1 if loss == "binary_crossentropy" else 3
        model.set_weights(self.weights[:2] + [self.weights[2][:, :count], self.weights[3][:count]])
        name = "".join(part.title() for part in loss.split("_"))
        model.compile(optimizer=k.optimizers.SGD(1e-5), loss=getattr(k.losses, name)(**options),
                      metrics=["accuracy", getattr(k.metrics, name)(name=loss, **{key: value for key, value in options.items() if key == "from_logits"})])
        y = self.targets[loss]
        out = [model.evaluate(self.x, y, verbose=0)]
        if form != 2:  # dropout draws other numbers
            history = model.fit(self.x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
            out += [history["loss"], history["accuracy"], history[loss], model.evaluate(self.x, y, verbose=0)]
        return out, model.get_weights()

    def test_two_epochs(self):
        for loss in self.targets:
            for form in range(5):
                for options in [{}, {"from_logits": True}] + ([{"label_smoothing": 0.2}, {"label_smoothing": 0.2, "from_logits": True}] if loss[0] != "s" and form == 0 else []):
                    with self.subTest(loss=loss, form=form, **options):
                        theirs, ours = (self.run_one(k, loss, form, **options) for k in (real, keras))
                        if form < 4 and not (form == 3 and loss[0] == "b"):  # a softmax of one is 1, and its logit may be near
                            self.assertGreater(theirs[0][0][0], 17, "this does not saturate")
                        for a, b in zip(ours[0], theirs[0]):
                            np.testing.assert_allclose(a, b, rtol=1e-4)
                        for a, b in zip(ours[1], theirs[1]):
                            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)

    def test_eager_calls(self):
        """Losses and metrics of the predictions themselves, without compile; of their numbers nothing is known but the numbers."""
        for loss, y in self.targets.items():
            name = "".join(part.title() for part in loss.split("_"))
            for activation in ("sigmoid", "softmax"):
                for from_logits in (False, True):
                    with self.subTest(loss=loss, activation=activation, from_logits=from_logits):
                        seen, given = [], None
                        for k in (real, keras):
                            count = 1 if loss == "binary_crossentropy" else 3
                            model = k.Sequential([k.Input((6,)), k.layers.Dense(count, activation=activation, use_bias=False)])
                            model.set_weights([self.weights[0][:, :count] / 20])
                            value, metric = getattr(k.losses, name)(from_logits=from_logits), getattr(k.metrics, name)(from_logits=from_logits)
                            p = model(self.x)
                            metric.update_state(y, p)
                            given = np.asarray(p) if given is None else given  # near 1, two sigmoids round differently
                            seen.append([float(value(y, p)), float(metric.result()), float(value(y, given))])
                        np.testing.assert_allclose(seen[1], seen[0], rtol=1e-4)


if __name__ == "__main__":
    support.main()
