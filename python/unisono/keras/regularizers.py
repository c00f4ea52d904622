"""Regularisers by Keras's names."""

from __future__ import annotations

from unisono.extend import as_kind, strict, strict_class
from unisono.keras._arguments import Configured

__all__ = ["Regularizer", "L1", "L2", "L1L2", "l1", "l2", "l1_l2"]


class Regularizer(Configured):
    """Base of the regularisers."""

    @strict(name="unisono.keras.regularizers.Regularizer")
    def __init__(self):
        self._config: dict = {}

    def get_config(self) -> dict:
        """Its arguments."""
        return dict(self._config)

    def _object(self):
        return {"module": "keras.regularizers", "class_name": type(self).__name__, "config": self.get_config(), "registered_name": None}


def _factor(what: str, name: str, value: float) -> float:
    if not 0 <= as_kind(what, name, value, "float"):
        raise ValueError("%s(%s=%r): %s must be at least 0" % (what, name, value, name))
    return float(value)


class L1(Regularizer):
    """l1 * sum |x|."""

    def __init__(self, l1: float = 0.01):
        self._config = {"l1": _factor("L1", "l1", l1)}


class L2(Regularizer):
    """l2 * sum x^2."""

    def __init__(self, l2: float = 0.01):
        self._config = {"l2": _factor("L2", "l2", l2)}


class L1L2(Regularizer):
    """Both."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0):
        self._config = {"l1": _factor("L1L2", "l1", l1), "l2": _factor("L1L2", "l2", l2)}


for _cls in (L1, L2, L1L2):
    strict_class()(_cls)
l1, l2, l1_l2 = L1, L2, L1L2
