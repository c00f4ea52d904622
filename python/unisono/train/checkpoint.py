"""ray.train.checkpoint's place (v1)."""

from unisono.train._v1 import CheckpointManager, CheckpointStrategy  # noqa: F401

__all__ = ["CheckpointManager", "CheckpointStrategy"]
