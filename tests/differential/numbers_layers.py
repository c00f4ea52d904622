"""Layers: eager calls with training True and False, a second batch, from_config round trips, build() by hand, the activations, to_categorical."""

import numpy as np

ACTIVATIONS = ["relu", "sigmoid", "tanh", "gelu", "softplus", "silu", "elu", "selu", "linear", "softmax", "softsign", "hard_sigmoid", "leaky_relu", "relu6",
               "exponential", "swish", None]
INPUTS = ["float32", "float64", "int32", "uint8"]


def some(r, **options):
    """Some of the arguments, each with a value of its list."""
    return {name: r.choice(values) for name, values in options.items() if r.random() < 0.5}


def numbers(seed, shape, kind="float32", low=-1.0, high=1.0):
    """An array (or nested lists) that depends on the seed only."""
    values = np.random.RandomState(seed % 2**32).uniform(low, high, shape)
    if kind.startswith(("int", "uint")):
        values = np.abs(values * 4)
    if kind == "list":
        return values.astype("float32").tolist()
    return values.astype(kind)


def images(r):
    return [r.randint(1, 3), r.randint(4, 7), r.randint(4, 7), r.randint(1, 3)]


def series(r):
    return [r.randint(1, 3), r.randint(3, 7), r.randint(1, 4)]


def rows(r):
    return [r.randint(1, 5)] + [r.randint(1, 4) for _ in range(r.randint(0, 2))] + [r.randint(1, 5)]


REGULARIZERS = [None, "l1", "l2"]
INITIALIZERS = ["ones", "zeros", "glorot_uniform", "he_normal"]


def _dense(r):
    return dict(units=r.randint(1, 5), **some(r, activation=ACTIVATIONS, use_bias=[True, False], kernel_initializer=INITIALIZERS, kernel_regularizer=REGULARIZERS)), rows(r)


def _conv(r, ndim):
    config = dict(filters=r.randint(1, 4), kernel_size=r.choice([1, 2, 3]), **some(
        r, strides=[1, 2], padding=["valid", "same"] + (["causal"] if ndim == 1 else []), activation=ACTIVATIONS, use_bias=[True, False]))
    if config.get("strides", 1) == 1 and r.random() < 0.3:
        config["dilation_rate"] = 2
    return config, (series if ndim == 1 else images)(r)


def _depthwise(r):
    return dict(kernel_size=r.choice([1, 2, 3]), **some(r, strides=[1, 2], padding=["valid", "same"], depth_multiplier=[1, 2], use_bias=[True, False])), images(r)


def _pool(r, ndim):
    return some(r, pool_size=[1, 2, 3], strides=[1, 2, None], padding=["valid", "same"]), (series if ndim == 1 else images)(r)


def _recurrent(r, extra):
    config = dict(units=r.randint(1, 4), **some(r, activation=["tanh", "relu", "sigmoid", "linear"], recurrent_activation=["sigmoid", "hard_sigmoid", "tanh"],
                                              use_bias=[True, False], return_sequences=[True, False], go_backwards=[True, False], dropout=[0.0], **extra))
    return config, series(r)


def _merge(r):
    return {}, [rows(r)] * r.choice([2, 3])


