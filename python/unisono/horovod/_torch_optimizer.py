"""DistributedOptimizer for PyTorch: gradients are reduced while the backward pass still runs.

All gradients of a type lie in one flat buffer that the ranks share (comm.alloc); after the backward pass a parameter's .grad is its piece of it.
A hook runs when a gradient is final: it is put in its place and said to be ready, and the library reduces each bucket, in place, as soon as all of
it is there on all ranks. step() waits for the rest. Nothing is packed, sent or unpacked.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Iterator

import torch

from unisono.horovod import _core
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op

_BUCKET = 4 << 20


class _Flat:
    """The gradients of one type: memory, pieces, buckets."""

    def __init__(self, dtype: torch.dtype, parameters: list[torch.Tensor], op: ReduceOp):
        self.dtype, self.parameters, self.op = dtype, parameters, op
        self.let_go()

    def attach(self, world: _core._World) -> None:
        """Memory that the ranks of this world share."""
        counts = [parameter.numel() for parameter in self.parameters]
        total = sum(counts)
        if world.comm is None:
            self.memory, self.buckets = torch.zeros(total, dtype=self.dtype), None
        else:
            shared = world.comm.alloc(max(1, total) * torch.empty(0, dtype=self.dtype).element_size())
            self.memory = torch.frombuffer(shared, dtype=self.dtype)[:total]
            self.buckets = world.comm.buckets(shared, str(self.dtype).rpartition(".")[2], counts, self.op.word, _BUCKET)
        self.pieces = [piece.view(parameter.shape) for piece, parameter in zip(self.memory.split(counts), self.parameters)]

    def let_go(self) -> None:
        """Without memory."""
        self.pieces: list[torch.Tensor] = []
        self.memory, self.buckets = torch.empty(0, dtype=self.dtype), None


def _travels_as(parameter: torch.Tensor) -> torch.dtype:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


class _Step:
    """What an optimizer reduces in a step; it must not keep the optimizer alive.

    Its shared memory belongs to one world of ranks. The first step in a world makes it, on all ranks at once: an optimizer can be made while the
    others are elsewhere in the program, and goes on in the next world when ranks have come or gone."""

    def __init__(self, parameters: list[torch.Tensor], op: ReduceOp, passes: int, predivide: float, compression: Any):
        _core.world()  # an error before init
        self.world: Any = None
        self.number = _core.number_step(self)
        self.passes, self.predivide, self.compression = passes, predivide, compression
        self.flats: list[_Flat] = []
        self.places: dict[torch.Tensor, tuple[_Flat, int]] = {}
        for dtype in sorted({_travels_as(parameter) for parameter in parameters}, key=str):
            flat = _Flat(dtype, [p for p in parameters if _travels_as(p) == dtype], op)
            self.flats.append(flat)
            for index, parameter in enumerate(flat.parameters):
                self.places[parameter] = flat, index
        self.left = dict.fromkeys(self.places, passes)  # backward passes until a gradient is final
        self.begun = False
        self.call: Any = None

    def begin(self) -> None:
        if self.begun:
            return
        here = _core.world()
        self.begun = True
        if self.world is here:
            self.call = here.call_start(_core.STEP, extra=self.number) if here.comm is not None else None
        else:
            self.number = _core.number_step(self)
            if here.comm is not None:
                here.call(_core.STEP, extra=self.number)
            self.attach(here)
        for flat in self.flats:
            if flat.buckets is not None:
                flat.buckets.begin(1.0)

    def attach(self, world: _core._World) -> None:
        for flat in self.flats:
            flat.attach(world)
        self.world = world

    def put(self, parameter: torch.Tensor) -> None:
        """Its gradient in its place of the shared memory."""
        flat, index = self.places[parameter]
        piece, gradient = flat.pieces[index], parameter.grad
        if gradient is None:
            piece.zero_()
            return
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        if gradient.data_ptr() != piece.data_ptr():
            piece.copy_(gradient)
        if self.compression is not None:
            small, context = self.compression.compress(piece)
            piece.copy_(self.compression.decompress(small, context))
        if self.predivide != 1.0:
            piece.mul_(1.0 / self.predivide)

    def ready(self, parameter: torch.Tensor) -> None:
        """The hook: this gradient was added to."""
        if self.left[parameter] <= 0:
            raise AssertionError("gradients were computed more than backward_passes_per_step times before step(): raise "
                                 "backward_passes_per_step, or call step() or synchronize() more often")
        self.left[parameter] -= 1
        if self.left[parameter] == 0:
            with torch.no_grad():
                self.begin()
                self.put(parameter)
                flat, index = self.places[parameter]
                if flat.buckets is not None:
                    flat.buckets.ready(index)

    def finish(self) -> None:
        """Waits; every parameter's gradient is then the reduced one."""
        with torch.no_grad():
            self.begin()
            for parameter, left in self.left.items():
                if left > 0:  # it had no part in this step, or not all of its passes
                    self.put(parameter)
            for flat in self.flats:
                if flat.buckets is not None:
                    flat.buckets.finish()
            if self.call is not None:
                self.call.wait()
            for flat in self.flats:
                if self.predivide != 1.0:
                    flat.memory.mul_(self.predivide)
                for parameter, piece in zip(flat.parameters, flat.pieces):
                    hand_back(parameter, piece)
        self.reset()

    def reset(self) -> None:
        self.begun, self.call = False, None
        for parameter in self.left:
            self.left[parameter] = self.passes

    # ---- what the group asks of it ----

    def answer(self) -> None:
        """A rank that has joined takes part with zeros."""
        if self.world is not _core.world():
            self.attach(_core.world())
        for flat in self.flats:
            flat.memory.zero_()
            flat.buckets.begin(1.0)
        for flat in self.flats:
            flat.buckets.finish()

    def detach(self) -> None:
        """The group ends: gradients become the parameters' own, and the shared memory is let go."""
        for flat in self.flats:
            for parameter, piece in zip(flat.parameters, flat.pieces):
                if parameter.grad is not None and parameter.grad.data_ptr() == piece.data_ptr() and piece.numel():
                    parameter.grad = piece.clone()
            flat.let_go()
        self.world = None
        self.reset()


