"""Horovod's TensorFlow flavour: `import unisono.horovod.tensorflow as hvd`. Works eagerly and inside of tf.function."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from unisono.extend import strict_module
from unisono.horovod import _core, _keras_optimizer, _numpy, _tensorflow
from unisono.horovod.tensorflow import elastic  # noqa: F401
from unisono.horovod._core import *  # noqa: F403
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op
from unisono.horovod._keras_callbacks import broadcast_variables  # noqa: F401
from unisono.horovod._tensorflow import Compression

__all__ = sorted(_core.__all__ + ["Compression", "DistributedGradientTape", "DistributedOptimizer", "allgather", "allreduce", "alltoall", "broadcast",
                                  "broadcast_variables", "elastic", "grouped_allreduce", "keras", "reducescatter"])


def _plain(compression: Any) -> Any:
    return None if compression in (None, Compression.none) else compression


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


def _averaged(gradient: Any) -> Any:
    return _tensorflow.reduce_tensors([tf.convert_to_tensor(gradient)], Average, _tensorflow.Reducer())[0]


def _rows_of(value: Any) -> list[Any]:
    return [None] + value.shape[1:].as_list()


def allgather(tensor: Any, name: str | None = None, process_set: Any = None) -> Any:
    """All ranks' tensors, one after the other along the first dimension, which may differ."""
    check_process_set(process_set)

    @tf.custom_gradient
    def with_gradient(value: Any) -> Any:
        def own_rows(gradient: Any) -> Any:  # as Horovod has it: this rank's rows of the average
            counts = _moved(_numpy.allgather, tf.reshape(tf.shape(value)[0], [1]), lambda _: [_core.size()])
            first = tf.reduce_sum(counts[:_core.rank()])
            return tf.ensure_shape(_averaged(gradient)[first:first + tf.shape(value)[0]], value.shape)

        return _moved(lambda array: _numpy.allgather(array, name), value, _rows_of), own_rows

    return with_gradient(tf.convert_to_tensor(tensor))


def broadcast(tensor: Any, root_rank: int, name: str | None = None, process_set: Any = None) -> Any:
    """The root's tensor on all ranks."""
    check_process_set(process_set)

    @tf.custom_gradient
    def with_gradient(value: Any) -> Any:
        def of_root(gradient: Any) -> Any:  # as Horovod has it: the average on the root, zero elsewhere
            reduced = _averaged(gradient)
            return reduced if _core.rank() == root_rank else reduced * 0

        return _moved(lambda array: _numpy.broadcast(array, root_rank, name), value, lambda given: given.shape), of_root

    return with_gradient(tf.convert_to_tensor(tensor))


def alltoall(tensor: Any, splits: Any = None, name: str | None = None, process_set: Any = None) -> Any:
    """Row blocks for every rank, in order; what the others had for this one (with splits: and how many rows from each)."""
    check_process_set(process_set)
    tensor = tf.convert_to_tensor(tensor)
    given = tf.convert_to_tensor(splits) if splits is not None else tf.fill([_core.size()], tf.shape(tensor)[0] // _core.size())
    if splits is None and tensor.shape[0] is not None and tensor.shape[0] % _core.size():
        raise ValueError("alltoall: %d rows cannot be cut in %d equal parts; give splits" % (tensor.shape[0], _core.size()))
    out, came = _alltoall(tensor, given, name)
    return out if splits is None else (out, came)


def _alltoall(tensor: Any, splits: Any, name: str | None) -> Any:
    @tf.custom_gradient
    def with_gradient(value: Any) -> Any:
        out, came = tf.numpy_function(lambda array, counts: _numpy.alltoall(array, counts, name), [value, splits], [value.dtype, tf.int32])
        out.set_shape(_rows_of(value))

        def back(gradient: Any, _: Any = None) -> Any:  # the way that the rows came
            returned, _ = tf.numpy_function(_numpy.alltoall, [gradient, came], [value.dtype, tf.int32])
            return tf.ensure_shape(returned, value.shape)

        return (out, came), back

    return with_gradient(tensor)


def reducescatter(tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: ReduceOp = Average, name: str | None = None,
                  process_set: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """This rank's rows of the reduction."""
    check_process_set(process_set)
    chosen, small = choose_op(None, op), _plain(compression)

    @tf.custom_gradient
    def with_gradient(value: Any) -> Any:
        def gathered(gradient: Any) -> Any:  # as Horovod has it: times the number of ranks for a sum
            factor = prescale_factor * postscale_factor * (_core.size() if chosen is Sum else 1)
            out = _moved(_numpy.allgather, gradient * tf.cast(factor, gradient.dtype), _rows_of)
            return tf.ensure_shape(out, value.shape)

        return _moved(lambda array: _numpy.reducescatter(array, chosen, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor), value,
                      _rows_of), gathered

    value, context = (tf.convert_to_tensor(tensor), None) if small is None else small.compress(tf.convert_to_tensor(tensor))
    out = with_gradient(value)
    return out if small is None else small.decompress(out, context)


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
        if not _core.stays_alone():
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
    from unisono.extend import complain

    return complain("unisono.horovod.tensorflow", name)


strict_module(globals())
