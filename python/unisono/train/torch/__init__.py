"""unisono.train.torch: what a PyTorch train function uses. torch itself is imported when a function needs it."""

from unisono.train._backend import TorchConfig
from unisono.train._trainers import TorchTrainer
from unisono.train.torch._checkpoint import TorchCheckpoint
from unisono.train.torch._helpers import (TorchWorkerProfiler, accelerate, backward, enable_reproducibility, get_device, get_devices,
                                          prepare_data_loader, prepare_model, prepare_optimizer)
from unisono.train.torch._resumable import resumable

__all__ = ["TorchCheckpoint", "TorchConfig", "TorchTrainer", "TorchWorkerProfiler", "accelerate", "backward", "enable_reproducibility", "get_device", "get_devices",
           "prepare_data_loader", "prepare_model", "prepare_optimizer", "resumable"]


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.train.torch", name)
