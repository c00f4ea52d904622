"""Horovod's PyTorch flavour: `import unisono.horovod.torch as hvd`."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Sequence

import torch

from unisono.extend import strict_module
from unisono.horovod import _core, _numpy
from unisono.horovod import _torch_elastic as elastic
from unisono.horovod._core import *  # noqa: F403
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op
from unisono.horovod._torch_optimizer import DistributedOptimizer  # noqa: F401

__all__ = sorted(_core.__all__ + [
    "Compression", "DistributedOptimizer", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall",
    "alltoall_async", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_optimizer_state", "broadcast_parameters", "elastic",
    "grouped_allreduce", "grouped_allreduce_", "poll", "reducescatter", "reducescatter_async", "sparse_allreduce_async", "synchronize"])


sys.modules[__name__ + ".elastic"] = elastic


class _NoCompression:
    """Values travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class _HalfCompression(_NoCompression):
    """Values are rounded to 16 bits, as Horovod does to save bytes (in shared memory there is nothing to save: only the rounding is kept)."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        wide = tensor.dtype.is_floating_point and tensor.element_size() > 2
        return (tensor.half(), tensor.dtype) if wide else (tensor, None)

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor if context is None else tensor.to(context)


class Compression:
    """What travels: none (as it is) or fp16."""

    none, fp16 = _NoCompression, _HalfCompression


# ---- memory ----


def _dtype(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in _core.SIZES:
        raise TypeError("unisono.horovod does not move %s: convert it to one of %s" % (tensor.dtype, ", ".join(sorted(_core.SIZES))))
    return name


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Integers are multiplied as float64 and lose their fraction, as in Horovod."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating_point:
        return tensor * factor
    return (tensor.to(torch.float64) * factor).trunc().to(tensor.dtype)


def _bytes(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous CPU tensor; nothing is copied."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else bytearray()


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous and on the CPU; the tensor itself when it is that already."""
    return tensor.detach().cpu().contiguous()


class _Handle:
    """An operation under way: its requests, and what makes its result."""

    def __init__(self, requests: Sequence[Any], finish: Any):
        self.requests, self.finish, self.result = list(requests), finish, None

    def done(self) -> bool:
        return all(request.test() for request in self.requests)

    def wait(self) -> Any:
        for request in self.requests:
            request.wait()
        self.requests = []
        if self.finish is not None:
            self.result, self.finish = self.finish(), None
        return self.result


def poll(handle: _Handle) -> bool:
    """The operation is done; synchronize would not wait."""
    return handle.done()


def synchronize(handle: _Handle) -> Any:
    """Waits for an asynchronous operation; its result."""
    return handle.wait()


# ---- reductions ----


def _start(tensor: torch.Tensor, op: ReduceOp, prescale: float, postscale: float, target: torch.Tensor | None) -> _Handle:
    """Starts one; into `target` when it is given."""
    source = _host(tensor)
    if _dtype(source) not in _core.REDUCIBLE:  # 16-bit floats and small integers are added up in a wider type
        source = source.to(torch.float32 if source.dtype.is_floating_point else torch.int64)
    source = _scaled(source, prescale)
    whole = op is Average and not source.dtype.is_floating_point
    own = target if target is not None and target.device.type == "cpu" and target.is_contiguous() and target.dtype == source.dtype else None
    out = own.detach() if own is not None else torch.empty_like(source)
    requests = _core.reduce_start(_bytes(source), _bytes(out), _dtype(source), Sum if whole else op, tuple(source.shape))

    def finish() -> torch.Tensor:
        if whole and postscale == 1.0:
            result = torch.div(out, _core.size(), rounding_mode="trunc")
        else:
            result = _scaled(out, postscale / _core.size() if whole else postscale)
        if target is not None:
            if result is not own:
                with torch.no_grad():
                    target.copy_(result)
            return target
        return result.to(device=tensor.device, dtype=tensor.dtype)

    return _Handle(requests, finish)


@_core.named
def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: ReduceOp | None = None, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0, process_set: Any = None) -> _Handle:
    """allreduce that is under way: a handle for synchronize."""
    check_process_set(process_set)
    return _start(tensor, choose_op(average, op), prescale_factor, postscale_factor, None)


@_core.named
def allreduce_async_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: ReduceOp | None = None, prescale_factor: float = 1.0,
                     postscale_factor: float = 1.0, process_set: Any = None) -> _Handle:
    """In place."""
    check_process_set(process_set)
    return _start(tensor, choose_op(average, op), prescale_factor, postscale_factor, tensor)


