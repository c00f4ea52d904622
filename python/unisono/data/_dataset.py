"""Dataset: a recipe for rows. Nothing is read before somebody asks for rows; every method gives a new Dataset.

A recipe is plain data and functions, so that a Dataset goes to the workers of a run as itself; the library's object is made again there. A Dataset may be one worker's
shard of the whole: then it gives that worker's rows. Each iteration is an epoch, with its own order when the dataset is shuffled.
"""

import atexit
import os
import weakref

from unisono._unisono import Dataset as Native
from unisono._unisono import Error
from unisono.data import _convert
from unisono.data._frameworks import FrameworkMethods
from unisono.data._schema import Schema

_open = weakref.WeakSet()  # iterators, whose threads must be gone before the interpreter is


def _close_all():
    for iterator in list(_open):
        iterator.close()


atexit.register(_close_all)


class _Handle:
    """A weakly referable holder of the library's iterator."""

    def __init__(self, native):
        self.native = native
        _open.add(self)

    def close(self):
        native, self.native = self.native, None
        if native is not None:
            try:
                native.close()
            except RuntimeError:  # in use by another thread
                pass


class _Parts:
    """What a split made: several datasets of one call, made once."""

    def __init__(self, parent, method, arguments):
        self.parent, self.method, self.arguments = parent, method, arguments
        self._made = None

    def __getstate__(self):
        return {"parent": self.parent, "method": self.method, "arguments": self.arguments, "_made": None}

    def get(self, index):
        if self._made is None:
            self._made = getattr(self.parent._native, self.method)(*self.arguments)
        return self._made[index]

    def count(self):
        self.get(0)
        return len(self._made)


class TableHolder:
    """A Table that pickles."""

    def __init__(self, table):
        self.table = table

    def __reduce__(self):
        import numpy

        columns = [(name, kind) + tuple(None if part is None else (part.dtype, part.shape, numpy.array(_convert.array(part)))
                                        for part in parts) for name, kind, *parts in self.table.columns()]
        return _unpickle_table, (self.table.num_rows, columns)


def _unpickle_table(num_rows, columns):
    def part(value):
        return None if value is None else _convert.Array(value[0], tuple(value[1]), value[2])

    return TableHolder(_convert.Table(num_rows, [(name, kind) + tuple(map(part, parts)) for name, kind, *parts in columns]))


def _seed(seed):
    return int.from_bytes(os.urandom(6), "little") if seed is None else int(seed) & (2 ** 64 - 1)


class _Call:
    """function(Table) -> Table around a user's function of batches. A class is made once a process, as its state (a model) asks for."""

    def __init__(self, function, batch_format, arguments=(), keywords=None, constructor=((), None)):
        self.function, self.batch_format = function, batch_format
        self.arguments, self.keywords, self.constructor = arguments, keywords or {}, constructor
        self.made = None

    def __getstate__(self):
        return dict(self.__dict__, made=None)

    def __call__(self, table):
        if self.made is None:
            self.made = self.function(*self.constructor[0], **(self.constructor[1] or {})) if isinstance(self.function, type) else self.function
        batch = _convert.to_user(table, self.batch_format)
        answer = self.made(batch, *self.arguments, **self.keywords)
        if hasattr(answer, "__next__"):  # a generator of batches
            answer = list(answer)
            tables = [_convert.from_user(each) for each in answer]
            return _concat(tables)
        return _convert.from_user(answer)


def _concat(tables):
    if len(tables) == 1:
        return tables[0]
    return _convert.from_rows([row for table in tables for row in _convert.to_rows(table)])


class _Rows:
    """The same for a function of rows."""

    def __init__(self, function, how):
        self.function, self.how = function, how

    def __call__(self, table):
        rows, function = _convert.to_rows(table), self.function
        if self.how == "filter":
            import numpy

            keep = numpy.array([i for i, row in enumerate(rows) if function(row)], dtype=numpy.int64)
            return table.gather(keep)
        if self.how == "map":
            out = [function(row) for row in rows]
        else:
            out = [made for row in rows for made in function(row)]
        if not out:
            return table.slice(0, 0)
        return _convert.from_rows(out)


class _AddColumn:
    def __init__(self, name, function):
        self.name, self.function = name, function

    def __call__(self, batch):
        values = self.function(batch)
        batch = dict(batch) if isinstance(batch, dict) else batch
        batch[self.name] = values
        return batch


