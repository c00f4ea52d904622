"""ray.train.base_trainer's place."""

from unisono.train._trainers import DataParallelTrainer as BaseTrainer  # noqa: F401
from unisono.train._trainers import TrainingFailedError  # noqa: F401

__all__ = ["BaseTrainer", "TrainingFailedError"]
