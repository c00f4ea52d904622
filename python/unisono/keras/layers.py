"""The engine's layers, with Keras's names, arguments, defaults and order of weights.

A layer here is Keras's config and, once it is needed, the engine's layer made of it. The model that is made of layers takes them; a layer belongs to one model.
"""

from unisono import _engine
from unisono.keras._graph import Input, KerasTensor
from unisono.keras._tensor import Variable, as_array

__all__ = ["Layer", "Input", "InputLayer", "Dense", "Activation", "ReLU", "LeakyReLU", "Softmax", "Flatten", "Reshape", "Permute", "Dropout",
           "Rescaling", "ActivityRegularization", "Conv1D", "Conv2D", "DepthwiseConv2D", "MaxPooling1D", "MaxPooling2D", "AveragePooling1D",
           "AveragePooling2D", "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "ZeroPadding2D",
           "BatchNormalization", "LayerNormalization", "Normalization", "Embedding", "LSTM", "GRU", "MultiHeadAttention", "Add", "Subtract", "Multiply",
           "Average", "Maximum", "Concatenate", "TextVectorization", "SentenceEmbedding"]


def _plain(value):
    """An argument as Keras's config has it."""
    if hasattr(value, "_object"):
        return value._object()
    if callable(value):
        name = getattr(value, "__name__", None)
        if name is None or name == "<lambda>":
            raise ValueError("functions of one's own cannot be a layer's argument; give a name: %r" % (value,))
        return name
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and not isinstance(value, (list, dict, str)):
        return value.item()
    return value


class Layer:
    """Base of the layers."""

    _class = None

    def __init__(self, config: dict = None, common: dict = None):
        if self._class is None:
            raise NotImplementedError("layers of one's own are not offered from Python yet; a Model of the engine's layers, or a loop of one's own with "
                                      "a GradientTape, can do most things")
        common = dict(common or {})
        shape = common.pop("input_shape", None)
        if common.get("batch_input_shape") is not None:
            shape = common.pop("batch_input_shape")[1:]
        if common.get("input_dim") is not None and self._class != "Embedding":
            shape = (common.pop("input_dim"),)
        self._input_shape, self._input_dtype = shape, getattr(common.get("dtype"), "name", common.get("dtype"))
        common.pop("output_shape", None)
        unknown = set(common) - {"name", "trainable", "dtype", "input_length"}
        if unknown:
            raise TypeError("%s has no argument %s" % (type(self).__name__, ", ".join(sorted(unknown))))
        self._config = {key: _plain(value) for key, value in (config or {}).items() if value is not None}
        if common.get("name") is not None:
            self._config["name"] = common["name"]
        if common.get("trainable") is False:
            self._config["trainable"] = False
        self._raw = None
        self._native()  # wrong arguments are errors here

    # ---- the engine's layer ----

    def _native(self):
        if self._raw is None:
            self._raw = _engine.Layer(self._class, self._config)
        return self._raw

    def _copy(self):
        return _engine.Layer(self._class, self._config)

    def _forget(self):
        """The engine dropped its layer together with a model that could not be made."""
        self._raw = None

    def _check_free(self):
        if self._native().taken:
            raise ValueError("the layer %r belongs to a model already; make a new one (and set_weights, if it shall begin with the same weights)" % self.name)

    @classmethod
    def _of(cls, raw):
        """A layer of a model that came from a file."""
        kind = globals().get(raw.class_name, cls)
        out = kind.__new__(kind if isinstance(kind, type) and issubclass(kind, Layer) else Layer)
        out._raw, out._input_shape, out._input_dtype = raw, None, None
        out._config = {}
        return out

    # ---- what users see ----

    def __call__(self, *inputs, **options):
        options.pop("training", None)
        flat = []
        for each in inputs:
            flat.extend(each if isinstance(each, (list, tuple)) else [each])
        flat += [options.pop(key) for key in ("value", "key") if options.get(key) is not None]
        if options.pop("use_causal_mask", False) and self._class == "MultiHeadAttention":
            self._config["use_causal_mask"] = True
            self._check_free()
            self._forget()
        if options:
            raise TypeError("%s cannot be called with %s" % (type(self).__name__, ", ".join(sorted(options))))
        if any(isinstance(each, KerasTensor) for each in flat):
            return KerasTensor(self, flat)
        return self._alone(flat)

    def _alone(self, inputs):
        """Called with numbers: a model of this layer only, which keeps its weights."""
        from unisono.keras.models import Model

        if not hasattr(self, "_model"):
            arrays = [as_array(each) for each in inputs]
            symbols = [Input(array.shape[1:], dtype="string" if isinstance(array, _engine.Strings) else "float32") for array in arrays]
            self._model = Model(symbols, self(symbols))
        return self._model(list(inputs) if len(inputs) > 1 else inputs[0])

    @property
    def name(self) -> str:
        return self._native().name or self._config.get("name") or self._class.lower()

    @property
    def trainable(self) -> bool:
        return self._native().trainable

    @trainable.setter
    def trainable(self, value):
        self._native().trainable = bool(value)
        self._config["trainable"] = bool(value)

    @property
    def built(self) -> bool:
        return self._native().built

    @property
    def weights(self) -> list:
        return [Variable(parameter=each) for each in _parameters(self._native())]

    @property
    def trainable_weights(self) -> list:
        return [each for each in self.weights if each.trainable]

    trainable_variables = trainable_weights
    variables = weights

    @property
    def non_trainable_weights(self) -> list:
        return [each for each in self.weights if not each.trainable]

    @property
    def kernel(self):
        return self._named("kernel")

    @property
    def bias(self):
        return self._named("bias")

    def _named(self, name):
        for each in self.weights:
            if each.name == name:
                return each
        raise AttributeError("the layer %s has no %s" % (self.name, name))

    @property
    def output_shape(self):
        spec = self._native().output
        return None if spec is None else spec[1]

    def count_params(self) -> int:
        import math

        return sum(math.prod(each.shape) for each in self.weights)

    def get_weights(self) -> list:
        """Copies, in Keras's order."""
        return [each.numpy().copy() for each in self.weights]

    def set_weights(self, weights) -> None:
        mine = self.weights
        if len(weights) != len(mine):
            raise ValueError("the layer %s has %d weights, got %d" % (self.name, len(mine), len(weights)))
        for each, value in zip(mine, weights):
            each.assign(value)

    def get_config(self) -> dict:
        return self._native().get_config()

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        return cls(**config)

    def __repr__(self):
        return "<%s name=%s, built=%s>" % (type(self).__name__, self.name, self.built)


