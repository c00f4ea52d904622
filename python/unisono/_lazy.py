"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Collection, Mapping


def find(package: str, name: str, names: Mapping[str, str], modules: Collection[str]) -> Any:
    """For the package's __getattr__: `names` has the module (below the package, or of another one) that has each name, `modules` are modules below it that are names themselves. What is
    neither is not offered, and the error says what is."""
    if name in names:
        module = names[name] if names[name].startswith("unisono.") else "%s.%s" % (package, names[name])
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value
    if name in modules:
        return importlib.import_module("%s.%s" % (package, name))
    from unisono._missing import complain

    return complain(package, name)
