"""The engine's layers, with Keras's names, arguments, defaults and order of weights."""

from __future__ import annotations

from typing import Any

from unisono import _engine
from unisono.extend import Refused, strict, strict_module
from unisono.keras._arguments import dtype_name
from unisono.keras._graph import Input, open_batch, sample_shape
from unisono.keras._layer import EngineLayer, Layer
from unisono.keras._tensor import as_array

__all__ = ["Layer", "Input", "InputLayer", "Dense", "Activation", "ReLU", "LeakyReLU", "Softmax", "Flatten", "Reshape", "Permute", "Dropout",
           "Rescaling", "ActivityRegularization", "Conv1D", "Conv2D", "DepthwiseConv2D", "MaxPooling1D", "MaxPooling2D", "AveragePooling1D",
           "AveragePooling2D", "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "ZeroPadding2D",
           "BatchNormalization", "LayerNormalization", "Normalization", "Embedding", "LSTM", "GRU", "MultiHeadAttention", "Add", "Subtract", "Multiply",
           "Average", "Maximum", "Concatenate", "TextVectorization", "SentenceEmbedding"]


_CONSTRAINT = Refused(None, "weights have no constraints here; use a regularizer, or change the weights in a callback")
_LORA = {"lora_rank": Refused(None, "low-rank adaptation is not offered"), "lora_alpha": Refused(None, "low-rank adaptation is not offered"),
         "quantization_config": Refused(None, "weights are float32")}


def _constraints(*names):
    return {name + "_constraint": _CONSTRAINT for name in names}


def _initializer_name(value: Any) -> Any:
    """zeros of "zeros", Zeros() and what a config has for it; others as they are."""
    kind = value.get("class_name") if isinstance(value, dict) else type(value).__name__ if hasattr(value, "_object") else value
    return kind.lower() if kind in ("Zeros", "Ones") else value


class InputLayer(EngineLayer):
    """The shape and type of a model's input."""

    _class = "InputLayer"
    _refused = {"batch_size": Refused(None, "batches may have any size"), "sparse": Refused(None, "tensors are dense", (False,)),
                "ragged": Refused(None, "tensors are rectangular: pad the rows", (False,)), "input_tensor": Refused(None, "give the shape"),
                "optional": Refused(False, "every input of a model is needed")}

    def __init__(self, shape: Any = None, dtype: Any = None, name: str | None = None, batch_shape: Any = None, input_shape: Any = None, **common: Any):
        self._check_names({"shape": shape, "batch_shape": batch_shape}, common)
        if sum(each is not None for each in (shape, batch_shape, input_shape)) != 1:
            raise TypeError("InputLayer needs one of shape, batch_shape and input_shape")
        if batch_shape is None:
            batch_shape = (None,) + sample_shape("InputLayer", shape if shape is not None else input_shape)
        config = {"batch_shape": list(open_batch("InputLayer", batch_shape)), "dtype": str(getattr(dtype, "name", dtype) or "float32")}
        super().__init__(config, dict(common, name=name))


# ---- core ----


class Dense(EngineLayer):
    """activation(x @ kernel + bias)."""

    _class = "Dense"
    _refused = {**_constraints("kernel", "bias"), **_LORA}

    def __init__(self, units: int, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
                 bias_initializer: Any = "zeros", kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None,
                 **common: Any):
        super().__init__(dict(units=units, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
                              bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
                              activity_regularizer=activity_regularizer), common)


class Activation(EngineLayer):
    """An activation as a layer."""

    _class = "Activation"

    def __init__(self, activation: Any, **common: Any):
        super().__init__(dict(activation=activation), common)


class ReLU(EngineLayer):
    """max(x, 0)."""

    _class = "ReLU"

    def __init__(self, max_value: Any = None, negative_slope: float = 0.0, threshold: float = 0.0, **common: Any):
        super().__init__(dict(max_value=max_value, negative_slope=negative_slope, threshold=threshold), common)


class LeakyReLU(EngineLayer):
    """x, or negative_slope * x below zero."""

    _class = "LeakyReLU"

    def __init__(self, negative_slope: float = 0.3, **common: Any):
        super().__init__(dict(negative_slope=common.pop("alpha", negative_slope)), common)


class Softmax(EngineLayer):
    """Softmax over the last axis."""

    _class = "Softmax"

    def __init__(self, axis: Any = -1, **common: Any):
        super().__init__(dict(axis=axis), common)


class Flatten(EngineLayer):
    """Each sample as one vector."""

    _class = "Flatten"

    def __init__(self, data_format: Any = None, **common: Any):
        super().__init__(dict(data_format=data_format), common)


class Reshape(EngineLayer):
    """Each sample in another shape; one -1."""

    _class = "Reshape"

    def __init__(self, target_shape: Any, **common: Any):
        super().__init__(dict(target_shape=list(target_shape)), common)


