"""ray.train.data_parallel_trainer's place."""

from unisono.train._trainers import DataParallelTrainer  # noqa: F401

__all__ = ["DataParallelTrainer"]
