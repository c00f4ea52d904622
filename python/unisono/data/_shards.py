"""Datasets on their way to the workers of a run, what train.get_dataset_shard gives there, and what checkpoints say of them.

Each shard has a cursor that every report asks where it stands (Current.note_datasets in _session.py); the controller keeps what the ranks said, and after a
restart a shard goes on there: each row of the epoch is used once, with any number of workers.
"""

from __future__ import annotations

import sys
from typing import Any

from unisono import _codec

UNNAMED = "dataset"  # what states call a dataset without a name


def _is_dataset(value: Any) -> bool:
    """Without importing what a dataset needs (numpy): where there is one, its module is loaded already."""
    kinds = (("unisono.data._dataset", "Dataset"), ("unisono.data._pipeline", "DatasetPipeline"))
    return any(module in sys.modules and isinstance(value, getattr(sys.modules[module], kind)) for module, kind in kinds)


def _check(name: Any, dataset: Any) -> Any:
    if callable(dataset) and not _is_dataset(dataset):  # a function that makes it, as AIR allows
        dataset = dataset()
    if not _is_dataset(dataset):
        raise TypeError("%s must be a Dataset of unisono.data, not %s" % ("the dataset" if name is None else "dataset %r" % name, type(dataset).__name__))
    return dataset


def _settled(dataset: Any, num_workers: int) -> Any:
    """What can be found out once, for all workers. Functions of batches that keep the number of rows are taken for such when they do so with the first rows, since each
    worker can then read its own rows only; blocks are counted."""
    from unisono._unisono import Error
    from unisono.data import _recipe
    from unisono.data._iterating import tables_of

    if num_workers < 2:
        return dataset
    pipeline = dataset if hasattr(dataset, "_dataset") else None
    inner = pipeline._dataset if pipeline is not None else dataset
    shape = inner._native.shape()
    if shape["kind"] == "global" and not shape["one_to_one"]:
        plain = _recipe.one_to_one(inner)
        try:
            if plain is not None:
                next(tables_of(plain, batch_size=256, rehearsal=True), None)
                inner = plain
        except Error as error:
            if error.code != "ESHAPE":
                raise
    elif shape["kind"] == "block" and not shape["in_order"]:
        inner._blocks()
    return pipeline._with(inner) if pipeline is not None else inner


def pack(datasets: Any, split: Any = "all", preprocessor: Any = None, num_workers: int = 1) -> bytes | None:
    """The attachment's bytes; None when there is nothing. One dataset without a name has the name None. A preprocessor is fitted on "train" (unless it was before) and
    applied to all; it goes along, for the checkpoints."""
    if datasets is None or (isinstance(datasets, dict) and not datasets):
        return None
    named = datasets if isinstance(datasets, dict) else {None: datasets}
    named = {name: _check(name, dataset) for name, dataset in named.items()}
    from unisono.data._cursor import draw_seed  # needs NumPy, which datasets need anyway

    if preprocessor is not None:
        train = named.get("train", next(iter(named.values())))
        from unisono.data.preprocessors import Preprocessor

        if not isinstance(preprocessor, Preprocessor):
            raise TypeError("preprocessor must be one of unisono.data.preprocessors, not %s" % type(preprocessor).__name__)
        if not preprocessor.is_fitted():
            preprocessor.fit(train)
        named = {name: preprocessor.transform(dataset) for name, dataset in named.items()}
    parts = None if split == "all" else list(split)
    named = {name: _settled(dataset, num_workers) if parts is None or name in parts else dataset for name, dataset in named.items()}
    try:
        return _codec.dumps((named, parts, draw_seed(), preprocessor))
    except Exception as error:
        raise TypeError("the datasets %s cannot be sent to the workers: %s (a function of theirs holds something that belongs to this process: make it in the function)"
                        % (", ".join(repr(name) for name in named), error)) from error


def _named(datasets: dict, name: Any) -> Any:
    if name is None:
        if set(datasets) != {None}:
            raise RuntimeError("the run has the datasets %s: say which one, get_dataset_shard(name)" % ", ".join(map(repr, datasets)))
    elif name not in datasets:
        if set(datasets) != {None}:
            raise KeyError("the run has no dataset %r; it has %s" % (name, ", ".join(map(repr, datasets))))
        name = None
    return name


class Shards:
    """The shards of one worker."""

    def __init__(self, packed: bytes, rank: int, world_size: int) -> None:
        self.datasets, self.split, self.seed, self.preprocessor = _codec.loads(packed)
        self.rank, self.world_size = rank, world_size
        self.made: dict[Any, Any] = {}

    def get(self, name: Any, place_of: Any) -> Any:
        """The shard of that name, made once: an iteration goes on where the one before ended. Datasets that are not split are whole in every worker."""
        name = _named(self.datasets, name)
        if name not in self.made:
            self.made[name] = self._make(name, place_of(name if name is not None else UNNAMED))
        return self.made[name]

    def _make(self, name: Any, state: dict | None) -> Any:
        from unisono.data import _recipe
        from unisono.data._cursor import Cursor
        from unisono.data._dataset import shard_of

        dataset, place = self.datasets[name], (state or {}).get("place")
        if place is not None and place.get("seeds"):
            if hasattr(dataset, "_dataset"):
                dataset = dataset._with(_recipe.reseeded(dataset._dataset, place["seeds"]))
            else:
                dataset = _recipe.reseeded(dataset, place["seeds"])
        whole = self.split is not None and name not in self.split
        out = shard_of(dataset, 0 if whole else self.rank, 1 if whole else self.world_size, equal=True)
        if out._shard == (0, 1):
            out._shard = None
        out._cursor = Cursor(tracked=True)
        out._cursor.local_seed = self.seed
        out._cursor.go_on(place)
        return out

    def states(self) -> dict[str, dict]:
        """Where all of them stand, for a checkpoint."""
        from unisono.data._cursor import envelope

        out = {}
        for name, shard in self.made.items():
            place = shard._cursor.place()
            if place is not None:
                out[name if name is not None else UNNAMED] = envelope(place)
        return out
