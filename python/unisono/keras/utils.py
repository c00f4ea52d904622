"""keras.utils: seeds, one-hot targets, data by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.keras._tensor import set_random_seed
from unisono.extend import strict_module

__all__ = ["set_random_seed", "to_categorical", "clear_session", "PyDataset", "Sequence"]


def to_categorical(y: Any, num_classes: int | None = None) -> np.ndarray:
    """Class numbers as one-hot rows."""
    y = np.asarray(y).astype(int)
    shape = y.shape[:-1] if y.ndim > 1 and y.shape[-1] == 1 else y.shape
    count = num_classes or int(y.max()) + 1
    return np.eye(count, dtype=np.float64)[y.reshape(-1)].reshape(shape + (count,))


def clear_session(free_memory: bool = True) -> None:
    """Begins to count the names of metrics anew."""
    from unisono.keras import metrics

    metrics.clear_names()


class PyDataset:
    """Batches by index: override __len__ and __getitem__."""

    def __len__(self):
        raise NotImplementedError

    def __getitem__(self, index):
        raise NotImplementedError

    def on_epoch_end(self) -> None:
        """Between epochs."""


Sequence = PyDataset


strict_module(globals())
