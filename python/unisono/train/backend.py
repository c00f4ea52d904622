"""ray.train.backend's place."""

from unisono.train._backend import Backend, BackendConfig

__all__ = ["Backend", "BackendConfig"]
