"""ray.data.preprocessor: the class that preprocessors are made of."""

from unisono.data.preprocessors import Preprocessor

__all__ = ["Preprocessor"]
