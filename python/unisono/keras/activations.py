"""Activations as functions on tensors; layers take them by name or as these."""

from __future__ import annotations

from typing import Any

from unisono.keras.ops import _activation, softmax  # noqa: F401

relu, sigmoid, tanh, gelu, softplus, silu, elu, selu, linear = (_activation(name) for name in (
    "relu", "sigmoid", "tanh", "gelu", "softplus", "silu", "elu", "selu", "linear"))
swish, exponential, softsign, hard_sigmoid, leaky_relu, relu6 = (_activation(name) for name in (
    "silu", "exponential", "softsign", "hard_sigmoid", "leaky_relu", "relu6"))


def get(identifier: Any) -> Any:
    """An activation by its name."""
    if identifier is None:
        return linear
    if callable(identifier):
        return identifier
    found = globals().get(str(identifier))
    if not callable(found):
        raise ValueError("there is no activation %r" % identifier)
    return found
