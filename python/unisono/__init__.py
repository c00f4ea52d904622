"""unisono: a group of workers that train one model together.

The work is done by libunisono (the C extension ``_unisono``); these modules give it the names that users of Ray Train, Ray AIR and RaySGD know.
Submodules are imported when they are first used: ``import unisono`` takes milliseconds and loads no framework.
"""

from __future__ import annotations

import os as _os

from unisono._unisono import Error, version as __version__  # noqa: F401

TYPE_CHECKING = False  # type checkers take it for True; importing typing would be half of the import's time
if TYPE_CHECKING:
    from typing import Any

    from unisono._runtime import (available_resources as available_resources, cluster_resources as cluster_resources, get as get, init as init,
                                  is_initialized as is_initialized, nodes as nodes, shutdown as shutdown)

_SUBMODULES = {"air", "data", "train", "tune", "util", "keras", "tf", "horovod", "samples"}
_RUNTIME = {"init", "is_initialized", "shutdown", "nodes", "cluster_resources", "available_resources", "get"}
__all__ = ["Error", "air", "init", "is_initialized", "shutdown", "train", "util"]

if _os.environ.get("UNISONO_OFFLINE", "0") not in ("", "0"):  # the user asks for samples instead of downloads
    from unisono.samples import use_offline as _use_offline

    _use_offline()


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # a module of ours on its way to be imported
        raise AttributeError("module 'unisono' has no attribute %r" % name)
    import importlib
    import importlib.util

    if name in _SUBMODULES and importlib.util.find_spec("unisono." + name):
        return importlib.import_module("unisono." + name)
    if name in _RUNTIME:
        return getattr(importlib.import_module("unisono._runtime"), name)
    from unisono._missing import complain

    return complain("unisono", name)
