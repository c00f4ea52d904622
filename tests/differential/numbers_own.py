"""Layers and models with a call() of the user's own: states that call() assigns, training= handed on or turned round, models inside models, in eager calls, fit and loops
of their own. No weights are set: what building a model leaves in its states is compared, too.
"""

import numpy as np

from numbers_layers import numbers
from numbers_tf import module_of

PARTS = ["dense", "norm", "counter", "running", "switch", "turned", "residual", "sequential", "shift", "inner", "twice"]


def make_own(r):
    return dict(parts=[r.choice(PARTS) for _ in range(r.randint(1, 3))], place=r.choice(["model", "model", "sequential", "functional", "alone"]),
                calls=[r.choice([True, False, None]) for _ in range(r.randint(1, 3))], train=r.choice([None, "fit", "fit", "loop", "batch"]), first=r.choice(["call", "train"]),
                rows=r.choice([3, 4]), clip=r.random() < 0.2, needs=["parts", "place", "rows", "first"])


def layer_classes(keras):
    """The user's layers, made of the names of the module that is given."""
    ops, layers = keras.ops, keras.layers

    class Counter(layers.Layer):
        """Counts its calls."""

        def __init__(self):
            super().__init__()
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

        def call(self, x):
            self.count.assign_add(1.0)
            return x * 1.0

        def compute_output_shape(self, shape):
            return shape

    class Running(layers.Layer):
        """A moving average by hand, in training only."""

        def build(self, shape):
            self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

        def call(self, x, training=None):
            if training:
                self.mean.assign(self.mean * 0.5 + ops.mean(x, axis=0) * 0.5)
            return (x - self.mean) * self.scale

        def compute_output_shape(self, shape):
            return shape

    class Switch(layers.Layer):
        """Another formula in training."""

        def call(self, x, training=False):
            return x * 2.0 if training else x + 1.0

        def compute_output_shape(self, shape):
            return shape

    class Turned(layers.Layer):
        """Batch statistics where the others use moving ones."""

        def __init__(self):
            super().__init__()
            self.norm = layers.BatchNormalization(momentum=0.5)

        def call(self, x, training=None):
            return self.norm(x, training=not training)

        def compute_output_shape(self, shape):
            return shape

    class Residual(layers.Layer):
        """A layer that is made in build()."""

        def build(self, shape):
            self.dense = layers.Dense(shape[-1], kernel_initializer="ones", activation="tanh")
            self.dense.build(shape)

        def call(self, x):
            return x + self.dense(x)

        def compute_output_shape(self, shape):
            return shape

    class Shift(layers.Layer):
        """A weight that depends on the input's shape; written twice."""

        def build(self, input_shape):
            self.shift = self.add_weight(shape=(input_shape[-1],), initializer=keras.initializers.Constant(0.3), name="shift", regularizer="l2")
            super().build(input_shape)

        def call(self, inputs):
            return inputs + self.shift + self.shift

        def compute_output_shape(self, shape):
            return shape

    return dict(counter=Counter, running=Running, switch=Switch, turned=Turned, residual=Residual, shift=Shift)


def takes_training(name):
    return name in ("norm", "running", "switch", "turned", "sequential", "inner")


def part_of(keras, classes, name):
    layers = keras.layers
    if name in classes:
        return classes[name]()
    if name == "dense":
        return layers.Dense(3, kernel_initializer="ones", activation="tanh")
    if name == "norm":
        return layers.BatchNormalization(momentum=0.5)
    if name == "sequential":
        return keras.Sequential([layers.Dense(2, kernel_initializer="ones"), layers.BatchNormalization(momentum=0.5)])
    if name == "inner":
        return model_class(keras)([classes["running"](), layers.BatchNormalization()], ["running", "norm"])
    return layers.Dense(4, kernel_initializer="identity", activation="tanh")  # called twice


def model_class(keras):
    class Own(keras.Model):
        """Calls its parts one after the other."""

        def __init__(self, parts, names):
            super().__init__()
            self.parts, self.names = parts, list(names)

        def call(self, x, training=None):
            for name, part in zip(self.names, self.parts):
                x = part(x, training=training) if takes_training(name) else part(x)
                if name == "twice" and x.shape[-1] == 4:
                    x = part(x)
            return x

    return Own


def model_of(keras, case):
    names = list(case["parts"] or [])
    classes = layer_classes(keras)
    if case["place"] == "model":
        return model_class(keras)([part_of(keras, classes, name) for name in names] + [keras.layers.Dense(1, kernel_initializer="ones")], names + ["dense"])
    parts = [part_of(keras, classes, name) for name in names]
    if case["place"] == "alone":
        return parts[0]
    if case["place"] == "sequential":
        return keras.Sequential([keras.Input((4,))] + parts + [keras.layers.Dense(1, kernel_initializer="ones")])
    inputs = x = keras.Input((4,))
    for part in parts:
        x = part(x)
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(x))


def train(keras, case, model, x, y, out):
    tf = module_of(keras)
    optimizer = keras.optimizers.SGD(0.05, clipnorm=0.5 if case.get("clip") else None)
    if case["train"] == "loop":
        for step in range(2):
            with tf.GradientTape() as tape:
                error = model(x, training=True) - y
                loss = tf.reduce_mean(error * error)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            out["loss%d" % step] = float(loss)
        return
    model.compile(optimizer, "mse", **(dict(jit_compile=False, run_eagerly=True) if keras.__name__ == "keras" else {}))
    if case["train"] == "batch":
        out["batch"] = [float(model.train_on_batch(x, y)) for _ in range(2)]
        return
    out["history"] = model.fit(x, y, batch_size=3, epochs=2, shuffle=False, verbose=0, validation_data=(x[:2], y[:2])).history
    out["predict"] = np.asarray(model.predict(x, verbose=0))


def run_own(keras, case):
    model, x = model_of(keras, case), numbers(case["seed"], [case["rows"], 4])
    y, out = x.sum(axis=1, keepdims=True), {}
    trains = case.get("train") and case["place"] != "alone"
    named = takes_training((case["parts"] or ["dense"])[0]) or case["place"] != "alone"
    if trains and case["first"] == "train":
        train(keras, case, model, x, y, out)
    for index, training in enumerate(case.get("calls") or []):
        if training is None and "turned" in (case["parts"] or []) and case["place"] != "model":
            training = False  # in Keras the training=True that Turned gives its layer holds for all that follow, when the model was called without one
        out["call%d" % index] = np.asarray(model(x, training=training) if named and training is not None else model(x))
        out["weights%d" % index] = [np.asarray(each) for each in model.get_weights()]
    if trains and case["first"] != "train":
        train(keras, case, model, x, y, out)
    out["weights"] = [np.asarray(each) for each in model.get_weights()]
    out["trainable"] = [tuple(each.shape) for each in model.trainable_weights]
    return out


KINDS = {"own": (2e-3, make_own, run_own, 2)}
