"""unisono.train.horovod: Horovod's own programs."""

from unisono.train._backend import HorovodConfig
from unisono.train._trainers import HorovodTrainer

__all__ = ["HorovodConfig", "HorovodTrainer"]
