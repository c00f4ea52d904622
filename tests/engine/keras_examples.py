"""keras_examples.py - what real Keras reaches with the models, data, epochs and batches of examples/engine.

Run it with the interpreter that tools/python-env keras prints: `python tests/engine/keras_examples.py [--seeds 3] [NAME ...]`. It prints one line an example with the
numbers of each seed; examples/engine/README.md has them beside ours, and what an example promises is what the worst seed here reaches,
less a small allowance. Not part of the tests: it takes minutes.
"""

import argparse
import csv
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np

L = keras.layers
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "data")
SPARSE = dict(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


def images(path, white, shape):
    """(x, y), (test x, test y): every fifth image is held out."""
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    x, y = (table[:, :-1] / white).reshape((-1, *shape)), table[:, -1].astype(np.int32)
    held = np.arange(len(y)) % 5 == 4
    return (x[~held], y[~held]), (x[held], y[held])


def digits(shape):
    return images(os.path.join(ROOT, "examples/data/digits.csv"), 16, shape)


def accuracy(model, test):
    return "%.2f %%" % (100 * model.evaluate(*test, verbose=0)[1])


def digits_mlp():
    train, test = digits((64,))
    model = keras.Sequential([L.Input((64,)), L.Dense(64, "relu"), L.Dense(32, "relu"), L.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(*train, epochs=20, verbose=0)
    return accuracy(model, test)


def digits_cnn():
    train, test = digits((8, 8, 1))
    model = keras.Sequential([L.Input((8, 8, 1)), L.Conv2D(16, 3, padding="same", activation="relu"), L.MaxPooling2D(2),
                              L.Conv2D(32, 3, padding="same", activation="relu"), L.Flatten(), L.Dropout(0.25), L.Dense(64, "relu"), L.Dense(10)])
    model.compile("adam", **SPARSE)
    model.fit(*train, epochs=15, validation_split=0.1, verbose=0, callbacks=[keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True)])
    return accuracy(model, test)


def linear():
    def points(count):
        x = (np.arange(count) * 7919 % count).astype(np.float32)[:, None] / count - 0.5
        return x, x / 2

    model = keras.Sequential([L.Input((1,)), L.Dense(10), L.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*points(1000), batch_size=128, epochs=100, verbose=0)
    return "%.1e" % model.evaluate(*points(400), batch_size=128, steps=400 // 128, verbose=0)


def mnist(shape=(28, 28)):
    return images(os.path.join(CACHE, "mnist_5k.csv"), 255, shape)


def mnist_cnn():
    import tensorflow as tf

    train, test = mnist()
    batches = tf.data.Dataset.from_tensor_slices(train).shuffle(60000).repeat().batch(64)
    model = keras.Sequential([L.Input((28, 28)), L.Reshape((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, "relu"), L.Dense(10)])
    model.compile(keras.optimizers.SGD(0.001), **SPARSE)
    model.fit(batches, epochs=15, steps_per_epoch=70, verbose=0)
    return accuracy(model, test)


def mnist_mlp():
    train, test = mnist()
    model = keras.Sequential([L.Input((28, 28)), L.Flatten(), L.Dense(512, "relu"), L.Dense(512, "relu"), L.Dense(10)])
    model.compile(keras.optimizers.SGD(0.01), **SPARSE)
    model.fit(*train, epochs=10, batch_size=64, verbose=0)
    return accuracy(model, test)


def autoencoder():
    (x, _), (test, _) = mnist((784,))
    model = keras.Sequential([L.Input((784,)), *(L.Dense(n, "relu") for n in (128, 64, 32, 64, 128)), L.Dense(784, "sigmoid")])
    model.compile("adam", "binary_crossentropy")
    model.fit(x, x, batch_size=64, epochs=20, verbose=0)
    return "%.4f" % model.evaluate(test, test, verbose=0)


def residual_cnn():
    train, test = images(os.path.join(CACHE, "svhn_like.csv"), 255, (32, 32, 3))

    def conv(x, filters, kernel, stride):
        return L.BatchNormalization(momentum=0.9)(L.Conv2D(filters, kernel, stride, padding="same", use_bias=False)(x))

    def block(x, filters, stride):
        y = conv(L.ReLU()(conv(x, filters, 3, stride)), filters, 3, 1)
        return L.ReLU()(L.Add()([conv(x, filters, 1, stride) if stride > 1 else x, y]))

    inputs = L.Input((32, 32, 3))
    x = L.ReLU()(conv(inputs, 16, 3, 1))
    x = block(block(block(x, 16, 1), 32, 2), 64, 2)
    model = keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling2D()(x)))
    model.compile("adam", **SPARSE)
    model.fit(*train, epochs=10, batch_size=64, verbose=0)
    return accuracy(model, test)


def transformer():
    with open("/usr/share/common-licenses/GPL-3", "rb") as file:
        data = file.read()
    numbers = {byte: i for i, byte in enumerate(dict.fromkeys(data))}
    ids = np.array([numbers[byte] for byte in data], np.int32)
    head = len(ids) * 9 // 10

    def windows(part, stride):
        starts = range(0, len(part) - 64, stride)
        return np.stack([part[i:i + 64] for i in starts]), np.stack([part[i + 1:i + 65] for i in starts])

    class Positions(L.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(64, 64), initializer="glorot_uniform", name="positions")

        def call(self, x):
            return x + self.table

    inputs = L.Input((64,), dtype="int32")
    x = Positions()(L.Embedding(len(numbers), 64)(inputs))
    for _ in range(2):
        y = L.LayerNormalization(epsilon=1e-5)(x)
        x = L.Add()([x, L.MultiHeadAttention(4, 16)(y, y, use_causal_mask=True)])
        x = L.Add()([x, L.Dense(64)(L.Dense(256, "gelu")(L.LayerNormalization(epsilon=1e-5)(x)))])
    model = keras.Model(inputs, L.Dense(len(numbers))(L.LayerNormalization(epsilon=1e-5)(x)))
    model.compile(keras.optimizers.Adam(2e-3), loss=SPARSE["loss"])
    model.fit(*windows(ids[:head], 16), epochs=8, batch_size=32, verbose=0)
    return "%.4f" % model.evaluate(*windows(ids[head:], 64), verbose=0)


def texts(shuffle):
    """(texts, targets) of the training and of the held-out part, and the classifier with a layer in the role of the sentence embedding."""
    import tensorflow as tf

    with open(os.path.join(CACHE, "fortunes.csv"), encoding="utf-8", newline="") as file:
        rows = [(row["question_text"], float(row["target"])) for row in csv.DictReader(file)]
    vectorize = L.TextVectorization()
    vectorize.adapt([text for i, (text, _) in enumerate(rows) if i % 5 != 4])

    def part(held):
        chosen = [row for i, row in enumerate(rows) if (i % 5 == 4) == held]
        return vectorize(np.array([text for text, _ in chosen])), np.array([[target] for _, target in chosen], np.float32)

    class Sentence(L.Layer):
        """Word vectors added up and divided by the square root of their number."""

        def build(self, shape):
            self.table = self.add_weight(shape=(vectorize.vocabulary_size(), 128), initializer=keras.initializers.RandomNormal(stddev=0.1), name="table")

        def call(self, ids):
            known = tf.cast(ids > 0, tf.float32)
            rows = tf.gather(self.table, ids) * known[..., None]
            return tf.reduce_sum(rows, 1) / tf.sqrt(tf.maximum(tf.reduce_sum(known, 1, keepdims=True), 1))

    model = keras.Sequential([L.Input((None,), dtype="int64"), Sentence(), L.Dense(256, "relu"), L.Dense(64, "relu"), L.Dense(1, "sigmoid")])

    def batches(data):
        dataset = tf.data.Dataset.from_tensor_slices(data)
        return (dataset.shuffle(10000) if data is train and shuffle else dataset).batch(64, drop_remainder=True)

    train, valid = part(False), part(True)
    return model, batches(train), batches(valid)


def text_fit():
    model, train, valid = texts(True)
    model.compile(keras.optimizers.Adam(1e-4), "binary_crossentropy", metrics=[keras.metrics.BinaryAccuracy(name="accuracy")])
    history = model.fit(train, epochs=100, validation_data=valid, verbose=0,
                        callbacks=[keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, mode="min")]).history
    return "%d epochs %.2f %%" % (len(history["loss"]), 100 * history["val_accuracy"][-1])


def text_loop():
    model, train, valid = texts(True)
    model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.BinaryAccuracy(name="accuracy")])
    model.fit(train, epochs=20, verbose=0)
    return "%.2f %%" % (100 * model.evaluate(valid, verbose=0)[1])


EXAMPLES = [digits_mlp, digits_cnn, linear, mnist_cnn, mnist_mlp, autoencoder, residual_cnn, transformer, text_fit, text_loop]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for example in EXAMPLES:
        if options.names and example.__name__ not in options.names:
            continue
        results = []
        for seed in range(1, options.seeds + 1):
            keras.utils.set_random_seed(seed)
            results.append(example())
        print("%-14s %s" % (example.__name__, "  ".join(results)), flush=True)


if __name__ == "__main__":
    main()
