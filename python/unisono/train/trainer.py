"""ray.train.trainer's place (v1)."""

from unisono.train._v1 import Trainer, TrainingIterator  # noqa: F401

__all__ = ["Trainer", "TrainingIterator"]
