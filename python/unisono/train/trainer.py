"""ray.train.trainer's place (v1)."""

from unisono.ray.v1 import Trainer, TrainingIterator

__all__ = ["Trainer", "TrainingIterator"]