class _AllReduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: ReduceOp, prescale: float, postscale: float) -> torch.Tensor:
        ctx.with_ = op, prescale, postscale
        return _start(tensor, op, prescale, postscale, None).wait()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        op, prescale, postscale = ctx.with_
        return _start(gradient, op, prescale, postscale, None).wait(), None, None, None


@_core.named
def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, compression: Any = Compression.none, op: ReduceOp | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: Any = None) -> torch.Tensor:
    """The average (or sum, min, max) of all ranks' tensors, as a new one."""
    check_process_set(process_set)
    chosen = choose_op(average, op)
    small, context = compression.compress(tensor)
    return compression.decompress(_AllReduce.apply(small, chosen, prescale_factor, postscale_factor), context)


def allreduce_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: ReduceOp | None = None, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0, process_set: Any = None) -> torch.Tensor:
    """In place."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None, compression: Any = Compression.none,
                      op: ReduceOp | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: Any = None) -> list[torch.Tensor]:
    """allreduce of several tensors in one go."""
    return [allreduce(tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set) for tensor in tensors]


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None, op: ReduceOp | None = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: Any = None) -> list[torch.Tensor]:
    """The same, in place."""
    return [allreduce_(tensor, average, name, op, prescale_factor, postscale_factor, process_set) for tensor in tensors]


@_core.named
def sparse_allreduce_async(tensor: torch.Tensor, name: str | None = None, op: ReduceOp = Average, process_set: Any = None) -> _Handle:
    """A sparse tensor: all ranks' values and indices one after the other."""
    check_process_set(process_set)
    sparse = tensor.coalesce()
    indices = allgather(sparse.indices().t().contiguous()).t()
    values = allgather(sparse.values())
    if choose_op(None, op) is Average:
        values = values / _core.size()
    return _Handle([], lambda: torch.sparse_coo_tensor(indices, values, tensor.shape))


# ---- what moves data ----


def _rows(data: bytearray, like: torch.Tensor, count: int) -> torch.Tensor:
    out = torch.frombuffer(data, dtype=like.dtype) if data else torch.empty(0, dtype=like.dtype)
    return out.reshape((count, *like.shape[1:]))


def _gathered(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """All ranks' rows, and how many of them each brought."""
    source = _host(tensor if tensor.dim() else tensor.reshape(1))
    data, counts = _core.gather(_bytes(source), _dtype(source), tuple(source.shape))
    return _rows(data, source, sum(counts)).to(tensor.device), counts


class _AllGather(torch.autograd.Function):
    """The gradient, as Horovod has it: this rank's rows of the average of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        out, counts = _gathered(tensor)
        ctx.first, ctx.shape = sum(counts[:_core.rank()]), tensor.shape
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        rows = ctx.shape[0] if len(ctx.shape) else 1
        return _start(gradient, Average, 1.0, 1.0, None).wait()[ctx.first:ctx.first + rows].reshape(ctx.shape)


class _Broadcast(torch.autograd.Function):
    """The gradient, as Horovod has it: the average of all ranks' gradients on the root, zero elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root: int) -> torch.Tensor:
        ctx.root = root
        return broadcast_(tensor.detach().clone(), root)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        reduced = _start(gradient, Average, 1.0, 1.0, None).wait()
        return (reduced if _core.rank() == ctx.root else torch.zeros_like(reduced)), None


class _AllToAll(torch.autograd.Function):
    """The gradient goes back the way that the rows came."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any) -> Any:
        out, came = _all_to_all(tensor, splits)
        ctx.came = came
        ctx.mark_non_differentiable(came)
        return out, came

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        return _all_to_all(gradient, ctx.came)[0], None


class _ReduceScatter(torch.autograd.Function):
    """The gradient, as Horovod has it: all ranks' gradients one after the other, times the number of ranks for a sum."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: ReduceOp, prescale: float, postscale: float) -> torch.Tensor:
        ctx.op, ctx.factor = op, prescale * postscale
        return _reduce_scatter(tensor, op, prescale, postscale)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        factor = ctx.factor * (_core.size() if ctx.op is Sum else 1)
        return _gathered(_scaled(gradient, factor))[0], None, None, None


@_core.named
def allgather(tensor: torch.Tensor, name: str | None = None, process_set: Any = None) -> torch.Tensor:
    """All ranks' tensors, one after the other along the first dimension, which may differ."""
    check_process_set(process_set)
    return _AllGather.apply(tensor)


@_core.named
def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None) -> torch.Tensor:
    """The root's tensor on all ranks, as a new one."""
    check_process_set(process_set)
    return _Broadcast.apply(tensor, root_rank)


