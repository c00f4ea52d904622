"""unisono.train: trainers, what a train function calls, and their configurations (Ray Train v1, and 2.x)."""

from unisono._session import (get_checkpoint, get_dataset_shard, load_checkpoint, local_rank, report, save_checkpoint, should_stop, world_rank,
                              world_size)

# name -> the module that has it; imported when it is first used.
_LAZY = {
    "Trainer": "_v1", "TrainingIterator": "_v1", "CheckpointStrategy": "_v1", "BackendConfig": "_backend", "Backend": "_backend",
    "TrainingCallback": "callbacks", "SessionMisuseError": "error", "get_accelerator": "session", "set_accelerator": "session",
    "Checkpoint": "_checkpoint", "Result": "_result", "TrainingFailedError": "_trainers",
    "ScalingConfig": "_config", "RunConfig": "_config", "FailureConfig": "_config", "CheckpointConfig": "_config", "SyncConfig": "_config",
    "DataConfig": "_config",
    "get_context": "_context", "TrainContext": "_context",
    "DataParallelTrainer": "_trainers",
}
_SUBMODULES = {"torch", "tensorflow", "horovod", "callbacks", "data_parallel_trainer", "trainer", "checkpoint", "constants", "base_trainer",
               "backend", "error", "session"}
__all__ = sorted(set(_LAZY) | {"get_checkpoint", "get_dataset_shard", "load_checkpoint", "local_rank", "report", "save_checkpoint",
                               "should_stop", "world_rank", "world_size"})


def __getattr__(name):
    import importlib

    if name in _LAZY:
        value = getattr(importlib.import_module("unisono.train." + _LAZY[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module("unisono.train." + name)
    from unisono._missing import complain

    return complain("unisono.train", name)
