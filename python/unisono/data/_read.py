"""Where datasets come from: files, memory, frameworks, and sources of the user's own."""

from __future__ import annotations

import builtins
import itertools
import os
from collections.abc import Iterable
from typing import Any

import numpy

from unisono.data import _convert
from unisono.data._dataset import Dataset
from unisono.data._recipe import TableHolder

_ERRORS = ("raise", "skip")


def _paths(paths: Any) -> list[str]:
    paths = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    if not isinstance(paths, Iterable):
        raise TypeError("paths must be a path or a list of paths, not %s" % type(paths).__name__)
    return [os.path.expanduser(os.fsdecode(path)) for path in paths]


def _bad(options: dict, on_error: str, max_errors: int | None) -> dict:
    """on_error="skip": rows that cannot be read are left out and counted (stats()["skipped"]); at most max_errors of them."""
    if on_error not in _ERRORS:
        raise ValueError('on_error must be "raise" or "skip", not %r' % (on_error,))
    if max_errors is not None and max_errors < 0:
        raise ValueError("max_errors must not be negative, but is %r" % (max_errors,))
    options.update(skip_bad=on_error == "skip" and max_errors != 0, max_skipped=max_errors or 0)
    return options


def _types(types: Any) -> list:
    """{"name": "float32" | ("float32", (28, 28)) | str | bytes | "list of int64"} as the library has them."""
    out = []
    for name, kind in (types or {}).items():
        shape = ()
        if isinstance(kind, tuple):
            kind, shape = kind
        if kind in (str, "string", "str"):
            out.append((name, "string", "uint8", ()))
        elif kind in (bytes, "binary", "bytes"):
            out.append((name, "binary", "uint8", ()))
        elif isinstance(kind, str) and kind.startswith("list of "):
            out.append((name, "list", numpy.dtype(kind[8:]).name, ()))
        else:
            out.append((name, "number", numpy.dtype(kind).name, tuple(shape)))
    return out


def _read(kind: str, paths: Any, **options: dict) -> Dataset:
    out = Dataset(("read", kind, _paths(paths), {key: value for key, value in options.items() if value is not None}))
    out._native  # a file that is not there is an error now
    return out


def _refuse(function: Any, ignored: Any) -> None:
    """Options of Ray's that have no meaning here are accepted when they are None."""
    given = sorted(name for name, value in ignored.items() if value is not None)
    if given:
        raise TypeError("%s has no option %s" % (function, ", ".join(given)))


# Ray's hints about how much at once: the rows are the same without them.
_HINTS = ("parallelism", "override_num_blocks", "ray_remote_args", "meta_provider", "concurrency", "num_cpus", "num_gpus", "memory")
# Ray's options that would give other rows, with what to do instead.
_OTHERS = {"filesystem": "files are those of this machine; mount the file system or fetch the files",
           "partition_filter": "give the paths, or a glob, of the files that are wanted",
           "partitioning": "directories give no columns; add them with map_batches",
           "shuffle": "use random_shuffle()",
           "ignore_missing_paths": "leave out the paths that are not there",
           "file_extensions": "give a glob such as directory/*.csv",
           "arrow_open_stream_args": "files are opened by their names: .gz and .zst are unpacked, nothing else"}


def _drop_ignored(function: Any, more: Any) -> None:
    """Hints are left out; what would change the rows is an error unless it says nothing (None, False)."""
    _refuse(function, {name: value for name, value in more.items() if name not in _HINTS and name not in _OTHERS})
    for name, value in more.items():
        if name in _OTHERS and value is not None and value is not False:
            raise ValueError("%s: %s=%r is not supported: %s" % (function, name, value, _OTHERS[name]))


# ---- files ----


def read_csv(paths: Any, *, delimiter: str | None = None, quote: str | None = None, header: bool = True, column_names: Any = None,
             columns: Any = None, types: Any = None, float_dtype: Any = None, null_values: Any = None, block_bytes: int | None = None,
             infer_rows: int | None = None, on_error: str = "raise", max_errors: int | None = None, **more: Any) -> Dataset:
    """Files, directories or globs of CSV (RFC 4180); .gz and .zst too. types: {"name": "float32", ...} for what shall not be inferred."""
    _drop_ignored("read_csv", more)
    options = dict(delimiter=delimiter, quote=quote, no_header=not header, column_names=column_names, columns=columns, types=_types(types),
                   float_dtype=None if float_dtype is None else numpy.dtype(float_dtype).name, null_values=null_values, block_bytes=block_bytes,
                   infer_rows=infer_rows)
    return _read("csv", paths, **_bad(options, on_error, max_errors))


