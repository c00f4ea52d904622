"""DatasetPipeline: Ray 1.x's word for a dataset that is read in windows and repeated. Here every dataset is read so; what is left are the spellings.

A pipeline is a Dataset (with its windows and its shuffling), a number of epochs, and maybe a worker's shard.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from unisono._arguments import strict_class
from unisono.data._cursor import Cursor
from unisono.data._dataset import Dataset, check_split
from unisono.data._iterating import Batches
from unisono.data._options import refuse, whole
from unisono.data._recipe import seed_of
from unisono.data._tf import TensorflowBatches
from unisono.data._torch import TorchBatches


def _forward(name: str) -> Callable[..., Any]:
    """A transform of the pipeline's dataset."""
    def method(self: DatasetPipeline, *arguments: Any, **keywords: Any) -> DatasetPipeline:
        return self._with(getattr(self._dataset, name)(*arguments, **keywords))

    method.__name__ = name
    method.__doc__ = getattr(Dataset, name).__doc__
    return method


class DatasetPipeline(TorchBatches, TensorflowBatches):
    """Epochs of a dataset, one after the other. Made by Dataset.window and Dataset.repeat."""

    def __init__(self, dataset: Dataset, blocks_per_window: int | None = None, times: int | None = 1, shard: tuple[int, int] | None = None) -> None:
        if times is not None:
            times = whole("times (None: for ever)", times, 1)
        self._dataset = dataset._op("window", whole("blocks_per_window", blocks_per_window, 1), same_rows=True) if blocks_per_window else dataset
        self._times, self._shard, self._equal = times, shard, False
        self._cursor = Cursor()
        self._last_stats: dict = {}
        self._read_through = False  # a worker's shard gives its epochs once

    def __getstate__(self) -> dict:
        return dict(self.__dict__, _cursor=Cursor(), _last_stats={}, _read_through=False)

    def _with(self, dataset: Dataset | None = None, times: int | None = 0) -> DatasetPipeline:
        out = DatasetPipeline(dataset if dataset is not None else self._dataset, times=self._times if times == 0 else times, shard=self._shard)
        out._equal = self._equal
        if self._cursor.tracked:
            out._cursor = self._cursor
        return out

    def _copy(self) -> DatasetPipeline:
        out = self._with()
        out._cursor = Cursor()
        return out

    # ---- transforms: those of the dataset ----

    map, map_batches, filter, flat_map = _forward("map"), _forward("map_batches"), _forward("filter"), _forward("flat_map")
    add_column, select_columns, drop_columns = _forward("add_column"), _forward("select_columns"), _forward("drop_columns")
    rename_columns, cast, concat_columns = _forward("rename_columns"), _forward("cast"), _forward("concat_columns")

    # ---- order ----

    def repeat(self, times: int | None = None) -> DatasetPipeline:
        """That many times; without a number endless."""
        if times is not None and self._times is not None:
            times = whole("times", times, 1) * self._times
        return self._with(times=times)

    def random_shuffle_each_window(self, *, seed: int | None = None, num_blocks: int | None = None) -> DatasetPipeline:
        """Each window in itself; without windows the whole dataset, in another order every epoch."""
        refuse("DatasetPipeline.random_shuffle_each_window", "num_blocks", num_blocks, None, "use repartition_each_window(num_blocks)")
        return self._with(self._dataset._op("shuffle", 0, seed_of(seed), same_rows=True))

    randomize_block_order_each_window = random_shuffle_each_window

    def repartition_each_window(self, num_blocks: int, *, shuffle: bool = False) -> DatasetPipeline:
        """Into that many blocks."""
        return self._with(self._dataset.repartition(num_blocks, shuffle=shuffle))

    def rewindow(self, *, blocks_per_window: int, preserve_epoch: bool = True) -> DatasetPipeline:
        """Windows of another size."""
        refuse("DatasetPipeline.rewindow", "preserve_epoch", preserve_epoch, True, "windows end with their epoch")
        return self._with(self._dataset._op("window", whole("blocks_per_window", blocks_per_window, 1), same_rows=True))

    def _preprocessed(self, fitted: Any) -> DatasetPipeline:
        return self._with(self._dataset._preprocessed(fitted))

    def foreach_window(self, fn: Callable) -> DatasetPipeline:
        """fn takes a Dataset and returns one."""
        return self._with(fn(self._dataset))

    # ---- epochs ----

    def _epoch_dataset(self, number: int) -> Dataset:
        out = self._dataset._copy()
        out._shard, out._equal, out._fixed_epoch = self._shard, self._equal, number
        if self._cursor.tracked:
            out._cursor = self._cursor
        return out

    def iter_epochs(self, max_epoch: int = -1) -> Iterator[Dataset]:
        """One Dataset an epoch, each in its own order. After a restart the first one is what is left of the epoch that the checkpoint was made in."""
        first = number = self._cursor.epoch if self._cursor.tracked else 0
        if self._read_through and self._times is not None and number >= self._times:
            raise RuntimeError("all %d epochs of this pipeline were read: repeat(n) with a larger n has more, and a Dataset can be iterated any number of times" % self._times)
        while (self._times is None or number < self._times) and (max_epoch < 0 or number - first < max_epoch):
            yield self._epoch_dataset(number)
            number += 1
            self._read_through = number == self._times

    def iter_datasets(self) -> Iterator[Dataset]:
        """As iter_epochs."""
        return self.iter_epochs()

    def _passes(self, **options: Any) -> Iterator[Any]:
        empty = 0
        for epoch in self.iter_epochs():
            for made in epoch._passes(**options):
                yield made
                empty = 0 if made.taken else empty + 1
            if self._is_over(empty):
                return

    def _is_over(self, empty: int) -> bool:
        """Endless epochs of no rows would never come to an end; the first may be what a checkpoint left."""
        return self._times is None and empty == 3

    def _all(self, method: str, options: dict) -> Iterator[Any]:
        empty = 0
        for epoch in self.iter_epochs():
            empty += 1
            for each in getattr(epoch, method)(**options):
                empty = 0
                yield each
            self._last_stats = epoch.stats()
            if self._is_over(empty):
                return

    def iter_batches(self, **options: Any) -> Batches:
        """The batches of all epochs; options as of Dataset.iter_batches."""
        self._dataset.iter_batches(**options)  # mistakes are told now
        return Batches(lambda: self._all("iter_batches", options))

    def iter_rows(self, **options: Any) -> Batches:
        """The rows of all epochs."""
        self._dataset.iter_rows(**options)
        return Batches(lambda: self._all("iter_rows", options))

    def __iter__(self) -> Iterator[dict]:
        return iter(self.iter_rows())

    def state_dict(self) -> dict:
        """As Dataset.state_dict, of a worker's shard."""
        return {"epoch": self._cursor.epoch, "place": self._cursor.place()}

    # ---- shards ----

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DatasetPipeline]:
        """n pipelines that go through the epochs together, each with its own part; equal: with as many batches. locality_hints: as Dataset.split."""
        check_split(n, locality_hints)
        out = [self._copy() for _ in range(n)]
        for rank, each in enumerate(out):
            each._shard, each._equal = (rank, n), equal
        return out

    def split_at_indices(self, indices: Any) -> list[DatasetPipeline]:
        """The rows of each epoch cut at these indices."""
        return [self._with(part) for part in self._dataset.split_at_indices(indices)]

    # ---- asking ----

    def schema(self, fetch_if_missing: bool = True) -> Any:
        """Names and types of the columns."""
        return self._dataset.schema()

    def columns(self) -> list[str]:
        """The columns' names."""
        return self._dataset.columns()

    def count(self) -> int:
        """Rows of all epochs (of this shard)."""
        if self._times is None:
            raise ValueError("an endless pipeline cannot be counted")
        return self._times * self._epoch_dataset(0).count()

    def sum(self, on: Any = None) -> Any:
        """Of a column of numbers (of several: a dictionary), over all epochs."""
        times = self._times
        if times is None:
            raise ValueError("an endless pipeline has no sum")
        once = self._epoch_dataset(0).sum(on)
        return {name: each and times * each for name, each in once.items()} if isinstance(once, dict) else once and times * once

    def take(self, limit: int | None = 20) -> list[dict]:
        """The first rows."""
        rows: list[dict] = []
        for row in self.iter_rows():
            if limit is not None and len(rows) == limit:
                break
            rows.append(row)
        return rows

    def take_all(self, limit: int | None = None) -> list[dict]:
        """All rows of all epochs; more than `limit` of them are an error."""
        rows = self.take(None if limit is None else limit + 1)
        if limit is not None and len(rows) > limit:
            raise ValueError("the pipeline has more than %d rows" % limit)
        return rows

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def show_windows(self, limit_per_dataset: int = 10) -> None:
        """Prints the first rows of an epoch."""
        for number, epoch in enumerate(self.iter_epochs(max_epoch=1)):
            print("=== window %d ===" % number)
            epoch.show(limit_per_dataset)

    def stats(self) -> dict:
        """Of the last epoch that was read: rows, bytes, seconds that the loop waited for data ..."""
        return self._last_stats

    def num_blocks(self) -> int:
        """Blocks of an epoch, which windows count in."""
        return self._dataset.num_blocks()

    def order(self) -> str:
        """As Dataset.order."""
        return self._dataset.order()

    def __repr__(self) -> str:
        return "DatasetPipeline(%r, epochs=%s)" % (self._dataset, "endless" if self._times is None else self._times)


strict_class()(DatasetPipeline)
