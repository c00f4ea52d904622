"""Horovod's Keras flavour: `import unisono.horovod.keras as hvd`. For Keras 3 (on TensorFlow or PyTorch), whose Model.fit no longer runs under
TensorFlow's MultiWorkerMirroredStrategy; unisono.horovod.tensorflow.keras is the same for whatever tf.keras is."""

from __future__ import annotations

import sys
from typing import Any

import keras

from unisono.extend import strict_module
from unisono.horovod import _core, _keras_callbacks, _keras_elastic, _keras_optimizer, _numpy
from unisono.horovod._core import *  # noqa: F403
from unisono.horovod._keras_callbacks import broadcast_variables
from unisono.horovod._keras_optimizer import distribute as DistributedOptimizer
from unisono.horovod._tensorflow import Compression  # noqa: F401

callbacks = _keras_callbacks.callbacks_for(keras, __name__ + ".callbacks")
sys.modules[__name__ + ".callbacks"] = callbacks
elastic = _keras_elastic.elastic_for(keras, __name__ + ".elastic")
sys.modules[__name__ + ".elastic"] = elastic
__all__ = sorted(_core.__all__ + ["Compression", "DistributedOptimizer", "allgather", "allreduce", "broadcast", "broadcast_global_variables",
                                  "broadcast_variables", "callbacks", "elastic", "load_model", "reducescatter"])


def allreduce(value: Any, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              op: Any = None, compression: Any = None) -> Any:
    """Of arrays, numbers or tensors; a NumPy array."""
    how = _numpy.Compression.none if getattr(compression, "__name__", "_NoCompression") == "_NoCompression" else _numpy.Compression.fp16
    return _numpy.allreduce(_array(value), average, name, how, op, prescale_factor, postscale_factor)


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks, one behind the other."""
    return _numpy.allgather(_array(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value everywhere."""
    return _numpy.broadcast(_array(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: Any = _core.Average) -> Any:
    """The reduced value, a part for every rank."""
    return _numpy.reducescatter(_array(value), op, name)


def _array(value: Any) -> Any:
    import numpy

    return numpy.asarray(value.numpy() if hasattr(value, "numpy") else value)


def broadcast_global_variables(root_rank: int, model: Any = None) -> None:
    """Keras has no global variables any more: give the model, or use the callback."""
    if model is None:
        raise ValueError("broadcast_global_variables needs model=; or use callbacks.BroadcastGlobalVariablesCallback(0)")
    broadcast_variables(_keras_callbacks.variables_of(model), root_rank)


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, compression: Any = None, **keywords: Any) -> Any:
    """keras.models.load_model, with a DistributedOptimizer made of the saved optimizer. Its state is kept."""
    model = keras.models.load_model(filepath, custom_objects=_keras_optimizer.custom(custom_optimizers, custom_objects), **keywords)
    if getattr(model, "optimizer", None) is not None:
        plain = model.optimizer
        model.optimizer = DistributedOptimizer(plain, compression=compression)
        model.optimizer.build(model.trainable_variables)
        for mine, saved in zip(model.optimizer.variables, plain.variables):
            mine.assign(saved)
    return model


def __getattr__(name: str) -> Any:
    from unisono.extend import complain

    return complain("unisono.horovod.keras", name)


strict_module(globals())
