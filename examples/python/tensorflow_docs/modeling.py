"""tensorflow_docs.modeling: EpochDots."""

from unisono.keras.callbacks import EpochDots  # noqa: F401
