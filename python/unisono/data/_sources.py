"""Datasets of what is in memory, of other frameworks' datasets, and of sources of the user's own."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from typing import Any, Callable, Iterator

import numpy

from unisono._arguments import Refused, check, strict
from unisono._unisono import Table
from unisono.data import _convert, _incoming
from unisono.data._dataset import Dataset
from unisono.data._options import drop_hints, num_blocks_of, whole
from unisono.data._recipe import TableHolder

# ---- memory ----


def of_table(table: Table) -> Dataset:
    """A dataset of a Table in memory."""
    return Dataset(("table", TableHolder(table)))


def _in_blocks(dataset: Dataset, hints: dict[str, Any]) -> Dataset:
    """A dataset in memory, in as many blocks as Ray's hints say: windows count in them."""
    blocks = num_blocks_of(hints)
    return dataset if blocks is None else dataset.repartition(blocks)


def from_items(items: Iterable[Any], **hints: Any) -> Dataset:
    """Dictionaries by their keys; numbers and text in the column "item"; any other objects as they are."""
    drop_hints("from_items", hints)
    if isinstance(items, (str, bytes, dict)) or not isinstance(items, Iterable):
        raise TypeError("from_items needs a list of rows, not %s%s" % (type(items).__name__,
                                                                       " (from_numpy takes a dictionary of columns)" if isinstance(items, dict) else ""))
    return _in_blocks(of_table(_incoming.from_rows(items)), hints)


def range(n: int, **hints: Any) -> Dataset:
    """One column "id" with 0 to n - 1."""
    drop_hints("range", hints)
    return _in_blocks(Dataset(("read", "range", [], {"n": whole("n", n)})), hints)


def range_tensor(n: int, *, shape: int | tuple[int, ...] = (1,), **hints: Any) -> Dataset:
    """One column "data": row i is an array of that shape filled with i."""
    drop_hints("range_tensor", hints)
    sizes = tuple(whole("shape", size) for size in ((shape,) if isinstance(shape, int) else shape))
    return range(n, **hints)._map(_Fill(sizes), "range_tensor", 0, False, False)


class _Fill:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, table: Table) -> Table:
        ids = _convert.to_numpy(table)["id"]
        return _incoming.from_columns({"data": numpy.ones((len(ids),) + self.shape, numpy.int64) * ids.reshape((-1,) + (1,) * len(self.shape))})


def from_numpy(ndarrays: Any, column: str = "data", **hints: Any) -> Dataset:
    """An array, a list of arrays (one below the other) or a dictionary of arrays; shared, not copied."""
    drop_hints("from_numpy", hints)
    if not isinstance(ndarrays, dict):
        given = list(ndarrays) if isinstance(ndarrays, (list, tuple)) else [ndarrays]
        parts = [part for part in map(_incoming.as_array, given) if part is not None and part.ndim > 0]
        if not parts or len(parts) < len(given):
            raise TypeError("from_numpy needs an array of rows, a list of such arrays or a dictionary of columns, not %s"
                            % ("an empty list" if not given else repr(ndarrays)))
        if len({part.shape[1:] for part in parts}) > 1:
            raise ValueError("the rows of the arrays have different shapes: %s" % ", ".join(str(part.shape[1:]) for part in parts))
        ndarrays = {column: parts[0] if len(parts) == 1 else numpy.concatenate(parts)}
    return _in_blocks(of_table(_incoming.from_columns(ndarrays)), hints)


from_numpy_refs = from_numpy


def from_pandas(dfs: Any, **hints: Any) -> Dataset:
    """A pandas data frame, or several, one below the other."""
    drop_hints("from_pandas", hints)
    if isinstance(dfs, (list, tuple)):
        import pandas

        if not dfs:
            raise ValueError("from_pandas needs at least one data frame, not an empty list")
        dfs = pandas.concat(dfs, ignore_index=True)
    return _in_blocks(of_table(_incoming.from_pandas(dfs)), hints)


def from_arrow(tables: Any, **hints: Any) -> Dataset:
    """A pyarrow table, or several, one below the other; shared, not copied, where Arrow's layout is the library's."""
    drop_hints("from_arrow", hints)
    if isinstance(tables, (list, tuple)):
        import pyarrow

        if not tables:
            raise ValueError("from_arrow needs at least one table, not an empty list")
        tables = pyarrow.concat_tables(tables)
    from unisono.data import _arrow

    return _in_blocks(of_table(_arrow.from_arrow(tables)), hints)