class Permute(EngineLayer):
    """The axes of a sample in another order, counted from 1."""

    _class = "Permute"

    def __init__(self, dims: Any, **common: Any):
        super().__init__(dict(dims=list(dims)), common)


class Dropout(EngineLayer):
    """Sets a part of the numbers to 0 while training."""

    _class = "Dropout"
    _refused = {"noise_shape": Refused(None, "every number is dropped by itself")}

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None, **common: Any):
        super().__init__(dict(rate=rate, noise_shape=noise_shape, seed=seed), common)


class Rescaling(EngineLayer):
    """x * scale + offset."""

    _class = "Rescaling"

    def __init__(self, scale: float, offset: float = 0.0, **common: Any):
        super().__init__(dict(scale=scale, offset=offset), common)


class ActivityRegularization(EngineLayer):
    """Adds l1 and l2 of what comes through to the loss."""

    _class = "ActivityRegularization"

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **common: Any):
        super().__init__(dict(l1=l1, l2=l2), common)


# ---- convolution and pooling ----


class _Conv(EngineLayer):
    _refused = _constraints("kernel", "bias")

    def __init__(self, filters: int, kernel_size, strides=1, padding: str = "valid", data_format=None, dilation_rate=1, groups: int = 1,
                 activation=None, use_bias: bool = True, kernel_initializer="glorot_uniform", bias_initializer="zeros", kernel_regularizer=None,
                 bias_regularizer=None, activity_regularizer=None, **common):
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


class DepthwiseConv2D(EngineLayer):
    """Convolution of each channel by itself."""

    _class = "DepthwiseConv2D"
    _refused = _constraints("depthwise", "bias")

    def __init__(self, kernel_size: Any, strides: Any = 1, padding: str = "valid", depth_multiplier: int = 1, data_format: Any = None,
                 dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True, depthwise_initializer: Any = "glorot_uniform",
                 bias_initializer: Any = "zeros", depthwise_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None,
                 **common: Any):
        super().__init__(dict(kernel_size=kernel_size, strides=strides, padding=padding, depth_multiplier=depth_multiplier, data_format=data_format,
                              dilation_rate=dilation_rate, activation=activation, use_bias=use_bias, depthwise_initializer=depthwise_initializer,
                              bias_initializer=bias_initializer, depthwise_regularizer=depthwise_regularizer, bias_regularizer=bias_regularizer,
                              activity_regularizer=activity_regularizer), common)


class _Pool(EngineLayer):
    def __init__(self, pool_size=2, strides=None, padding: str = "valid", data_format=None, **common):
        super().__init__(dict(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format), common)


class MaxPooling1D(_Pool):
    """The largest of each window."""

    _class = "MaxPooling1D"


class MaxPooling2D(_Pool):
    """The largest of each window."""

    _class = "MaxPooling2D"


class _AveragePool(_Pool):
    def __init__(self, pool_size, strides=None, padding: str = "valid", data_format=None, **common):
        super().__init__(pool_size, strides, padding, data_format, **common)


class AveragePooling1D(_AveragePool):
    """The mean of each window."""

    _class = "AveragePooling1D"


class AveragePooling2D(_AveragePool):
    """The mean of each window."""

    _class = "AveragePooling2D"


class _GlobalPool(EngineLayer):
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


class ZeroPadding2D(EngineLayer):
    """Zeros around the image."""

    _class = "ZeroPadding2D"

    def __init__(self, padding: Any = 1, data_format: Any = None, **common: Any):
        super().__init__(dict(padding=padding, data_format=data_format), common)


# ---- normalisation ----


class BatchNormalization(EngineLayer):
    """Zero mean and unit variance over the (global) batch."""

    _class = "BatchNormalization"

    _refused = {**_constraints("beta", "gamma"), "renorm": Refused(False, "use smaller learning rates, or LayerNormalization"),
                "renorm_clipping": Refused(None, "there is no renorm"), "renorm_momentum": Refused(0.99, "there is no renorm"),
                "moving_mean_initializer": Refused("zeros", "the moving mean begins with zeros; call set_weights"),
                "moving_variance_initializer": Refused("ones", "the moving variance begins with ones; call set_weights")}

    def __init__(self, axis: Any = -1, momentum: float = 0.99, epsilon: float = 0.001, center: bool = True, scale: bool = True,
                 beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", moving_mean_initializer: Any = "zeros",
                 moving_variance_initializer: Any = "ones", beta_regularizer: Any = None, gamma_regularizer: Any = None, **common: Any):
        super().__init__(dict(axis=axis, momentum=momentum, epsilon=epsilon, center=center, scale=scale, beta_initializer=beta_initializer,
                              gamma_initializer=gamma_initializer, moving_mean_initializer=_initializer_name(moving_mean_initializer),
                              moving_variance_initializer=_initializer_name(moving_variance_initializer), beta_regularizer=beta_regularizer,
                              gamma_regularizer=gamma_regularizer), common)


