"""unisono.torch: torch.distributed on unisono's collectives.

    import torch.distributed as dist
    import unisono.torch                     # not needed when unisono was installed with pip
    dist.init_process_group("unisono")

Everything that builds on torch.distributed works unchanged: DistributedDataParallel, FSDP, samplers, barriers, groups. Ranks of one machine meet in shared
memory, however they were started (`unisono run`, TorchTrainer, torchrun, a script that sets RANK and MASTER_ADDR). Ranks of several machines need `unisono run`
or a trainer, which bring them together. docs/torch.md has what is supported and how fast it is.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Makes the name "unisono" known to torch.distributed. Importing this module does it; torch does it by itself when unisono is installed."""
    import torch.distributed as dist

    if not dist.is_available():
        raise ImportError("this PyTorch was built without torch.distributed; install another build to train with several workers")
    if hasattr(dist.Backend, "UNISONO"):
        return
    try:
        dist.Backend.register_backend("unisono", _open, devices=["cpu"])
    except TypeError:  # before 2.0: without devices
        dist.Backend.register_backend("unisono", _open)


def _open(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from unisono.torch._group import ProcessGroupUnisono

    return ProcessGroupUnisono(store, rank, size, timeout)


register()
