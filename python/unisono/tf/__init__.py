"""unisono.tf: the names of TensorFlow that a training program uses, on the native engine: `import unisono.tf as tf` instead of `import tensorflow as tf`.

Operations run at once and are recorded by GradientTape; `function` leaves a function as it is, because there is nothing to compile. tf.data, tf.distribute,
tf.keras, tf.nn, tf.losses, tf.metrics, tf.optimizers. What is not here raises an AttributeError that says so.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as _np

from unisono import keras
from unisono.extend import Refused, check, strict, strict_module
from unisono.keras import losses, metrics, ops as _ops, optimizers
from unisono.keras._tape import GradientTape
from unisono.keras._tensor import Tensor, Variable, convert_to_tensor, set_random_seed as _set_random_seed
from unisono.tf import data, distribute, nn

__all__ = ["GradientTape", "Tensor", "TensorSpec", "Variable", "argmax", "cast", "concat", "constant", "convert_to_tensor", "data", "distribute",
           "expand_dims", "function", "gather", "identity", "keras", "losses", "matmul", "metrics", "nn", "one_hot", "ones_like", "optimizers",
           "random", "reduce_mean", "reduce_sum", "reshape", "shape", "size", "string", "zeros_like"]

# ---- types ----

float32, float64, float16, int32, int64, int8, uint8, bool, string = (
    "float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool", "string")

newaxis = None


class errors:
    """tf.errors: what the engine raises."""

    from unisono._engine import EngineValueError as InvalidArgumentError

    class OutOfRangeError(StopIteration):
        """The end of a dataset's iterator is Python's StopIteration."""


class TensorSpec:
    """The shape and the type of a tensor."""

    def __init__(self, shape: Any = None, dtype: Any = "float32", name: str | None = None):
        self.shape, self.dtype, self.name = tuple(shape) if shape is not None else None, dtype, name


@strict({"input_signature": Refused(None, "a function is called as it is and checks no signature")})
def function(func: Callable[..., Any] | None = None) -> Any:
    """A decorator that leaves the function as it is: operations of the engine need no tracing."""
    return func if func is not None else lambda inner: inner


def constant(value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """A tensor of numbers or text."""
    out = convert_to_tensor(value, dtype)
    return out if shape is None else reshape(out, shape)


# ---- operations, by TensorFlow's names ----

def _renamed(function: Callable[..., Any], **names: str) -> Callable[..., Any]:
    """An operation whose arguments have TensorFlow's names: names[TensorFlow's] is Keras's."""
    import inspect

    ours = {keras_name: name for name, keras_name in names.items()}

    def call(*arguments: Any, **given: Any) -> Any:
        if not declared.issuperset(given):
            check("unisono.tf." + function.__name__, given, declared)
        return function(*arguments, **{names.get(name, name): value for name, value in given.items()})

    signature = inspect.signature(function)
    renamed = signature.replace(parameters=[each.replace(name=ours.get(each.name, each.name)) for each in signature.parameters.values()])
    declared = {*renamed.parameters, *signature.parameters}
    call.__signature__ = renamed  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _two(function: Callable[..., Any]) -> Callable[..., Any]:
    return _renamed(function, x="x1", y="x2")


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return _renamed(function, input_tensor="x")


add, subtract, multiply, divide, pow = map(_two, (_ops.add, _ops.subtract, _ops.multiply, _ops.divide, _ops.power))
maximum, minimum = _two(_ops.maximum), _two(_ops.minimum)
abs, sqrt, square, exp, sign, cast = _ops.absolute, _ops.sqrt, _ops.square, _ops.exp, _ops.sign, _ops.cast
where = _renamed(_ops.where, x="x1", y="x2")
matmul, transpose, reshape = _renamed(_ops.matmul, a="x1", b="x2"), _renamed(_ops.transpose, a="x", perm="axes"), _renamed(_ops.reshape, tensor="x", shape="newshape")
expand_dims, squeeze, one_hot = _renamed(_ops.expand_dims, input="x"), _renamed(_ops.squeeze, input="x"), _renamed(_ops.one_hot, indices="x", depth="num_classes")
reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod = map(_reduction, (_ops.sum, _ops.mean, _ops.max, _ops.min, _ops.prod))
reduce_any, reduce_all = _reduction(_ops.any), _reduction(_ops.all)
sigmoid, tanh, sin, cos, floor, stop_gradient = _ops.sigmoid, _ops.tanh, _ops.sin, _ops.cos, _ops.floor, _renamed(_ops.stop_gradient, input="x")
equal, not_equal, less, less_equal, greater, greater_equal = map(_two, (_ops.equal, _ops.not_equal, _ops.less, _ops.less_equal, _ops.greater, _ops.greater_equal))
broadcast_to, zeros, ones, stack = _renamed(_ops.broadcast_to, input="x"), _ops.zeros, _ops.ones, _renamed(_ops.stack, values="x")
clip_by_value = _renamed(_ops.clip, t="x", clip_value_min="x_min", clip_value_max="x_max")


