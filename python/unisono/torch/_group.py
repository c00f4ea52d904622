"""ProcessGroupUnisono: torch.distributed's interface of a group, on a queue of unisono's collectives.

Tensors are used where they lie; only one that is not contiguous, and lists of tensors, are copied. A call that the program does not wait for is driven by
the queue's own thread (python/extension/comm_queue.c).
"""

from __future__ import annotations

import atexit
import weakref
from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from unisono.torch._meeting import give_back, open_comm
from unisono.torch._work import Handle as _Work, close, hand_out

# src/comm/kinds.h
ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, SEND, RECV = range(1, 10)
# include/unisono/comm.h
_SUM, _MEAN, _MIN, _MAX, _PRODUCT, _AND, _OR, _XOR = range(1, 9)
_OPS = {"SUM": _SUM, "AVG": _MEAN, "MIN": _MIN, "MAX": _MAX, "PRODUCT": _PRODUCT, "BAND": _AND, "BOR": _OR, "BXOR": _XOR}
# include/unisono/array.h
_U8, _B8 = 7, 11
_TYPES = {torch.float32: 1, torch.float64: 2, torch.int8: 3, torch.int16: 4, torch.int32: 5, torch.int64: 6, torch.uint8: _U8, torch.bool: _B8,
          torch.float16: 12, torch.bfloat16: 13}
for _name, _number in (("uint16", 8), ("uint32", 9), ("uint64", 10)):
    if hasattr(torch, _name):
        _TYPES[getattr(torch, _name)] = _number
_WITHOUT_LIMIT = -1


def _op_of(given: Any, tensor: torch.Tensor) -> int:
    """The number of a ReduceOp."""
    name = str(getattr(given, "op", given)).rpartition(".")[2]
    if name not in _OPS:
        raise NotImplementedError("unisono's groups reduce with SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR and BXOR, not with %s" % name)
    if tensor.dtype == torch.bool and name in ("SUM", "AVG"):
        raise TypeError("unisono's groups do not add up torch.bool: use MAX for 'any', MIN for 'all', or convert to torch.uint8")
    if tensor.dtype.is_complex and name not in ("SUM", "AVG"):
        raise TypeError("complex tensors have only the reductions SUM and AVG, not %s" % name)
    return _OPS[name]