def _parameters(raw):
    own = raw.parameters()
    for child in raw.children():
        seen = {each.handle for each in own}
        own += [each for each in _parameters(child) if each.handle not in seen]
    return own


class InputLayer(Layer):
    """The shape and type of a model's input."""

    _class = "InputLayer"

    def __init__(self, shape=None, dtype=None, name: str = None, batch_shape=None, input_shape=None):
        shape = shape if shape is not None else input_shape
        if batch_shape is None:
            batch_shape = (None,) + tuple([shape] if isinstance(shape, int) else shape or ())
        config = {"batch_shape": [each for each in batch_shape], "dtype": str(getattr(dtype, "name", dtype) or "float32")}
        super().__init__(config, {"name": name})


# ---- core ----


class Dense(Layer):
    """activation(x @ kernel + bias)."""

    _class = "Dense"

    def __init__(self, units: int, activation=None, use_bias: bool = True, kernel_initializer="glorot_uniform", bias_initializer="zeros",
                 kernel_regularizer=None, bias_regularizer=None, activity_regularizer=None, **common):
        super().__init__(dict(units=units, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
                              bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
                              activity_regularizer=activity_regularizer), common)


class Activation(Layer):
    """An activation as a layer."""

    _class = "Activation"

    def __init__(self, activation, **common):
        super().__init__(dict(activation=activation), common)


class ReLU(Layer):
    """max(x, 0)."""

    _class = "ReLU"

    def __init__(self, max_value=None, negative_slope: float = 0.0, threshold: float = 0.0, **common):
        super().__init__(dict(max_value=max_value, negative_slope=negative_slope, threshold=threshold), common)


class LeakyReLU(Layer):
    """x, or negative_slope * x below zero."""

    _class = "LeakyReLU"

    def __init__(self, negative_slope: float = 0.3, **common):
        super().__init__(dict(negative_slope=common.pop("alpha", negative_slope)), common)


