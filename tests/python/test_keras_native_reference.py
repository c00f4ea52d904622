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


if __name__ == "__main__":
    support.main()