class LayerNormalization(EngineLayer):
    """Zero mean and unit variance of each sample over the last axis."""

    _class = "LayerNormalization"

    _refused = _constraints("beta", "gamma")

    def __init__(self, axis: Any = -1, epsilon: float = 0.001, center: bool = True, scale: bool = True, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", beta_regularizer: Any = None, gamma_regularizer: Any = None, **common: Any):
        super().__init__(dict(axis=axis, epsilon=epsilon, center=center, scale=scale, beta_initializer=beta_initializer,
                              gamma_initializer=gamma_initializer, beta_regularizer=beta_regularizer, gamma_regularizer=gamma_regularizer), common)


class Normalization(EngineLayer):
    """(x - mean) / sqrt(variance), learnt by adapt or given."""

    _class = "Normalization"
    _refused = {"axis": Refused(-1, "a mean and a variance are of one place on the last axis; move that axis to the end with Permute", ([-1], (-1,)))}

    def __init__(self, axis: Any = -1, mean: float | None = None, variance: Any = None, invert: bool = False, **common: Any):
        def floats(value):
            return None if value is None else [float(each) for each in (value if hasattr(value, "__len__") else [value])]
        super().__init__(dict(axis=axis, mean=floats(mean), variance=floats(variance), invert=invert), common)

    def adapt(self, data: Any) -> None:
        """Learns mean and variance."""
        self._native().adapt(as_array(data))


# ---- sequences ----


class Embedding(EngineLayer):
    """Rows of a table by class numbers."""

    _class = "Embedding"
    _refused = {**_constraints("embeddings"), "weights": Refused(None, "call set_weights"), **_LORA}

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform", embeddings_regularizer: Any = None,
                 mask_zero: bool = False, activity_regularizer: Any = None, **common: Any):
        if embeddings_initializer == "uniform":
            embeddings_initializer = "random_uniform"
        super().__init__(dict(input_dim=input_dim, output_dim=output_dim, embeddings_initializer=embeddings_initializer,
                              embeddings_regularizer=embeddings_regularizer, mask_zero=mask_zero, activity_regularizer=activity_regularizer), common)


class _Recurrent(EngineLayer):
    _refused = {**_constraints("kernel", "recurrent", "bias"), "recurrent_dropout": Refused(0.0, "use dropout, of the inputs", (0,)),
                "return_state": Refused(False, "take the last step of return_sequences=True"), "stateful": Refused(False, "every batch begins with zeros"),
                "zero_output_for_mask": Refused(False, "there are no masks")}

    def _set_up(self, given, **extra):
        common = given.pop("common")
        given = {key: value for key, value in given.items() if key not in ("self", "__class__")}
        EngineLayer.__init__(self, dict(given, **extra), common)


class LSTM(_Recurrent):
    """Long short-term memory."""

    _class = "LSTM"

    def __init__(self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 unit_forget_bias: bool = True, kernel_regularizer: Any = None, recurrent_regularizer: Any = None, bias_regularizer: Any = None,
                 activity_regularizer: Any = None, dropout: float = 0.0, return_sequences: bool = False, go_backwards: bool = False, **common: Any):
        self._set_up(dict(locals()))


class GRU(_Recurrent):
    """Gated recurrent unit."""

    _class = "GRU"

    def __init__(self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros",
                 kernel_regularizer: Any = None, recurrent_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None,
                 dropout: float = 0.0, return_sequences: bool = False, go_backwards: bool = False, reset_after: bool = True, **common: Any):
        self._set_up(dict(locals()))


class MultiHeadAttention(EngineLayer):
    """Attention; called with query, value and maybe key."""

    _class = "MultiHeadAttention"
    _refused = {**_constraints("kernel", "bias"), "use_gate": Refused(False, "multiply by a Dense with a sigmoid"),
                "activity_regularizer": Refused(None, "use ActivityRegularization after the layer; Keras also adds the activity of the projections inside"),
                "sliding_window": Refused(None, "attention sees the whole sequence")}

    def __init__(self, num_heads: int, key_dim: int, value_dim: Any = None, dropout: float = 0.0, use_bias: bool = True, output_shape: Any = None,
                 attention_axes: Any = None, kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
                 bias_regularizer: Any = None, activity_regularizer: Any = None, **common: Any):
        super().__init__(dict(num_heads=num_heads, key_dim=key_dim, value_dim=value_dim, dropout=dropout, use_bias=use_bias, output_shape=output_shape,
                              attention_axes=attention_axes, kernel_initializer=kernel_initializer, bias_initializer=bias_initializer,
                              kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer, activity_regularizer=activity_regularizer), common)


