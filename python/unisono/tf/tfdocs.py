"""tensorflow_docs' place: modeling.EpochDots."""

from unisono.keras.callbacks import EpochDots


class modeling:  # noqa: N801 (tensorflow_docs' module)
    """tensorflow_docs.modeling."""

    EpochDots = EpochDots
