"""ray.data.extensions: columns of tensors in data frames."""

from unisono.data._incoming import TensorArray

__all__ = ["TensorArray"]
