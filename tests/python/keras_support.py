"""A small model and its data, for the tests of unisono.keras and unisono.tf."""

import numpy as np

from unisono import keras

L = keras.layers


def classifier(**more):
    model = keras.Sequential([keras.Input((8,)), L.Dense(16, activation="relu"), L.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"], **more)
    return model


def points(count=256, seed=0):
    x = np.random.default_rng(seed).random((count, 8), np.float32)
    return x, (x.sum(1) > 4).astype(np.int64)