def read_json(paths: Any, *, columns: Any = None, types: Any = None, block_bytes: int | None = None, infer_rows: int | None = None,
              lines: bool = True, on_error: str = "raise", max_errors: int | None = None, **more: Any) -> Dataset:
    """JSON lines, or one file with a list of objects."""
    _drop_ignored("read_json", more)
    return _read("json", paths, **_bad(dict(columns=columns, types=_types(types), block_bytes=block_bytes, infer_rows=infer_rows), on_error,
                                       max_errors))


def read_text(paths: Any, *, column: str = "text", drop_empty_lines: bool = True, block_bytes: int | None = None, on_error: str = "raise",
              max_errors: int | None = None, encoding: str = "utf-8", **more: Any) -> Dataset:
    """One line a row."""
    _drop_ignored("read_text", more)
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
        raise ValueError("read_text reads UTF-8, not %s" % encoding)
    return _read("text", paths, **_bad(dict(column=column, keep_empty=not drop_empty_lines, block_bytes=block_bytes), on_error, max_errors))


def read_tfrecords(paths: Any, *, raw: bool = False, columns: Any = None, types: Any = None, block_bytes: int | None = None,
                   infer_rows: int | None = None, tf_schema: Any = None, on_error: str = "raise", max_errors: int | None = None,
                   **more: Any) -> Dataset:
    """tf.train.Example records; raw=True: the records as they are, in the column "bytes"."""
    _drop_ignored("read_tfrecords", more)
    return _read("tfrecords", paths, **_bad(dict(raw=raw, columns=columns, types=_types(types), block_bytes=block_bytes, infer_rows=infer_rows),
                                            on_error, max_errors))


_MODES = {None: 0, "L": 1, "RGB": 3, "RGBA": 4}


def read_images(paths: Any, *, size: Any = None, mode: str | None = None, include_paths: bool = False, labels: bool = False, rescale: bool = False,
                on_error: str = "raise", max_errors: int | None = None, **more: Any) -> Dataset:
    """JPEG and PNG files: the column "image" (height, width, channels). size: (height, width) to scale to; labels: the number of the image's
    folder."""
    _drop_ignored("read_images", more)
    if mode not in _MODES:
        raise ValueError("mode must be one of L, RGB and RGBA, not %r" % (mode,))
    height, width = size or (0, 0)
    return _read("images", paths, **_bad(dict(height=int(height), width=int(width), channels=_MODES[mode], include_paths=include_paths,
                                              labels=labels, rescale=rescale), on_error, max_errors))


def read_numpy(paths: Any, *, column: str = "data", **more: Any) -> Dataset:
    """.npy and .npz files."""
    _drop_ignored("read_numpy", more)
    return _read("numpy", paths, column=column)


def read_idx(files: Any, **named: Any) -> Dataset:
    """The files of MNIST and its like: read_idx({"image": "train-images-idx3-ubyte", "label": "train-labels-idx1-ubyte.gz"})."""
    files = dict(files or {}, **named)
    return _read("idx", list(files.values()), names=list(files))


def read_binary_files(paths: Any, *, include_paths: bool = False, **more: Any) -> Dataset:
    """A file a row, in the column "bytes"."""
    _drop_ignored("read_binary_files", more)
    return _read("binary", paths, include_paths=include_paths)


def read_sqlite(path: Any, table: Any, *, columns: Any = None, infer_rows: int | None = None, on_error: str = "raise",
                max_errors: int | None = None, key: str | None = None, num_blocks: int | None = None) -> Dataset:
    """A table of a SQLite file, or a query (SELECT ...). key: an indexed column of whole numbers, ranges of which are blocks, so that workers do not all run the whole query."""
    return _read("sqlite", path, **_bad(dict(table=table, columns=columns, infer_rows=infer_rows, key=key, num_blocks=num_blocks), on_error, max_errors))


def read_sql(sql: str, connection_factory: Any, **more: Any) -> Dataset:
    """Rows of a query over a DB-API connection (connection_factory() makes one). A SQLite file is read by the library itself: read_sqlite."""
    _drop_ignored("read_sql", more)

    def rows() -> Any:
        connection = connection_factory()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            names = [column[0] for column in cursor.description]
            while True:
                block = cursor.fetchmany(4096)
                if not block:
                    return
                yield _convert.from_rows([dict(zip(names, row)) for row in block])
        finally:
            connection.close()

    return _stream(_OneThread(rows), "sql")


