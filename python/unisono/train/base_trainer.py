"""ray.train.base_trainer's place."""

from unisono.train._trainers import DataParallelTrainer as BaseTrainer
from unisono.train._trainers import TrainingFailedError

__all__ = ["BaseTrainer", "TrainingFailedError"]
