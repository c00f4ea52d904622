"""ray.air.checkpoint's place."""

from unisono.train import Checkpoint  # noqa: F401
