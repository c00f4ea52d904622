"""Arguments one at a time: functions of keras.ops and keras.activations by keyword, and what the other kinds leave out of layers, losses, metrics and optimizers."""

import numpy as np

from numbers_layers import images, numbers, rows, series, some

# ---- functions ----

ONE = ["abs", "absolute", "cos", "exp", "floor", "log", "negative", "relu", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tanh"]
TWO = ["add", "divide", "equal", "floor_divide", "greater", "less", "maximum", "minimum", "mod", "multiply", "power", "subtract"]
REDUCE = ["max", "mean", "min", "prod", "sum"]
ACTIVATIONS = ["elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "swish", "tanh"]


def _axis(r, shape):
    return r.choice([None, 0, -1, len(shape) - 1])


def _one(r, shape):
    return dict(x="positive" if r.random() < 0.7 else "any")


def _reduce(r, shape):
    return dict(x="any", axis=_axis(r, shape), keepdims=r.random() < 0.5)


def _concatenate(r, shape):
    return dict(xs=["any", "any"], **r.choice([{}, dict(axis=0), dict(axis=-1)]))


# name -> draws the arguments; "any" and "positive" stand for arrays of the case's shape
OPS = {
    **dict.fromkeys(ONE, _one),
    **{name: lambda r, shape: dict(x1="positive", x2="positive") for name in TWO},
    **dict.fromkeys(REDUCE, _reduce),
    "all": lambda r, shape: dict(x="flags", axis=_axis(r, shape), keepdims=r.random() < 0.5),
    "any": lambda r, shape: dict(x="flags", axis=_axis(r, shape), keepdims=r.random() < 0.5),
    "argmax": lambda r, shape: dict(x="any", **r.choice([{}, dict(axis=0), dict(axis=-1)])),
    "broadcast_to": lambda r, shape: dict(x="any", shape=[2] + shape),
    "clip": lambda r, shape: dict(x="any", x_min=r.choice([-0.5, 0, 0.0]), x_max=r.choice([0, 0.5])),
    "concatenate": _concatenate,
    "convert_to_numpy": lambda r, shape: dict(x="any"),
    "expand_dims": lambda r, shape: dict(x="any", axis=r.choice([0, -1, 1])),
    "log_softmax": lambda r, shape: dict(x="any", axis=r.choice([-1, 0])),
    "reshape": lambda r, shape: dict(x="any", newshape=[-1]),
    "shape": lambda r, shape: dict(x="any"),
    "softmax": lambda r, shape: dict(x="any", axis=r.choice([-1, 0])),
    "squeeze": lambda r, shape: dict(x="thin", axis=r.choice([None, 0])),
    "stack": lambda r, shape: dict(x=["any", "any"], axis=r.choice([0, -1, 1])),
    "take": lambda r, shape: dict(x="any", indices=[0, 1], **r.choice([{}, dict(axis=0), dict(axis=-1), dict(axis=None)])),
    "transpose": lambda r, shape: dict(x="any", axes=r.choice([None, list(range(len(shape)))[::-1], [1, 0] + list(range(2, len(shape)))])),
}


def array(word, seed, shape):
    if isinstance(word, list) and word and all(isinstance(each, str) for each in word):
        return [array(each, seed + index, shape) for index, each in enumerate(word)]
    if word == "positive":
        return numbers(seed, shape, low=0.1, high=2.0)
    if word == "flags":
        return numbers(seed, shape) > 0
    if word == "thin":
        return numbers(seed, [1] + shape)
    return numbers(seed, shape) if word == "any" else word


def make_op(r):
    name, shape = r.choice(list(OPS)), [r.randint(2, 3), r.randint(2, 4)] + ([2] if r.random() < 0.5 else [])
    config = OPS[name](r, shape)
    return dict(op=name, shape=shape, config=config, needs=["op", "shape", "config"])


def run_op(keras, case):
    config = {name: array(value, case["seed"] + index, case["shape"]) for index, (name, value) in enumerate(case["config"].items())}
    out = getattr(keras.ops, case["op"])(**config)
    return [int(each) for each in out] if case["op"] == "shape" else np.asarray(out)


# ---- whole numbers that float32 does not have: they stay what they are ----

WHOLE = ["abs", "add", "argmax", "broadcast_to", "clip", "concatenate", "equal", "expand_dims", "floor_divide", "greater", "less", "max", "maximum", "min", "minimum", "mod",
         "multiply", "negative", "reshape", "sign", "square", "stack", "subtract", "sum", "take", "transpose", "where", "operators", "index"]


def make_whole(r):
    name, shape = r.choice(WHOLE), [r.randint(2, 3), r.randint(2, 4)]
    if name in ("where", "operators", "index"):
        config = {}
    elif name == "clip":
        config = dict(x="any", x_min=-3, x_max=2**25)
    else:
        config = OPS[name](r, shape)
    return dict(op=name, shape=shape, config=config, type=r.choice(["int64", "int32"]), tensors=r.random() < 0.7, needs=["op", "shape", "config", "type"])


def run_whole(keras, case):
    high = 2**40 if case["type"] == "int64" else 2**26

    def values(word, seed):
        if isinstance(word, list) and word and all(isinstance(each, str) for each in word):
            return [values(each, seed + index) for index, each in enumerate(word)]
        if word not in ("any", "positive"):
            return word
        made = np.random.RandomState(seed).randint(1 if case["op"] in ("floor_divide", "mod") else -high, high, case["shape"]).astype(case["type"])
        made.reshape(-1)[:2] = 2**24, 2**24 + 1
        return keras.ops.convert_to_tensor(made) if case.get("tensors") else made

    ops, x, y = keras.ops, values("any", case["seed"]), values("any", case["seed"] + 1)
    if case["op"] == "where":
        return np.asarray(ops.where(ops.greater(x, y), x, y))
    if case["op"] == "index":
        x = ops.convert_to_tensor(x)
        return [np.asarray(each) for each in (x[0], x[1, -1], x[:, 1:], x[..., 0], x[None, 1])]
    if case["op"] == "operators":
        x = ops.convert_to_tensor(x)
        return [np.asarray(each) for each in (x + 1, 1 - x, x * 3, x // 7, x % 7, -x, abs(x), x == y, x < y, x >= 2**24 + 1, x + y)] + [int(x[0, 1])]
    return np.asarray(getattr(ops, case["op"])(**{name: values(word, case["seed"] + index) for index, (name, word) in enumerate(case["config"].items())}))


def make_activation(r):
    name = r.choice(ACTIVATIONS)
    config = dict(x="any")
    if name == "softmax":
        config["axis"] = r.choice([-1, 0])
    return dict(activation=name, shape=rows(r), config=config, needs=["activation", "shape", "config"])


def run_activation(keras, case):
    config = dict(case["config"], x=numbers(case["seed"], case["shape"]) * np.float32(4))
    return np.asarray(getattr(keras.activations, case["activation"])(**config))


# ---- layers: weights as they were initialised, losses of regularizers, the axis and the order of the dimensions ----

FIXED = ["zeros", "ones"]
SUMS = ["l1", "l2"]
FORMATS = ["channels_last", "channels_first"]
WHERE = {
    "Dense": (dict(units=3), rows, dict(kernel_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS, bias_regularizer=SUMS, activity_regularizer=SUMS)),
    "Conv1D": (dict(filters=2, kernel_size=2), series, dict(kernel_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS, bias_regularizer=SUMS,
                                                            activity_regularizer=SUMS, data_format=FORMATS, groups=[1])),
    "Conv2D": (dict(filters=2, kernel_size=2), images, dict(kernel_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS, bias_regularizer=SUMS,
                                                            activity_regularizer=SUMS, data_format=FORMATS, groups=[1, 2])),
    "DepthwiseConv2D": (dict(kernel_size=2), images, dict(depthwise_initializer=FIXED, bias_initializer=FIXED, depthwise_regularizer=SUMS, bias_regularizer=SUMS,
                                                          activity_regularizer=SUMS, data_format=FORMATS, dilation_rate=[1, 2], activation=["relu", "tanh"])),
    "Embedding": (dict(input_dim=8, output_dim=3), lambda r: [2, 3], dict(embeddings_initializer=FIXED, embeddings_regularizer=SUMS, activity_regularizer=SUMS, mask_zero=[True, False])),
    "LSTM": (dict(units=2), series, dict(kernel_initializer=FIXED, recurrent_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS, recurrent_regularizer=SUMS,
                                         bias_regularizer=SUMS, activity_regularizer=SUMS, dropout=[0.0, 0.4])),
    "GRU": (dict(units=2), series, dict(kernel_initializer=FIXED, recurrent_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS, recurrent_regularizer=SUMS,
                                        bias_regularizer=SUMS, activity_regularizer=SUMS, dropout=[0.0, 0.4])),
    "BatchNormalization": (dict(), images, dict(axis=[-1, 1, 2], beta_initializer=FIXED, gamma_initializer=FIXED, beta_regularizer=SUMS, gamma_regularizer=SUMS)),
    "LayerNormalization": (dict(), series, dict(axis=[-1, 1, [1, 2]], beta_initializer=FIXED, gamma_initializer=FIXED, beta_regularizer=SUMS, gamma_regularizer=SUMS)),
    "Softmax": (dict(), series, dict(axis=[-1, 1])),
    "Flatten": (dict(), images, dict(data_format=FORMATS)),
    "MultiHeadAttention": (dict(num_heads=1, key_dim=2), lambda r: [2, 3, 4], dict(
        dropout=[0.0, 0.4], output_shape=[3, [5]], attention_axes=[[1], 1], kernel_initializer=FIXED, bias_initializer=FIXED, kernel_regularizer=SUMS,
        bias_regularizer=SUMS)),
    "ZeroPadding2D": (dict(), images, dict(data_format=FORMATS)),
    **{name: (dict(pool_size=2), images, dict(data_format=FORMATS)) for name in ("MaxPooling2D", "AveragePooling2D")},
    **{name: (dict(pool_size=2), series, dict(data_format=FORMATS)) for name in ("MaxPooling1D", "AveragePooling1D")},
    **{name: (dict(), images, dict(data_format=FORMATS)) for name in ("GlobalMaxPooling2D", "GlobalAveragePooling2D")},
    **{name: (dict(), series, dict(data_format=FORMATS)) for name in ("GlobalMaxPooling1D", "GlobalAveragePooling1D")},
}


def make_detail(r):
    name = r.choice(list(WHERE))
    config, shape, arguments = WHERE[name]
    argument = r.choice(list(arguments))
    return dict(layer=name, config=dict(config, **{argument: r.choice(arguments[argument])}), shape=shape(r), needs=["layer", "config", "shape"])


FILLED = {"kernel": "kernel_initializer", "recurrent_kernel": "recurrent_initializer", "bias": "bias_initializer", "embeddings": "embeddings_initializer",
          "depthwise_kernel": "depthwise_initializer", "gamma": "gamma_initializer", "beta": "beta_initializer"}


def run_detail(keras, case):
    layer = getattr(keras.layers, case["layer"])(**case["config"])
    x = numbers(case["seed"], case["shape"], "int32" if case["layer"] == "Embedding" else "float32")
    call = (lambda: layer(x, x)) if case["layer"] == "MultiHeadAttention" else (lambda: layer(x))
    call()
    out = {"made": {each.name: np.asarray(each) for each in layer.weights if FILLED.get(each.name) in case["config"]}}
    layer.set_weights([numbers(case["seed"] + 7 + index, each.shape, low=0.1 if "variance" in each.name else -1) for index, each in enumerate(layer.weights)])
    out["out"] = np.asarray(call())
    if any("regularizer" in name for name in case["config"]):
        inputs = keras.Input(tuple(case["shape"][1:]), dtype=x.dtype.name)
        model = keras.Model(inputs, layer(inputs, inputs) if case["layer"] == "MultiHeadAttention" else layer(inputs))
        model.compile("sgd", "mse")
        out["loss"] = float(model.evaluate(x, np.zeros(out["out"].shape, "float32"), verbose=0))
    return out


# ---- text ----

TEXTS = ["The cat sat.", "the CAT, the dog!", "a dog", "cat dog bird; cat"]
WORDS = ["the", "cat", "dog"]


def make_text(r):
    mode = r.choice(["int", "multi_hot", "count", "tf_idf"])
    config = dict(output_mode=mode, **some(r, max_tokens=[None, 4, 20], standardize=["lower", "strip_punctuation", "lower_and_strip_punctuation", None],
                                          split=["whitespace", "character", None], ngrams=[None, 2]))
    if mode == "int":
        config.update(some(r, output_sequence_length=[None, 3]))
    elif config.get("max_tokens"):
        config.update(some(r, pad_to_max_tokens=[True, False]))
    if mode != "tf_idf" and not config.get("max_tokens") and r.random() < 0.3:
        config["vocabulary"] = WORDS
    return dict(layer="TextVectorization", config=config, special=r.random() < 0.5, later=r.random() < 0.2, needs=["layer", "config"])


def run_text(keras, case):
    config, later = dict(case["config"]), case.get("later")
    words = config.pop("vocabulary", None) if later else None
    layer = keras.layers.TextVectorization(**config)
    if words:
        layer.set_vocabulary(vocabulary=words)
    elif "vocabulary" not in config:
        layer.adapt(np.asarray(TEXTS))
    texts = np.asarray([[each] for each in TEXTS[1:]]) if config.get("split", 1) is None else np.asarray(TEXTS[1:])
    return {"out": np.asarray(layer(texts)).astype("float64"), "words": list(layer.get_vocabulary(include_special_tokens=bool(case.get("special"))))}


# ---- names ----

NAMED = {"losses": ["BinaryCrossentropy", "CategoricalCrossentropy", "Hinge", "Huber", "KLDivergence", "MeanAbsoluteError", "MeanSquaredError", "SparseCategoricalCrossentropy",
                    "SquaredHinge"],
         "metrics": ["AUC", "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "CategoricalAccuracy", "CategoricalCrossentropy", "F1Score", "FBetaScore", "Hinge", "KLDivergence", "Mean",
                     "MeanAbsoluteError", "MeanSquaredError", "Precision", "Recall", "RootMeanSquaredError", "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy",
                     "SparseTopKCategoricalAccuracy", "Sum", "TopKCategoricalAccuracy"],
         "optimizers": ["Adagrad", "Adam", "AdamW", "RMSprop", "SGD"]}


def make_name(r):
    module = r.choice(list(NAMED))
    return dict(module=module, object=r.choice(NAMED[module]), config=dict(name=r.choice(["mine", "a_b"])), needs=["module", "object", "config"])


def run_name(keras, case):
    made = getattr(getattr(keras, case["module"]), case["object"])(**case["config"])
    return [made.name, type(made).from_config(made.get_config()).name]


def make_regularizer(r):
    name = r.choice(["L1", "L2", "L1L2"])
    config = {word.lower(): r.choice([0.0, 0.01, 0.5]) for word in ("L1", "L2") if word in name}
    return dict(regularizer=name, config=config, needs=["regularizer", "config"])


def run_regularizer(keras, case):
    made = getattr(keras.regularizers, case["regularizer"])(**case["config"])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_regularizer=made)])
    model.set_weights([numbers(case["seed"], [4, 3]), numbers(case["seed"] + 1, [3])])
    model.compile("sgd", "mse")
    return float(model.evaluate(numbers(1, [2, 4]), np.zeros((2, 3), "float32"), verbose=0))


KINDS = {
    "op": (1e-4, make_op, run_op, 3),
    "whole": (0.0, make_whole, run_whole, 1),
    "activation by keyword": (1e-4, make_activation, run_activation, 1),
    "layer in detail": (2e-4, make_detail, run_detail, 4),
    "text": (1e-5, make_text, run_text, 2),
    "name": (0.0, make_name, run_name, 2),
    "regularizer": (1e-5, make_regularizer, run_regularizer, 1),
}