@_core.named
def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None) -> torch.Tensor:
    """The root's values, in place."""
    check_process_set(process_set)
    own = tensor.device.type == "cpu" and tensor.is_contiguous()
    memory = tensor.detach() if own else _host(tensor).clone()
    _core.broadcast(_bytes(memory), root_rank, _dtype(memory), tuple(memory.shape))
    if not own:
        with torch.no_grad():
            tensor.copy_(memory)
    return tensor


@_core.named
def alltoall(tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: Any = None) -> Any:
    """Row blocks for every rank, in order; what the others had for this one (with splits: and how many rows from each)."""
    check_process_set(process_set)
    out, came = _AllToAll.apply(tensor, splits)
    return out if splits is None else (out, came)


def _all_to_all(tensor: torch.Tensor, splits: Any) -> tuple[torch.Tensor, torch.Tensor]:
    source = _host(tensor)
    data, came = _core.all_to_all(_bytes(source), _numpy.split_rows(splits, len(source)), _dtype(source), tuple(source.shape))
    return _rows(data, source, sum(came)).to(tensor.device), torch.tensor(came, dtype=torch.int32)


@_core.named
def reducescatter(tensor: torch.Tensor, op: ReduceOp = Average, name: str | None = None, compression: Any = Compression.none, process_set: Any = None,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's rows of the reduction; the first ranks have one more when they do not divide evenly."""
    check_process_set(process_set)
    small, context = compression.compress(tensor)
    return compression.decompress(_ReduceScatter.apply(small, choose_op(None, op), prescale_factor, postscale_factor), context)


def _reduce_scatter(tensor: torch.Tensor, op: ReduceOp, prescale: float, postscale: float) -> torch.Tensor:
    size, rank, source = _core.size(), _core.rank(), _host(tensor)
    if len(source) % size or not source.dtype.is_floating_point or _dtype(source) not in _core.REDUCIBLE:
        base, more = divmod(len(source), size)
        first = rank * base + min(rank, more)
        return _start(source, op, prescale, postscale, None).wait()[first:first + base + (rank < more)].clone().to(tensor.device)
    source = _scaled(source, prescale)
    out = torch.empty((len(source) // size,) + tuple(source.shape[1:]), dtype=source.dtype)
    _core.reduce_scatter(_bytes(source), _bytes(out), _dtype(source), op, tuple(source.shape))
    return _scaled(out, postscale).to(tensor.device)


# These are done when they return: only reductions run beside the program.


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: Any = None) -> _Handle:
    """allgather; a handle for synchronize."""
    out = allgather(tensor, name, process_set)
    return _Handle([], lambda: out)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None) -> _Handle:
    """broadcast; a handle for synchronize."""
    out = broadcast(tensor, root_rank, name, process_set)
    return _Handle([], lambda: out)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None) -> _Handle:
    """The same, in place."""
    out = broadcast_(tensor, root_rank, name, process_set)
    return _Handle([], lambda: out)


def alltoall_async(tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: Any = None) -> _Handle:
    """alltoall; a handle for synchronize."""
    out = alltoall(tensor, splits, name, process_set)
    return _Handle([], lambda: out)


def reducescatter_async(tensor: torch.Tensor, op: ReduceOp = Average, name: str | None = None, process_set: Any = None) -> _Handle:
    """reducescatter; a handle for synchronize."""
    out = reducescatter(tensor, op, name, process_set=process_set)
    return _Handle([], lambda: out)


# ---- the state of models and optimizers ----


def broadcast_parameters(params: Any, root_rank: int, process_set: Any = None) -> None:
    """The root's values in place: of a state_dict, or of (name, tensor) pairs as named_parameters has them."""
    if isinstance(params, dict):
        pairs: Iterable[Any] = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__iter__"):
        pairs = [pair if isinstance(pair, tuple) else ("", pair) for pair in params]
    else:
        raise ValueError("broadcast_parameters takes a state_dict or named_parameters(), not %s" % type(params).__name__)
    for _, tensor in pairs:
        if torch.is_tensor(tensor):
            broadcast_(tensor, root_rank, process_set=process_set)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None, process_set: Any = None) -> None:
    """The root's state (momenta, learning rates...) on all ranks."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    mine = _core.rank() == root_rank
    state = _core.broadcast_object(optimizer.state_dict() if mine else None, root_rank, process_set=process_set)
    if not mine:
        optimizer.load_state_dict(state)


def __getattr__(name: str) -> Any:
    from unisono.extend import complain

    return complain("unisono.horovod.torch", name)


strict_module(globals())
