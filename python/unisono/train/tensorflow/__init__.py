"""unisono.train.tensorflow: what a TensorFlow train function uses."""

from __future__ import annotations

from typing import Any

from unisono import _same_keras
from unisono._arguments import strict
from unisono.train._backend import TensorflowConfig
from unisono.train._trainers import TensorflowTrainer
from unisono.train.tensorflow._checkpoint import TensorflowCheckpoint
from unisono.train.tensorflow._resumable import resumable

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard", "resumable"]

_same_keras.use()


@strict()
def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """Turns TensorFlow's automatic sharding off: the data of this worker is its shard already."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)


def __getattr__(name):
    import importlib

    if name == "keras":
        return importlib.import_module("unisono.train.tensorflow.keras")
    from unisono._missing import complain

    return complain("unisono.train.tensorflow", name)
