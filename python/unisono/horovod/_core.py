"""Horovod's operations on unisono's own collectives, for anything that is a buffer; the flavours (torch, tensorflow, keras, numpy) wrap it.

All ranks call the same operations in the same order (docs/collectives.md). Before each of them goes one small reduction, the *call*: a row of numbers for each rank, which says
what it does and with which type and shape. Every rank compares all rows before any data moves, so that ranks that do not fit together get the same error on all of them, and the
group can be used again. It is also what join() needs: a rank without data answers the others' calls with zeros until all have joined.

A rank that dies makes the calls of the others fail with a PeerLost, which is a HorovodInternalError: hvd.elastic (_elastic.py) goes on from there. Where ranks can come and go,
a communicator belongs to one group of them, which has a number; init() meets the present group, and reset() the one that follows it.
"""

from __future__ import annotations

import array
import functools
import hashlib
import math
import threading
import weakref
from typing import Any, Callable, Sequence, TypeVar

from unisono import Error
from unisono.extend import HARMLESS, INSTEAD, current_session, dumps, fits, loads, mac, strict

HARMLESS.update({
    "unisono.horovod.*": {
        "device_dense": "where TensorFlow places the operation: only speed",
        "device_sparse": "where TensorFlow places the operation: only speed",
        "sparse_as_dense": "how sparse gradients travel, not what they add up to",
        "num_groups": "how gradients are put together to travel; buckets are cut by size here",
        "groups": "how gradients are put together to travel; buckets are cut by size here",
        "use_locking": "of TensorFlow 1's optimizers, which are refused",
    },
    "unisono.horovod.tensorflow.allreduce": {"name": "labels an operation of the graph, which is the same on all ranks"},
    **{"unisono.horovod%s.join" % kind: {"device": "where the zeros of a rank without data are made: only speed"} for kind in ("", ".torch", ".tensorflow", ".keras")},
    "unisono.horovod.torch.broadcast_optimizer_state": {"model": "the state travels as a whole: no step of the model is needed to make it first"},
})
INSTEAD.update({
    "unisono.horovod%s.%s" % (kind, name): why for kind in ("", ".torch", ".keras", ".tensorflow") for name, why in (
        ("ProcessSet", "the ranks of the whole run: there is one process set"),
        ("add_process_set", "the ranks of the whole run: there is one process set"),
        ("start_timeline", "the reports and logs of the run (`unisono show`, `unisono logs`): there is no timeline"),
        ("run", "`unisono run -n N python script.py`, or a HorovodTrainer"))
})
INSTEAD["unisono.horovod.torch.SyncBatchNorm"] = "torch.nn.SyncBatchNorm in a TorchTrainer"

# Kinds of calls. 0: this rank has joined and calls nothing itself.
REDUCE, GATHER, BROADCAST, ALL_TO_ALL, SCATTER, BARRIER, STEP, ASK, BEGIN, END = range(1, 11)
_NAMES = {REDUCE: "allreduce", GATHER: "allgather", BROADCAST: "broadcast", ALL_TO_ALL: "alltoall", SCATTER: "reducescatter", BARRIER: "barrier",
          STEP: "a step of a DistributedOptimizer", ASK: "commit or check_host_updates of an elastic state",
          BEGIN: "the beginning of hvd.elastic.run", END: "the end of the function under hvd.elastic.run"}
_BARE = (BARRIER, STEP, ASK, BEGIN, END)
# Of a row: kind, type, reduction, root or number of the step, bytes, number of dimensions, dimensions, what a rank that has joined says, and the name's hash.
_KIND, _TYPE, _OP, _EXTRA, _BYTES, _DIMENSIONS, _SHAPE, _ANSWERED, _NAME, _ROW = 0, 1, 2, 3, 4, 5, 6, 22, 23, 24
_MOST_DIMENSIONS = _ANSWERED - _SHAPE
_MOST_STARTED = 12  # requests that are under way at once; fewer than the communicator has
_TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
REDUCIBLE = ("float32", "float64", "int32", "int64", "uint8")
SIZES = {"uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "uint32": 4, "int32": 4, "float32": 4,
         "uint64": 8, "int64": 8, "float64": 8}


