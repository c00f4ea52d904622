"""unisono.util."""

from __future__ import annotations

from typing import Any

from unisono._runtime import init as _init

__all__ = ["connect", "sgd"]


def connect(address: Any = None, **keywords: Any) -> Any:
    """ray.util.connect's place: there is nothing to connect to."""
    return _init(address, **keywords)


def __getattr__(name):
    import importlib

    if name == "sgd":
        return importlib.import_module("unisono.util.sgd")
    from unisono._missing import complain

    return complain("unisono.util", name)
