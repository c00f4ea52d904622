"""ray.data.dataset: the module that scripts import Dataset from."""

from unisono.data._dataset import Dataset

__all__ = ["Dataset"]
