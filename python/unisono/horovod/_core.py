"""Horovod's operations on unisono's own collectives, for anything that is a buffer; the flavours (torch, tensorflow, keras, numpy) wrap it.

All ranks call the same operations in the same order (docs/collectives.md). Before each of them goes one small reduction, the *call*: what is
done, and how many bytes each rank brings. It is what join() needs: a rank without data answers the others' calls with zeros until all have joined.
"""

from __future__ import annotations

import array
import functools
import hashlib
import threading
from typing import Any, Callable, TypeVar

from unisono import _codec, _key, _session

# Kinds of calls. 0: this rank has joined and calls nothing itself.
REDUCE, GATHER, BROADCAST, ALL_TO_ALL, SCATTER, BARRIER, STEP = range(1, 8)
_WORDS = 8  # kind, type, elements, reduction, root or bucket, the name's hash and its negative, then a place for each rank
_TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
REDUCIBLE = ("float32", "float64", "int32", "int64", "uint8")
SIZES = {"uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "uint32": 4, "int32": 4, "float32": 4,
         "uint64": 8, "int64": 8, "float64": 8}


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
_NO_WORD = -(1 << 62)  # of a rank that has joined: less than any hash
_Function = TypeVar("_Function", bound=Callable[..., Any])


def named(function: _Function) -> _Function:
    """Decorates an operation with an argument `name`. Horovod brings operations of the same name together; here the order of the calls does. A name that
    differs between the ranks is an error, because tensors that do not belong together would be added up."""
    place = function.__code__.co_varnames.index("name")

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


def _check_name(words: array.array, name: str | None) -> None:
    """After the exchange: the largest hash is also the smallest, or the ranks are not at the same operation."""
    if words[0] and words[5] != -words[6]:
        raise RuntimeError("this rank called an operation %s and another rank one of another name: all ranks must call the same operations in the "
                           "same order, because unisono.horovod brings them together by their order" % ("without a name" if name is None else "named %r" % name))


class _Call:
    """A call that is under way."""

    def __init__(self, request: Any, words: array.array, name: str | None):
        self.request, self.words, self.name = request, words, name

    def test(self) -> bool:
        return bool(self.request.test())

    def wait(self) -> None:
        self.request.wait()
        _check_name(self.words, self.name)


class _World:
    """This process among the ranks; `comm` is None in a world of one."""

    def __init__(self, here: Any):
        session = here.session if here is not None else None
        self.rank = session.world_rank if session else 0
        self.size = session.world_size if session else 1
        self.local_rank = session.local_rank if session else 0
        self.local_size = session.local_world_size if session else 1
        self.node = session.node_rank if session else 0
        self.comm = session.comm() if self.size > 1 else None
        self.secret = session.secret if session else None  # over several hosts: what pickles are authenticated with
        self.objects = 0  # that were sent so far, by all ranks in the same order
        self.lock = threading.RLock()
        self.steps: list[Any] = []  # weak references to what STEP i reduces: .answer() for a joined rank, .detach() at the end

    # ---- calls ----

    def words(self, kind: int, dtype: str = "uint8", count: int = 0, op: str = "sum", extra: int = 0, mine: int = 0) -> array.array:
        words = array.array("q", bytes(8 * (_WORDS + self.size)))
        words[0:5] = array.array("q", (kind, _TYPES.index(dtype), count, _WORDS_OF_OPS.index(op), extra))
        code = _hash(getattr(_called, "name", None)) if kind else _NO_WORD
        words[5], words[6] = code, -code if kind else _NO_WORD
        words[_WORDS + self.rank] = 2 * mine + (kind == 0)
        return words

    def call(self, kind: int, dtype: str = "uint8", count: int = 0, op: str = "sum", extra: int = 0, mine: int = 0) -> array.array:
        """Says what this rank does next; what each rank said, by rank, is in the last places."""
        words = self.words(kind, dtype, count, op, extra, mine)
        self.comm.all_reduce(words, words, "int64", "max")
        if kind:
            _check_name(words, getattr(_called, "name", None))
        return words

    def call_start(self, kind: int, dtype: str = "uint8", count: int = 0, op: str = "sum", extra: int = 0) -> Any:
        """The same without waiting: somebody must wait for the request."""
        words = self.words(kind, dtype, count, op, extra)
        return _Call(self.comm.all_reduce_start(words, words, "int64", "max"), words, getattr(_called, "name", None))

    def sizes(self, words: array.array) -> list[int]:
        """What each rank brings; 0 for those that have joined."""
        return [0 if word & 1 else word >> 1 for word in words[_WORDS:]]