class Softmax(Layer):
    """Softmax over the last axis."""

    _class = "Softmax"

    def __init__(self, axis: int = -1, **common):
        super().__init__(dict(axis=axis), common)


class Flatten(Layer):
    """Each sample as one vector."""

    _class = "Flatten"

    def __init__(self, data_format=None, **common):
        super().__init__(dict(data_format=data_format), common)


class Reshape(Layer):
    """Each sample in another shape; one -1."""

    _class = "Reshape"

    def __init__(self, target_shape, **common):
        super().__init__(dict(target_shape=list(target_shape)), common)


class Permute(Layer):
    """The axes of a sample in another order, counted from 1."""

    _class = "Permute"

    def __init__(self, dims, **common):
        super().__init__(dict(dims=list(dims)), common)


class Dropout(Layer):
    """Sets a part of the numbers to 0 while training."""

    _class = "Dropout"

    def __init__(self, rate: float, noise_shape=None, seed=None, **common):
        super().__init__(dict(rate=rate, noise_shape=noise_shape, seed=seed), common)


class Rescaling(Layer):
    """x * scale + offset."""

    _class = "Rescaling"

    def __init__(self, scale: float, offset: float = 0.0, **common):
        super().__init__(dict(scale=scale, offset=offset), common)


class ActivityRegularization(Layer):
    """Adds l1 and l2 of what comes through to the loss."""

    _class = "ActivityRegularization"

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **common):
        super().__init__(dict(l1=l1, l2=l2), common)


# ---- convolution and pooling ----


class _Conv(Layer):
    def __init__(self, filters: int, kernel_size, strides=1, padding: str = "valid", data_format=None, dilation_rate=1, groups: int = 1, activation=None,
                 use_bias: bool = True, kernel_initializer="glorot_uniform", bias_initializer="zeros", kernel_regularizer=None, bias_regularizer=None,
                 activity_regularizer=None, **common):
        super().__init__(dict(filters=filters, kernel_size=kernel_size, strides=strides, padding=padding, data_format=data_format,
                              dilation_rate=dilation_rate, groups=groups, activation=activation, use_bias=use_bias,
                              kernel_initializer=kernel_initializer, bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer,
                              bias_regularizer=bias_regularizer, activity_regularizer=activity_regularizer), common)


class Conv1D(_Conv):
    """Convolution over (batch, time, channels)."""

    _class = "Conv1D"


class Conv2D(_Conv):
    """Convolution over (batch, height, width, channels)."""

    _class = "Conv2D"


class DepthwiseConv2D(Layer):
    """Convolution of each channel by itself."""

    _class = "DepthwiseConv2D"

    def __init__(self, kernel_size, strides=1, padding: str = "valid", depth_multiplier: int = 1, data_format=None, dilation_rate=1, activation=None,
                 use_bias: bool = True, depthwise_initializer="glorot_uniform", bias_initializer="zeros", depthwise_regularizer=None,
                 bias_regularizer=None, activity_regularizer=None, **common):
        super().__init__(dict(kernel_size=kernel_size, strides=strides, padding=padding, depth_multiplier=depth_multiplier, data_format=data_format,
                              dilation_rate=dilation_rate, activation=activation, use_bias=use_bias, depthwise_initializer=depthwise_initializer,
                              bias_initializer=bias_initializer, depthwise_regularizer=depthwise_regularizer, bias_regularizer=bias_regularizer,
                              activity_regularizer=activity_regularizer), common)


class _Pool(Layer):
    def __init__(self, pool_size=2, strides=None, padding: str = "valid", data_format=None, **common):
        super().__init__(dict(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format), common)


class MaxPooling1D(_Pool):
    """The largest of each window."""

    _class = "MaxPooling1D"


class MaxPooling2D(_Pool):
    """The largest of each window."""

    _class = "MaxPooling2D"


class AveragePooling1D(_Pool):
    """The mean of each window."""

    _class = "AveragePooling1D"


class AveragePooling2D(_Pool):
    """The mean of each window."""

    _class = "AveragePooling2D"


