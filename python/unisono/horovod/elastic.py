"""hvd.elastic of the NumPy flavour: objects. (hvd.elastic of torch, keras and tensorflow know models and optimizers.)"""

from typing import Any

from unisono.extend import strict_module
from unisono.horovod import _core, _elastic
from unisono.horovod._elastic import HorovodInternalError, HostsUpdatedInterrupt, HostUpdateResult, State, run


class ObjectState(_elastic.ObjectState):
    """Python objects and arrays, given as keywords, which become attributes. Horovod's two functions may be given first; they are known here."""

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any):
        super().__init__(bcast_object if bcast_object is not None else _core.broadcast_object, get_rank if get_rank is not None else _core.rank, **kwargs)


__all__ = ["HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State", "run"]
strict_module(globals())