LAYERS = {
    "Dense": _dense,
    "Activation": lambda r: (dict(activation=r.choice(ACTIVATIONS[:-1])), rows(r)),
    "ReLU": lambda r: (some(r, max_value=[0.5, 1.0, 0, None], negative_slope=[0.0, 0.1], threshold=[0.0, 0.2]), rows(r)),
    "LeakyReLU": lambda r: (some(r, negative_slope=[0.0, 0.1, 0.5]), rows(r)),
    "Softmax": lambda r: (some(r, axis=[-1]), rows(r)),
    "Flatten": lambda r: ({}, rows(r)),
    "Reshape": lambda r: (dict(target_shape=r.choice([[-1], [2, -1], [6, 2], [3, 4], [12]])), [r.randint(1, 3), 3, 4]),
    "Permute": lambda r: (dict(dims=r.choice([[1, 2], [2, 1]])), [2, 3, 4]),
    "Dropout": lambda r: (dict(rate=r.choice([0, 0.0, 0.4])), rows(r)),
    "Rescaling": lambda r: (dict(scale=r.choice([0, 0.5, 2.0]), **some(r, offset=[0, -1.0])), rows(r)),
    "ActivityRegularization": lambda r: (some(r, l1=[0.0, 0.1], l2=[0.0, 0.1]), rows(r)),
    "Conv1D": lambda r: _conv(r, 1),
    "Conv2D": lambda r: _conv(r, 2),
    "DepthwiseConv2D": _depthwise,
    "MaxPooling1D": lambda r: _pool(r, 1), "AveragePooling1D": lambda r: _pool(r, 1),
    "MaxPooling2D": lambda r: _pool(r, 2), "AveragePooling2D": lambda r: _pool(r, 2),
    "GlobalAveragePooling1D": lambda r: (some(r, keepdims=[True, False]), series(r)), "GlobalMaxPooling1D": lambda r: (some(r, keepdims=[True, False]), series(r)),
    "GlobalAveragePooling2D": lambda r: (some(r, keepdims=[True, False]), images(r)), "GlobalMaxPooling2D": lambda r: (some(r, keepdims=[True, False]), images(r)),
    "ZeroPadding2D": lambda r: (some(r, padding=[0, 1, 2, [1, 2], [[1, 0], [0, 2]]]), images(r)),
    "BatchNormalization": lambda r: (some(r, momentum=[0.0, 0.5, 0.99], epsilon=[1e-3, 1e-5], center=[True, False], scale=[True, False], axis=[-1]), rows(r)),
    "LayerNormalization": lambda r: (some(r, epsilon=[1e-3, 1e-5], center=[True, False], scale=[True, False], axis=[-1]), rows(r)),
    "Normalization": lambda r: (dict(mean=r.choice([0.0, 0.5]), variance=r.choice([1.0, 0.25]), **some(r, invert=[False, True])), rows(r)),
    "Embedding": lambda r: (dict(input_dim=8, output_dim=r.randint(1, 4)), [r.randint(1, 3), r.randint(1, 4)]),
    "LSTM": lambda r: _recurrent(r, dict(unit_forget_bias=[True, False])),
    "GRU": lambda r: _recurrent(r, dict(reset_after=[True, False])),
    # key_dim 1 with several heads: Keras on TensorFlow gives other numbers than its own formula in NumPy, which the engine agrees with.
    "MultiHeadAttention": lambda r: (dict(num_heads=r.randint(1, 2), key_dim=r.randint(2, 3), **some(r, use_bias=[True, False], value_dim=[2], dropout=[0.0])),
                                     [[2, 3, 4], [2, r.randint(2, 4), 4]]),
    "Add": _merge, "Subtract": lambda r: ({}, [rows(r)] * 2), "Multiply": _merge, "Average": _merge, "Maximum": _merge,
    "Concatenate": lambda r: (some(r, axis=[-1, 1]), [[2, 3, 4]] * r.choice([2, 3])),
}


def make_layer(r):
    name = r.choice(list(LAYERS))
    config, shape = LAYERS[name](r)
    return dict(layer=name, config=config, shape=shape, input=r.choice(INPUTS), training=r.choice([True, False, None]), round_trip=r.random() < 0.5,
                build=r.random() < 0.3, again=r.random() < 0.5, frozen=r.random() < 0.2, needs=["layer", "shape", "input"])


def run_layer(keras, case):
    layer = getattr(keras.layers, case["layer"])(**(case.get("config") or {}))
    if case.get("round_trip"):
        layer = type(layer).from_config(layer.get_config())
    several = isinstance(case["shape"][0], list)
    shapes = case["shape"] if several else [case["shape"]]
    kind = "int32" if case["layer"] == "Embedding" else case["input"]
    if "int" in kind and case["layer"] not in ("Embedding", "Dense", "Flatten", "Rescaling"):
        kind = "float32"  # what Keras makes of whole numbers there is the backend's accident
    inputs = [numbers(case["seed"] + index, shape, kind) for index, shape in enumerate(shapes)]
    if several and case["layer"] == "MultiHeadAttention":
        call = lambda values, **options: layer(*values, **options)
    else:
        call = lambda values, **options: layer(values if several else values[0], **options)
    if case.get("build") and not several:
        layer.build(tuple([None] + case["shape"][1:]))
    if not layer.built or not layer.weights:
        call(inputs)
    layer.set_weights([numbers(case["seed"] + 7 + index, each.shape, low=0.1 if "variance" in each.name else -1) for index, each in enumerate(layer.weights)])
    if case.get("frozen"):
        layer.trainable = False
    noisy = case["layer"] == "Dropout" and (case.get("config") or {}).get("rate", 0) > 0
    options = {} if case.get("training") is None or noisy else dict(training=case["training"])
    if case["layer"] not in ("Dropout", "BatchNormalization", "LSTM", "GRU", "MultiHeadAttention"):
        options = {}  # Keras's other layers do not take it
    out = {"out": np.asarray(call(inputs, **options)), "weights": [np.asarray(each) for each in layer.get_weights()]}
    if case.get("again"):
        second = [numbers(case["seed"] + 50 + index, [shape[0] + 1] + shape[1:], kind) for index, shape in enumerate(shapes)]
        out["again"] = np.asarray(call(second))
    out["trainable"] = len(layer.trainable_weights)
    return out


