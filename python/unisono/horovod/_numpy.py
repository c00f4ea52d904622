"""The flavour for NumPy arrays, and what the others share."""

from __future__ import annotations

from typing import Any, Sequence

from unisono.horovod import _core
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op


class _NoCompression:
    """Values travel as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tensor


class _HalfCompression:
    """Values are rounded to 16 bits, as Horovod does to save bytes (in shared memory there is nothing to save: only the rounding is kept)."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        import numpy

        dtype = tensor.dtype
        return (tensor.astype(numpy.float16), dtype) if dtype.kind == "f" and dtype.itemsize > 2 else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tensor if context is None else tensor.astype(context)


class Compression:
    """What travels: none (as it is) or fp16."""

    none, fp16 = _NoCompression, _HalfCompression


def flat(array: Any) -> Any:
    """The array's own memory as bytes; it must be contiguous."""
    import numpy

    return array.reshape(-1).view(numpy.uint8)


def scaled(array: Any, factor: float) -> Any:
    """array times factor in the array's type. Integers are multiplied as float64 and lose their fraction, as in Horovod."""
    import numpy

    if factor == 1.0:
        return array
    if array.dtype.kind in "iub":
        return numpy.trunc(array.astype(numpy.float64) * factor).astype(array.dtype)
    return (array * array.dtype.type(factor)).astype(array.dtype)


def name_of(dtype: Any) -> str:
    """The type's name; a TypeError when ranks cannot exchange it."""
    if dtype.name not in _core.SIZES:
        raise TypeError("unisono.horovod does not move %s: convert it to one of %s" % (dtype.name, ", ".join(sorted(_core.SIZES))))
    return dtype.name


def _averaged(total: Any, postscale: float) -> Any:
    """Integers: the sum over the number of ranks, without its fraction."""
    import numpy

    size = _core.size()
    return scaled(total, postscale / size) if postscale != 1.0 else numpy.sign(total) * (numpy.abs(total) // size)


def reduce_array(array: Any, op: ReduceOp, in_place: bool = False, postscale: float = 1.0) -> Any:
    """The reduction of all ranks' arrays, times postscale, in the array's own type."""
    import numpy

    array = numpy.ascontiguousarray(array).reshape(array.shape)
    name = name_of(array.dtype)
    if name not in _core.REDUCIBLE:  # 16-bit floats and small integers are added up in a wider type
        wide = array.astype(numpy.float32 if array.dtype.kind not in "iub" else numpy.int64)
        return reduce_array(wide, op, True, postscale).astype(array.dtype)
    out = array if in_place and array.flags.writeable else numpy.empty_like(array)
    whole = op is Average and array.dtype.kind != "f"
    _core.reduce(flat(array), flat(out), name, Sum if whole else op, array.shape)
    return _averaged(out, postscale) if whole else scaled(out, postscale)


@_core.named
def allreduce(tensor: Any, average: bool | None = None, name: str | None = None, compression: Any = Compression.none, op: ReduceOp | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: Any = None) -> Any:
    """The average (or sum, min, max) of all ranks' arrays."""
    import numpy

    check_process_set(process_set)
    chosen = choose_op(average, op)
    array, context = compression.compress(numpy.asarray(tensor))
    out = reduce_array(scaled(array, prescale_factor), chosen, False, postscale_factor)
    return compression.decompress(out, context)


def grouped_allreduce(tensors: Sequence[Any], average: bool | None = None, name: str | None = None, compression: Any = Compression.none,
                      op: ReduceOp | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: Any = None) -> list[Any]:
    """allreduce of several arrays in one go."""
    return [allreduce(tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set) for tensor in tensors]


def rows(data: bytearray, dtype: Any, count: int, rest: tuple[int, ...]) -> Any:
    """Bytes as an array of so many rows."""
    import numpy

    out = numpy.frombuffer(data, numpy.uint8).view(dtype) if data else numpy.empty(0, dtype)
    return out.reshape((count,) + tuple(rest))


@_core.named
def allgather(tensor: Any, name: str | None = None, process_set: Any = None) -> Any:
    """All ranks' arrays, one after the other along the first dimension, which may differ."""
    import numpy

    check_process_set(process_set)
    array = numpy.ascontiguousarray(tensor)
    data, counts = _core.gather(flat(array), name_of(array.dtype), array.shape)
    return rows(data, array.dtype, sum(counts), array.shape[1:])


def grouped_allgather(tensors: Sequence[Any], name: str | None = None, process_set: Any = None) -> list[Any]:
    """allgather of several arrays."""
    return [allgather(tensor, name, process_set) for tensor in tensors]


@_core.named
def broadcast(tensor: Any, root_rank: int, name: str | None = None, process_set: Any = None) -> Any:
    """The root's array on all ranks; shapes and types are the same on all ranks."""
    import numpy

    check_process_set(process_set)
    out = numpy.array(tensor, order="C")
    _core.broadcast(flat(out), root_rank, name_of(out.dtype), out.shape)
    return out


def split_rows(splits: Any, count: int) -> list[int]:
    """Rows for each rank; None: equal parts."""
    size = _core.size()
    if splits is None:
        if count % size:
            raise ValueError("alltoall: %d rows cannot be cut in %d equal parts; give splits" % (count, size))
        return [count // size] * size
    return [int(rows_) for rows_ in splits]


@_core.named
def alltoall(tensor: Any, splits: Any = None, name: str | None = None, process_set: Any = None) -> Any:
    """Row blocks for every rank, in order; what the others had for this one (with splits: and how many rows from each)."""
    import numpy

    check_process_set(process_set)
    array = numpy.ascontiguousarray(tensor)
    data, came = _core.all_to_all(flat(array), split_rows(splits, len(array)), name_of(array.dtype), array.shape)
    out = rows(data, array.dtype, sum(came), array.shape[1:])
    return out if splits is None else (out, numpy.array(came, numpy.int32))


@_core.named
def reducescatter(tensor: Any, op: ReduceOp = Average, name: str | None = None, process_set: Any = None, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> Any:
    """This rank's rows of the reduction; the first ranks have one more when they do not divide evenly."""
    import numpy

    check_process_set(process_set)
    op, size, rank = choose_op(None, op), _core.size(), _core.rank()
    array = numpy.ascontiguousarray(tensor)
    array = scaled(array, prescale_factor)
    if len(array) % size or array.dtype.name not in _core.REDUCIBLE or (op is Average and array.dtype.kind != "f"):
        base, more = divmod(len(array), size)
        first = rank * base + min(rank, more)
        return reduce_array(array, op, False, postscale_factor)[first:first + base + (rank < more)]
    else:
        out = numpy.empty((len(array) // size,) + array.shape[1:], array.dtype)
        _core.reduce_scatter(flat(array), flat(out), array.dtype.name, op, array.shape)
    return scaled(out, postscale_factor)
