"""The functional API: layers called on symbols are remembered, and a Model makes the engine's graph of them."""

from __future__ import annotations

import numbers
from typing import Any

from unisono import _engine
from unisono.extend import Refused, strict

__all__ = ["KerasTensor", "Input"]


class KerasTensor:
    """What a layer gives for a symbolic input: a node of the graph to come."""

    def __init__(self, layer: Any = None, inputs: Any = (), spec: Any = None, name: str | None = None, training: bool | None = None):
        self._layer, self._inputs, self._spec, self.name = layer, tuple(inputs), spec, name
        self._training = training  # of this call; None: the step decides

    @property
    def shape(self) -> tuple:
        """With None for the batch."""
        return self._infer()[1]

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self._infer()[0]

    def _infer(self):
        """(dtype, shape): asked of a graph that is made for the question and dropped."""
        if self._spec is None:
            order = walk([self])
            inputs = [node for node in order if node._layer is None]
            keep: list = []
            copy_of = copier(keep)
            nodes = [entry_of(node, order, copy_of) for node in order]
            model = _engine.Model.graph("shapes", nodes, [order.index(node) for node in inputs], [order.index(self)])
            dtype, shape = model.outputs[0]
            self._spec = (dtype, (None,) + tuple(shape[1:]))
        return self._spec

    def __add__(self, other):
        return _combine("Add", self, other, lambda number: (1.0, number))

    __radd__ = __add__

    def __mul__(self, other):
        return _combine("Multiply", self, other, lambda number: (number, 0.0))

    __rmul__ = __mul__

    def __sub__(self, other):
        return _combine("Subtract", self, other, lambda number: (1.0, -number))

    def __rsub__(self, other):
        return self * -1.0 + other

    def __truediv__(self, other):
        if isinstance(other, KerasTensor):
            raise TypeError("symbols can be added, subtracted and multiplied; other operations need a layer")
        return self * (1.0 / other)

    def __neg__(self):
        return self * -1.0

    def __array__(self, dtype=None, copy=None):
        raise TypeError("a symbol has no numbers: it stands for what a layer will give")

    def __repr__(self):
        return "<KerasTensor shape=%s, dtype=%s>" % (self.shape, self.dtype)


def _combine(kind, a, b, scale):
    from unisono.keras import layers

    if isinstance(b, KerasTensor):
        return getattr(layers, kind)()([a, b])
    if not isinstance(b, (int, float)):
        return NotImplemented
    return layers.Rescaling(*scale(float(b)))(a)


def open_batch(what: str, batch_shape: Any) -> tuple:
    """A shape with its batch, which must be open."""
    if len(batch_shape) == 0 or batch_shape[0] is not None:
        raise TypeError("%s(batch_shape=%.60r) is not supported: batches may have any size; begin it with None" % (what, tuple(batch_shape)))
    return tuple(batch_shape)


def sample_shape(what: str, shape: Any) -> tuple:
    """The shape of a sample: whole numbers, and None where any size will do."""
    dims = (shape,) if isinstance(shape, numbers.Integral) and not isinstance(shape, bool) else shape
    if isinstance(dims, (str, bytes)) or not hasattr(dims, "__iter__"):
        raise ValueError("%s(shape=%.40r): a shape is a tuple of whole numbers, or None where any size will do" % (what, shape))
    for each in dims:
        if each is not None and (isinstance(each, bool) or not isinstance(each, numbers.Integral) or each < 1):
            raise ValueError("%s(shape=%.40r): %.20r is not a size; a shape is a tuple of whole numbers of at least 1, or None where any size will do" % (what, shape, each))
    return tuple(None if each is None else int(each) for each in dims)


@strict({"tensor": Refused(None, "give the shape"), "batch_size": Refused(None, "batches may have any size"), "sparse": Refused(None, "tensors are dense", (False,)),
         "ragged": Refused(None, "tensors are rectangular: pad the rows", (False,)), "optional": Refused(False, "every input of a model is needed")},
        name="unisono.keras.Input")
def Input(shape: Any = None, batch_size: int | None = None, dtype: Any = "float32", name: str | None = None, batch_shape: Any = None) -> KerasTensor:
    """The beginning of a graph: samples of this shape (without the batch)."""
    if batch_shape is not None:
        shape = open_batch("Input", batch_shape)[1:]
    if shape is None:
        raise ValueError("Input needs the shape of a sample")
    dtype = getattr(dtype, "name", dtype) or "float32"
    dims = (None,) + sample_shape("Input", shape)
    return KerasTensor(spec=(str(dtype), dims), name=name)


def walk(outputs: Any) -> list:
    """All nodes that outputs come from, inputs before those that use them."""
    order, seen = [], set()
    stack = [(node, False) for node in reversed(outputs)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((each, False) for each in reversed(node._inputs))
    return order


def copier(keep: Any) -> Any:
    """One copy a layer, for a graph that only asks for shapes; `keep` holds what the copies need meanwhile."""
    copies = {}

    def copy_of(layer):
        if id(layer) not in copies:
            copies[id(layer)] = layer._copy(keep)
        return copies[id(layer)]
    return copy_of


def entry_of(node: Any, order: Any, native_of: Any) -> Any:
    """What _engine.Model.graph takes for a node."""
    if node._layer is None:
        dtype, shape = node._spec
        return (node.name or "input", (dtype, tuple(shape[1:])))
    places = {id(each): index for index, each in enumerate(order)}
    return (native_of(node._layer), tuple(places[id(each)] for each in node._inputs), node._training)