class HorovodInternalError(RuntimeError):
    """A collective failed. The ranks do not call the same, and the group can be used again; or it is a PeerLost."""


class PeerLost(HorovodInternalError, Error):
    """Another rank died or left: this group's communicator is of no more use. hvd.elastic.run goes on with the ranks of the next group."""


class HostsUpdatedInterrupt(RuntimeError):
    """Ranks are to join or to leave. Nothing is lost: hvd.elastic.run lets them, and calls its function again. skip_sync: they only leave."""

    def __init__(self, skip_sync: bool = False):
        super().__init__("ranks are to %s the group" % ("leave" if skip_sync else "join"))
        self.skip_sync = skip_sync


class ReduceOp:
    """How values of all ranks become one."""

    def __init__(self, name: str, word: str):
        self.name, self.word = name, word

    def __repr__(self) -> str:
        return "hvd." + self.name

    def __reduce__(self):
        return _op_named, (self.name,)


Average, Sum = ReduceOp("Average", "mean"), ReduceOp("Sum", "sum")
Min, Max = ReduceOp("Min", "min"), ReduceOp("Max", "max")
Adasum, Product = ReduceOp("Adasum", ""), ReduceOp("Product", "")
_OPS = {op.name: op for op in (Average, Sum, Min, Max, Adasum, Product)}
_WORDS_OF_OPS = ["sum", "mean", "min", "max"]


def _op_named(name: str) -> ReduceOp:
    return _OPS[name]


def choose_op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    """`op`, or what the older `average` says; the average when neither is given."""
    if average is not None and op is not None:
        raise ValueError("give op or average, not both")
    if op is None:
        op = Sum if average is False else Average
    if not isinstance(op, ReduceOp) or not op.word:
        raise NotImplementedError("unisono.horovod reduces with hvd.Average, Sum, Min and Max, not with %r; the nearest is hvd.Average" % (op,))
    return op


def check_process_set(process_set: Any) -> None:
    """There is one process set, the whole run; another one is refused."""
    if process_set is not None and process_set is not global_process_set:
        raise NotImplementedError("unisono.horovod has one process set, of all ranks; hvd.ProcessSet is not offered")


# ---- names ----

_called = threading.local()  # the name of the operation that this thread is in
_Function = TypeVar("_Function", bound=Callable[..., Any])


def named(function: _Function) -> _Function:
    """Decorates an operation with an argument `name`. Horovod brings operations of the same name together; here the order of the calls does. A name that
    differs between the ranks is an error, because tensors that do not belong together would be added up."""
    place = function.__code__.co_varnames.index("name")
    function = strict()(function)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        before = getattr(_called, "name", None)
        _called.name = arguments[place] if place < len(arguments) else keywords.get("name", before)
        try:
            return function(*arguments, **keywords)
        finally:
            _called.name = before

    call.__reads__ = {"name"}  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _hash(name: str | None) -> int:
    return 0 if name is None else 1 + int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=7).digest(), "little")


# ---- losses ----

_LOSSES = ("EWORKER", "EPEER")


def as_lost(error: Error) -> Exception:
    """The PeerLost that the error means; the error itself when it is another one."""
    if isinstance(error, PeerLost) or getattr(error, "code", "") not in _LOSSES:
        return error
    lost = PeerLost(str(error))
    lost.code, lost.status, lost.message = error.code, error.status, error.message
    if _world is not None:
        _world.lost = lost
    return lost


class _Watched:
    """A communicator, or a part of one, whose losses are PeerLost."""

    def __init__(self, inner: Any):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.inner, name)
        if not callable(inner):
            return inner
        wraps = name in ("all_reduce_start", "buckets")

        def call(*arguments: Any) -> Any:
            try:
                out = inner(*arguments)
            except Error as error:
                raise as_lost(error) from None
            return _Watched(out) if wraps else out

        setattr(self, name, call)
        return call


