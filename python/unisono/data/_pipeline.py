"""DatasetPipeline: Ray 1.x's word for a dataset that is read in windows and repeated. Here every dataset is read so; what is left are the spellings.

A pipeline is a Dataset (with its windows and its shuffling), a number of epochs, and maybe a worker's shard.
"""

from unisono.data._dataset import Dataset, _seed
from unisono.data._frameworks import FrameworkMethods


class DatasetPipeline(FrameworkMethods):
    def __init__(self, dataset, blocks_per_window=None, times=1, shard=None):
        if times is not None and times < 1:
            raise ValueError("times must be at least 1, or None for ever, not %r" % (times,))
        self._dataset = dataset._op("window", int(blocks_per_window)) if blocks_per_window else dataset
        self._times, self._shard = times, shard
        self._windowed = bool(blocks_per_window)

    def _with(self, dataset=None, times=0):
        out = DatasetPipeline(dataset if dataset is not None else self._dataset, times=self._times if times == 0 else times, shard=self._shard)
        out._windowed = self._windowed
        return out

    def _copy(self):
        return self._with()

    @property
    def _state(self):
        return None

    @_state.setter
    def _state(self, value):
        pass

    # ---- order ----

    def repeat(self, times=None):
        if times is not None and self._times is not None:
            times = times * self._times
        return self._with(times=times)

    def random_shuffle_each_window(self, *, seed=None, num_blocks=None):
        """Each window in itself; without windows the whole dataset, in another order every epoch."""
        return self._with(self._dataset._op("shuffle", 0, _seed(seed)))

    randomize_block_order_each_window = random_shuffle_each_window

    def repartition_each_window(self, num_blocks, *, shuffle=False):
        return self._with(self._dataset.repartition(num_blocks, shuffle=shuffle))

    def rewindow(self, *, blocks_per_window, preserve_epoch=True):
        return self._with(self._dataset._op("window", int(blocks_per_window)))

    def foreach_window(self, fn):
        return self._with(fn(self._dataset))

    # ---- epochs ----

    def _epoch_dataset(self, number):
        out = self._dataset._copy()
        out._shard, out._fixed_epoch = self._shard, number
        return out

    def iter_epochs(self, max_epoch=-1):
        """One Dataset an epoch, each in its own order."""
        number = 0
        while (self._times is None or number < self._times) and (max_epoch < 0 or number < max_epoch):
            yield self._epoch_dataset(number)
            number += 1

    def iter_datasets(self):
        return self.iter_epochs()

    def _next_epoch(self):
        return 0

    def iter_batches(self, **options):
        for epoch in self.iter_epochs():
            yield from epoch.iter_batches(**options)

    def iter_rows(self, **options):
        for epoch in self.iter_epochs():
            yield from epoch.iter_rows(**options)

    def __iter__(self):
        return self.iter_rows()

    # ---- shards ----

    def split(self, n, *, equal=False, locality_hints=None):
        return [self._sharded(rank, n) for rank in range(n)]

    def split_at_indices(self, indices):
        return [self._with(part) for part in self._dataset.split_at_indices(indices)]

    def _sharded(self, rank, count):
        out = self._with()
        out._shard = (rank, count)
        return out

    # ---- asking ----

    def schema(self, fetch_if_missing=True):
        return self._dataset.schema()

    def columns(self):
        return self._dataset.columns()

    def count(self):
        if self._times is None:
            raise ValueError("an endless pipeline cannot be counted")
        return self._times * self._epoch_dataset(0).count()

    def take(self, limit=20):
        rows = []
        for row in self.iter_rows():
            if len(rows) == limit:
                break
            rows.append(row)
        return rows

    def take_all(self):
        return self.take(None)

    def show(self, limit=20):
        for row in self.take(limit):
            print(row)

    def show_windows(self, limit_per_dataset=10):
        for number, epoch in enumerate(self.iter_epochs(max_epoch=1)):
            print("=== window %d ===" % number)
            epoch.show(limit_per_dataset)

    def stats(self):
        return self._dataset.stats()

    def order(self):
        return self._dataset.order()

    def __repr__(self):
        return "DatasetPipeline(%r, epochs=%s)" % (self._dataset, "endless" if self._times is None else self._times)


def _forward(name):
    def method(self, *arguments, **keywords):
        return self._with(getattr(self._dataset, name)(*arguments, **keywords))

    method.__name__ = name
    method.__doc__ = getattr(Dataset, name).__doc__
    return method


for _name in ("map", "map_batches", "filter", "flat_map", "add_column", "select_columns", "drop_columns", "rename_columns", "cast",
              "concat_columns"):
    setattr(DatasetPipeline, _name, _forward(_name))
