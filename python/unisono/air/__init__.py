"""unisono.air: the names of Ray AIR (2.0 to 2.6)."""

from unisono.air import session
from unisono.extend import complain
from unisono.train import Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig", "session"]


def __getattr__(name):
    import importlib

    if name in ("config", "checkpoint", "result", "integrations"):
        return importlib.import_module("unisono.air." + name)
    return complain("unisono.air", name)
