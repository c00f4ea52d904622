"""Data for fit, evaluate and predict: arrays without copies, datasets, and any iterator of the user."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono import _engine
from unisono.extend import safe_text
from unisono.keras._tensor import Tensor, Variable, as_array

__all__ = ["columns", "Source", "unpack"]


def _is_array(value):
    return isinstance(value, (np.ndarray, Tensor, Variable, _engine.Strings)) or hasattr(value, "to_numpy") or hasattr(value, "__dlpack__")


def columns(value: Any, names: Any = ()) -> list:
    """One column an input (or target): from an array, a list of arrays, a dictionary by name, or numbers in lists."""
    if value is None:
        return []
    if isinstance(value, dict):
        missing = [name for name in names if name not in value]
        if missing or not names:
            raise ValueError(safe_text("the data is a dictionary with %s; the model has %s" % (", ".join(map(str, value)), ", ".join(names) or "no names yet")))
        return [as_array(value[name]) for name in names]
    if isinstance(value, (list, tuple)) and value and all(_is_array(each) and np.ndim(each) > 0 for each in value):
        if len(value) > 1 and len(names) == 1:  # a list of samples
            return [as_array(np.stack([np.asarray(each) for each in value]))]
        return [as_array(each) for each in value]
    array = as_array(value)
    if not array.shape:
        raise ValueError("data needs a first dimension that counts the samples; got a single %s" % type(value).__name__)
    return [array]


def unpack(item: Any) -> Any:
    """(x, y, sample_weight) of what a dataset or an iterator gives."""
    if isinstance(item, tuple):
        if not 1 <= len(item) <= 3:
            raise ValueError("a batch is x, (x, y) or (x, y, sample_weight); got a tuple of %d" % len(item))
        return item + (None,) * (3 - len(item))
    return item, None, None


class Source:
    """A uni_batches for what is not an array: a Dataset of unisono.tf, a PyDataset, an iterator or generator, a function that makes them."""

    def __init__(self, data: Any, input_names: Any = (), output_names: Any = ()):
        self._names = (input_names, output_names)
        self._data = data
        self.native = self._make(data)

    @staticmethod
    def accepts(data: Any) -> bool:
        """Whether this is a source of batches rather than an array."""
        return hasattr(data, "_native_batches") or hasattr(data, "__next__") or callable(data) or (
            hasattr(data, "__getitem__") and hasattr(data, "__len__") and not _is_array(data) and not isinstance(data, (list, tuple, dict, str))) or (
            hasattr(data, "__iter__") and not _is_array(data) and not isinstance(data, (list, tuple, dict, str)))

    def _make(self, data):
        if hasattr(data, "_native_batches"):
            native = data._native_batches()
            if native is not None:
                return native
        length = -1
        if hasattr(data, "__len__") and not hasattr(data, "__next__"):
            try:
                length = len(data)
            except TypeError:
                if hasattr(data, "__getitem__") and not hasattr(data, "__iter__"):  # batches by index have a length: the error is the user's
                    raise
        return _engine.Batches.iterator(self._begin, length)

    def _begin(self, epoch):
        data = self._data
        if hasattr(data, "_epoch"):
            iterator = data._epoch(epoch)
        elif hasattr(data, "__next__"):
            iterator = data  # a generator goes on where it stands, as in Keras
        elif callable(data) and not hasattr(data, "__iter__"):
            iterator = iter(data())
        elif hasattr(data, "__iter__"):
            iterator = iter(data)
        else:
            if epoch and hasattr(data, "on_epoch_end"):
                data.on_epoch_end()
            iterator = (data[index] for index in range(len(data)))
        return map(self._convert, iterator)

    def _convert(self, item):
        x, y, weight = unpack(item)
        return (columns(x, self._names[0]), columns(y, self._names[1]), None if weight is None else as_array(weight))
