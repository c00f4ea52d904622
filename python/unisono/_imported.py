"""Changes to a framework's module in a worker, at the moment it is imported: importing it earlier would cost workers that never use it seconds."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Callable


class _Finder:
    def __init__(self, name: str, change: Callable[[ModuleType], None]):
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, change: Callable[[ModuleType], None]) -> None:
    """Calls change(module) once: now, or when the module has been imported."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, change))
