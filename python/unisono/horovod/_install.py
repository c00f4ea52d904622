"""`import horovod` as unisono.horovod, where real Horovod is not installed.

It happens in the workers of the horovod backend and under `python -m unisono.ray`, or when a program calls install(). UNISONO_HOROVOD decides
otherwise: "own" takes unisono's even where real Horovod is installed, "real" never does.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys

from unisono.extend import Alias, is_alias

_OWN = "unisono.horovod"


def is_real_installed() -> bool:
    """Real Horovod can be imported (it is not imported here)."""
    module = sys.modules.get("horovod")
    if module is not None:
        return not module.__name__.startswith(_OWN)
    return importlib.machinery.PathFinder.find_spec("horovod") is not None


def installed() -> bool:
    """`import horovod` means unisono.horovod in this process."""
    return is_alias("horovod")


def install(force: bool = False) -> bool:
    """From now on `import horovod` means unisono.horovod, unless real Horovod is there (force: even then). Whether it does."""
    asked = os.environ.get("UNISONO_HOROVOD", "auto")
    if asked not in ("auto", "own", "real"):
        raise ValueError('UNISONO_HOROVOD must be "auto", "own" or "real", not %r' % asked)
    if installed():
        return True
    if asked == "real" or (is_real_installed() and not force and asked != "own"):
        return False
    Alias("horovod", _OWN, lambda *_: "unisono.horovod stands in for Horovod here and has torch, keras, tensorflow and tensorflow.keras").install()
    return True
