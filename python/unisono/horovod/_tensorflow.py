"""What the TensorFlow and Keras flavours share: gradients of a whole step in one call.

Inside of a tf.function the collectives are a NumPy function: all gradients of a step go in, are copied into the flat buffer that the ranks share,
reduced there in place, and come out as pieces of that buffer. TensorFlow runs such functions one after the other, in the order of the program, so that
all ranks have the same order.
"""

from __future__ import annotations

import zlib
from typing import Any, Sequence

from unisono.horovod import _core, _numpy
from unisono.horovod._core import Average, ReduceOp


class _HalfCompression:
    """Values are rounded to 16 bits, as Horovod does to save bytes (in shared memory there is nothing to save: only the rounding is kept)."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype in (tf.float32, tf.float64) else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        import tensorflow as tf

        return tensor if context is None else tf.cast(tensor, context)


class Compression:
    """What travels: none (as it is) or fp16."""

    none, fp16 = _numpy.Compression.none, _HalfCompression


class Flat:
    """The gradients of one model and type in memory that all ranks reduce in place."""

    def __init__(self) -> None:
        self.layout: Any = None
        self.world: Any = None
        self.memory: Any = None
        self.number = -1

    def _lay_out(self, world: Any, arrays: Sequence[Any]) -> None:
        import numpy

        self.layout = [(array.shape, array.dtype.name) for array in arrays]
        self.world, total = world, sum(array.size for array in arrays)
        dtype = arrays[0].dtype
        self.shared = world.comm.alloc(max(1, total * dtype.itemsize))
        self.memory = numpy.frombuffer(self.shared, dtype=dtype, count=total)
        self.pieces, at = [], 0
        for array in arrays:
            self.pieces.append(self.memory[at:at + array.size].reshape(array.shape))
            at += array.size

    def reduce(self, arrays: Sequence[Any], op: ReduceOp, copy: bool) -> list[Any]:
        """All of one type. Without copy the answers are good until the next call."""
        world = _core.world()
        if world.comm is None:
            return list(arrays)
        with world.lock:
            if self.world is not world or self.layout != [(array.shape, array.dtype.name) for array in arrays]:
                self._lay_out(world, arrays)
            for piece, array in zip(self.pieces, arrays):
                piece[...] = array
            # count tells layouts apart that have as many elements.
            world.call(_core.REDUCE, arrays[0].dtype.name, (self.memory.size,), op.word, count=zlib.crc32(repr(self.layout).encode()))
            world.comm.all_reduce(self.memory, self.memory, arrays[0].dtype.name, op.word)
            return [piece.copy() for piece in self.pieces] if copy else list(self.pieces)


class Reducer:
    """Lists of arrays of any types; one Flat for each type."""

    def __init__(self) -> None:
        self.flats: dict[str, Flat] = {}

    def __call__(self, arrays: Sequence[Any], op: ReduceOp, copy: bool = True) -> list[Any]:
        out: list[Any] = [None] * len(arrays)
        for name in sorted({array.dtype.name for array in arrays}):
            places = [index for index, array in enumerate(arrays) if array.dtype.name == name]
            mine = [arrays[index] for index in places]
            if name in ("float32", "float64"):
                done = self.flats.setdefault(name, Flat()).reduce(mine, op, copy)
            else:
                done = [_numpy.reduce_array(array, op) for array in mine]
            for index, array in zip(places, done):
                out[index] = array
        return out


def _scaled(tf: Any, tensor: Any, factor: float) -> Any:
    """Integers are multiplied as float64 and lose their fraction, as in Horovod."""
    if tensor.dtype.is_floating:
        return tensor * tf.cast(factor, tensor.dtype)
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _dense(tf: Any, gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def reduce_tensors(tensors: Sequence[Any], op: ReduceOp, reducer: Reducer, copy: bool = True, prescale: float = 1.0, postscale: float = 1.0,
                   compression: Any = None) -> list[Any]:
    """TensorFlow tensors (None stays None), inside of a tf.function or not."""
    import tensorflow as tf

    places = [index for index, tensor in enumerate(tensors) if tensor is not None]
    given = [_dense(tf, tensors[index]) for index in places]
    if not given:
        return list(tensors)
    contexts = [None] * len(given)
    if compression is not None:
        given, contexts = map(list, zip(*(compression.compress(tensor) for tensor in given)))
    if prescale != 1.0:
        given = [_scaled(tf, tensor, prescale) for tensor in given]

    def run(*arrays: Any) -> list[Any]:
        return reducer(arrays, op, copy)

    if tf.executing_eagerly():
        done = [tf.convert_to_tensor(array) for array in run(*(tensor.numpy() for tensor in given))]
    else:
        done = tf.numpy_function(run, given, [tensor.dtype for tensor in given])
        done = [done] if not isinstance(done, (list, tuple)) else list(done)
    out = list(tensors)
    for index, source, tensor, context in zip(places, given, done, contexts):
        tensor.set_shape(source.shape)
        if postscale != 1.0:
            tensor = _scaled(tf, tensor, postscale)
        out[index] = tensor if compression is None else compression.decompress(tensor, context)
    return out


def predivision(op: ReduceOp, factor: float) -> tuple[ReduceOp, float, float]:
    """gradient_predivide_factor: a part of the division before the sum, the rest after it."""
    if factor == 1.0:
        return op, 1.0, 1.0
    if op is not Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    return Average, 1.0 / factor, factor  # the average knows how many ranks there are when it is made