class _OneThread:
    """A generator that runs in one thread of its own: connections of databases do not like to change threads."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self) -> Any:
        import queue
        import threading

        blocks, stop = queue.Queue(2), threading.Event()

        def put(item: Any) -> Any:
            while not stop.is_set():
                try:
                    return blocks.put(item, timeout=0.1)
                except queue.Full:
                    pass

        def work() -> Any:
            try:
                for block in self.function():
                    put((block, None))
                    if stop.is_set():
                        return
                put((None, None))
            except BaseException as error:  # raised again by whoever reads
                put((None, error))

        threading.Thread(target=work, name="unisono-sql", daemon=True).start()
        try:
            while True:
                block, error = blocks.get()
                if error is not None:
                    raise error
                if block is None:
                    return
                yield block
        finally:
            stop.set()


# ---- Parquet and Arrow, by pyarrow ----


def _need(module: str, what: str, package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError("%s needs %s, which is not installed: pip install %s" % (what, package, package)) from None


class _Parquet:
    """Row groups as blocks: their sizes are in the files' ends."""

    def __init__(self, paths: Any, columns: Any) -> None:
        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        self.columns, self.groups, self.rows, self.size = columns, [], [], 0
        schema = None
        for path in paths:
            file = _opened(parquet, path)
            if columns:
                missing = [name for name in columns if name not in file.schema_arrow.names]
                if missing:
                    raise KeyError("%s has no column %s; it has %s" % (path, ", ".join(missing), ", ".join(file.schema_arrow.names)))
            fields = [(name, file.schema_arrow.field(name).type) for name in columns or file.schema_arrow.names]
            if schema is None:
                schema, self.first = fields, path
            elif file.metadata.num_rows > 0 and fields != schema:
                different = next((one, other) for one, other in itertools.zip_longest(fields, schema, fillvalue=("nothing", "")) if one != other)
                raise ValueError("%s has other columns than %s: %s %s where that has %s %s" % ((path, paths[0]) + different[0] + different[1]))
            for group in builtins.range(file.num_row_groups):
                found = file.metadata.row_group(group)
                self.groups.append((path, group))
                self.rows.append(found.num_rows)
                self.size += found.total_byte_size

    def __call__(self, number: int) -> Any:
        path, group = self.groups[number]
        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        return _convert.from_arrow(_opened(parquet, path).read_row_group(group, columns=self.columns, use_threads=False))

    def empty(self) -> Any:
        """The columns, when there are no rows."""
        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        return _convert.from_arrow(parquet.read_table(self.first, columns=self.columns).slice(0, 0))


def _opened(parquet: Any, path: str) -> Any:
    try:
        return parquet.ParquetFile(path)
    except OSError as error:
        raise type(error)("%s: %s" % (path, error)) from None
    except Exception as error:  # ArrowInvalid: cut off, or no Parquet
        raise ValueError("%s is no Parquet file that can be read: %s" % (path, error)) from None


def _find(paths: Any, suffixes: Any) -> list[str]:
    import glob

    out = []
    for path in _paths(paths):
        if os.path.isdir(path):
            found = sorted(os.path.join(folder, name) for folder, folders, names in os.walk(path) for name in names
                           if name.endswith(suffixes) and not name.startswith((".", "_")))
        elif glob.has_magic(path) and not os.path.exists(path):
            found = sorted(glob.glob(path, recursive=True))
        else:
            found = [path]
        if not found or not os.path.exists(found[0]):
            raise FileNotFoundError("there is no file %s" % path)
        out += found
    return out


def read_parquet(paths: Any, *, columns: Any = None, **more: Any) -> Dataset:
    """Parquet files, by pyarrow; every worker reads only the row groups that it needs, which are its blocks."""
    _drop_ignored("read_parquet", more)
    source = _Parquet(_find(paths, (".parquet", ".pq", ".parq")), columns)
    if not source.groups:
        return _table(source.empty())
    out = Dataset(("blocks", source, "parquet", numpy.array(source.rows, dtype=numpy.int64), source.size))
    out._guard(lambda: out._native)
    return out


def read_arrow(paths: Any, **more: Any) -> Dataset:
    """Arrow IPC files (Feather version 2), mapped."""
    _drop_ignored("read_arrow", more)
    feather = _need("pyarrow.feather", "read_arrow", "pyarrow")
    import pyarrow

    return from_arrow([feather.read_table(path, memory_map=True) for path in _find(paths, (".arrow", ".feather", ".ipc"))] or pyarrow.table({}))


# ---- memory ----


def _table(table: Any) -> Dataset:
    return Dataset(("table", TableHolder(table)))


def from_items(items: Any, **more: Any) -> Dataset:
    """Dictionaries by their keys; numbers and text in the column "item"; any other objects as they are."""
    return _table(_convert.from_rows(items))


def range(n: int, **more: Any) -> Dataset:
    """One column "id" with 0 to n - 1."""
    return Dataset(("read", "range", [], {"n": int(n)}))


def range_tensor(n: int, *, shape: Any = (1,), **more: Any) -> Dataset:
    """One column "data": row i is an array of that shape filled with i."""
    return range(n)._map(_Fill(tuple(shape)), "range_tensor", 0, False, False)


class _Fill:
    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def __call__(self, table: Any) -> Any:
        ids = _convert.to_numpy(table)["id"]
        return _convert.from_columns({"data": numpy.ones((len(ids),) + self.shape, numpy.int64) * ids.reshape((-1,) + (1,) * len(self.shape))})