def hand_back(parameter: torch.Tensor, piece: torch.Tensor) -> None:
    """The reduced gradients, where the parameters have theirs."""
    if parameter.device.type == "cpu" and parameter.dtype == piece.dtype:
        parameter.grad = piece
    elif parameter.grad is None or parameter.grad.is_sparse:
        parameter.grad = piece.to(device=parameter.device, dtype=parameter.dtype)
    else:
        parameter.grad.copy_(piece)


def _watch(parameter: torch.Tensor, step: _Step) -> Any:
    """Calls step.ready when a gradient was accumulated; what must be kept for that."""
    reference = weakref.ref(step)

    def hook(*_: Any) -> None:
        alive = reference()
        if alive is not None and _core.is_initialized():
            alive.ready(parameter)

    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(hook)
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(hook)
    return accumulator


class _Distributed:
    """Mixed into the optimizer's own class."""

    _unisono_step: Any = None

    def synchronize(self) -> None:
        """Waits until all gradients are reduced (to clip them, say); then `with optimizer.skip_synchronize(): optimizer.step()`."""
        self._unisono_step.finish()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() in here takes the gradients as they are."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn("optimizer.step() reduces the gradients again after optimizer.synchronize(): use it in `with "
                              "optimizer.skip_synchronize()`", stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        if self._unisono_step.begun:
            raise AssertionError("optimizer.zero_grad() between loss.backward() and optimizer.step() would lose gradients that are under way")
        super().zero_grad(*arguments, **keywords)  # type: ignore[misc]

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._unisono_step.passes = passes
        self._unisono_step.reset()


def _check_names(optimizer: torch.optim.Optimizer, named: Any) -> None:
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters must be (name, parameter) pairs, usually model.named_parameters()")
    names = [name for name, _ in pairs]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError("named_parameters has names twice: %s" % ", ".join(double))
    known = {id(parameter) for _, parameter in pairs}
    missing = sum(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"])
    if missing:
        raise ValueError("named_parameters was given, but %d of the optimizer's parameters are not in it" % missing)


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Any = None, compression: Any = None, backward_passes_per_step: int = 1,
                         op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
                         sparse_as_dense: bool = False, process_set: Any = None) -> torch.optim.Optimizer:
    """The optimizer itself, whose step() takes the gradients of all ranks. num_groups and groups are accepted: buckets are cut by size."""
    check_process_set(process_set)
    op = choose_op(None, op)
    if op not in (Average, Sum):
        raise ValueError("gradients are reduced with hvd.Average or hvd.Sum, not with %r" % (op,))
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    _check_names(optimizer, named_parameters)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
    if getattr(compression, "__name__", "_NoCompression") == "_NoCompression":
        compression = None
    step = _Step(parameters, op, backward_passes_per_step, gradient_predivide_factor, compression)
    kind = type(optimizer)
    optimizer.__dict__.pop("step", None)  # a scheduler made before: its count of steps is lost, not ours
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer._unisono_step = step
    optimizer._unisono_hooks = [_watch(parameter, step) for parameter in parameters]
    optimizer._synchronized, optimizer._should_synchronize = False, True
    return optimizer