# The session whose group this process has met, and that group's number.
_met: tuple[Any, int] | None = None


def _meet(session: Any, progress: int, follows: bool) -> tuple[Any, int]:
    """The communicator of the present group, or of the one that follows it; and its number. Waits for all its ranks."""
    global _met
    known = _met[1] if _met is not None and _met[0] is session else 0
    comm, number = session.meet(known if follows else max(known - 1, 0), progress)
    _met = session, number
    return comm, number


class _World:
    """This process among the ranks; `comm` is None in a world of one."""

    def __init__(self, here: Any, progress: int = -1, follows: bool = False):
        self.session = session = here.session if here is not None else None
        one_host = session is not None and session.secret is None
        self.elastic = one_host and (session.is_elastic or (_met is not None and _met[0] is session))
        self.group, self.lost = 0, None  # the number of the group, and the PeerLost that ended it
        self.node = session.node_rank if session else 0
        self.whole: Any = None  # what close() closes
        if self.elastic:
            comm, self.group = _meet(session, progress, follows)
            self.rank, self.size = self.local_rank, self.local_size = comm.rank, comm.size
            self.whole = comm
        else:
            self.rank, self.size = (session.world_rank, session.world_size) if session else (0, 1)
            self.local_rank, self.local_size = (session.local_rank, session.local_world_size) if session else (0, 1)
            self.whole = session.comm() if self.size > 1 else None
        self.comm = _Watched(self.whole) if self.size > 1 else None
        self.secret = session.secret if session else None  # over several hosts: what pickles are authenticated with
        self.objects = 0  # that were sent so far, by all ranks in the same order
        self.lock = threading.RLock()
        # Weak references to what STEP i reduces: .answer() for a joined rank, .detach() at the end. Optimizers outlive their world.
        self.steps: list[Any] = _steps
        self.started: list[Any] = []  # requests that were not waited for, oldest first

    # ---- calls ----

    def _rows(self, kind: int, dtype: str, shape: tuple[int, ...], op: str, extra: int, count: int, answered: int) -> array.array:
        rows, at = array.array("q", bytes(8 * _ROW * self.size)), _ROW * self.rank
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError("unisono.horovod: at most %d dimensions, not %d" % (_MOST_DIMENSIONS, len(shape)))
        rows[at:at + _SHAPE] = array.array("q", (kind, _TYPES.index(dtype), _WORDS_OF_OPS.index(op), extra, count, len(shape)))
        rows[at + _SHAPE:at + _SHAPE + len(shape)] = array.array("q", shape)
        rows[at + _ANSWERED] = answered
        rows[at + _NAME] = _hash(getattr(_called, "name", None)) if kind else 0
        return rows

    def call(self, kind: int, dtype: str = "uint8", shape: tuple[int, ...] = (), op: str = "sum", extra: int = 0, count: int = 0,
             answered: int = 0) -> list[array.array]:
        """Says what this rank does next, and hears it of the others: their rows, by rank. HorovodInternalError when they do not fit together."""
        table = self._rows(kind, dtype, shape, op, extra, count, answered)
        self.comm.all_reduce(table, table, "int64", "max")
        rows = [table[_ROW * rank:_ROW * (rank + 1)] for rank in range(self.size)]
        if kind:
            _check(rows)
        return rows

    def call_start(self, kind: int, extra: int = 0) -> Any:
        """The same without waiting, and without comparing: the caller must wait for the request."""
        table = self._rows(kind, "uint8", (), "sum", extra, 0, 0)
        return self.comm.all_reduce_start(table, table, "int64", "max")

    def start(self, request: Any) -> Any:
        """Notes a request. The oldest ones end when there are many, as long as that takes."""
        self.started = [each for each in self.started if not each.done]
        while len(self.started) >= _MOST_STARTED:
            self.started.pop(0).wait()
        started = _Started(request)
        self.started.append(started)
        return started


