"""prepare_model, prepare_data_loader and their relatives."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from unisono import _session
from unisono._arguments import Refused, strict, strict_class


@strict()
def get_device() -> Any:
    """The device of this worker: its GPU (the library shows it only its own), otherwise the CPU."""
    import torch

    return torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")


@strict()
def get_devices() -> Any:
    """The devices of this worker."""
    import torch

    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else [torch.device("cpu")]


@strict()
def prepare_model(model: Any, move_to_device: Any = True, parallel_strategy: Any = "ddp", parallel_strategy_kwargs: Any = None, *,
                  wrap_ddp: bool | None = None, ddp_kwargs: Any = None) -> Any:
    """Moves the model to this worker's device (or to move_to_device, a torch.device) and, with more than one worker, wraps it in
    DistributedDataParallel. v1 calls the third argument wrap_ddp and the fourth ddp_kwargs."""
    if isinstance(parallel_strategy, bool):  # by position, as v1 has it
        wrap_ddp, parallel_strategy = parallel_strategy, "ddp"
    if parallel_strategy not in ("ddp", None):
        raise TypeError('prepare_model(parallel_strategy=%r) is not supported: only "ddp" and None are' % (parallel_strategy,))
    device = get_device()
    if move_to_device is not True and move_to_device is not False:
        import torch

        device, move_to_device = torch.device(move_to_device), True
    if move_to_device:
        model = model.to(device)
    if wrap_ddp is not False and parallel_strategy and _session.world_size() > 1:
        from torch.nn.parallel import DistributedDataParallel

        options = dict(ddp_kwargs or {}, **(parallel_strategy_kwargs or {}))
        if device.type == "cuda":
            options.setdefault("device_ids", [device])
        model = DistributedDataParallel(model, **options)
    return model


class _DeviceLoader:
    """A DataLoader whose batches are moved to a device."""

    def __init__(self, loader, device):
        self._loader, self._device = loader, device

    def _move(self, item):
        if hasattr(item, "to"):
            return item.to(self._device, non_blocking=True)
        if isinstance(item, dict):
            return {key: self._move(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)):
            moved = [self._move(value) for value in item]
            return type(item)(*moved) if hasattr(item, "_fields") else type(item)(moved)
        return item

    def __iter__(self):
        return (self._move(batch) for batch in self._loader)

    def __len__(self):
        return len(self._loader)

    def __getattr__(self, name):
        return getattr(self._loader, name)


@strict()
def prepare_data_loader(data_loader: Any, add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True) -> Any:
    """Gives the loader a DistributedSampler (with more than one worker) and moves its batches to this worker's device."""
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

    splits = add_dist_sampler and _session.world_size() > 1 and not isinstance(data_loader.dataset, IterableDataset)
    if splits and not isinstance(data_loader.sampler, DistributedSampler):
        if not isinstance(data_loader.sampler, (RandomSampler, SequentialSampler)):
            raise ValueError("the data loader has a sampler of its own, which cannot be split over the workers: pass add_dist_sampler=False")
        options = {name: getattr(data_loader, name) for name in ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout",
                                                                 "worker_init_fn", "generator", "persistent_workers")}
        if options["num_workers"]:
            options["prefetch_factor"] = data_loader.prefetch_factor
            options["multiprocessing_context"] = data_loader.multiprocessing_context
        shuffle = isinstance(data_loader.sampler, RandomSampler)
        data_loader = DataLoader(data_loader.dataset, sampler=DistributedSampler(data_loader.dataset, shuffle=shuffle), **options)
    device = get_device()
    return _DeviceLoader(data_loader, device) if move_to_device and device.type != "cpu" else data_loader


@strict({"amp": Refused(False, "use torch.autocast and a GradScaler in the loop")})
def accelerate(amp: bool = False) -> None:
    """Mixed precision by one switch is not supported; without it there is nothing to do."""


@strict()
def prepare_optimizer(optimizer: Any) -> Any:
    """The optimizer for mixed precision (accelerate); otherwise as it is."""
    return optimizer


@strict()
def backward(tensor: Any) -> None:
    """loss.backward(), scaled when mixed precision is on."""
    tensor.backward()


@strict()
def enable_reproducibility(seed: int = 0) -> None:
    """Seeds torch, NumPy and Python, and asks torch for deterministic algorithms."""
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if importlib.util.find_spec("numpy"):
        import numpy

        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


@strict_class()
class TorchWorkerProfiler:
    """For torch.profiler's on_trace_ready: collects traces, and hands them to train.report for TorchTensorboardProfilerCallback."""

    WORKER_TRACE_DIR_NAME = "pytorch_profiler_worker_traces"

    def __init__(self, trace_dir: Any = None):
        self._folder = Path(trace_dir or Path(tempfile.mkdtemp()) / self.WORKER_TRACE_DIR_NAME)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def trace_handler(self, profiler: Any) -> None:
        """What torch.profiler calls when a trace is ready."""
        name = "worker_%d_epoch_%d.pt.trace.json" % (_session.world_rank(), self._count)
        self._count += 1
        profiler.export_chrome_trace(str(self._folder / name))

    def get_and_clear_profile_traces(self) -> Any:
        """The traces so far, for train.report(**traces)."""
        traces = []
        for path in sorted(self._folder.iterdir()):
            traces.append((path.name, path.read_text(encoding="utf-8")))
            path.unlink()
        return {"_train_torch_profiler": traces}
