"""ray.train.checkpoint's place (v1)."""

from unisono.ray.v1 import CheckpointManager, CheckpointStrategy

__all__ = ["CheckpointManager", "CheckpointStrategy"]
