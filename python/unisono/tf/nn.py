"""tf.nn: averages of losses over the global batch, and activations."""

from __future__ import annotations

from typing import Any

from unisono.keras._tensor import Tensor, raw_of, tape_for
from unisono.keras.ops import elu, gelu, log_softmax, relu, selu, sigmoid, silu, softmax, softplus, tanh  # noqa: F401


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None) -> Tensor:
    """sum(per_example_loss * sample_weight) / global_batch_size; without it: the samples here times the replicas."""
    from unisono.tf import distribute

    loss, weights = raw_of(per_example_loss), None if sample_weight is None else raw_of(sample_weight)
    if global_batch_size is None:
        if not per_example_loss.shape:
            raise ValueError("compute_average_loss needs one loss a sample: make the loss with reduction=Reduction.NONE")
        global_batch_size = per_example_loss.shape[0] * distribute.get_strategy().num_replicas_in_sync
    if int(global_batch_size) < 1:
        raise ValueError("global_batch_size must be positive, not %r" % (global_batch_size,))
    return Tensor(tape_for().average_loss(loss, weights, int(global_batch_size)))


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """The loss divided by the number of replicas, which all add it."""
    from unisono.keras.ops import sum as add_up
    from unisono.tf import distribute

    if isinstance(regularization_loss, (list, tuple)):
        total = regularization_loss[0]
        for each in regularization_loss[1:]:
            total = total + each
        regularization_loss = total
    return add_up(regularization_loss) * (1.0 / distribute.get_strategy().num_replicas_in_sync)