class _GlobalPool(Layer):
    def __init__(self, data_format=None, keepdims: bool = False, **common):
        super().__init__(dict(data_format=data_format, keepdims=keepdims), common)


class GlobalAveragePooling1D(_GlobalPool):
    """The mean over time."""

    _class = "GlobalAveragePooling1D"


class GlobalAveragePooling2D(_GlobalPool):
    """The mean over the image."""

    _class = "GlobalAveragePooling2D"


class GlobalMaxPooling1D(_GlobalPool):
    """The largest over time."""

    _class = "GlobalMaxPooling1D"


class GlobalMaxPooling2D(_GlobalPool):
    """The largest over the image."""

    _class = "GlobalMaxPooling2D"


class ZeroPadding2D(Layer):
    """Zeros around the image."""

    _class = "ZeroPadding2D"

    def __init__(self, padding=1, data_format=None, **common):
        super().__init__(dict(padding=padding, data_format=data_format), common)


# ---- normalisation ----


class BatchNormalization(Layer):
    """Zero mean and unit variance over the (global) batch."""

    _class = "BatchNormalization"

    def __init__(self, axis: int = -1, momentum: float = 0.99, epsilon: float = 0.001, center: bool = True, scale: bool = True, **common):
        super().__init__(dict(axis=axis, momentum=momentum, epsilon=epsilon, center=center, scale=scale), common)


class LayerNormalization(Layer):
    """Zero mean and unit variance of each sample over the last axis."""

    _class = "LayerNormalization"

    def __init__(self, axis: int = -1, epsilon: float = 0.001, center: bool = True, scale: bool = True, **common):
        super().__init__(dict(axis=axis, epsilon=epsilon, center=center, scale=scale), common)


class Normalization(Layer):
    """(x - mean) / sqrt(variance), learnt by adapt or given."""

    _class = "Normalization"

    def __init__(self, axis: int = -1, mean=None, variance=None, invert: bool = False, **common):
        def floats(value):
            return None if value is None else [float(each) for each in (value if hasattr(value, "__len__") else [value])]
        super().__init__(dict(axis=axis, mean=floats(mean), variance=floats(variance), invert=invert), common)

    def adapt(self, data) -> None:
        """Learns mean and variance."""
        self._native().adapt(as_array(data))


# ---- sequences ----


class Embedding(Layer):
    """Rows of a table by class numbers."""

    _class = "Embedding"

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer="uniform", embeddings_regularizer=None, mask_zero: bool = False, **common):
        if embeddings_initializer == "uniform":
            embeddings_initializer = "random_uniform"
        super().__init__(dict(input_dim=input_dim, output_dim=output_dim, embeddings_initializer=embeddings_initializer,
                              embeddings_regularizer=embeddings_regularizer, mask_zero=mask_zero), common)


class _Recurrent(Layer):
    def __init__(self, units: int, activation="tanh", recurrent_activation="sigmoid", use_bias: bool = True, kernel_initializer="glorot_uniform",
                 recurrent_initializer="orthogonal", bias_initializer="zeros", kernel_regularizer=None, recurrent_regularizer=None,
                 dropout: float = 0.0, return_sequences: bool = False, go_backwards: bool = False, **common):
        extra = {key: common.pop(key) for key in ("unit_forget_bias", "reset_after", "return_state", "stateful", "unroll", "recurrent_dropout",
                                                  "bias_regularizer", "activity_regularizer") if key in common}
        super().__init__(dict(units=units, activation=activation, recurrent_activation=recurrent_activation, use_bias=use_bias,
                              kernel_initializer=kernel_initializer, recurrent_initializer=recurrent_initializer, bias_initializer=bias_initializer,
                              kernel_regularizer=kernel_regularizer, recurrent_regularizer=recurrent_regularizer, dropout=dropout,
                              return_sequences=return_sequences, go_backwards=go_backwards, **extra), common)


class LSTM(_Recurrent):
    """Long short-term memory."""

    _class = "LSTM"


class GRU(_Recurrent):
    """Gated recurrent unit."""

    _class = "GRU"


