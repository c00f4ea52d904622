"""ray.train.session's place (v1): what a train function calls."""

from __future__ import annotations

from typing import Any

from unisono import _session
from unisono._session import (get_checkpoint, get_dataset_shard, load_checkpoint, local_rank, report, save_checkpoint, world_rank,
                              world_size)
from unisono.train.error import SessionMisuseError

__all__ = ["SessionMisuseError", "get_accelerator", "get_checkpoint", "get_dataset_shard", "get_session", "load_checkpoint", "local_rank", "report",
           "save_checkpoint", "set_accelerator", "world_rank", "world_size"]


def get_session() -> Any:
    """The session of this train function; ValueError elsewhere."""
    here = _session.current()
    if here is None:
        raise ValueError("there is no session: this is not inside a train function that a trainer runs")
    return here


def _here(name: str) -> Any:
    here = _session.current()
    if here is None:
        raise SessionMisuseError("`%s` can only be called inside a train function that a trainer runs" % name)
    return here


def get_accelerator(default_accelerator_cls: Any) -> Any:
    """The accelerator of this train function, made of the class when there is none yet."""
    here = _here("get_accelerator")
    if here.accelerator is None:
        here.accelerator = default_accelerator_cls()
    return here.accelerator


def set_accelerator(accelerator: Any) -> None:
    """Once, before anything uses one; a second time is a RuntimeError."""
    here = _here("set_accelerator")
    if here.accelerator is not None:
        raise RuntimeError("the accelerator is set already: it cannot be changed")
    here.accelerator = accelerator
