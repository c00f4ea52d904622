"""wrong_arguments.py [KIND...] - values of a wrong kind, one argument at a time, to every class that Keras and unisono.keras share.

A value that Keras fails on (None, "", [], a text for a number) must be an error here, too, and no default in its place. Where both take the value, what the object
computes must agree. 0, 1 and True are taken as the numbers and switches that they are, also where Keras insists on a float or a bool. Anything that unisono refuses is
refused by name. The last line has the counts.
"""

import contextlib
import inspect
import io
import os
import sys
import tempfile
import warnings

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")

import numpy as np

PAIR = (0, 0)
VALUES = [0, -1, None, 1.5, "", "bogus", [], PAIR, float("nan"), True, {}, object(), b"x"]
KINDS = ["layers", "losses", "metrics", "optimizers", "schedules", "initializers", "regularizers", "callbacks"]
RATE = dict(initial_learning_rate=0.1, decay_steps=4)
NEEDS = {
    "Dense": dict(units=2), "Conv1D": dict(filters=2, kernel_size=2), "Conv2D": dict(filters=2, kernel_size=2), "DepthwiseConv2D": dict(kernel_size=2),
    "Embedding": dict(input_dim=8, output_dim=3, embeddings_initializer="ones"), "LSTM": dict(units=2), "GRU": dict(units=2), "Dropout": dict(rate=0.5),
    "MultiHeadAttention": dict(num_heads=1, key_dim=2), "Reshape": dict(target_shape=(-1,)), "Permute": dict(dims=(2, 1)), "Rescaling": dict(scale=2.0),
    "Activation": dict(activation="relu"), "InputLayer": dict(shape=(3,)), "AveragePooling1D": dict(pool_size=2), "AveragePooling2D": dict(pool_size=2),
    "LearningRateScheduler": dict(schedule=lambda epoch, rate: 0.1), "CSVLogger": dict(filename="x.csv"), "ModelCheckpoint": dict(filepath="x.keras"),
    "BackupAndRestore": dict(backup_dir="backup"), "ExponentialDecay": dict(RATE, decay_rate=0.5), "CosineDecay": RATE,
    "PiecewiseConstantDecay": dict(boundaries=[1], values=[0.1, 0.2]),
}
ABSTRACT = {"Layer", "Lambda", "Wrapper", "Loss", "Metric", "Optimizer", "LearningRateSchedule", "Initializer", "Regularizer", "Callback"}
# name: the model's name; dtype: tests/python/test_keras_arguments.py; seed: harmless; the others are arguments that only unisono has.
LEFT_OUT = {"self", "name", "dtype", "seed", "kwargs", "args", "common", "arguments", "given", "config"}
ONLY_OURS = {("ProgbarLogger", "verbose"), ("InputLayer", "input_shape"), ("ModelCheckpoint", "save_freq")}
# Keras stumbles over these values; what they mean is plain.
PLAIN = {("MultiHeadAttention", "kernel_initializer", None), ("Precision", "thresholds", PAIR), ("Recall", "thresholds", PAIR)}
X = np.abs(np.random.RandomState(0).randn(3, 4, 4, 2)).astype("float32") + np.float32(0.1)
TRUE, PREDICTED = np.array([[0, 1], [1, 0]], "float32"), np.array([[0.2, 0.8], [0.6, 0.4]], "float32")


def of_layer(keras, name, layer):
    if name in ("InputLayer", "TextVectorization"):
        return 0
    if name == "Embedding":
        return np.asarray(layer(np.array([[1, 2], [3, 4]])))
    if name in ("Add", "Multiply", "Subtract", "Average", "Maximum", "Concatenate"):
        return np.asarray(layer([X, X]))
    if name == "MultiHeadAttention":
        return np.asarray(layer(X[:, 0], X[:, 0])).shape
    out = np.asarray(layer(X[:, 0] if "1D" in name or name in ("LSTM", "GRU", "Permute") else X))
    drawn = any(np.asarray(each).size and np.asarray(each).std() > 0 for each in layer.weights)
    return out.shape if drawn or name == "Dropout" else out


