"""ray.data.extensions: columns of tensors in data frames."""

from unisono.data._convert import TensorArray

__all__ = ["TensorArray"]
