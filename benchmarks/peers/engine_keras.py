"""Keras 3 on TensorFlow as a peer of ./bench engine: see engine_common.py for the models and the options.

Two peers come out of it. "keras" is Model.fit, which our fit stands beside: the faster of fit as it comes (jit_compile "auto") and fit without
XLA. "keras_custom_loop" is a loop over a tf.function without fit. Each way is tried for a quarter of the time first; "way" says which was
measured, "ways" has all of them, and fit with 16 steps per execution besides, which reports only every 16th step.
First step and memory are those of plain fit, before any other way is tried. Run it with the interpreter that tools/python-env keras prints.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import engine_common as common


def transformer(keras):
    L = keras.layers

    class Positions(L.Layer):
        """Adds a learned vector for each of the 64 places."""

        def build(self, shape):
            self.table = self.add_weight(shape=(64, 128), initializer="uniform", name="positions")

        def call(self, x):
            return x + self.table

    inputs = L.Input((64,), dtype="int32")
    x = Positions()(L.Embedding(64, 128)(inputs))
    for _ in range(2):
        y = L.LayerNormalization(epsilon=1e-5)(x)
        x = L.Add()([x, L.MultiHeadAttention(4, 32)(y, y, use_causal_mask=True)])
        y = L.LayerNormalization(epsilon=1e-5)(x)
        x = L.Add()([x, L.Dense(128)(L.Dense(512, "gelu")(y))])
    return keras.Model(inputs, L.Dense(64)(L.LayerNormalization(epsilon=1e-5)(x)))


def build(name):
    """(model, optimizer, loss), fresh."""
    import keras

    L, sparse = keras.layers, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "nnlm_head":
        model = keras.Sequential([L.Input((128,)), L.Dense(256, "relu"), L.Dense(64, "relu"), L.Dense(1)])
        return model, keras.optimizers.Adam(1e-4), keras.losses.BinaryCrossentropy(from_logits=True)
    if name == "mlp_512":
        model = keras.Sequential([L.Input((784,)), L.Dense(512, "relu"), L.Dense(512, "relu"), L.Dense(10)])
        return model, keras.optimizers.SGD(0.01), sparse
    if name == "mnist_cnn":
        model = keras.Sequential([L.Input((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, "relu"), L.Dense(10)])
        return model, keras.optimizers.SGD(0.001), sparse
    if name == "svhn_cnn":
        def conv(filters):
            return L.Conv2D(filters, 3, padding="same", activation="relu")

        model = keras.Sequential([L.Input((32, 32, 3)), conv(32), conv(32), L.MaxPooling2D(2), conv(64), conv(64), L.MaxPooling2D(2),
                                  L.Flatten(), L.Dense(512, "relu"), L.Dense(10)])
        return model, keras.optimizers.Adam(1e-3), sparse
    if name == "conv1d":
        model = keras.Sequential([L.Input((128, 64)), L.Conv1D(128, 5, padding="same", activation="relu"),
                                  L.Conv1D(128, 5, padding="same", activation="relu"), L.GlobalMaxPooling1D(), L.Dense(10)])
        return model, keras.optimizers.Adam(1e-3), sparse
    return transformer(keras), keras.optimizers.Adam(1e-3), sparse


def fit_way(name, x, y, **options):
    """Windows are the epochs of one fit over batches that are tensors already, timed by a callback: fit's own start does not count."""
    import keras
    import tensorflow as tf

    model, optimizer, loss = build(name)
    model.compile(optimizer, loss, **options)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).repeat().prefetch(2)

    class Clock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seconds = []

        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds.append(time.perf_counter() - self.start)

    def windows(steps, count):
        clock = Clock()
        model.fit(batches, steps_per_epoch=steps, epochs=count, verbose=0, callbacks=[clock])
        return clock.seconds

    return windows, model


def function_way(name, x, y):
    import tensorflow as tf

    model, optimizer, loss_function = build(name)
    optimizer.build(model.trainable_variables)
    pairs = [(tf.constant(a), tf.constant(b)) for a, b in zip(x, y)]
    last = []

    @tf.function
    def step(a, b):
        with tf.GradientTape() as tape:
            loss = loss_function(b, model(a, training=True))
        optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
        return loss

    def run(number):
        last[:] = [step(*pairs[number])]

    return common.loop(run, lambda: last[0].numpy())


def sixteen_way(name, x, y):
    """fit with 16 steps per execution: whole executions only, the seconds are scaled to the steps asked for."""
    sixteen = fit_way(name, x, y, steps_per_execution=16)[0]

    def windows(steps, count):
        whole = -(-steps // 16) * 16
        return [took * steps / whole for took in sixteen(whole, count)]

    return windows


def run_model(name, seconds, options):
    batch, quick = options.batch, options.quick
    x, y = common.data(name, batch)
    plain, model = fit_way(name, x, y)
    plain(1, 1)
    first = common.since_process_start()
    ways, rates = {"fit": plain}, {"fit": common.measure(plain, seconds / 4, batch)[0]}
    memory = common.peak_rss_mb()
    if not quick:
        ways["fit_without_xla"] = fit_way(name, x, y, jit_compile=False)[0]
        ways["tf_function"] = function_way(name, x, y)
    for way in list(ways)[1:]:
        rates[way] = common.measure(ways[way], seconds / 4, batch)[0]
    fit = max((way for way in rates if way != "tf_function"), key=rates.get)
    if not quick:
        rates["fit_16_steps_per_execution"] = common.measure(sixteen_way(name, x, y), seconds / 4, batch)[0]
    import keras
    import tensorflow as tf

    more = {"ways": {way: round(value) for way, value in rates.items()}, "parameters": int(model.count_params()),
            "versions": f"keras {keras.__version__}, tensorflow {tf.__version__}"}
    common.rate_line(name, ways[fit], seconds, options, "keras", way=fit, **more)
    if "tf_function" in ways:
        common.rate_line(name, ways["tf_function"], seconds, options, "keras_custom_loop", way="tf_function", **more)
    common.line(name, "first_step_ms", "ms", first * 1e3, "keras", batch=batch)
    common.line(name, "peak_rss_mb", "MB", memory, "keras", batch=batch)


if __name__ == "__main__":
    raise SystemExit(common.main("keras", run_model))