def from_numpy(arrays: Any, column: str = "data") -> Dataset:
    """An array, a list of arrays (one below the other) or a dictionary of arrays; shared, not copied."""
    if isinstance(arrays, dict):
        return _table(_convert.from_columns(arrays))
    if isinstance(arrays, (list, tuple)):
        arrays = numpy.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    return _table(_convert.from_columns({column: arrays}))


from_numpy_refs = from_numpy


def from_pandas(frames: Any, **more: Any) -> Dataset:
    """A pandas data frame, or several, one below the other."""
    if isinstance(frames, (list, tuple)):
        import pandas

        frames = pandas.concat(frames, ignore_index=True)
    return _table(_convert.from_pandas(frames))


def from_arrow(tables: Any, **more: Any) -> Dataset:
    """A pyarrow table, or several, one below the other; shared, not copied, where Arrow's layout is the library's."""
    if isinstance(tables, (list, tuple)):
        import pyarrow

        tables = pyarrow.concat_tables(tables)
    return _table(_convert.from_arrow(tables))


class _TorchItems:
    """Rows of a PyTorch dataset that knows its length, by number."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, begin: int, end: int) -> Any:
        items = [self.dataset[i] for i in builtins.range(begin, max(end, begin + 1))]
        table = _convert.from_rows([_plain(item) for item in items])
        return table if begin < end else table.slice(0, 0)


def _plain(item: Any) -> dict:
    """(features, label) as columns; dictionaries as they are."""
    if isinstance(item, dict):
        return {name: _value(value) for name, value in item.items()}
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return {"item": _value(item[0]), "label": _value(item[1])}
    if isinstance(item, (tuple, list)):
        return {"item_%d" % i: _value(value) for i, value in enumerate(item)}
    return {"item": _value(item)}


def _value(value: Any) -> Any:
    found = _convert._as_array(value)
    return value if found is None else found


def from_torch(dataset: Any, **more: Any) -> Dataset:
    """A PyTorch dataset: by number when it has a length (any order), otherwise as a stream. Pairs become the columns "item" and "label"."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return _python(_TorchItems(dataset), "torch", len(dataset))

    def rows() -> Any:
        block = []
        for item in dataset:
            block.append(_plain(item))
            if len(block) == 256:
                yield _convert.from_rows(block)
                block = []
        if block:
            yield _convert.from_rows(block)

    return _stream(rows, "torch")


def from_tf(dataset: Any, batch_size: Any = 256) -> Dataset:
    """A tf.data.Dataset, read once now (it cannot be sent to workers). Pairs become the columns "item" and "label"."""
    blocks = []
    for batch in dataset.batch(batch_size).as_numpy_iterator():
        blocks.append(_plain(batch))
    if not blocks:
        raise ValueError("the tf.data.Dataset has no rows")
    return _table(_convert.from_columns({name: numpy.concatenate([block[name] for block in blocks]) for name in blocks[0]}))


from_huggingface = from_torch


# ---- sources of the user's own ----


def _python(function: Any, name: str, rows: Any) -> Dataset:
    out = Dataset(("python", function, name, rows))
    out._guard(lambda: out._native)
    return out


def _stream(function: Any, name: str) -> Dataset:
    return _python(function, name, -1)


def from_generator(function: Any, name: str = "generator") -> Dataset:
    """function() gives an iterator of rows (dictionaries or anything else) or of batches (dictionaries of arrays, data frames); called once an
    epoch."""
    return _stream(_Blocks(function), name)


class _Blocks:
    """Rows and batches as Tables."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self) -> Any:
        rows = []
        for item in self.function():
            if _is_batch(item):
                if rows:
                    yield _convert.from_rows(rows)
                    rows = []
                yield _convert.from_user(item)
                continue
            rows.append(item)
            if len(rows) == 256:
                yield _convert.from_rows(rows)
                rows = []
        if rows:
            yield _convert.from_rows(rows)


def _is_batch(item: Any) -> bool:
    if hasattr(item, "iloc") or type(item).__module__.split(".")[0] == "pyarrow":
        return True
    return isinstance(item, dict) and bool(item) and all(isinstance(value, numpy.ndarray) and value.ndim > 0 for value in item.values()) \
        and len({len(value) for value in item.values()}) == 1 and len(next(iter(item.values()))) > 1


def read_datasource(datasource: Any, *, parallelism: int = -1, override_num_blocks: Any = None, ray_remote_args: Any = None,
                    concurrency: Any = None, **read_args: Any) -> Dataset:
    """A Datasource: its read tasks give blocks of rows."""
    from unisono.data.datasource import blocks_of

    return _stream(blocks_of(datasource, parallelism, read_args), type(datasource).__name__)