class _Started:
    """A request that may be ended by another thread than the one that asked."""

    def __init__(self, request: Any):
        self.request, self.done = request, False

    def test(self) -> bool:
        self.done = self.done or self.request.test()
        return self.done

    def wait(self) -> None:
        if not self.done:
            self.request.wait()
            self.done = True


def _described(row: array.array) -> str:
    kind = row[_KIND]
    if kind in _BARE:
        return _NAMES[kind]
    shape = tuple(row[_SHAPE:_SHAPE + row[_DIMENSIONS]])
    out = "%s of %s %s" % (_NAMES.get(kind, "call %d" % kind), _TYPES[row[_TYPE]], "x".join(map(str, shape)) if shape else "(no dimensions)")
    if kind in (REDUCE, SCATTER):
        out += " with %s" % _WORDS_OF_OPS[row[_OP]]
    return out + (" from rank %d" % row[_EXTRA] if kind == BROADCAST else "")


def _what(row: array.array) -> tuple[Any, ...]:
    """What must be the same on all ranks."""
    kind, shape = row[_KIND], tuple(row[_SHAPE:_SHAPE + row[_DIMENSIONS]])
    if kind in (GATHER, ALL_TO_ALL):  # first dimensions may differ
        return kind, row[_TYPE], len(shape), shape[1:]
    if kind == BROADCAST and row[_DIMENSIONS] == 0 and row[_TYPE] == 0:  # of an object: only the root knows its size
        return kind, row[_EXTRA], 0
    return kind, row[_TYPE], row[_OP], row[_EXTRA], shape


def _check(rows: list[array.array]) -> None:
    """All ranks see the same rows and come to the same end."""
    active = [(rank, row) for rank, row in enumerate(rows) if row[_KIND]]
    first, own = active[0]
    for rank, row in active[1:]:
        if _what(row) != _what(own):
            raise HorovodInternalError("the ranks do not call the same: rank %d calls %s, rank %d calls %s. No data was moved, and the group can be used "
                                       "again; let all ranks call the same operation with tensors of the same type and shape"
                                       % (first, _described(own), rank, _described(row)))
        if row[_KIND] == REDUCE and row[_BYTES] != own[_BYTES]:
            raise HorovodInternalError("the ranks do not reduce the same tensors: those of rank %d and of rank %d have other shapes" % (first, rank))
        if row[_NAME] != own[_NAME]:
            mine = getattr(_called, "name", None)
            raise HorovodInternalError("rank %d and rank %d called operations of another name, this rank one %s: all ranks must call the same operations in the "
                                       "same order, because unisono.horovod brings them together by their order"
                                       % (first, rank, "without a name" if mine is None else "named %r" % mine))
    joined = [rank for rank, row in enumerate(rows) if not row[_KIND]]
    if own[_KIND] == BROADCAST and own[_EXTRA] in joined:
        raise HorovodInternalError("broadcast from rank %d, which has joined and has nothing to send" % own[_EXTRA])


_world: _World | None = None
_steps: list[Any] = []
global_process_set = object()


def world() -> _World:
    """The communicator and ranks of this process; an error before init."""
    if _world is None:
        raise ValueError("unisono.horovod has not been initialized; call hvd.init() first")
    return _world


# ---- life ----


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins this process with the other ranks of its run: all of them call it. Outside of a run it is a world of one."""
    global _world
    if process_sets:
        raise NotImplementedError("unisono.horovod has one process set, of all ranks")
    if _world is None:
        here = current_session()
        _world = _World(here)
        if here is not None:
            here.at_end.append(_end)


def shutdown() -> None:
    """Leaves the group. Gradients that lie in shared memory become the program's own."""
    global _world
    gone, _world = _world, None
    if gone is None or gone.whole is None:
        return
    if gone.lost is not None:  # requests that will never be done are not waited for
        gone.whole.close()
    for reference in gone.steps:
        step = reference()
        if step is not None:
            step.detach()
    gone.whole.close()


def _end() -> None:
    """The session of this process ends."""
    shutdown()
    _steps.clear()


