"""The worker's half of the torch backend: the process group, before the train function and after it."""

import datetime
import os


def _default_backend(torch):
    return "nccl" if torch.cuda.is_available() and torch.distributed.is_nccl_available() else "gloo"


def set_up(session, settings):
    import torch
    import torch.distributed as dist

    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    method = "env://" if settings.get("init_method", "env") == "env" else "tcp://%s:%s" % (address, port)
    backend = settings.get("backend") or _default_backend(torch)
    if backend == "nccl":
        os.environ.setdefault("NCCL_BLOCKING_WAIT", "1")
        torch.cuda.set_device(0)  # the only one that this worker sees
    if backend == "unisono":
        import unisono.torch  # noqa: F401 - registers the name
    dist.init_process_group(backend=backend, init_method=method, rank=session.world_rank, world_size=session.world_size,
                            timeout=datetime.timedelta(seconds=settings.get("timeout_s", 1800)))

    def finish():
        if dist.is_initialized():
            dist.destroy_process_group()

    return finish