class Dataset(FrameworkMethods):
    def __init__(self, recipe, shard=None, boxes=None):
        self._recipe, self._shard = recipe, shard
        self._boxes = boxes if boxes is not None else []  # where exceptions of Python functions are left
        self._made = None
        self._epoch, self._fixed_epoch, self._state, self._iterator = 0, None, None, None
        self._ended = None  # the last state of an iteration that came to its end

    # ---- the library's object ----

    @property
    def _native(self):
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self):
        kind, *rest = self._recipe
        if kind == "read":
            return Native.read(*rest)
        if kind == "table":
            return Native.read("table", [], {"table": rest[0].table})
        if kind == "python":
            function, name, rows = rest
            return Native.from_python(function, self._box(), name, rows)
        if kind == "part":
            return rest[0].get(rest[1])
        if kind == "map":
            parent, function, name, batch_size, changes, in_order = rest
            return self._guard(parent._native.map, function, self._box(), name, batch_size, changes, in_order, None)
        if kind == "many":
            parent, method, others = rest
            return getattr(parent._native, method)(others._native if isinstance(others, Dataset) else [other._native for other in others])
        parent, method, arguments = rest
        return getattr(parent._native, method)(*arguments)

    def _box(self):
        if not self._boxes:
            self._boxes.append([])
        return self._boxes[0]

    def _guard(self, function, *arguments):
        """An exception of a user's function comes back as itself."""
        try:
            return function(*arguments)
        except Error as error:
            for box in self._boxes:
                if error.code == "EFUNCTION" and box:
                    raised = box[-1]
                    box.clear()
                    raise raised from None
            raise

    def __getstate__(self):
        return {"_recipe": self._recipe, "_shard": self._shard, "_boxes": [[] for _ in self._boxes], "_made": None, "_epoch": self._epoch,
                "_fixed_epoch": self._fixed_epoch, "_state": self._state, "_iterator": None, "_ended": None}

    def _derive(self, recipe, boxes=None):
        out = type(self)._plain()(recipe, self._shard, boxes if boxes is not None else self._boxes)
        out._fixed_epoch = self._fixed_epoch
        out._native  # mistakes are told where they are made
        return out

    @classmethod
    def _plain(cls):
        return Dataset

    def _op(self, method, *arguments):
        return self._derive(("op", self, method, arguments))

    def _map(self, function, name, batch_size, changes, in_order):
        return self._derive(("map", self, function, name, batch_size, changes, in_order))

    # ---- transforms ----

    def map_batches(self, fn, *, batch_size=None, batch_format="default", fn_args=None, fn_kwargs=None, fn_constructor_args=None,
                    fn_constructor_kwargs=None, compute=None, concurrency=None, zero_copy_batch=True, in_order=False, **resources):
        """fn takes a batch (a dictionary of arrays, or as batch_format says) and returns one; it may have another number of rows.

        concurrency > 1: that many processes of their own, for functions that compute in Python; otherwise it runs on the reading threads."""
        processes = concurrency if isinstance(concurrency, int) else (max(concurrency) if concurrency else getattr(compute, "size", None))
        call = _Call(fn, batch_format, tuple(fn_args or ()), fn_kwargs, (tuple(fn_constructor_args or ()), fn_constructor_kwargs))
        if processes and processes > 1:
            from unisono.data._processes import InProcesses

            call = InProcesses(call, processes)
        size = 0 if batch_size in (None, "default") else int(batch_size)
        return self._map(call, "map_batches(%s)" % _name(fn), size, True, in_order)

    def map(self, fn, **resources):
        """fn takes a row (a dictionary) and returns one."""
        return self._map(_Rows(fn, "map"), "map(%s)" % _name(fn), 0, False, False)

    def flat_map(self, fn, **resources):
        """fn takes a row and returns a list of rows."""
        return self._map(_Rows(fn, "flat_map"), "flat_map(%s)" % _name(fn), 0, True, False)

    def filter(self, fn, **resources):
        return self._map(_Rows(fn, "filter"), "filter(%s)" % _name(fn), 0, True, False)

    def add_column(self, col, fn, *, batch_format="pandas", **resources):
        """fn takes a batch and returns the values of the new column."""
        return self._map(_Call(_AddColumn(col, fn), batch_format), "add_column(%s)" % col, 0, False, False)

    def select_columns(self, cols, **resources):
        return self._op("select", [cols] if isinstance(cols, str) else list(cols))

    def drop_columns(self, cols, **resources):
        return self._op("drop", [cols] if isinstance(cols, str) else list(cols))

    def rename_columns(self, names, **resources):
        out = self
        pairs = names.items() if isinstance(names, dict) else zip(self.columns(), names)
        for old, new in pairs:
            if old != new:
                out = out._op("rename", old, new)
        return out

    def cast(self, column, dtype):
        """One column (None: all numbers) to another element type."""
        import numpy

        return self._op("cast", column, numpy.dtype(dtype).name)

    def concat_columns(self, names, new_name, dtype="float32"):
        """Number columns side by side in one."""
        return self._op("concat_columns", list(names), new_name, dtype)

    # ---- rows ----

    def limit(self, limit):
        return self._op("limit", int(limit))

    def skip(self, count):
        return self._op("skip", int(count))

    def _parts(self, method, *arguments):
        parts = _Parts(self, method, arguments)
        number = parts.count()
        return [self._derive(("part", parts, index)) for index in range(number)]

    def split_at_indices(self, indices):
        return self._parts("split_at_indices", [int(index) for index in indices])

    def split_proportionately(self, proportions):
        total, at, indices = self.count(), 0.0, []
        for part in proportions:
            at += part
            indices.append(int(total * at))
        return self.split_at_indices(indices)

    def split(self, n, *, equal=False, locality_hints=None):
        return self._parts("split", int(n), bool(equal))

    streaming_split = split

    def train_test_split(self, test_size, *, shuffle=False, seed=None, stratify=None):
        if stratify is not None:
            raise NotImplementedError("train_test_split(stratify=) is not offered: shuffle=True mixes the rows, or split each class by itself with filter")
        if not 0 < test_size < 1:
            total = self.count()
            if not isinstance(test_size, int) or not 0 < test_size < total:
                raise ValueError("test_size must be between 0 and 1, or a number of rows less than %d, not %r" % (total, test_size))
            source = self.random_shuffle(seed=seed) if shuffle else self
            return tuple(source.split_at_indices([total - test_size]))
        return tuple(self._parts("train_test_split", float(test_size), bool(shuffle), _seed(seed)))

    def union(self, *others):
        boxes = self._boxes + [box for other in others for box in other._boxes]
        return self._derive(("many", self, "union", list(others)), boxes)

    def zip(self, other):
        return self._derive(("many", self, "zip", other), self._boxes + other._boxes)

    def materialize(self, max_bytes=0):
        """Read and transformed once, now, and kept in memory."""
        return self._guard(self._op, "cache", int(max_bytes))

    cache = fully_executed = materialize

    # ---- order ----

    def random_shuffle(self, *, seed=None, num_blocks=None, **resources):
        """As well as the source can: `order()` says how."""
        out = self.repartition(num_blocks) if num_blocks else self
        return out._op("shuffle", 0, _seed(seed))

    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=True):
        """Within windows of that many rows, as tf.data has it."""
        out = self._op("shuffle", int(buffer_size), _seed(seed))
        return out if reshuffle_each_iteration else out._op("same_each_epoch")

    def randomize_block_order(self, *, seed=None):
        return self.random_shuffle(seed=seed)

    def repartition(self, num_blocks, *, shuffle=False, **more):
        out = self._op("repartition", int(num_blocks))
        return out.random_shuffle() if shuffle else out

    def window(self, *, blocks_per_window=10, bytes_per_window=None):
        """A pipeline over windows of that many blocks."""
        from unisono.data._pipeline import DatasetPipeline

        if bytes_per_window:
            size = self.size_bytes()
            blocks_per_window = max(1, int(bytes_per_window * self.num_blocks() / size)) if size > 0 else 1
        return DatasetPipeline(self, blocks_per_window=blocks_per_window)

    def repeat(self, times=None):
        """A pipeline of that many epochs; without a number endless."""
        from unisono.data._pipeline import DatasetPipeline

        return DatasetPipeline(self, times=times)

    def iterator(self):
        return self

    def prefetch(self, batches):
        return self._op("prefetch", int(batches))

    def batch(self, batch_size, drop_remainder=False):
        """What iterators that do not say it themselves take."""
        return self._op("batch", int(batch_size), bool(drop_remainder))

    # ---- asking ----

    def schema(self, fetch_if_missing=True):
        return Schema(self._guard(self._native.schema).schema())

    def columns(self, fetch_if_missing=True):
        return self.schema().names

    def count(self):
        """Rows (of this shard)."""
        if self._shard is None:
            return self._guard(self._native.count)
        return sum(table.num_rows for table in self._tables(4096, False, epoch=0))

    def num_blocks(self):
        return self._native.num_blocks

    def size_bytes(self):
        return self._native.nbytes

    def take(self, limit=20):
        if self._shard is not None:
            return self._first(limit)
        return list(_convert.to_rows(self._guard(self._native.take, int(limit))))

    def _first(self, limit):
        rows = []
        for row in self.iter_rows():
            if len(rows) == limit:
                break
            rows.append(row)
        return rows

    def take_all(self, limit=None):
        rows = []
        for row in self.iter_rows():
            if limit is not None and len(rows) == limit:
                raise ValueError("the dataset has more than %d rows" % limit)
            rows.append(row)
        return rows

    def take_batch(self, batch_size=20, *, batch_format="default"):
        return _convert.to_user(self._guard(self._native.take, int(batch_size)), batch_format)

    def show(self, limit=20):
        for row in self.take(limit):
            print(row)

    def order(self):
        """Which of the three orders the dataset has, and in what units: one sentence."""
        return self._native.order()

    def plan(self, num_shards):
        """Which rank reads what."""
        return self._guard(self._native.plan, int(num_shards))

    def stats(self):
        """Of the last iteration: rows, bytes, seconds that the loop waited for data, bad rows that were skipped ..."""
        return self._last_stats if hasattr(self, "_last_stats") else {}

    def input_files(self):
        files = {piece["file"] for rank in self.plan(1) for piece in rank["pieces"] if piece.get("file")}
        return sorted(files)

    def unique(self, column):
        seen = {}
        for batch in self.select_columns([column]).iter_batches(batch_size=4096):
            seen.update(dict.fromkeys(value.item() if hasattr(value, "item") else value for value in batch[column]))
        return list(seen)

    def _aggregate(self, name, on, ddof=1):
        """One pass in blocks: count, mean and squared distances are joined pairwise, so that no digits are lost."""
        import math

        total, mean, squares, low, high, count = 0.0, 0.0, 0.0, math.inf, -math.inf, 0
        names = [on] if isinstance(on, str) else on
        source = self.select_columns(names) if names else self
        for batch in source.iter_batches(batch_size=4096):
            values = batch[names[0] if names else next(iter(batch))].astype("float64")
            size = len(values)
            if size == 0:
                continue
            delta = values.mean() - mean
            squares += ((values - values.mean()) ** 2).sum() + delta * delta * count * size / (count + size)
            mean += delta * size / (count + size)
            total, low, high, count = total + values.sum(), min(low, values.min()), max(high, values.max()), count + size
        if count == 0:
            return None
        return {"sum": total, "mean": mean, "min": low, "max": high,
                "std": (squares / (count - ddof)) ** 0.5 if count > ddof else 0.0}[name]

    def sum(self, on=None):
        return self._aggregate("sum", on)

    def mean(self, on=None):
        return self._aggregate("mean", on)

    def min(self, on=None):
        return self._aggregate("min", on)

    def max(self, on=None):
        return self._aggregate("max", on)

    def std(self, on=None, ddof=1):
        return self._aggregate("std", on, ddof)

    # ---- iterating ----

    def _options(self, batch_size, drop_last, epochs, epoch, state):
        shard, shards = self._shard or (0, 1)
        return {"batch_size": batch_size, "drop_remainder": int(drop_last), "shard": shard, "num_shards": shards, "epochs": epochs,
                "first_epoch": epoch, "state": state}

    def _next_epoch(self):
        if self._fixed_epoch is not None:
            return self._fixed_epoch
        self._epoch += 1
        return self._epoch - 1

    def _equal(self, batch_size):
        """All ranks take as many batches: a last round with fewer rows than ranks is left out."""
        known = self._native.known_rows
        if self._shard is None or known < 0:
            return self._native
        rest = known % (batch_size * self._shard[1])
        return self._native.limit(known - rest) if 0 < rest < self._shard[1] and known > rest else self._native

    def _tables(self, batch_size, drop_last=False, epochs=1, epoch=None, prefetch=None, owner=None):
        """owner: whose state_dict and stats this iteration is."""
        size = 0 if batch_size is None else int(batch_size)
        if batch_size is not None and size < 1:
            raise ValueError("batch_size must be positive, not %r" % (batch_size,))
        owner = owner if owner is not None else self
        native = self._equal(size or 256)
        if prefetch:
            native = native.prefetch(int(prefetch))
        state, self._state = self._state, None
        epoch = self._next_epoch() if epoch is None else epoch
        handle = _Handle(self._guard(native.iterate, self._options(size, drop_last, epochs, epoch, state)))
        owner._iterator, owner._ended = handle, None
        try:
            while True:
                table = self._guard(handle.native.next)
                if table is None:
                    owner._ended = handle.native.state()
                    break
                yield table
        finally:
            if handle.native is not None:
                owner._last_stats = handle.native.stats()
            handle.close()

    def state_dict(self):
        """Where the iteration in progress stands: what was taken, not what was prefetched. For a checkpoint."""
        if self._iterator is None or self._iterator.native is None:
            return {"epoch": self._epoch, "iterator": None, "ended": self._ended}
        return {"epoch": self._epoch, "iterator": self._iterator.native.state()}

    def load_state_dict(self, state):
        """The next iteration goes on there, also with another number of workers; a list of the states of all ranks is merged."""
        if isinstance(state, (list, tuple)):
            self._epoch = max(each["epoch"] for each in state)
            states = [each["iterator"] for each in state]
            if any(each is not None for each in states):  # a rank that was through already has nothing left of this epoch
                states = [each["iterator"] or (each.get("ended") if each["epoch"] == self._epoch else None) for each in state]
            self._state = None if None in states else Native.merge_states(states)
        else:
            self._state, self._epoch = state["iterator"], state["epoch"]
        if self._state is not None and self._epoch > 0:
            self._epoch -= 1

    def iter_batches(self, *, batch_size=256, batch_format="default", drop_last=False, prefetch_batches=None, prefetch_blocks=None,
                     local_shuffle_buffer_size=None, local_shuffle_seed=None):
        """One epoch of batches: dictionaries of NumPy arrays that share the library's memory, or as batch_format says."""
        source = self
        if local_shuffle_buffer_size:
            source = self.shuffle(local_shuffle_buffer_size, local_shuffle_seed)
            source._fixed_epoch, source._state, self._state = self._next_epoch(), self._state, None
        for table in source._tables(batch_size, drop_last, prefetch=prefetch_batches, owner=self):
            yield _convert.to_user(table, batch_format)

    def iter_rows(self, *, prefetch_blocks=None):
        for table in self._tables(1024):
            yield from _convert.to_rows(table)

    def __iter__(self):
        return self.iter_rows()

    def __repr__(self):
        return "Dataset(%s)" % self._native.text()

    def _copy(self):
        out = Dataset(self._recipe, self._shard, self._boxes)
        out._made, out._fixed_epoch = self._made, self._fixed_epoch
        return out

    # ---- to others ----

    def _whole(self):
        return [table for table in self._tables(65536)] or [self._native.schema()]

    def to_pandas(self, limit=None):
        """limit: more rows than that are an error, as in Ray."""
        import pandas

        if limit is not None and self.count() > limit:
            raise ValueError("the dataset has more than %d rows: take them with limit(%d).to_pandas()" % (limit, limit))
        return pandas.concat([_convert.to_pandas(table) for table in self._whole()], ignore_index=True)

    def to_arrow(self):
        import pyarrow

        return pyarrow.concat_tables([_convert.to_arrow(table) for table in self._whole()])

    def to_numpy(self):
        import numpy

        parts = [_convert.to_numpy(table) for table in self._whole()]
        return {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}


def _name(function):
    return getattr(function, "__name__", type(function).__name__)


def shard_of(dataset, rank, world_size):
    """One worker's part of a Dataset or pipeline."""
    out = dataset._copy()
    out._shard = (rank, world_size)
    return out


DataIterator = Dataset  # what a worker gets: a Dataset that is one shard
