"""Horovod's TensorFlow flavour: `import unisono.horovod.tensorflow as hvd`. Works eagerly and inside of tf.function."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from unisono.horovod import _core, _keras_optimizer, _numpy, _tensorflow
from unisono.horovod._core import *  # noqa: F401,F403
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op
from unisono.horovod._keras_callbacks import broadcast_variables  # noqa: F401
from unisono.horovod._tensorflow import Compression

__all__ = sorted(_core.__all__ + ["Compression", "DistributedGradientTape", "DistributedOptimizer", "allgather", "allreduce", "alltoall", "broadcast",
                                  "broadcast_variables", "grouped_allreduce", "keras", "reducescatter"])


def _plain(compression: Any) -> Any:
    return None if compression in (None, Compression.none) else compression


def _numpy_compression(compression: Any) -> Any:
    return _numpy.Compression.none if _plain(compression) is None else _numpy.Compression.fp16


def allreduce(tensor: Any, average: bool | None = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
              op: ReduceOp | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, name: str | None = None,
              process_set: Any = None) -> Any:
    """The average (or sum, min, max) of all ranks' tensors. Gradients flow through it."""
    check_process_set(process_set)
    chosen = choose_op(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        values = allgather(tensor.values) / (_core.size() if chosen is Average else 1)
        return tf.IndexedSlices(values, allgather(tensor.indices), dense_shape=tensor.dense_shape)

    def reduced(value: Any) -> Any:
        return _tensorflow.reduce_tensors([value], chosen, _tensorflow.Reducer(), True, prescale_factor, postscale_factor, _plain(compression))[0]

    @tf.custom_gradient
    def with_gradient(value: Any) -> Any:
        return reduced(value), reduced

    return with_gradient(tf.convert_to_tensor(tensor))


def grouped_allreduce(tensors: Sequence[Any], average: bool | None = None, device_dense: str = "", device_sparse: str = "",
                      compression: Any = Compression.none, op: ReduceOp | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: Any = None) -> list[Any]:
    """Many at once."""
    check_process_set(process_set)
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    return _tensorflow.reduce_tensors(given, choose_op(average, op), _tensorflow.Reducer(), True, prescale_factor, postscale_factor, _plain(compression))


def _moved(function: Any, tensor: Any, shape: Any) -> Any:
    tensor = tf.convert_to_tensor(tensor)
    out = tf.numpy_function(function, [tensor], tensor.dtype)
    out.set_shape(shape(tensor))
    return out


def allgather(tensor: Any, name: str | None = None, process_set: Any = None) -> Any:
    """All ranks' tensors, one after the other along the first dimension, which may differ. No gradient flows through it."""
    check_process_set(process_set)
    return _moved(lambda array: _numpy.allgather(array, name), tensor, lambda value: [None] + value.shape[1:].as_list())


def broadcast(tensor: Any, root_rank: int, name: str | None = None, process_set: Any = None) -> Any:
    """The root's tensor for everybody."""
    check_process_set(process_set)
    return _moved(lambda array: _numpy.broadcast(array, root_rank, name), tensor, lambda value: value.shape)


def alltoall(tensor: Any, splits: Any = None, name: str | None = None, process_set: Any = None) -> Any:
    """Row blocks for every rank, in order; what the others had for this one (with splits: and how many rows from each)."""
    check_process_set(process_set)
    tensor = tf.convert_to_tensor(tensor)
    if splits is None:
        return _moved(lambda array: _numpy.alltoall(array, None, name), tensor, lambda value: [None] + value.shape[1:].as_list())
    out, came = tf.numpy_function(lambda array, counts: _numpy.alltoall(array, counts, name), [tensor, tf.convert_to_tensor(splits)], [tensor.dtype, tf.int32])
    out.set_shape([None] + tensor.shape[1:].as_list())
    return out, came


def reducescatter(tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: ReduceOp = Average, name: str | None = None,
                  process_set: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """This rank's rows of the reduction."""
    check_process_set(process_set)

    def scattered(array: Any) -> Any:
        small, context = _numpy_compression(compression).compress(array)
        out = _numpy.reducescatter(small, op, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor)
        return _numpy_compression(compression).decompress(out, context)

    return _moved(scattered, tensor, lambda value: [None] + value.shape[1:].as_list())


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() gives the reduction of all ranks' gradients."""

    def __init__(self, gradtape: Any, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none, sparse_as_dense: bool = True,
                 op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None, process_set: Any = None):
        check_process_set(process_set)
        op = choose_op(None, op)
        if op not in (Average, Sum):
            raise ValueError("gradients are reduced with hvd.Average or hvd.Sum, not with %r" % (op,))
        self._tape, self._compression = gradtape, _plain(compression)
        self._op, self._prescale, self._postscale = _tensorflow.predivision(op, gradient_predivide_factor)
        self._reducer = _tensorflow.Reducer()

    def __enter__(self) -> Any:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **keywords: Any) -> Any:
        """The gradients, averaged over all ranks."""
        found = self._tape.gradient(target, sources, output_gradients, **keywords)
        gradients = tf.nest.flatten(found)
        if _core.size() > 1:
            gradients = _tensorflow.reduce_tensors(gradients, self._op, self._reducer, True, self._prescale, self._postscale, self._compression)
        return tf.nest.pack_sequence_as(found, gradients) if isinstance(found, (list, tuple, dict)) else gradients[0]


def DistributedOptimizer(optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
                         compression: Any = Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1, op: ReduceOp = Average,
                         gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None,
                         process_set: Any = None) -> Any:
    """Of Keras optimizers. (TensorFlow 1's tf.train optimizers are not offered.)"""
    return _keras_optimizer.distribute(optimizer, name, compression, op, gradient_predivide_factor, backward_passes_per_step,
                                       average_aggregated_gradients, process_set)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "keras":
        return importlib.import_module("unisono.horovod.tensorflow.keras")
    from unisono._missing import complain

    return complain("unisono.horovod.tensorflow", name)