# ---- merging ----


class Add(EngineLayer):
    """The sum of its inputs."""

    _class = "Add"

    def __init__(self, **common: Any):
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


class Concatenate(EngineLayer):
    """Its inputs one behind the other."""

    _class = "Concatenate"

    def __init__(self, axis: Any = -1, **common: Any):
        super().__init__(dict(axis=axis), common)


def add(inputs: Any) -> Any:
    """The sum of symbols."""
    return Add()(inputs)


def concatenate(inputs: Any, axis: Any = -1) -> Any:
    """Symbols one behind the other."""
    return Concatenate(axis)(inputs)


# ---- text ----


def _without_special(words: list) -> list:
    """Without "" (of padding, which only output_mode="int" has) and "[UNK]"."""
    return words[2:] if words[:1] == [""] else words[1:]


class _Text(EngineLayer):
    def get_vocabulary(self, include_special_tokens: bool = True) -> list:
        """The words in the order of their numbers."""
        words = self._native().vocabulary()
        return words if include_special_tokens else _without_special(words)

    def vocabulary_size(self) -> int:
        return len(self._native().vocabulary())


class TextVectorization(_Text):
    """Text to numbers of words; adapt learns the words."""

    _class = "TextVectorization"
    _none_counts = ("standardize", "split")
    _refused = {"idf_weights": Refused(None, "call adapt"), "sparse": Refused(False, "tensors are dense"), "ragged": Refused(False, "set output_sequence_length"),
                "encoding": Refused("utf-8", "text is UTF-8")}

    def __init__(self, max_tokens: Any = None, standardize: Any = "lower_and_strip_punctuation", split: Any = "whitespace", ngrams: Any = None,
                 output_mode: str = "int", output_sequence_length: Any = None, pad_to_max_tokens: bool = False, vocabulary: Any = None,
                 **common: Any):
        kind = "int64" if output_mode == "int" else "float32"
        dtype = dtype_name(common.get("dtype"))
        if dtype not in (None, "string", "float32", kind):  # float32 is in every config, and in Keras, too, class numbers are int64 all the same
            raise TypeError("TextVectorization(dtype=%r) is not supported: output_mode=%r gives %s; leave dtype out, or convert the output"
                            % (dtype, output_mode, kind))
        if pad_to_max_tokens is True and max_tokens is None:
            raise ValueError("TextVectorization(pad_to_max_tokens=True) needs max_tokens")
        if vocabulary is not None and (isinstance(vocabulary, (str, bytes, dict)) or len(vocabulary) == 0):
            raise ValueError("TextVectorization(vocabulary=%.40r): a vocabulary is a list of words that is not empty" % (vocabulary,))
        super().__init__(dict(max_tokens=max_tokens, standardize=standardize, split=split, ngrams=ngrams, output_mode=output_mode,
                              output_sequence_length=output_sequence_length, pad_to_max_tokens=pad_to_max_tokens,
                              vocabulary=None if vocabulary is None else [str(each) for each in vocabulary]), common)

    @strict({"steps": Refused(None, "give the texts that shall count")},
            name="unisono.keras.layers.TextVectorization.adapt")
    def adapt(self, data: Any) -> None:
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

    def _copy(self, keep):
        words = self._native().vocabulary()
        return _engine.Layer(self._class, dict(self._config, vocabulary=_without_special(words))) if words else super()._copy(keep)

    def set_vocabulary(self, vocabulary: Any) -> None:
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

    def __init__(self, output_dim: int, vocabulary: Any = None, vectors: str | None = None, buckets: int | None = None, combiner: str = "sqrtn",
                 **common: Any):
        if vectors is not None and vocabulary is not None:
            raise ValueError("words come from vectors or from vocabulary, not from both")
        if buckets is None:
            buckets = 20000 if vectors is None and vocabulary is None else 1
        super().__init__(dict(output_dim=output_dim, vocabulary=None if vocabulary is None else [str(each) for each in vocabulary],
                              vectors=None if vectors is None else str(vectors), buckets=buckets, combiner=combiner), common)
        self._input_shape, self._input_dtype = (), "string"
        self._words = None if vocabulary is None else [str(each) for each in vocabulary]
        self._words_from = "they are hashed into %d buckets" % buckets if vectors is None else "they are the first words of the lines of %s" % vectors

    def get_vocabulary(self, include_special_tokens: bool = True) -> list:
        """The words of `vocabulary`; there are no special tokens among them."""
        if self._words is None:
            raise ValueError("SentenceEmbedding %s has no vocabulary of its own: %s" % (self.name, self._words_from))
        return list(self._words)

    def vocabulary_size(self) -> int:
        """How many words `vocabulary` has."""
        return len(self.get_vocabulary())


strict_module(globals())
