"""Functions on tensors: Keras's keras.ops, with its names. They record on the GradientTape that is open, and take arrays and numbers as well."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from unisono import _engine
from unisono.keras._tensor import WHOLE, Tensor, Variable, binary, compare, context, convert_to_tensor, floor_divide, mod, raw_of, tape_for, unary, whole
from unisono.extend import strict_module

__all__ = ["abs", "absolute", "add", "all", "any", "argmax", "broadcast_to", "cast", "clip", "concatenate", "convert_to_numpy", "convert_to_tensor", "cos",
           "divide", "equal", "exp", "expand_dims", "floor", "floor_divide", "greater", "less", "log", "log_softmax", "matmul", "max", "maximum", "mean", "min",
           "minimum", "mod", "multiply", "negative", "one_hot", "ones", "power", "prod", "relu", "reshape", "rsqrt", "shape", "sigmoid", "sign", "sin", "softmax",
           "sqrt", "square", "squeeze", "stack", "stop_gradient", "subtract", "sum", "take", "tanh", "transpose", "where", "zeros"]


def _two(kind):
    def function(x1, x2) -> Tensor:
        return binary(kind, x1, x2)
    function.__doc__ = "%s of two tensors, which broadcast." % kind
    return function


def _one(kind):
    def function(x) -> Tensor:
        return unary(kind, x)
    function.__doc__ = "%s of every element." % kind
    return function


def _activation(kind):
    def function(x) -> Tensor:
        a = raw_of(x)
        return Tensor(tape_for().activation(kind, a))
    function.__name__ = kind
    function.__doc__ = "The activation %s." % kind
    return function


def _comparison(kind):
    def function(x1, x2) -> Tensor:
        return compare(kind, x1, x2)
    function.__doc__ = "%s, element by element." % kind
    return function


def _reduction(kind):
    def function(x, axis=None, keepdims: bool = False) -> Tensor:
        a = raw_of(x)
        if axis is not None and not isinstance(axis, (int, np.integer, list, tuple, np.ndarray)):
            raise TypeError("axis must be a whole number, a list of them, or None, not %r" % (axis,))
        axes = None if axis is None else [axis] if isinstance(axis, (int, np.integer)) else list(axis)
        if axes == []:  # over no axis: as it is
            return reshape(x, a.shape)
        integers = whole(x) if kind in WHOLE else None
        if integers is not None:
            return Tensor.of(WHOLE[kind](integers[0], axis=None if axes is None else tuple(axes), keepdims=keepdims))
        return Tensor(tape_for().reduce(kind, a, axes, keepdims))
    function.__doc__ = "%s over the axes (all of them when None)." % kind
    return function


add, subtract, multiply, divide, power = _two("add"), _two("sub"), _two("mul"), _two("div"), _two("pow")
maximum, minimum = _two("maximum"), _two("minimum")
squared_difference = _two("squared_difference")
negative, exp, log, sqrt, rsqrt, square = _one("negate"), _one("exp"), _one("log"), _one("sqrt"), _one("rsqrt"), _one("square")
absolute, sign, floor, sin, cos, reciprocal = _one("abs"), _one("sign"), _one("floor"), _one("sin"), _one("cos"), _one("reciprocal")
relu, sigmoid, tanh, gelu, softplus, silu, elu, selu = (_activation(name) for name in
                                                        ("relu", "sigmoid", "tanh", "gelu", "softplus", "silu", "elu", "selu"))
equal, not_equal, less, less_equal, greater, greater_equal = (_comparison(name) for name in (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
sum, mean, max, min = (_reduction(name) for name in ("sum", "mean", "max", "min"))
abs = absolute


def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The product of the elements. On a tape it is a chain of multiplications, so that it has a gradient."""
    if context().recording is None:
        return Tensor.of(np.prod(np.asarray(x), axis=axis, keepdims=keepdims))
    x = reshape(x, x.shape)
    axes = list(range(len(x.shape))) if axis is None else [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    for each in axes:
        parts = [Tensor(tape_for().slice(raw_of(x), each % len(x.shape), at, 1)) for at in range(x.shape[each])]
        x = functools.reduce(multiply, parts)
    kept = [size for at, size in enumerate(x.shape) if keepdims or at not in [each % len(x.shape) for each in axes]]
    return reshape(x, kept)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether any element is not 0."""
    return Tensor.of(np.any(np.asarray(x), axis=axis, keepdims=keepdims))


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are not 0."""
    return Tensor.of(np.all(np.asarray(x), axis=axis, keepdims=keepdims))


def matmul(x1: Any, x2: Any, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """The matrix product."""
    integers = whole(x1, x2)
    if integers is not None:
        return Tensor.of(np.matmul(*(np.swapaxes(each, -1, -2) if turned else each for each, turned in zip(integers, (transpose_a, transpose_b)))))
    a, b = raw_of(x1), raw_of(x2)
    return Tensor(tape_for().matmul(a, b, transpose_a, transpose_b))


def cast(x: Any, dtype: Any) -> Tensor:
    """To another element type; a gradient flows between floats."""
    name = dtype if isinstance(dtype, str) else np.dtype(getattr(dtype, "name", dtype)).name
    a = raw_of(x)
    return Tensor(tape_for().cast(a, name))


def clip(x: Any, x_min: float, x_max: float) -> Tensor:
    """Not below x_min, not above x_max."""
    integers = whole(x, x_min, x_max)
    if integers is not None:
        return Tensor.of(np.clip(*integers))
    a = raw_of(x)
    return Tensor(tape_for().clip(a, float(x_min), float(x_max)))


def where(condition: Any, x1: Any, x2: Any) -> Tensor:
    """From x1 where the condition holds, else from x2."""
    integers = whole(x1, x2)
    if integers is not None:
        return Tensor.of(np.where(np.asarray(condition), *integers))
    c, a, b = raw_of(condition), raw_of(x1), raw_of(x2)
    return Tensor(tape_for().where(c, a, b))


def reshape(x: Any, newshape: Any) -> Tensor:
    """The same numbers in another shape."""
    a = raw_of(x)
    if isinstance(a, _engine.Strings):
        return Tensor.of(Tensor.of(a).numpy().reshape(newshape))
    return Tensor(tape_for().reshape(a, [int(each) for each in newshape]))


def shape(x: Any) -> tuple:
    """Its shape as a tuple."""
    return tuple(x.shape)


def _shape(x):
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def expand_dims(x: Any, axis: int) -> Tensor:
    """One more axis of size 1."""
    dims = list(_shape(x))
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 1)
    return reshape(x, dims)


def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Without axes of size 1."""
    dims = list(_shape(x))
    if axis is None:
        return reshape(x, [each for each in dims if each != 1])
    if dims[axis] != 1:
        raise ValueError("axis %d has %d entries and cannot be squeezed" % (axis, dims[axis]))
    del dims[axis]
    return reshape(x, dims)


def transpose(x: Any, axes: Any = None) -> Tensor:
    """The axes in another order."""
    integers = whole(x)
    if integers is not None:
        return Tensor.of(np.transpose(integers[0], axes))
    a = raw_of(x)
    axes = list(range(len(_shape(x))))[::-1] if axes is None else [int(each) for each in axes]
    return Tensor(tape_for().transpose(a, axes))


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """Repeated to a larger shape."""
    integers = whole(x)
    if integers is not None:
        return Tensor.of(np.broadcast_to(integers[0], tuple(int(each) for each in shape)))
    a = raw_of(x)
    return Tensor(tape_for().broadcast(a, [int(each) for each in shape]))


def concatenate(xs: Any, axis: Any = 0) -> Tensor:
    """One behind the other."""
    integers = whole(*xs)
    if integers is not None:
        return Tensor.of(np.concatenate(integers, axis=axis))
    raws = [raw_of(each) for each in xs]
    return Tensor(tape_for().concat(raws, axis))


def stack(x: Any, axis: Any = 0) -> Tensor:
    """On a new axis."""
    return concatenate([expand_dims(each, axis) for each in x], axis)


def take(x: Any, indices: Any, axis: Any = None) -> Tensor:
    """By indices along an axis; None: of all elements in a row."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    integers = whole(x)
    if integers is not None:
        return Tensor.of(np.take(integers[0], np.asarray(indices), axis=axis))
    a, b = raw_of(x), raw_of(np.asarray(indices) if not isinstance(indices, Tensor) else indices)
    return Tensor(tape_for().gather(a, b, axis))


def one_hot(x: Any, num_classes: int) -> Tensor:
    """1 at the class, else 0."""
    a = raw_of(x)
    return Tensor(tape_for().one_hot(a, num_classes))


def argmax(x: Any, axis: Any = None) -> Tensor:
    """The place of the largest; None: among all elements in a row."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    integers = whole(x)
    if integers is not None:
        return Tensor.of(np.argmax(integers[0], axis=axis))
    a = raw_of(x)
    return Tensor(tape_for().argmax(a, axis))


def softmax(x: Any, axis: Any = -1) -> Tensor:
    """Softmax over an axis."""
    a = raw_of(x)
    return Tensor(tape_for().softmax(a, axis))


def log_softmax(x: Any, axis: Any = -1) -> Tensor:
    """Its logarithm."""
    a = raw_of(x)
    return Tensor(tape_for().log_softmax(a, axis))


def stop_gradient(x: Any) -> Tensor:
    """The same numbers; no gradient goes through."""
    a = raw_of(x)
    return Tensor(tape_for().stop_gradient(a))


def zeros(shape: Any, dtype: Any = "float32") -> Tensor:
    """All 0."""
    return Tensor.of(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any = "float32") -> Tensor:
    """All 1."""
    return Tensor.of(np.ones(shape, dtype))


def convert_to_numpy(x: Any) -> np.ndarray:
    """Its numbers as an array."""
    return x.numpy() if isinstance(x, (Tensor, Variable)) else np.asarray(x)


strict_module(globals())
