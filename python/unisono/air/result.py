"""ray.air.result's place."""

from unisono.train import Result  # noqa: F401