def argmax(input: Any, axis: Any = None) -> Tensor:
    """The place of the largest along an axis, the first one by default."""
    return _ops.argmax(input, 0 if axis is None else axis)


def gather(params: Any, indices: Any, axis: Any = None) -> Tensor:
    """By indices along an axis, the first one by default."""
    return _ops.take(params, indices, 0 if axis is None else axis)


def concat(values: Any, axis: int) -> Tensor:
    """One behind the other."""
    return _ops.concatenate(values, axis)


def shape(input: Any) -> Tensor:
    """The shape, as a tensor of int32 like TensorFlow's."""
    return Tensor.of(_np.asarray(_ops._shape(input), _np.int32))


def size(input: Any) -> Tensor:
    """How many elements."""
    return Tensor.of(_np.int32(_np.prod(_ops._shape(input))))


def zeros_like(input: Any) -> Tensor:
    """Zeros of the same shape."""
    return _ops.zeros(_ops._shape(input))


def ones_like(input: Any) -> Tensor:
    """Ones of the same shape."""
    return _ops.ones(_ops._shape(input))


def identity(input: Any) -> Tensor:
    """The tensor itself."""
    return convert_to_tensor(input)


def print(*values: Any, **options: Any) -> None:
    """Prints tensors as their numbers."""
    import builtins

    builtins.print(*values, **options)


class math:
    """tf.math."""

    log, exp, sqrt, square, abs, sigmoid, tanh, rsqrt, reciprocal, sin, cos = (
        _ops.log, _ops.exp, _ops.sqrt, _ops.square, _ops.absolute, _ops.sigmoid, _ops.tanh, _ops.rsqrt, _ops.reciprocal, _ops.sin, _ops.cos)
    add, subtract, multiply, divide, maximum, minimum, pow, equal = add, subtract, multiply, divide, maximum, minimum, pow, equal
    reduce_sum, reduce_mean, reduce_max, reduce_min, argmax = reduce_sum, reduce_mean, reduce_max, reduce_min, argmax
    squared_difference = _two(_ops.squared_difference)


class random:
    """tf.random, drawn by NumPy."""

    set_seed = staticmethod(_set_random_seed)

    @staticmethod
    def normal(shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = "float32", seed: int | None = None) -> Tensor:
        """Numbers of the normal distribution."""
        return Tensor.of((_np.random if seed is None else _np.random.default_rng(seed)).normal(mean, stddev, shape).astype(dtype))

    @staticmethod
    def uniform(shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: Any = "float32", seed: int | None = None) -> Tensor:
        """Numbers between minval and maxval."""
        return Tensor.of((_np.random if seed is None else _np.random.default_rng(seed)).uniform(minval, maxval, shape).astype(dtype))


class config:
    """tf.config: the devices are the cores."""

    @staticmethod
    def list_physical_devices(device_type: Any = None) -> list:
        """The devices of a kind: one a CPU."""
        import os

        return [] if device_type not in (None, "CPU") else ["/physical_device:CPU:%d" % each for each in sorted(os.sched_getaffinity(0))]


def __getattr__(name):
    raise AttributeError("unisono.tf has no %s: it has what training programs use of TensorFlow (docs/python-engine.md); keras.ops, NumPy or TensorFlow "
                         "itself may have it" % name)


strict_module(globals())
