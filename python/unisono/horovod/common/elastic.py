"""horovod.common.elastic: the base of states. run_fn is hvd.elastic.run, which leaves and meets the group by itself."""

from typing import Any

from unisono.extend import INSTEAD, complain, strict_module
from unisono.horovod._elastic import ObjectState, State

INSTEAD["unisono.horovod.common.elastic.run_fn"] = "hvd.elastic.run(func), which leaves and meets the group by itself"
__all__ = ["ObjectState", "State"]


def __getattr__(name: str) -> Any:
    return complain("unisono.horovod.common.elastic", name)


strict_module(globals())
