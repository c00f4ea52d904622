"""Dataset: a recipe for rows. Nothing is read before rows are asked for; every method gives a new Dataset.

A recipe is plain data and functions, so that a Dataset goes to the workers of a run as itself; the library's object is made again there. A Dataset may be one worker's
shard of the whole: then it gives that worker's rows. Questions are in _asking.py, passes in _iterating.py, batches of the frameworks in _torch.py and _tf.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from unisono._arguments import strict_class
from unisono._unisono import Error
from unisono.data import _recipe
from unisono.data._asking import Asking
from unisono.data._cursor import Cursor
from unisono.data._functions import AddColumn, Batches, Rows, name_of, processes_of
from unisono.data._iterating import Iterating
from unisono.data._options import drop_hints, names_of, some_names, whole
from unisono.data._recipe import Parts, TableHolder, seed_of  # noqa: F401
from unisono.data._tf import TensorflowBatches
from unisono.data._torch import TorchBatches

_RENAMED = "to be renamed to "  # names that columns have for a moment
AUTO = -1  # prefetch: as far as the memory budget allows


def check_dataset(value: Any, what: str) -> None:
    """Something else was given where a Dataset is needed."""
    if not isinstance(value, Dataset):
        raise TypeError("%s needs a Dataset, not %s" % (what, type(value).__name__))


def check_split(n: int, locality_hints: Any) -> None:
    """The arguments of split, of a Dataset or a pipeline."""
    whole("n", n, 1)
    if locality_hints is not None and len(locality_hints) != n:
        raise ValueError("split(%d) needs as many locality_hints, not %d" % (n, len(locality_hints)))


def _given(options: dict[str, Any], *arguments: Any) -> dict[str, Any]:
    """A user's arguments for a function, besides the other options."""
    return dict(options, **dict(zip(("fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs"), arguments)))


