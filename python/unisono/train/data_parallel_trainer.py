"""ray.train.data_parallel_trainer's place."""

from unisono.train._trainers import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
