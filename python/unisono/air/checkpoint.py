"""ray.air.checkpoint's place."""

from unisono.train._checkpoint import Checkpoint  # noqa: F401