def of_fit(keras, dense=None, optimizer=None, callbacks=(), epochs=5, batch_size=3):
    """Steps large enough that the loss also rises, and gradients of many sizes: otherwise patience=0 or beta_2=0 would change nothing."""
    optimizer = optimizer or keras.optimizers.SGD(0.3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", **(dense or {}))])
    model.compile(optimizer, "mse", metrics=["mae"])
    y = np.ones((3, 1), "float32")
    history = model.fit(X[:, 0, 0], y, epochs=epochs, batch_size=batch_size, shuffle=False, verbose=0, callbacks=list(callbacks), validation_data=(X[:, 0, 0], y))
    return history.history["loss"] + [np.asarray(model.get_weights()[0]).reshape(-1).tolist()]


def of_initializer(keras, made):
    layer = keras.layers.Dense(4, kernel_initializer=made)
    layer.build((None, 3))
    kernel = np.asarray(layer.get_weights()[0])
    return kernel if kernel.std() == 0 else kernel.shape


def use(keras, kind, name, made):
    """What the object computes."""
    if kind == "layers":
        return of_layer(keras, name, made)
    if kind in ("losses", "metrics"):
        true = np.array([1, 0]) if "Sparse" in name else TRUE
        if kind == "losses":
            return np.asarray(made(true, PREDICTED))
        made.update_state(*([[1.0, 2.0]] if name in ("Mean", "Sum") else [true, PREDICTED]))
        return np.asarray(made.result())
    if kind == "schedules":
        return [float(made(step)) for step in (0, 1, 3, 9)]
    if kind == "initializers":
        return of_initializer(keras, made)
    return of_fit(keras, **{"optimizers": dict(optimizer=made, epochs=3, batch_size=1), "regularizers": dict(dense=dict(kernel_regularizer=made)),
                            "callbacks": dict(callbacks=[made])}[kind])


def attempt(keras, kind, name, config):
    """(exception or None, numbers or None)"""
    try:
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            keras.utils.clear_session()
            return None, use(keras, kind, name, getattr(module(keras, kind), name)(**config))
    except Exception as error:
        return error, None


def module(keras, kind):
    return keras.optimizers.schedules if kind == "schedules" else getattr(keras, kind)


def close(a, b):
    try:
        a, b = (np.concatenate([np.ravel(np.asarray(each, float)) for each in (side if isinstance(side, list) else [side])]) for side in (a, b))
    except (TypeError, ValueError):
        return a == b
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)


def is_flag(value):
    return isinstance(value, (int, float)) and value in (0, 1)


def why(theirs, ours, value, refusals):
    """What is wrong, in words; None when nothing is."""
    if ours[0] is not None:
        return None if isinstance(ours[0], refusals) else "unisono fails with %r" % ours[0]
    if theirs[0] is not None:
        return None if is_flag(value) else "Keras refuses (%.100r), unisono does not" % theirs[0]
    return None if close(theirs[1], ours[1]) else "%.80s in Keras, %.80s in unisono" % (theirs[1], ours[1])


def arguments(theirs, ours):
    given = inspect.signature(ours.__init__).parameters
    names = [name for name, each in given.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if len(names) <= 1:  # it takes them by name
        names = list(inspect.signature(theirs.__init__).parameters)
    return [name for name in names if name not in LEFT_OUT]


def main(kinds):
    import keras
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.run_functions_eagerly(True)
    keras.utils.disable_interactive_logging()
    import unisono
    from unisono import keras as ours

    refusals = (TypeError, ValueError, NotImplementedError, unisono.Error)
    tried = refused = same = wrong = 0
    for kind in kinds or KINDS:
        for name in sorted(dir(module(ours, kind))):
            pair = [getattr(module(side, kind), name, None) for side in (keras, ours)]
            if not all(inspect.isclass(each) for each in pair) or name in ABSTRACT or name.startswith("_"):
                continue
            for argument in arguments(*pair):
                for value in VALUES:
                    if (name, argument) in ONLY_OURS or any(each[:2] == (name, argument) and each[2] is value for each in PLAIN):
                        continue
                    config = dict(NEEDS.get(name, {}), **({"learning_rate": 0.1} if kind == "optimizers" else {}), **{argument: value}) \
                        if argument != "learning_rate" else {argument: value}
                    mine = attempt(ours, kind, name, config)
                    theirs = (None, None) if isinstance(mine[0], refusals) else attempt(keras, kind, name, config)
                    reason = why(theirs, mine, value, refusals)
                    tried, refused, same, wrong = tried + 1, refused + (mine[0] is not None), same + (mine[0] is None and reason is None), wrong + (reason is not None)
                    if reason is not None:
                        print("[  FAILED  ] keras.%s.%s(%s=%r): %s" % (kind, name, argument, value, reason), flush=True)
    print("%d arguments of a wrong kind: %d refused, %d taken as in Keras, %d wrong" % (tried, refused, same, wrong))
    return 1 if wrong or not tried else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(main(sys.argv[1:]))
