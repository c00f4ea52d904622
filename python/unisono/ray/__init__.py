"""unisono.ray: Ray's older names. v1 is Ray Train 1.8 to 1.13; AIR is unisono.air, RaySGD unisono.util.sgd.

Scripts that must not be touched: `python -m unisono.ray script.py [arguments]` makes `import ray` mean unisono. ray.x.y is the module unisono.x.y, the same
object. What is not offered fails with the name and the nearest thing that is. Workers of such a script do the same.
"""

from __future__ import annotations

import sys
from typing import Any

from unisono.extend import Alias, choose_keras, is_alias, sentence

# Where Ray keeps a module under another name.
_MOVED = {
    "ray.train.callbacks.callback": "unisono.train.callbacks",
    "ray.train.callbacks.logging": "unisono.train.callbacks",
    "ray.train.callbacks.print": "unisono.train.callbacks",
    "ray.train._checkpoint": "unisono.train",
    "ray.sgd": "unisono.train",
    "ray.util.sgd.v2": "unisono.train",
    "ray.util.sgd.tf.tf_runner": "unisono.util.sgd.tf",
}


def _missing(name: str, wanted: str) -> str:
    parent, _, last = wanted.rpartition(".")
    return sentence(parent, last)


def installed() -> bool:
    """Whether `import ray` means unisono in this process."""
    return is_alias("ray")


def install() -> None:
    """From now on `import ray` means unisono in this process."""
    if not installed():
        Alias("ray", "unisono", _missing, _MOVED).install()
        from unisono import horovod

        choose_keras()  # before the script imports tensorflow
        horovod.install()  # where there is no other, `import horovod` means ours


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