def number_step(step: Any) -> int:
    """Its place among those of this process. Other processes make the same ones in the same order."""
    for number, reference in enumerate(_steps):
        if reference() is step:
            return number
    _steps.append(weakref.ref(step))
    return len(_steps) - 1


def reset(progress: int) -> None:
    """Leaves the group and waits for the one that follows it. progress: how much this rank has saved; the rank with most becomes rank 0."""
    global _world
    shutdown()
    _steps[:] = [reference for reference in _steps if reference() is not None]
    _world = _World(current_session(), progress, True)


def ask(flags: int, kind: int = ASK) -> int:
    """The flags of all ranks together. All of them come to the same place of hvd.elastic."""
    here = world()
    if here.comm is None:
        return flags
    with here.lock:
        rows = here.call(kind, count=flags)
    return functools.reduce(lambda a, b: a | b, (row[_BYTES] for row in rows))


def is_initialized() -> bool:
    """Whether init was called."""
    return _world is not None


def rank() -> int:
    """This process's rank."""
    return world().rank


def size() -> int:
    """The number of processes."""
    return world().size


def stays_alone() -> bool:
    """Whether this process is, and will be, a world of one: a traced graph needs no reductions."""
    return world().size == 1 and not world().elastic


def local_rank() -> int:
    """This process's rank on its machine."""
    return world().local_rank


def local_size() -> int:
    """The number of processes on this machine."""
    return world().local_size


def cross_rank() -> int:
    """The number of this host."""
    return world().node


