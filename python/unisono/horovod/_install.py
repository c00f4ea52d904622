"""`import horovod` as unisono.horovod, where real Horovod is not installed.

It happens in the workers of the horovod backend and under `python -m unisono.ray`, or when a program calls install(). UNISONO_HOROVOD decides
otherwise: "own" takes unisono's even where real Horovod is installed, "real" never does.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_OWN = "unisono.horovod"


def is_real_installed() -> bool:
    """Real Horovod can be imported (it is not imported here)."""
    module = sys.modules.get("horovod")
    if module is not None:
        return not module.__name__.startswith(_OWN)
    return importlib.machinery.PathFinder.find_spec("horovod") is not None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """horovod.x is the module unisono.horovod.x, the same object."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "horovod" and not name.startswith("horovod."):
            return None
        wanted = _OWN + name[len("horovod"):]
        try:
            found = importlib.util.find_spec(wanted)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError("no module %s: unisono.horovod stands in for Horovod here and has torch, keras, tensorflow and "
                                      "tensorflow.keras" % name, name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: Any) -> Any:
        module = importlib.import_module(_OWN + spec.name[len("horovod"):])
        self._kept = module.__spec__, module.__loader__, module.__name__, module.__package__
        return module

    def exec_module(self, module: Any) -> None:
        """It is loaded already; only what the import machinery wrote over is put back."""
        module.__spec__, module.__loader__, module.__name__, module.__package__ = self._kept


def installed() -> bool:
    """`import horovod` means unisono.horovod in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install(force: bool = False) -> bool:
    """From now on `import horovod` means unisono.horovod, unless real Horovod is there (force: even then). Whether it does."""
    asked = os.environ.get("UNISONO_HOROVOD", "auto")
    if asked not in ("auto", "own", "real"):
        raise ValueError('UNISONO_HOROVOD must be "auto", "own" or "real", not %r' % asked)
    if installed():
        return True
    if asked == "real" or (is_real_installed() and not force and asked != "own"):
        return False
    for name in [name for name in sys.modules if name == "horovod" or name.startswith("horovod.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
    return True
