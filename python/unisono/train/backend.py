"""ray.train.backend's place."""

from unisono.train._backend import Backend, BackendConfig  # noqa: F401

__all__ = ["Backend", "BackendConfig"]