class Dataset(Iterating, Asking, TorchBatches, TensorflowBatches):
    """Rows, lazily. Made by the functions of unisono.data (read_csv, from_items ...)."""

    def __init__(self, recipe: tuple, shard: tuple[int, int] | None = None, boxes: list | None = None, cursor: Cursor | None = None,
                 counted: list | None = None) -> None:
        self._recipe, self._shard = recipe, shard
        self._boxes = boxes if boxes is not None else []  # where exceptions of Python functions are left
        self._made: Any = None
        self._cursor = cursor if cursor is not None else Cursor()
        self._counted = counted if counted is not None else [None]  # the rows of the blocks, shared by those that have the same
        self._fixed_epoch: int | None = None
        self._equal = False  # all ranks get as many batches

    # ---- the library's object ----

    @property
    def _native(self) -> Any:
        if self._made is None:
            try:
                self._made = _recipe.make(self)
            except AttributeError as error:  # of a user's function: Python would ask __getattr__ for _native, and lose it
                self._failed = error
                raise
        return self._made

    def _box(self) -> list:
        if not self._boxes:
            self._boxes.append([])
        return self._boxes[0]

    def _guard(self, function: Callable, *arguments: Any) -> Any:
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

    if not TYPE_CHECKING:  # type checkers know which names there are

        def __getattr__(self, name: str) -> Any:
            """Only names that are not there come here; those of Ray's say what to use."""
            if name == "_native" and (failed := self.__dict__.pop("_failed", None)) is not None:
                raise failed
            if name.startswith("_"):
                raise AttributeError("'Dataset' object has no attribute %r" % name)
            from unisono._missing import sentence

            raise AttributeError(sentence("Dataset", name, [known for known in dir(type(self)) if not known.startswith("_")]))

    def __getstate__(self) -> dict:
        return {"_recipe": self._recipe, "_shard": self._shard, "_boxes": [[] for _ in self._boxes], "_made": None, "_cursor": Cursor(),
                "_counted": self._counted, "_fixed_epoch": self._fixed_epoch, "_equal": self._equal}

    def _derive(self, recipe: tuple, boxes: list | None = None, same_rows: bool = False, shared: bool = True) -> Dataset:
        """same_rows: each block has as many rows as before; shared: what is derived from a worker's shard is counted as the shard."""
        out = Dataset(recipe, self._shard, boxes if boxes is not None else self._boxes,
                      self._cursor if self._cursor.tracked and shared else None, self._counted if same_rows else None)
        out._fixed_epoch, out._equal = self._fixed_epoch, self._equal
        _ = out._native  # mistakes are told where they are made
        return out

    def _copy(self) -> Dataset:
        out = Dataset(self._recipe, self._shard, self._boxes, None, self._counted)
        out._made, out._fixed_epoch, out._equal = self._made, self._fixed_epoch, self._equal
        return out

    def _op(self, method: str, *arguments: Any, same_rows: bool = False) -> Dataset:
        return self._derive(("op", self, method, arguments), same_rows=same_rows)

    def _map(self, function: Callable, name: str, batch_size: int, changes: bool, in_order: bool) -> Dataset:
        return self._derive(("map", self, function, name, batch_size, changes, in_order), same_rows=not changes)

    def _preprocessed(self, fitted: Any) -> Dataset:
        return self._derive(("apply", self, fitted), same_rows=True)

    # ---- transforms ----

    def _function(self, call: Any, compute: Any, concurrency: Any, batch_size: int, changes: bool, in_order: bool = False) -> Dataset:
        """A stage of a user's function; in processes of its own when so many are asked for."""
        processes = processes_of(compute, concurrency)
        name = "%s(%s)" % (call.what, name_of(call.function))
        if processes:
            from unisono.data._processes import InProcesses

            call = InProcesses(call, processes)
        return self._map(call, name, batch_size, changes, in_order)

    def map_batches(self, fn: Callable, *, batch_size: int | str | None = None, batch_format: str | None = "default", compute: Any = None,
                    concurrency: int | tuple[int, int] | None = None, in_order: bool = False, fn_args: Any = None, fn_kwargs: Any = None, fn_constructor_args: Any = None,
                    fn_constructor_kwargs: Any = None, **options: Any) -> Dataset:
        """fn takes a batch (a dictionary of arrays, or as batch_format says: "numpy", "pandas", "pyarrow") and returns one; it may have another number of rows. A class is
        made once a process, with fn_constructor_args and fn_constructor_kwargs; fn_args and fn_kwargs go along with every call.

        concurrency > 1: that many processes of their own, for functions that compute in Python; otherwise it runs on the reading threads."""
        size = 0 if batch_size in (None, "default") else whole("batch_size", batch_size, 1)
        given = _given(options, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._function(Batches("map_batches", fn, batch_format, given), compute, concurrency, size, True, in_order)

    def map(self, fn: Callable, *, compute: Any = None, concurrency: int | tuple[int, int] | None = None,
            fn_args: Any = None, fn_kwargs: Any = None, fn_constructor_args: Any = None, fn_constructor_kwargs: Any = None,
            **options: Any) -> Dataset:
        """fn takes a row (a dictionary) and returns one. Options as of map_batches."""
        given = _given(options, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._function(Rows("map", fn, given), compute, concurrency, 0, False)

    def flat_map(self, fn: Callable, *, compute: Any = None, concurrency: int | tuple[int, int] | None = None,
                 fn_args: Any = None, fn_kwargs: Any = None, fn_constructor_args: Any = None, fn_constructor_kwargs: Any = None,
                 **options: Any) -> Dataset:
        """fn takes a row and returns a list of rows. Options as of map_batches."""
        given = _given(options, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._function(Rows("flat_map", fn, given), compute, concurrency, 0, True)

    def filter(self, fn: Callable | None = None, *, compute: Any = None, concurrency: int | tuple[int, int] | None = None, **options: Any) -> Dataset:
        """The rows for which fn(row) is true. Options as of map_batches."""
        if fn is None:
            drop_hints("filter", options)
        return self._function(Rows("filter", fn, options), compute, concurrency, 0, True)

    def add_column(self, col: str, fn: Callable, *, batch_format: str | None = "pandas", compute: Any = None,
                   concurrency: int | tuple[int, int] | None = None, **options: Any) -> Dataset:
        """fn takes a batch and returns the values of the new column."""
        return self._function(Batches("add_column", AddColumn(names_of(col, "col")[0], fn), batch_format, options), compute, concurrency, 0, False)

    def select_columns(self, cols: str | list[str], **hints: Any) -> Dataset:
        """Only these columns, in this order."""
        drop_hints("select_columns", hints)
        return self._op("select", some_names(cols, "cols"), same_rows=True)

    def drop_columns(self, cols: str | list[str], **hints: Any) -> Dataset:
        """All but these columns."""
        drop_hints("drop_columns", hints)
        names = names_of(cols, "cols")
        if names and set(self.columns()) <= set(names):
            raise ValueError("drop_columns(%r) would leave no column" % (names,))
        return self._op("drop", names, same_rows=True)

    def rename_columns(self, names: dict[str, str] | list[str], **hints: Any) -> Dataset:
        """{old: new}, or all names in their order. Names may be exchanged."""
        drop_hints("rename_columns", hints)
        have = self.columns()
        if not isinstance(names, dict):
            if isinstance(names, str) or len(names) != len(have):
                raise ValueError("rename_columns needs a dictionary {old: new}, or names for all %d columns, not %r" % (len(have), names))
            names = dict(zip(have, names))
        pairs = {old: new for old, new in names.items() if old != new}
        names_of(list(pairs) + list(pairs.values()), "names")
        out = self
        for old, new in pairs.items():  # by way of unused names, where a new name is an old one
            out = out._op("rename", old, _RENAMED + new if new in pairs else new, same_rows=True)
        for new in pairs.values():
            out = out._op("rename", _RENAMED + new, new, same_rows=True) if new in pairs else out
        return out

    def cast(self, column: str | None, dtype: Any) -> Dataset:
        """One column (None: all numbers) to another element type. Fractions are cut off; a value that the type cannot hold is an error."""
        import numpy

        return self._op("cast", column, numpy.dtype(dtype).name, same_rows=True)

    def concat_columns(self, names: str | list[str], new_name: str, dtype: Any = "float32") -> Dataset:
        """Number columns side by side in one."""
        import numpy

        return self._op("concat_columns", some_names(names, "names"), new_name, numpy.dtype(dtype).name, same_rows=True)

    # ---- rows ----

    def limit(self, limit: int) -> Dataset:
        """The first rows."""
        return self._op("limit", whole("limit", limit))

    def skip(self, count: int) -> Dataset:
        """All but the first rows."""
        return self._op("skip", whole("count", count))

    def _parts(self, method: str, *arguments: Any) -> list[Dataset]:
        parts = Parts(self, method, arguments)
        number = self._guard(parts.count)
        return [self._derive(("part", parts, index), shared=False) for index in range(number)]

    def split_at_indices(self, indices: list[int]) -> list[Dataset]:
        """Rows up to the first index, from there to the second, and so on to the end."""
        if not hasattr(indices, "__iter__"):
            raise TypeError("indices must be a list of row numbers, such as [%r], not %r" % (indices, indices))
        places = [whole("indices", index) for index in indices]
        if places != sorted(places):
            raise ValueError("indices must be in ascending order, not %r" % (places,))
        return self._parts("split_at_indices", places)

    def split_proportionately(self, proportions: list[float]) -> list[Dataset]:
        """Parts of that size, and what is left."""
        if not proportions or any(part <= 0 for part in proportions) or sum(proportions) >= 1:
            raise ValueError("proportions must be positive numbers, and less than 1 together, not %r" % (proportions,))
        total, at, indices = self.count(), 0.0, []
        for part in proportions:
            at += part
            indices.append(int(total * at))
        return self.split_at_indices(indices)

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[Dataset]:
        """n parts one after the other, of nearly (equal=True: of exactly, some last rows are left out) as many rows. locality_hints is for clusters that keep
        data on nodes: there must be one for each part, nothing is done with them."""
        check_split(n, locality_hints)
        return self._parts("split", n, bool(equal))

    streaming_split = split

    def train_test_split(self, test_size: float | int, *, shuffle: bool = False, seed: int | None = None, stratify: Any = None) -> tuple[Dataset, ...]:
        """(train, test): test_size is a part of all rows, or a number of them."""
        if stratify is not None:
            raise NotImplementedError("train_test_split(stratify=) is not offered: shuffle=True mixes the rows, or split each class by itself with filter")
        if isinstance(test_size, bool) or not hasattr(test_size, "__float__"):
            raise TypeError("test_size must be a part of the rows between 0 and 1, or a number of them, not %r" % (test_size,))
        if not 0 < test_size < 1:
            total = self.count()
            if test_size != int(test_size) or not 0 < test_size < total or isinstance(test_size, float):
                raise ValueError("test_size must be between 0 and 1, or a number of rows less than %d, not %r" % (total, test_size))
            source = self.random_shuffle(seed=seed) if shuffle else self
            return tuple(source.split_at_indices([total - int(test_size)]))
        return tuple(self._parts("train_test_split", float(test_size), bool(shuffle), seed_of(seed)))

    def _like(self, other: Any, what: str) -> Dataset:
        """Another dataset, with its columns in this one's order where they are the same."""
        check_dataset(other, what)
        have, theirs = self.columns(), other.columns()
        return other.select_columns(have) if have != theirs and sorted(have) == sorted(theirs) else other

    def union(self, *others: Dataset) -> Dataset:
        """One below the other; the same columns (in any order)."""
        others = tuple(self._like(other, "union") for other in others)
        boxes = self._boxes + [box for other in others for box in other._boxes]
        return self._derive(("many", self, "union", list(others)), boxes)

    def zip(self, other: Dataset) -> Dataset:
        """Side by side; as many rows. A name that both have gets a number in the second one (x_1)."""
        check_dataset(other, "zip")
        return self._derive(("many", self, "zip", other), self._boxes + other._boxes)

    def materialize(self, max_bytes: int = 0) -> Dataset:
        """Read and transformed once, now, and kept in memory."""
        return self._op("cache", whole("max_bytes", max_bytes))

    cache = fully_executed = materialize

    # ---- order ----

    def random_shuffle(self, *, seed: int | None = None, num_blocks: int | None = None, **hints: Any) -> Dataset:
        """As well as the source can: `order()` says how. Another order in every epoch."""
        drop_hints("random_shuffle", hints)
        out = self.repartition(num_blocks) if num_blocks is not None else self
        return out._op("shuffle", 0, seed_of(seed), same_rows=True)

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True) -> Dataset:
        """Within windows of that many rows, as tf.data has it."""
        out = self._op("shuffle", whole("buffer_size", buffer_size), seed_of(seed), same_rows=True)
        return out if reshuffle_each_iteration else out._op("same_each_epoch", same_rows=True)

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """As random_shuffle."""
        return self.random_shuffle(seed=seed)

    def repartition(self, num_blocks: int, *, shuffle: bool = False, **hints: Any) -> Dataset:
        """Into that many blocks, which windows count in."""
        drop_hints("repartition", hints)
        out = self._op("repartition", whole("num_blocks", num_blocks, 1))
        return out.random_shuffle() if shuffle else out

    def window(self, *, blocks_per_window: int = 10, bytes_per_window: int | None = None) -> Any:
        """A pipeline over windows of that many blocks."""
        from unisono.data._pipeline import DatasetPipeline

        if bytes_per_window is not None:
            size, wanted = self.size_bytes(), whole("bytes_per_window", bytes_per_window, 1)
            blocks_per_window = max(1, int(wanted * self.num_blocks() / size)) if size > 0 else 1
        return DatasetPipeline(self, blocks_per_window=whole("blocks_per_window", blocks_per_window, 1))

    def repeat(self, times: int | None = None) -> Any:
        """A pipeline of that many epochs; without a number endless."""
        from unisono.data._pipeline import DatasetPipeline

        return DatasetPipeline(self, times=times)

    def iterator(self) -> Dataset:
        """Itself: a Dataset is its own iterator."""
        return self

    def prefetch(self, batches: int | str | None = AUTO) -> Dataset:
        """That many batches are made ahead; AUTO (-1, as tf.data.AUTOTUNE, or "auto"): as many as the memory budget allows."""
        ahead = AUTO if batches in (None, "auto", "AUTO") else whole("batches", batches, AUTO)
        return self._op("prefetch", ahead, same_rows=True)

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """What iterators that do not say it themselves take."""
        return self._op("batch", whole("batch_size", batch_size, 1), bool(drop_remainder), same_rows=True)

    def __repr__(self) -> str:
        return "Dataset(%s)" % self._native.text()


def shard_of(dataset: Any, rank: int, world_size: int, equal: bool = False) -> Any:
    """One worker's part of a Dataset or pipeline. equal: all parts have as many batches."""
    out = dataset._copy()
    out._shard, out._equal = (rank, world_size), equal
    return out


DataIterator = Dataset  # what a worker gets: a Dataset that is one shard


strict_class()(Dataset)
strict_class()(Iterating)
strict_class()(Asking)