def cross_size() -> int:
    """How many hosts there are."""
    here = world()
    return max(1, here.size // here.local_size)


def is_homogeneous() -> bool:
    """Whether every machine has as many processes."""
    return world().size % world().local_size == 0


# ---- operations on buffers ----


def _view(data: Any) -> memoryview:
    return memoryview(data).cast("B")


def reduce(source: Any, target: Any, dtype: str, op: ReduceOp, shape: tuple[int, ...] | None = None) -> None:
    """target = the reduction of all ranks' source (the same object: in place). Integers are averaged by the caller."""
    here = world()
    if here.comm is None:
        if source is not target:
            _view(target)[:] = _view(source)
        return
    with here.lock:
        here.call(REDUCE, dtype, _shape_of(source, dtype, shape), op.word)
        here.comm.all_reduce(source, target, dtype, op.word)


def _shape_of(source: Any, dtype: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(shape) if shape is not None else (memoryview(source).nbytes // SIZES[dtype],)


def reduce_start(source: Any, target: Any, dtype: str, op: ReduceOp, shape: tuple[int, ...] | None = None) -> list[Any]:
    """The same without waiting for the result (but for the others to come this far); what is returned must be waited for."""
    here = world()
    if here.comm is None:
        reduce(source, target, dtype, op)
        return []
    with here.lock:
        here.call(REDUCE, dtype, _shape_of(source, dtype, shape), op.word)
        return [here.start(here.comm.all_reduce_start(source, target, dtype, op.word))]


def gather(source: Any, dtype: str = "uint8", shape: tuple[int, ...] | None = None) -> tuple[bytearray, list[int]]:
    """The bytes of all ranks one after the other, and how many rows (of bytes alone: bytes) each brought."""
    here, bytes_ = world(), _view(source)
    given = _shape_of(source, dtype, shape)
    if here.comm is None:
        return bytearray(bytes_), [given[0]]
    with here.lock:
        rows = here.call(GATHER, dtype, given, count=len(bytes_))
        return _gather(here, bytes_, [row[_BYTES] for row in rows]), [row[_SHAPE] if row[_KIND] else 0 for row in rows]


def _gather(here: _World, mine: memoryview, sizes: list[int]) -> bytearray:
    most = max(sizes)
    out = bytearray(most * here.size)
    if not most:
        return out
    if len(mine) < most:
        padded = bytearray(most)
        padded[:len(mine)] = mine
        mine = memoryview(padded)
    here.comm.all_gather(mine, out, "uint8")
    if min(sizes) == most:
        return out
    return bytearray(b"".join(memoryview(out)[i * most:i * most + size] for i, size in enumerate(sizes)))


def broadcast(data: Any, root: int, dtype: str, shape: tuple[int, ...]) -> None:
    """The root's bytes on all ranks, in place."""
    here, view = world(), _view(data)
    _check_root(here, root)
    if here.comm is None:
        return
    with here.lock:
        # An offset, so that a tensor without dimensions is not taken for an object.
        here.call(BROADCAST, dtype, (*shape, 1), extra=root, count=len(view))
        if len(view):
            here.comm.broadcast(view, root)


def broadcast_bytes(data: bytes | None, root: int) -> bytes:
    """The same when only the root knows how many."""
    here = world()
    _check_root(here, root)
    if here.comm is None:
        return data or b""
    with here.lock:
        count = len(data) if here.rank == root and data is not None else 0
        rows = here.call(BROADCAST, extra=root, count=count)
        buffer = bytearray(data) if here.rank == root and data is not None else bytearray(rows[root][_BYTES])
        if buffer:
            here.comm.broadcast(buffer, root)
        return bytes(buffer)


def _check_root(here: _World, root: int) -> None:
    if not 0 <= root < here.size:
        raise ValueError("root_rank %r is not one of the ranks 0 to %d" % (root, here.size - 1))


def all_to_all(source: Any, splits: list[int], dtype: str, shape: tuple[int, ...]) -> tuple[bytearray, list[int]]:
    """splits[r] rows of source go to rank r; what came, by rank, and how many rows from each."""
    here, view = world(), _view(source)
    if len(splits) != here.size or sum(splits) != shape[0] or min(splits) < 0:
        raise ValueError("alltoall: splits must be %d numbers that add up to the first dimension" % here.size)
    if here.comm is None:
        return bytearray(view), list(splits)
    with here.lock:
        here.call(ALL_TO_ALL, dtype, shape)
        return _all_to_all(here, view, splits, SIZES[dtype] * row_width(shape))


def _all_to_all(here: _World, view: memoryview, splits: list[int], width: int) -> tuple[bytearray, list[int]]:
    n = here.size
    table = array.array("q", bytes(8 * n * n))
    here.comm.all_gather(array.array("q", splits), table, "int64")
    came = [table[r * n + here.rank] for r in range(n)]
    most = max(table) * width
    if not most:
        return bytearray(), came
    sent, got, at = bytearray(most * n), bytearray(most * n), 0
    for r, length in enumerate(count * width for count in splits):
        sent[r * most:r * most + length] = view[at:at + length]
        at += length
    here.comm.all_to_all(sent, got, "uint8")
    return bytearray(b"".join(memoryview(got)[r * most:r * most + count * width] for r, count in enumerate(came))), came


def reduce_scatter(source: Any, target: Any, dtype: str, op: ReduceOp, shape: tuple[int, ...] | None = None) -> None:
    """Part r of the reduction for rank r; the parts are equal."""
    here = world()
    if here.comm is None:
        _view(target)[:] = _view(source)
        return
    with here.lock:
        here.call(SCATTER, dtype, _shape_of(source, dtype, shape), op.word)
        here.comm.reduce_scatter(source, target, dtype, op.word)


def barrier(process_set: Any = None) -> None:
    """Returns when all ranks have come."""
    check_process_set(process_set)
    here = world()
    if here.comm is not None:
        with here.lock:
            here.call(BARRIER)


def row_width(shape: Sequence[int]) -> int:
    """Elements of one row of a tensor, whether it has rows or not."""
    return math.prod(shape[1:])


def _authenticated(here: _World, data: bytes, sender: int) -> bytes:
    """A pickle for other ranks. Between hosts it carries a MAC that is good for this call and this sender only: MPI's connections prove nothing."""
    if here.secret is None:
        return data
    return mac(b"object %d of rank %d\0" % (here.objects, sender) + data, here.secret) + data


def _proved(here: _World, data: bytes, sender: int) -> Any:
    """The object of such a pickle, once it is known to be that rank's."""
    if here.secret is not None:
        code, data = data[:32], data[32:]
        if not fits(b"object %d of rank %d\0" % (here.objects, sender) + data, code, here.secret):
            raise RuntimeError("an object of rank %d was changed or repeated on its way between the hosts: possible man in the middle; "
                               "it is not unpickled (unisono run --encrypt seals what MPI carries)" % sender)
    return loads(data)


@named
def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: Any = None) -> Any:
    """The root's object on all ranks, by pickle (between the workers of one run only)."""
    check_process_set(process_set)
    here = world()
    here.objects += 1
    data = broadcast_bytes(_authenticated(here, dumps(obj), root_rank) if here.rank == root_rank else None, root_rank)
    return obj if here.rank == root_rank else _proved(here, data, root_rank)


@named
def allgather_object(obj: Any, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Every rank's object, by rank."""
    check_process_set(process_set)
    here = world()
    here.objects += 1
    data, sizes = gather(_authenticated(here, dumps(obj), here.rank))
    out, at = [], 0
    for rank, length in enumerate(sizes):
        if length:  # a rank that has joined brings nothing
            out.append(_proved(here, bytes(data[at:at + length]), rank))
        at += length
    return out


# ---- ranks that have no more data ----


def _neutral(dtype: str, count: int, op: str) -> bytearray:
    """What changes no reduction."""
    if op in ("sum", "mean") or not count:
        return bytearray(count * SIZES[dtype])
    letter = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B"}[dtype]
    low, high = {"f": (float("-inf"), float("inf")), "d": (float("-inf"), float("inf")), "i": (-(1 << 31), (1 << 31) - 1),
                 "q": (-(1 << 63), (1 << 63) - 1), "B": (0, 255)}[letter]
    return bytearray(array.array(letter, [high if op == "min" else low]).tobytes() * count)


def _answer(here: _World, rows: list[array.array]) -> None:
    """Takes part in what the others do."""
    row = next(row for row in rows if row[_KIND])
    kind, dtype, op, extra = row[_KIND], _TYPES[row[_TYPE]], _WORDS_OF_OPS[row[_OP]], row[_EXTRA]
    count = math.prod(row[_SHAPE:_SHAPE + row[_DIMENSIONS]])
    if kind == REDUCE:
        data = _neutral(dtype, count, op)
        here.comm.all_reduce(data, data, dtype, op)
    elif kind == GATHER:
        _gather(here, memoryview(b""), [each[_BYTES] for each in rows])
    elif kind == BROADCAST:
        if rows[extra][_BYTES]:
            here.comm.broadcast(bytearray(rows[extra][_BYTES]), extra)
    elif kind == ALL_TO_ALL:
        width = SIZES[dtype] * math.prod(row[_SHAPE + 1:_SHAPE + row[_DIMENSIONS]])
        _all_to_all(here, memoryview(b""), [0] * here.size, width)
    elif kind == SCATTER:
        here.comm.reduce_scatter(_neutral(dtype, count, op), bytearray(count // here.size * SIZES[dtype]), dtype, op)
    elif kind == STEP:
        here.steps[extra]().answer()


def join(device: Any = -1) -> int:
    """For a rank without more data: answers the others' operations with zeros until all ranks have joined. The rank that joined last."""
    here = world()
    if here.comm is None:
        return 0
    answered = 0  # how many operations of the others; 0 on all ranks that joined last
    with here.lock:
        while True:
            rows = here.call(0, answered=answered + 1)
            if not any(row[_KIND] for row in rows):
                return max(rank for rank, row in enumerate(rows) if row[_ANSWERED] == 1)
            answered += 1
            try:
                _check(rows)
            except HorovodInternalError:  # the others hear of it, too
                continue
            _answer(here, rows)


# ---- what Horovod was built with, for scripts that ask ----


def _no() -> bool:
    return False


mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _no

__all__ = ["Adasum", "Average", "HorovodInternalError", "Max", "Min", "Product", "Sum", "ReduceOp", "allgather_object", "barrier", "broadcast_object", "ccl_built", "cross_rank",
           "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized",
           "join", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown",
           "size"]