_world: _World | None = None
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
        here = _session.current()
        _world = _World(here)
        if here is not None:
            here.at_end.append(shutdown)


def shutdown() -> None:
    """Leaves the group. Gradients that lie in shared memory become the program's own."""
    global _world
    gone, _world = _world, None
    if gone is not None and gone.comm is not None:
        for reference in gone.steps:
            step = reference()
            if step is not None:
                step.detach()
        gone.comm.close()


def is_initialized() -> bool:
    """Whether init was called."""
    return _world is not None


def rank() -> int:
    """This process's rank."""
    return world().rank


def size() -> int:
    """The number of processes."""
    return world().size


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


def reduce(source: Any, target: Any, dtype: str, op: ReduceOp) -> None:
    """target = the reduction of all ranks' source (the same object: in place). Integers are averaged by the caller."""
    here = world()
    if here.comm is None:
        if source is not target:
            _view(target)[:] = _view(source)
        return
    with here.lock:
        here.call(REDUCE, dtype, memoryview(source).nbytes // SIZES[dtype], op.word)
        here.comm.all_reduce(source, target, dtype, op.word)


def reduce_start(source: Any, target: Any, dtype: str, op: ReduceOp) -> list[Any]:
    """The same without waiting; what is returned must be waited for."""
    here = world()
    if here.comm is None:
        reduce(source, target, dtype, op)
        return []
    with here.lock:
        call = here.call_start(REDUCE, dtype, memoryview(source).nbytes // SIZES[dtype], op.word)
        return [here.comm.all_reduce_start(source, target, dtype, op.word), call]  # the call is waited for last: it may raise


def gather(source: Any) -> tuple[bytearray, list[int]]:
    """The bytes of all ranks one after the other, and how many each brought."""
    here, bytes_ = world(), _view(source)
    if here.comm is None:
        return bytearray(bytes_), [len(bytes_)]
    with here.lock:
        sizes = here.sizes(here.call(GATHER, mine=len(bytes_)))
        return _gather(here, bytes_, sizes), sizes


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


def broadcast(data: Any, root: int) -> None:
    """The root's bytes for everybody, in place."""
    here, view = world(), _view(data)
    _check_root(here, root)
    if here.comm is None:
        return
    with here.lock:
        here.call(BROADCAST, count=len(view), extra=root, mine=len(view))
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
        words = here.call(BROADCAST, count=count, extra=root, mine=count)
        buffer = bytearray(data) if here.rank == root and data is not None else bytearray(words[2])
        if buffer:
            here.comm.broadcast(buffer, root)
        return bytes(buffer)


def _check_root(here: _World, root: int) -> None:
    if not 0 <= root < here.size:
        raise ValueError("root_rank %r is not one of the ranks 0 to %d" % (root, here.size - 1))


def all_to_all(source: Any, splits: list[int]) -> tuple[bytearray, list[int]]:
    """splits[r] bytes of source go to rank r; what came, by rank, and how much from each."""
    here, view = world(), _view(source)
    if len(splits) != here.size or sum(splits) != len(view) or min(splits) < 0:
        raise ValueError("alltoall: splits must be %d numbers that add up to the first dimension" % here.size)
    if here.comm is None:
        return bytearray(view), list(splits)
    with here.lock:
        here.call(ALL_TO_ALL)
        return _all_to_all(here, view, splits)


def _all_to_all(here: _World, view: memoryview, splits: list[int]) -> tuple[bytearray, list[int]]:
    n = here.size
    table = array.array("q", bytes(8 * n * n))
    here.comm.all_gather(array.array("q", splits), table, "int64")
    came = [table[r * n + here.rank] for r in range(n)]
    most = max(table)
    if not most:
        return bytearray(), came
    sent, got, at = bytearray(most * n), bytearray(most * n), 0
    for r, length in enumerate(splits):
        sent[r * most:r * most + length] = view[at:at + length]
        at += length
    here.comm.all_to_all(sent, got, "uint8")
    return bytearray(b"".join(memoryview(got)[r * most:r * most + length] for r, length in enumerate(came))), came


def reduce_scatter(source: Any, target: Any, dtype: str, op: ReduceOp) -> None:
    """Part r of the reduction for rank r; the parts are equal."""
    here = world()
    if here.comm is None:
        _view(target)[:] = _view(source)
        return
    with here.lock:
        here.call(SCATTER, dtype, memoryview(source).nbytes // SIZES[dtype], op.word)
        here.comm.reduce_scatter(source, target, dtype, op.word)


def barrier(process_set: Any = None) -> None:
    """Returns when all ranks have come."""
    check_process_set(process_set)
    here = world()
    if here.comm is not None:
        with here.lock:
            here.call(BARRIER)


def _authenticated(here: _World, data: bytes, sender: int) -> bytes:
    """A pickle for other ranks. Between hosts it carries a MAC that is good for this call and this sender only: MPI's connections prove nothing."""
    if here.secret is None:
        return data
    return _key.mac(b"object %d of rank %d\0" % (here.objects, sender) + data, here.secret) + data


def _proved(here: _World, data: bytes, sender: int) -> Any:
    """The object of such a pickle, once it is known to be that rank's."""
    if here.secret is not None:
        code, data = data[:32], data[32:]
        if not _key.fits(b"object %d of rank %d\0" % (here.objects, sender) + data, code, here.secret):
            raise RuntimeError("an object of rank %d was changed or repeated on its way between the hosts: somebody may be in between; "
                               "it is not unpickled (unisono run --encrypt seals what MPI carries)" % sender)
    return _codec.loads(data)


@named
def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: Any = None) -> Any:
    """The root's object for everybody, by pickle (between the workers of one run only)."""
    check_process_set(process_set)
    here = world()
    here.objects += 1
    data = broadcast_bytes(_authenticated(here, _codec.dumps(obj), root_rank) if here.rank == root_rank else None, root_rank)
    return obj if here.rank == root_rank else _proved(here, data, root_rank)


@named
def allgather_object(obj: Any, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Every rank's object, by rank."""
    check_process_set(process_set)
    here = world()
    here.objects += 1
    data, sizes = gather(_authenticated(here, _codec.dumps(obj), here.rank))
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


def _answer(here: _World, words: array.array) -> None:
    """Takes part in what the others do."""
    kind, dtype, count, op, extra = words[0], _TYPES[words[1]], words[2], _WORDS_OF_OPS[words[3]], words[4]
    if kind == REDUCE:
        data = _neutral(dtype, count, op)
        here.comm.all_reduce(data, data, dtype, op)
    elif kind == GATHER:
        _gather(here, memoryview(b""), here.sizes(words))
    elif kind == BROADCAST:
        if extra == here.rank:
            here.comm.abort("rank %d has joined: it cannot be the root of a broadcast" % here.rank)
        if count:
            here.comm.broadcast(bytearray(count), extra)
    elif kind == ALL_TO_ALL:
        _all_to_all(here, memoryview(b""), [0] * here.size)
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
            words = here.call(0, mine=answered)
            places = words[_WORDS:]
            if all(word & 1 for word in places):
                return max(r for r, word in enumerate(places) if word == 1)
            _answer(here, words)
            answered += 1


# ---- what Horovod was built with, for scripts that ask ----


def _no() -> bool:
    return False


mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _no

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "ReduceOp", "allgather_object", "barrier", "broadcast_object", "ccl_built", "cross_rank",
           "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized",
           "join", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown",
           "size"]