class _TorchItems:
    """Rows of a PyTorch dataset that knows its length, by number."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, begin: int, end: int) -> Table:
        items = [self.dataset[i] for i in builtins.range(begin, max(end, begin + 1))]  # one row at least: the columns are its
        table = _incoming.from_rows([_plain(item) for item in items])
        return table if begin < end else table.slice(0, 0)


def _plain(item: Any, name: str = "item") -> dict:
    """(features, label) as columns; dictionaries, also among those, as they are."""
    if isinstance(item, dict):
        return {key: _value(value) for key, value in item.items()}
    if not isinstance(item, (tuple, list)):
        return {name: _value(item)}
    names = ["item", "label"] if len(item) == 2 else ["item_%d" % i for i in builtins.range(len(item))]
    out: dict = {}
    for key, value in zip(names, item):
        columns = _plain(value, key) if isinstance(value, dict) else {key: _value(value)}
        twice = sorted(set(columns) & set(out))
        if twice:
            raise ValueError("two parts of an element have a column %r: rename one of them" % twice[0])
        out.update(columns)
    return out


def _value(value: Any) -> Any:  # an array where there are numbers
    found = _incoming.as_array(value)
    return value if found is None else found


def from_torch(dataset: Any, **hints: Any) -> Dataset:
    """A PyTorch dataset: by number when it has a length (any order), otherwise as a stream. Pairs become the columns "item" and "label"."""
    drop_hints("from_torch", hints)
    torch = sys.modules.get("torch")
    streams = torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)  # whose __getitem__ is not implemented, with a length or without
    if not streams and hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        if len(dataset) == 0:
            raise ValueError("the dataset has no rows, and so no columns")
        return of_function(_TorchItems(dataset), "torch", len(dataset))
    if not hasattr(dataset, "__iter__"):
        raise TypeError("from_torch needs a dataset of PyTorch (with __getitem__ and __len__, or __iter__), not %s" % type(dataset).__name__)
    return of_stream(_Blocks(dataset.__iter__, _plain), "torch")


@strict()
def from_tf(dataset: Any, batch_size: int = 256) -> Dataset:
    """A tf.data.Dataset, read once now (it cannot be sent to workers). Pairs become the columns "item" and "label"."""
    import tensorflow as tf

    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError("from_tf needs a tf.data.Dataset, not %s" % type(dataset).__name__)
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the tf.data.Dataset is endless, and from_tf reads all of it: take(n) first, or leave repeat() to the Dataset")
    try:
        blocks = [_plain(batch) for batch in dataset.batch(whole("batch_size", batch_size, 1)).as_numpy_iterator()]
    except tf.errors.InvalidArgumentError:  # elements of different shapes
        return of_table(_incoming.from_rows([_plain(item) for item in dataset.as_numpy_iterator()]))
    if not blocks:
        raise ValueError("the tf.data.Dataset has no rows, and so no columns")
    return of_table(_incoming.from_columns({name: numpy.concatenate([block[name] for block in blocks]) for name in blocks[0]}))


from_huggingface = from_torch


# ---- sources of the user's own ----


def of_function(function: Callable, name: str, rows: int) -> Dataset:
    """A dataset of function(begin, end) -> Table over that many rows; -1: of function() -> iterator of Tables."""
    out = Dataset(("python", function, name, rows))
    out._guard(lambda: out._native)
    return out


def of_stream(function: Callable[[], Iterator[Table]], name: str) -> Dataset:
    """A dataset of Tables that come one after the other."""
    return of_function(function, name, -1)


@strict()
def from_generator(function: Callable[[], Iterable[Any]], name: str = "generator", batches: bool | None = None) -> Dataset:
    """function() gives an iterator of rows (dictionaries or anything else) or of batches (dictionaries of arrays, data frames); called once an epoch.

    batches: whether dictionaries of arrays are batches; when it is not said, they are if the first one has arrays of one length, of more than one element."""
    if not callable(function):
        raise TypeError("from_generator needs a function that gives an iterator (it is called once an epoch), not %s%s"
                        % (type(function).__name__, ": leave out the ()" if hasattr(function, "__next__") else ""))
    return of_stream(_Blocks(function, None, batches), name)


class _Blocks:
    """Rows and batches of an iterator as Tables. plain: makes rows of what comes, which is then never a batch."""

    def __init__(self, function: Callable[[], Iterable[Any]], plain: Callable[[Any], Any] | None = None, batches: bool | None = None) -> None:
        self.function, self.plain, self.batches = function, plain, batches

    def __call__(self) -> Iterator[Table]:
        rows: list = []
        batches, given = self.batches, self.function()
        if not hasattr(given, "__iter__"):
            raise TypeError("the function of from_generator must give an iterator of rows or batches, not %s" % type(given).__name__)
        for item in given:
            if batches is None and self.plain is None and isinstance(item, dict):
                batches = _looks_like_a_batch(item)
            if self.plain is None and _is_batch(item, bool(batches)):
                if rows:
                    yield _incoming.from_rows(rows)
                    rows = []
                yield _incoming.from_user(item)
                continue
            rows.append(item if self.plain is None else self.plain(item))
            if len(rows) == 256:
                yield _incoming.from_rows(rows)
                rows = []
        if rows:
            yield _incoming.from_rows(rows)


def _is_batch(item: Any, batches: bool) -> bool:
    return hasattr(item, "iloc") or _incoming.is_arrow(item) or isinstance(item, dict) and batches


def _looks_like_a_batch(item: dict) -> bool:
    arrays = [value for value in item.values() if isinstance(value, numpy.ndarray) and value.ndim > 0]
    return bool(item) and len(arrays) == len(item) and len({len(value) for value in arrays}) == 1 and len(arrays[0]) > 1


_PLACES = "tasks run on the reading threads of this process"
_OF_RAY = {"label_selector": Refused(None, _PLACES), "fallback_strategy": Refused(None, _PLACES), "max_calls": Refused(None, _PLACES),
           "runtime_env": Refused(None, "tasks run in this process: set up its environment")}


def read_datasource(datasource: Any, *, parallelism: int = -1, override_num_blocks: Any = None, ray_remote_args: Any = None,
                    concurrency: Any = None, num_cpus: Any = None, num_gpus: Any = None, memory: Any = None, **read_args: Any) -> Dataset:
    """A Datasource: its read tasks give blocks of rows. read_args go to a Datasource that is a class, or has create_reader or prepare_read."""
    from unisono.data.datasource import blocks_of

    check("unisono.data.read_datasource", {name: value for name, value in read_args.items() if name in _OF_RAY}, (), _OF_RAY)
    read_args = {name: value for name, value in read_args.items() if name not in _OF_RAY}
    return of_stream(blocks_of(datasource, parallelism, read_args), type(datasource).__name__)
