"""Horovod's functions on unisono's own collectives: for PyTorch, Keras 3, TensorFlow and NumPy, on any machine, without Horovod, MPI or a rendezvous.

    import unisono.horovod.torch as hvd       # or .keras, .tensorflow, .tensorflow.keras, or this module for NumPy

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

It works in the train function of every trainer of unisono, and in programs that `unisono run -n 2 python script.py` started. Scripts that say
`import horovod.torch` need no change where real Horovod is not installed: see install().
"""

from unisono.extend import strict_module
from unisono.horovod import _core, elastic  # noqa: F401
from unisono.horovod._core import *  # noqa: F403
from unisono.horovod._install import install, installed  # noqa: F401
from unisono.horovod._numpy import (Compression, allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,  # noqa: F401
                                    reducescatter)

__version__ = "0.28.1"  # of the Horovod whose functions these are
__all__ = sorted(_core.__all__ + ["Compression", "allgather", "allreduce", "alltoall", "broadcast", "elastic", "grouped_allgather", "grouped_allreduce", "install",
                                  "installed", "keras", "reducescatter", "tensorflow", "torch"])


def __getattr__(name):
    import importlib

    if name in ("torch", "keras", "tensorflow"):
        return importlib.import_module("unisono.horovod." + name)
    from unisono.extend import complain

    return complain("unisono.horovod", name)


strict_module(globals())
