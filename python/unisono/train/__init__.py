"""unisono.train: trainers, what a train function calls, and their configurations (Ray Train v1, and 2.x)."""

from typing import TYPE_CHECKING, Any

from unisono._arguments import strict_module
from unisono._session import (get_checkpoint as get_checkpoint, get_dataset_shard as get_dataset_shard, get_state as get_state, load_checkpoint as load_checkpoint,
                              local_rank as local_rank, report as report, save_checkpoint as save_checkpoint, set_state as set_state, should_stop as should_stop,
                              world_rank as world_rank, world_size as world_size)

if TYPE_CHECKING:  # what __getattr__ finds when it is asked for
    from unisono.train._backend import Backend as Backend, BackendConfig as BackendConfig
    from unisono.train._checkpoint import Checkpoint as Checkpoint
    from unisono.train._config import (CheckpointConfig as CheckpointConfig, DataConfig as DataConfig, FailureConfig as FailureConfig,
                                       RunConfig as RunConfig, ScalingConfig as ScalingConfig, SyncConfig as SyncConfig)
    from unisono.train._context import TrainContext as TrainContext, get_context as get_context
    from unisono.train._result import Result as Result
    from unisono.train._trainers import DataParallelTrainer as DataParallelTrainer, TrainingFailedError as TrainingFailedError
    from unisono.ray.v1 import CheckpointStrategy as CheckpointStrategy, Trainer as Trainer, TrainingIterator as TrainingIterator
    from unisono.train.callbacks import TrainingCallback as TrainingCallback
    from unisono.train.error import SessionMisuseError as SessionMisuseError
    from unisono.train.session import get_accelerator as get_accelerator, set_accelerator as set_accelerator

# name -> the module that has it; imported when it is first used.
_LAZY = {
    "Trainer": "unisono.ray.v1", "TrainingIterator": "unisono.ray.v1", "CheckpointStrategy": "unisono.ray.v1", "BackendConfig": "_backend", "Backend": "_backend",
    "TrainingCallback": "callbacks", "SessionMisuseError": "error", "get_accelerator": "session", "set_accelerator": "session",
    "Checkpoint": "_checkpoint", "Result": "_result", "TrainingFailedError": "_trainers",
    "ScalingConfig": "_config", "RunConfig": "_config", "FailureConfig": "_config", "CheckpointConfig": "_config", "SyncConfig": "_config",
    "DataConfig": "_config",
    "get_context": "_context", "TrainContext": "_context",
    "DataParallelTrainer": "_trainers",
}
_SUBMODULES = {"torch", "tensorflow", "horovod", "callbacks", "data_parallel_trainer", "trainer", "checkpoint", "constants", "base_trainer",
               "backend", "error", "session"}
__all__ = sorted(set(_LAZY) | {"get_checkpoint", "get_dataset_shard", "get_state", "load_checkpoint", "local_rank", "report", "save_checkpoint", "set_state",
                               "should_stop", "world_rank", "world_size"})


def __getattr__(name: str) -> Any:
    from unisono._lazy import find

    return find("unisono.train", name, _LAZY, _SUBMODULES)


strict_module(globals())
