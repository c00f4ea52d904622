"""ray.air.config's place."""

from unisono.train._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig  # noqa: F401
