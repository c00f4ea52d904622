"""unisono.air: the names of Ray AIR (2.0 to 2.6)."""

from unisono.air import session
from unisono.train._checkpoint import Checkpoint
from unisono.train._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from unisono.train._result import Result

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig", "session"]


def __getattr__(name):
    import importlib

    if name in ("config", "checkpoint", "result", "integrations"):
        return importlib.import_module("unisono.air." + name)
    from unisono._missing import complain

    return complain("unisono.air", name)
