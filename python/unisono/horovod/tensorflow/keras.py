"""`import unisono.horovod.tensorflow.keras as hvd`: the Keras flavour for what tf.keras is here (Keras 3, or tf_keras with TF_USE_LEGACY_KERAS=1)."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from unisono.horovod import _core, _keras_callbacks, _keras_elastic, _keras_optimizer
from unisono.horovod._core import *  # noqa: F403
from unisono.horovod._keras_callbacks import broadcast_variables
from unisono.horovod.tensorflow import Compression, DistributedOptimizer, allgather, allreduce, broadcast, reducescatter  # noqa: F401

callbacks = _keras_callbacks.callbacks_for(tf.keras, __name__ + ".callbacks")
sys.modules[__name__ + ".callbacks"] = callbacks
elastic = _keras_elastic.elastic_for(tf.keras, __name__ + ".elastic")
sys.modules[__name__ + ".elastic"] = elastic
__all__ = sorted(_core.__all__ + ["Compression", "DistributedOptimizer", "allgather", "allreduce", "broadcast", "broadcast_global_variables",
                                  "broadcast_variables", "callbacks", "elastic", "load_model", "reducescatter"])


def broadcast_global_variables(root_rank: int, model: Any = None) -> None:
    """Keras has no global variables any more: give the model, or use the callback."""
    if model is None:
        raise ValueError("broadcast_global_variables needs model=; or use callbacks.BroadcastGlobalVariablesCallback(0)")
    broadcast_variables(_keras_callbacks.variables_of(model), root_rank)


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, compression: Any = None, **keywords: Any) -> Any:
    """tf.keras.models.load_model, with a DistributedOptimizer made of the saved optimizer."""
    model = tf.keras.models.load_model(filepath, custom_objects=_keras_optimizer.custom(custom_optimizers, custom_objects), **keywords)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model


def __getattr__(name: str) -> Any:
    from unisono.extend import complain

    return complain("unisono.horovod.tensorflow.keras", name)
