"""ray.air.config's place."""

from unisono.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig  # noqa: F401