class MultiHeadAttention(Layer):
    """Attention; called with query, value and maybe key."""

    _class = "MultiHeadAttention"

    def __init__(self, num_heads: int, key_dim: int, value_dim=None, dropout: float = 0.0, use_bias: bool = True, **common):
        super().__init__(dict(num_heads=num_heads, key_dim=key_dim, value_dim=value_dim, dropout=dropout, use_bias=use_bias), common)


# ---- merging ----


class Add(Layer):
    """The sum of its inputs."""

    _class = "Add"

    def __init__(self, **common):
        super().__init__({}, common)


class Subtract(Add):
    """The first input less the second."""

    _class = "Subtract"


class Multiply(Add):
    """The product of its inputs."""

    _class = "Multiply"


class Average(Add):
    """The mean of its inputs."""

    _class = "Average"


class Maximum(Add):
    """The largest of its inputs."""

    _class = "Maximum"


class Concatenate(Layer):
    """Its inputs one behind the other."""

    _class = "Concatenate"

    def __init__(self, axis: int = -1, **common):
        super().__init__(dict(axis=axis), common)


def add(inputs):
    """The sum of symbols."""
    return Add()(inputs)


def concatenate(inputs, axis: int = -1):
    """Symbols one behind the other."""
    return Concatenate(axis)(inputs)


# ---- text ----


class _Text(Layer):
    def get_vocabulary(self, include_special_tokens: bool = True) -> list:
        """The words in the order of their numbers."""
        words = self._native().vocabulary()
        return words if include_special_tokens else words[2:]

    def vocabulary_size(self) -> int:
        return len(self._native().vocabulary())


class TextVectorization(_Text):
    """Text to numbers of words; adapt learns the words."""

    _class = "TextVectorization"

    def __init__(self, max_tokens=None, standardize="lower_and_strip_punctuation", split="whitespace", ngrams=None, output_mode: str = "int",
                 output_sequence_length=None, pad_to_max_tokens: bool = False, vocabulary=None, **common):
        super().__init__(dict(max_tokens=max_tokens, standardize=standardize, split=split, ngrams=ngrams, output_mode=output_mode,
                              output_sequence_length=output_sequence_length, pad_to_max_tokens=pad_to_max_tokens,
                              vocabulary=None if vocabulary is None else [str(each) for each in vocabulary]), common)

    def adapt(self, data, batch_size=None, steps=None) -> None:
        """Learns the words of the texts, the frequent ones first. Takes arrays, lists and datasets of text."""
        if hasattr(data, "as_numpy_iterator"):
            import numpy as np

            data = np.concatenate([np.asarray(each, object).reshape(-1) for each in data.as_numpy_iterator()])
        array = as_array(data)
        if not isinstance(array, _engine.Strings):
            raise TypeError("adapt of a TextVectorization needs text")
        count = 1
        for each in array.shape:
            count *= each
        self._native().adapt(array.reshape((count,)))

    def _copy(self):
        words = self._native().vocabulary()
        return _engine.Layer(self._class, dict(self._config, vocabulary=words[2:])) if words else super()._copy()

    def set_vocabulary(self, vocabulary) -> None:
        """The words, the frequent ones first."""
        self._check_free()
        self._config["vocabulary"] = [str(each) for each in vocabulary if each not in ("", "[UNK]")]
        self._forget()

    def __call__(self, inputs, **options):
        return super().__call__(inputs, **options)


class SentenceEmbedding(_Text):
    """Text to one vector: the vectors of its words, added and divided by the square root of their number, as TensorFlow Hub's NNLM layers do.

    vectors: a file with "word v1 v2 ..." a line; or vocabulary: words whose vectors are learnt; or neither: words are hashed into `buckets`.
    """

    _class = "SentenceEmbedding"

    def __init__(self, output_dim: int, vocabulary=None, vectors: str = None, buckets: int = None, combiner: str = "sqrtn", **common):
        if vectors is not None and vocabulary is not None:
            raise ValueError("words come from vectors or from vocabulary, not from both")
        if buckets is None:
            buckets = 20000 if vectors is None and vocabulary is None else 1
        super().__init__(dict(output_dim=output_dim, vocabulary=None if vocabulary is None else [str(each) for each in vocabulary],
                              vectors=None if vectors is None else str(vectors), buckets=buckets, combiner=combiner), common)
        self._input_shape, self._input_dtype = (), "string"


