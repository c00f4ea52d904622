"""Scripts that must not be touched: `python -m unisono.ray script.py [arguments]` makes `import ray` mean unisono.

ray.x.y is the module unisono.x.y, the same object. What is not offered fails with the name and the nearest thing that is. Workers of such a script do
the same.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any

# Where Ray keeps a module under another name.
_MOVED = {
    "ray.train.callbacks.callback": "unisono.train.callbacks",
    "ray.train.callbacks.logging": "unisono.train.callbacks",
    "ray.train.callbacks.print": "unisono.train.callbacks",
    "ray.train._checkpoint": "unisono.train._checkpoint",
    "ray.sgd": "unisono.train",
    "ray.data.dataset": "unisono.data._dataset",
    "ray.data.dataset_pipeline": "unisono.data._pipeline",
    "ray.util.sgd.v2": "unisono.train",
    "ray.util.sgd.tf.tf_runner": "unisono.util.sgd.tf",
    "ray.data.dataset_pipeline": "unisono.data._pipeline",
    "ray.data.dataset": "unisono.data._dataset",
}


def _target(name):
    return _MOVED.get(name, "unisono" + name[len("ray"):])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ray and everything below it."""

    def find_spec(self, name, path=None, target=None):
        if name != "ray" and not name.startswith("ray."):
            return None
        wanted = _target(name)
        try:
            found = importlib.util.find_spec(wanted)
        except ModuleNotFoundError:
            found = None
        if found is None:
            from unisono._missing import sentence

            parent, _, last = wanted.rpartition(".")
            raise ModuleNotFoundError("no module %s: %s" % (name, sentence(parent, last)), name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec):
        module = importlib.import_module(_target(spec.name))
        self._kept = module.__spec__, getattr(module, "__loader__", None), module.__name__, getattr(module, "__package__", None)
        return module

    def exec_module(self, module):
        """It is loaded already; only what the import machinery wrote over is put back."""
        module.__spec__, module.__loader__, module.__name__, module.__package__ = self._kept


def installed() -> bool:
    """Whether `import ray` means unisono in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install() -> None:
    """From now on `import ray` means unisono in this process."""
    if not installed():
        for name in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Finder())
        from unisono import _same_keras
        from unisono.horovod import _install

        _same_keras.use()  # before the script imports tensorflow

        _install.install()  # where there is no other, `import horovod` means ours


def main(arguments: Any) -> Any:
    """`python -m unisono.ray script.py`: runs the script, and returns its exit code."""
    import os
    import runpy

    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m unisono.ray script.py [arguments]\n\nruns a script of Ray's on unisono: `import ray` means unisono")
        return 0 if arguments else 2
    install()
    sys.argv = list(arguments)
    sys.path[0:1] = [os.path.dirname(os.path.abspath(arguments[0]))]
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    # The module that others import, not this second copy of it.
    from unisono import ray

    sys.exit(ray.main(sys.argv[1:]))