# ---- initial weights ----

INITIALIZERS_OF = {
    "Zeros": {}, "Ones": {}, "Constant": dict(value=[0.0, 0.5, -2.0]), "RandomUniform": dict(minval=[-0.05, 0.0, 1.0], maxval=[0.05, 0.0, 2.0]),
    "RandomNormal": dict(mean=[0.0, 1.0], stddev=[0.0, 0.05, 2.0]), "TruncatedNormal": dict(mean=[0.0, 1.0], stddev=[0.0, 0.05]), "GlorotUniform": {}, "GlorotNormal": {},
    "HeUniform": {}, "HeNormal": {}, "LecunUniform": {}, "LecunNormal": {}, "Orthogonal": dict(gain=[0.0, 1.0, 2.0]), "Identity": dict(gain=[1.0, 3.0]),
}


def make_initializer(r):
    name = r.choice(list(INITIALIZERS_OF))
    return dict(name=name, config=some(r, **INITIALIZERS_OF[name]), units=r.choice([20, 40]), by=r.choice(["object", "name", "config"]), needs=["name", "units", "by"])


def run_initializer(keras, case):
    """The distribution: its place and width to what 1,600 numbers tell, and exactly where there is no chance in it."""
    kind, config = getattr(keras.initializers, case["name"]), case.get("config") or {}
    made = kind(**config)
    if case["by"] == "config":
        made = kind.from_config(made.get_config())
    elif case["by"] == "name" and not config:
        made = "".join("_" + each.lower() if each.isupper() else each for each in case["name"]).lstrip("_")
    layer = keras.layers.Dense(case["units"], kernel_initializer=made)
    layer.build((None, 40))
    weights = np.asarray(layer.get_weights()[0], np.float64)
    if weights.std() == 0 or case["name"] == "Identity":
        return {"weights": weights}
    return {"mean": weights.mean() / weights.std() / 10, "width": weights.std()}


# ---- functions ----


def make_activation(r):
    return dict(name=r.choice(ACTIVATIONS[:-1]), shape=rows(r), scale=r.choice([1.0, 8.0]), needs=["name", "shape", "scale"])


def run_activation(keras, case):
    x = numbers(case["seed"], case["shape"]) * np.float32(case["scale"])
    return np.asarray(getattr(keras.activations, case["name"])(x)), np.asarray(keras.activations.get(case["name"])(x))


def make_categorical(r):
    shape = r.choice([[5], [5, 1], [4, 3], [2, 3, 1], [1], [3, 1, 1]])
    return dict(shape=shape, classes=r.choice([None, 4, 6]), type=r.choice(["list", "int64", "float32", "uint8"]), needs=["shape", "type"])


def run_categorical(keras, case):
    y = np.random.RandomState(case["seed"]).randint(0, 4, case["shape"])
    y = y.tolist() if case["type"] == "list" else y.astype(case["type"])
    return keras.utils.to_categorical(y, case["classes"]) if case.get("classes") else keras.utils.to_categorical(y)


# name: (tolerance, draw, run, weight)
KINDS = {
    "layer": (2e-4, make_layer, run_layer, 8),
    "initializer": (0.15, make_initializer, run_initializer, 1),
    "activation": (1e-4, make_activation, run_activation, 1),
    "to_categorical": (1e-6, make_categorical, run_categorical, 1),
}