def _single(tensors: Sequence[torch.Tensor], what: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError("%s: a process has one tensor, not %d" % (what, len(tensors)))
    return tensors[0]


def _check(tensor: torch.Tensor, what: str) -> None:
    if tensor.device.type != "cpu":
        raise ValueError("%s: unisono's groups move tensors of the CPU, not of %s; use the backend nccl for those" % (what, tensor.device))
    if tensor.layout != torch.strided:
        raise ValueError("%s: the tensor is sparse (%s): convert it with to_dense(), or use the backend gloo" % (what, tensor.layout))


class _Part:
    """A tensor as the library sees it: an address, a number of elements of a type. A tensor that is not contiguous is copied, and copied back."""

    __slots__ = ("tensor", "used", "count", "dtype")

    def __init__(self, tensor: torch.Tensor, what: str, reduced: bool = False):
        _check(tensor, what)
        plain = torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor
        self.tensor = plain
        self.used = plain if plain.is_contiguous() else plain.contiguous()
        self.count = plain.numel()
        number = _TYPES.get(plain.dtype, 0)
        if number == _B8 and reduced:
            number = _U8
        if not number:
            if reduced:
                raise TypeError("%s: unisono's groups do not reduce %s" % (what, plain.dtype))
            number, self.count = _U8, self.count * plain.element_size()
        self.dtype = number

    @property
    def address(self) -> int:
        return self.used.data_ptr()

    def copy_back(self) -> None:
        if self.used is not self.tensor:
            self.tensor.copy_(self.used)


def _copies(parts: Sequence[_Part]) -> Callable[[], None] | None:
    copied = [part for part in parts if part.used is not part.tensor]
    if not copied:
        return None

    def finish() -> None:
        for part in copied:
            part.copy_back()

    return finish


_open: Any = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Threads that are in the library must be out of it when the interpreter goes."""
    for group in list(_open):
        group.shutdown()


def _end(group: ProcessGroupUnisono | None) -> None:
    """The session ends before a group that was not destroyed."""
    if group is not None:
        group.shutdown()


class ProcessGroupUnisono(dist.ProcessGroup):
    """A group of ranks. Made by dist.init_process_group("unisono") and dist.new_group(backend="unisono")."""

    _ended = True  # until it has been opened

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta):
        super().__init__(rank, size)
        self._here, self._all = rank, size
        self._comm, self._session = open_comm(store, rank, size, timeout)
        self._queue = self._comm.queue()
        self._sequence, self._ended = 0, False
        _open.add(self)
        if self._session is not None:
            mine = weakref.ref(self)
            self._session.at_end.append(lambda: _end(mine()))

    def __del__(self) -> None:
        if not self._ended:
            self.shutdown()

    # ---- what torch asks a group ----

    def getBackendName(self) -> str:
        """"unisono", for C++ code."""
        return "unisono"

    def name(self) -> str:
        """"unisono"."""
        return "unisono"

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._here

    def size(self) -> int:
        """The number of ranks."""
        return self._all

    # torch keeps names in backends that are registered below a group; this group is its own backend.
    _group_name = _group_desc = ""

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    def getGroupName(self) -> str:
        """As group_name, for C++ code."""
        return self._group_name

    def getGroupDesc(self) -> str:
        """As group_desc, for C++ code."""
        return self._group_desc

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def _get_backend(self, device: Any) -> ProcessGroupUnisono:
        """torch asks it what the group can do besides moving tensors."""
        if torch.device(device).type != "cpu":
            raise RuntimeError("unisono's groups move tensors of the CPU, not of %s" % device)
        return self

    supports_coalescing = supports_splitting = supports_shrinking = supports_window = False

    def supports_tensor_alloc(self, device: Any = None) -> bool:
        """Tensors are allocated by torch."""
        return False

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def set_timeout(self, timeout: timedelta) -> None:
        """Refused: it is set when the group is made."""
        raise NotImplementedError("the timeout of a unisono group is set when it is made: dist.init_process_group(timeout=...)")

    def shutdown(self) -> None:
        """Leaves the group; operations under way fail."""
        if self._ended:
            return
        self._ended = True
        close(self._queue)
        self._comm.close()
        give_back(self._session)

    def abort(self) -> None:
        """As shutdown; ranks that wait for this one get an error that names it."""
        self.shutdown()

    # ---- how calls are made ----

    def _start(self, kind: int, source: int, target: int, count: int, dtype: int, op: int, root: int, at_once: bool, keep: Any) -> Any:
        self._sequence += 1
        return self._queue.put(kind, source, target, count, dtype, op, root, _WITHOUT_LIMIT if at_once else 0, keep)

    def _one(self, kind: int, source: _Part, target: _Part | None, count: int, op: int, root: int, opts: Any, result: Any,
             finish: Callable[[], None] | None = None) -> _Work:
        """A call with one input and one output, each a whole tensor. opts.asyncOp says (since 2.8) whether the program waits at once."""
        at_once = getattr(opts, "asyncOp", True) is False
        call = self._start(kind, source.address, target.address if target is not None else 0, count, source.dtype, op, root, at_once, (source.used, target and target.used))
        return hand_out(self._queue, (call,), result, finish)

    # ---- reductions ----

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """all_reduce."""
        part = _Part(_single(tensors, "all_reduce"), "all_reduce", True)
        op = _op_of(opts.reduceOp if opts is not None else "SUM", tensors[0])
        return self._one(ALL_REDUCE, part, part, part.count, op, 0, opts, list(tensors), _copies((part,)))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """all_reduce of each tensor."""
        parts = [_Part(tensor, "all_reduce_coalesced", True) for tensor in tensors]
        ops = [_op_of(opts.reduceOp if opts is not None else "SUM", tensor) for tensor in tensors]
        calls = [self._start(ALL_REDUCE, part.address, part.address, part.count, part.dtype, op, 0, False, part.used) for part, op in zip(parts, ops)]
        return hand_out(self._queue, calls, list(tensors), _copies(parts))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> _Work:
        """reduce: the result is on the root."""
        part = _Part(_single(tensors, "reduce"), "reduce", True)
        root = opts.rootRank
        return self._one(REDUCE, part, part if root == self._here else None, part.count, _op_of(opts.reduceOp, tensors[0]), root, opts, list(tensors),
                         _copies((part,)) if root == self._here else None)

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> _Work:
        return self._scatter_sums([output], [source], opts, output)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> _Work:
        """reduce_scatter_tensor."""
        return self._scatter_sums([output], [source], opts, output)

    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """reduce_scatter_tensor of each pair."""
        return self._scatter_sums(outputs, inputs, opts, list(outputs))

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None) -> _Work:
        """reduce_scatter of a list of tensors."""
        target = _single(outputs, "reduce_scatter")
        for each in inputs[0]:
            _check(each, "reduce_scatter")
        self._expect(len(inputs[0]), "reduce_scatter", "inputs")
        if any(each.shape != target.shape or each.dtype != target.dtype for each in inputs[0]):
            raise ValueError("reduce_scatter: all inputs need the shape and type of the output, %s of %s" % (tuple(target.shape), target.dtype))
        return self._scatter_sums([target], [torch.stack(list(inputs[0]))], opts, list(outputs))

    def _scatter_sums(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any, result: Any) -> _Work:
        calls, targets = [], []
        for output, source in zip(outputs, inputs, strict=True):
            into, given = _Part(output, "reduce_scatter", True), _Part(source, "reduce_scatter", True)
            self._fits(given, into, "reduce_scatter", "input", "output")
            op = _op_of(opts.reduceOp if opts is not None else "SUM", source)
            calls.append(self._start(REDUCE_SCATTER, given.address, into.address, into.count, given.dtype, op, 0, False, (given.used, into.used)))
            targets.append(into)
        return hand_out(self._queue, calls, result, _copies(targets))

    # ---- what only moves data ----

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> _Work:
        """broadcast from the root."""
        part = _Part(_single(tensors, "broadcast"), "broadcast")
        return self._one(BROADCAST, part, part, part.count, 0, opts.rootRank, opts, list(tensors), _copies((part,)) if opts.rootRank != self._here else None)

    def _allgather_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> _Work:
        return self._gather_all([output], [source], output)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> _Work:
        """all_gather_into_tensor."""
        return self._gather_all([output], [source], output)

    def allgather_into_tensor_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """all_gather_into_tensor of each pair."""
        return self._gather_all(outputs, inputs, list(outputs))

    def allgather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """all_gather into a list of tensors."""
        _single(inputs, "all_gather")
        return self._gather_lists([outputs[0]], inputs, list(outputs), "all_gather")

    def allgather_coalesced(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """outputs[rank][tensor]."""
        self._expect(len(outputs), "all_gather_coalesced", "lists of outputs")
        return self._gather_lists(list(zip(*outputs, strict=True)), inputs, [list(each) for each in outputs], "all_gather_coalesced")

    def _gather_all(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], result: Any) -> _Work:
        calls, targets = [], []
        for output, source in zip(outputs, inputs, strict=True):
            into, given = _Part(output, "all_gather"), _Part(source, "all_gather")
            self._fits(into, given, "all_gather", "output", "input")
            calls.append(self._start(ALL_GATHER, given.address, into.address, given.count, given.dtype, 0, 0, False, (given.used, into.used)))
            targets.append(into)
        return hand_out(self._queue, calls, result, _copies(targets))

    def _gather_lists(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], result: Any, what: str) -> _Work:
        """Each input into a list of outputs, one a rank."""
        flats, calls = [], []
        for targets, source in zip(outputs, inputs, strict=True):
            self._expect(len(targets), what, "outputs")
            for target in targets:
                _check(target, what)
                if target.dtype != source.dtype or target.numel() != source.numel():
                    raise ValueError("%s: the outputs need the type and the size of the input, %s with %d elements; one is %s with %d"
                                     % (what, source.dtype, source.numel(), target.dtype, target.numel()))
            given = _Part(source, what)
            flat = torch.empty((self._all, *source.shape), dtype=source.dtype)
            flats.append(flat)
            calls.append(self._start(ALL_GATHER, given.address, _Part(flat, what).address, given.count, given.dtype, 0, 0, False, (given.used, flat)))

        def finish() -> None:
            for targets, flat in zip(outputs, flats):
                for target, row in zip(targets, flat):
                    target.copy_(row.reshape(target.shape))

        return hand_out(self._queue, calls, result, finish)

    def gather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any) -> _Work:
        """As all_gather; the other ranks forget what they got."""
        source = _single(inputs, "gather")
        mine = opts.rootRank == self._here
        targets = outputs[0] if mine and outputs else [torch.empty_like(source) for _ in range(self._all)]
        return self._gather_lists([targets], inputs, [list(targets)] if mine else [], "gather")

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any) -> _Work:
        """The root's tensors travel together; each rank keeps its own."""
        target = _single(outputs, "scatter")
        _check(target, "scatter")
        flat = torch.empty((self._all, *target.shape), dtype=target.dtype)
        if opts.rootRank == self._here:
            self._expect(len(inputs[0]), "scatter", "inputs")
            for each in inputs[0]:
                _check(each, "scatter")
                if each.shape != target.shape or each.dtype != target.dtype:
                    raise ValueError("scatter: all inputs need the shape and type of the output, %s of %s" % (tuple(target.shape), target.dtype))
            torch.stack(list(inputs[0]), out=flat)
        part = _Part(flat, "scatter")

        def finish() -> None:
            target.copy_(flat[self._here])

        return self._one(BROADCAST, part, part, part.count, 0, opts.rootRank, opts, list(outputs), finish)

    def barrier(self, opts: Any = None) -> _Work:
        """Waits for all ranks."""
        call = self._start(BARRIER, 0, 0, 0, _U8, 0, 0, getattr(opts, "asyncOp", True) is False, None)
        return hand_out(self._queue, (call,), [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the rank that is missing, as those of every operation here do."""
        call = self._start(BARRIER, 0, 0, 0, _U8, 0, 0, False, None)
        hand_out(self._queue, (call,), []).wait(*([timeout] if timeout is not None else []))

    # ---- blocks for each rank ----

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None) -> _Work:
        """all_to_all_single."""
        rows_out, rows_in = self._rows(output, output_splits, "output"), self._rows(source, input_splits, "input")
        outputs, inputs = list(output.split(rows_out)) if output.dim() else [output], list(source.split(rows_in)) if source.dim() else [source]
        if not output_splits and not input_splits:
            into, given = _Part(output, "all_to_all"), _Part(source, "all_to_all")
            if into.count != given.count or into.dtype != given.dtype:
                raise ValueError("all_to_all: without sizes of the parts, input and output need the same size and type")
            call = self._start(ALL_TO_ALL, given.address, into.address, given.count // self._all, given.dtype, 0, 0, False, (given.used, into.used))
            return hand_out(self._queue, (call,), output, _copies((into,)))
        return self._exchange(outputs, inputs, output)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Work:
        """all_to_all of a list of tensors."""
        self._expect(len(outputs), "all_to_all", "outputs")
        self._expect(len(inputs), "all_to_all", "inputs")
        return self._exchange(outputs, inputs, list(outputs))

    def _rows(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 0
        if splits:
            self._expect(len(splits), "all_to_all", "sizes of %s parts" % what)
            if sum(splits) != rows:
                raise ValueError("all_to_all: the sizes of the %s's parts add up to %d, its first dimension is %d" % (what, sum(splits), rows))
            return list(splits)
        if rows % self._all:
            raise ValueError("all_to_all: the %s's first dimension, %d, cannot be cut in %d equal parts" % (what, rows, self._all))
        return [rows // self._all] * self._all

    def _exchange(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], result: Any) -> _Work:
        """Blocks of any size: all ranks first tell each other the sizes, so that a size that does not fit is an error on all of them. Then all blocks travel
        as blocks of the largest size."""
        for each in (*outputs, *inputs):
            _check(each, "all_to_all")
        kinds = {each.dtype for each in (*outputs, *inputs)}
        if len(kinds) != 1:
            raise ValueError("all_to_all: all tensors need one type, not %s" % ", ".join(sorted(map(str, kinds))))
        dtype = kinds.pop()
        mine = torch.tensor([[each.numel() for each in inputs], [each.numel() for each in outputs]], dtype=torch.int64)
        table = torch.empty((self._all, 2, self._all), dtype=torch.int64)
        self._gather_all([table], [mine], table).wait()
        for sender in range(self._all):
            for receiver in range(self._all):
                given, wanted = int(table[sender, 0, receiver]), int(table[receiver, 1, sender])
                if given != wanted:
                    raise RuntimeError("all_to_all: rank %d sends %d elements to rank %d, which has room for %d; no data was moved" % (sender, given, receiver, wanted))
        most = int(table[:, 0].max())
        packed, got = torch.zeros((self._all, most), dtype=dtype), torch.empty((self._all, most), dtype=dtype)
        for row, each in zip(packed, inputs):
            row[:each.numel()] = each.reshape(-1)
        given_part, got_part = _Part(packed, "all_to_all"), _Part(got, "all_to_all")
        call = self._start(ALL_TO_ALL, given_part.address, got_part.address, given_part.count // self._all, given_part.dtype, 0, 0, False, (packed, got))

        def finish() -> None:
            for row, each in zip(got, outputs):
                each.copy_(row[:each.numel()].reshape(each.shape))

        return hand_out(self._queue, (call,), result, finish)

    # ---- messages ----

    def send(self, tensors: Sequence[torch.Tensor], to: int, tag: int = 0) -> _Work:
        """send and isend."""
        part = _Part(_single(tensors, "send"), "send")
        self._no_tag(tag)
        return hand_out(self._queue, (self._start(SEND, part.address, 0, part.count, part.dtype, 0, to, False, part.used),), list(tensors))

    def recv(self, tensors: Sequence[torch.Tensor], source: int, tag: int = 0) -> _Work:
        """recv and irecv."""
        part = _Part(_single(tensors, "recv"), "recv")
        self._no_tag(tag)
        call = self._start(RECV, 0, part.address, part.count, part.dtype, 0, source, False, part.used)
        return hand_out(self._queue, (call,), list(tensors), _copies((part,)))

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> _Work:
        """Refused: the source must be named."""
        raise NotImplementedError("unisono's groups receive from a rank that is named: dist.recv(tensor, src=...); the backend gloo receives from any")

    def _no_tag(self, tag: int) -> None:
        if tag:
            raise NotImplementedError("messages of unisono's groups have no tags (tag=%d): between two ranks they arrive in the order in which they were sent; "
                                      "use a group of its own, or the backend gloo" % tag)

    # ---- sizes ----

    def _expect(self, count: int, what: str, name: str) -> None:
        if count != self._all:
            raise ValueError("%s: %d %s for %d ranks" % (what, count, name, self._all))

    def _fits(self, large: _Part, small: _Part, what: str, large_name: str, small_name: str) -> None:
        if large.dtype != small.dtype or large.count != small.count * self._all:
            raise ValueError("%s: the %s must have the %s's type and %d times its size: it is %s with %d elements, not %s with %d"
                             % (what, large_name, small_name, self._all, large.tensor.dtype, large.tensor.numel(), small.tensor.dtype, small.tensor.numel()))
