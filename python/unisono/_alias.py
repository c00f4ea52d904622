"""A package under another name: `import ray` means unisono, `import horovod` means unisono.horovod. The modules are the same objects."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any, Callable, Mapping


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """name.x is target.x, or what `moved` says. missing(name, target) is the sentence about a module that is not there."""

    def __init__(self, name: str, target: str, missing: Callable[[str, str], str], moved: Mapping[str, str] | None = None):
        self.name, self._target, self._missing, self._moved = name, target, missing, moved or {}

    def _wanted(self, name: str) -> str:
        return self._moved.get(name, self._target + name[len(self.name):])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module at or below the name; None for others."""
        if name != self.name and not name.startswith(self.name + "."):
            return None
        try:
            found = importlib.util.find_spec(self._wanted(name))
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError("no module %s: %s" % (name, self._missing(name, self._wanted(name))), name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: Any) -> Any:
        """The module that the name means."""
        module = importlib.import_module(self._wanted(spec.name))
        self._kept = module.__spec__, getattr(module, "__loader__", None), module.__name__, getattr(module, "__package__", None)
        return module

    def exec_module(self, module: Any) -> None:
        """It is loaded already; only what the import machinery wrote over is put back."""
        module.__spec__, module.__loader__, module.__name__, module.__package__ = self._kept

    def install(self) -> None:
        """From now on the name means the target in this process."""
        for name in [name for name in sys.modules if name == self.name or name.startswith(self.name + ".")]:
            del sys.modules[name]
        sys.meta_path.insert(0, self)


def installed(name: str) -> bool:
    """Whether the name is an alias in this process."""
    return any(isinstance(finder, Alias) and finder.name == name for finder in sys.meta_path)
