"""ray.air.result's place."""

from unisono.train._result import Result  # noqa: F401
