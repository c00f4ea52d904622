"""Datasets of files and databases. (What is in memory, and sources of the user's own: _sources.py.)"""

from __future__ import annotations

import builtins
import itertools
import os
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Callable, Iterator

import numpy

from unisono import _safe
from unisono._arguments import strict
from unisono._unisono import Table
from unisono.data import _csv, _incoming
from unisono.data._dataset import Dataset
from unisono.data._options import drop_hints, some_names, whole
from unisono.data._sources import from_arrow, of_stream, of_table

_ERRORS = ("raise", "skip")


def _paths(paths: Any) -> list[str]:
    paths = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    if not isinstance(paths, Iterable):
        raise TypeError("paths must be a path or a list of paths, not %s" % type(paths).__name__)
    return [_local(os.fsdecode(path)) for path in paths]


def _local(path: str) -> str:
    """A path without the scheme of local files; other schemes are those of somewhere else."""
    scheme, found, rest = path.partition("://")
    if not found or os.path.exists(path):
        return os.path.expanduser(path)
    if scheme not in ("file", "local"):
        raise ValueError("%s: files are those of this machine; mount the file system, or fetch the file first" % path)
    return rest


def _bad(options: dict, on_error: str, max_errors: int | None) -> dict:
    """on_error="skip": rows that cannot be read are left out and counted (stats()["skipped"]); at most max_errors of them."""
    if on_error not in _ERRORS:
        raise ValueError('on_error must be "raise" or "skip", not %r' % (on_error,))
    max_errors = None if max_errors is None else whole("max_errors", max_errors)
    options.update(skip_bad=on_error == "skip" and max_errors != 0, max_skipped=max_errors or 0)
    return options


def _types(types: Any) -> list:
    """{"name": "float32" | ("float32", (28, 28)) | str | bytes | "list of int64"} as the library has them."""
    out: list[tuple] = []
    if types is not None and not isinstance(types, dict):
        raise TypeError("types must be a dictionary such as {\"x\": \"float32\"}, not %r" % (types,))
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


def _read(kind: str, paths: Any, **options: Any) -> Dataset:
    for name in ("block_bytes", "infer_rows"):
        if options.get(name) is not None:
            whole(name, options[name], 1)
    out = Dataset(("read", kind, _paths(paths), {key: value for key, value in options.items() if value is not None}))
    _ = out._native  # a file that is not there is an error now
    return out


# ---- files ----


def read_csv(paths: Any, *, delimiter: str | None = None, sep: str | None = None, quote: str | None = None, quotechar: str | None = None,
             quoting: int | None = None, header: Any = "infer", column_names: Any = None, names: Any = None, columns: Any = None, usecols: Any = None,
             types: Any = None, dtype: Any = None, float_dtype: Any = None, null_values: Any = None, na_values: Any = None, keep_default_na: bool = True,
             encoding: str | None = None, on_bad_lines: str | None = None, short_rows: str | None = None, long_rows: str | None = None,
             duplicate_names: str | None = None, block_bytes: int | None = None, infer_rows: int | None = None, on_error: str = "raise",
             max_errors: int | None = None, **more: Any) -> Dataset:
    """Files, directories or globs of CSV (RFC 4180); .gz and .zst too. types: {"name": "float32", ...} for what shall not be inferred.

    delimiter: a tab for .tsv, otherwise a comma. quoting=csv.QUOTE_NONE: quotes are characters like any other. encoding: utf-8, latin-1 or windows-1252. short_rows: "error", "skip"
    or "fill" (with missing values); long_rows: "error", "skip" or "cut". duplicate_names: "error", or "rename" (x.1, "Unnamed: 2"). column_names are used instead of those of a header.
    sep, quotechar, quoting, header, names, usecols, dtype, na_values, keep_default_na and on_bad_lines are pandas' and mean what they mean there."""
    drop_hints("read_csv", more)
    options = _csv.options_of(delimiter, sep, quote, quotechar, quoting, header, column_names, names, encoding, null_values, na_values, keep_default_na,
                              on_bad_lines, short_rows, long_rows, duplicate_names)
    columns, types = _csv.columns_of(columns, usecols, types, dtype, lambda: _read("csv", paths, **dict(options)).columns())
    options.update(columns=columns, types=_types(types), float_dtype=None if float_dtype is None else numpy.dtype(float_dtype).name, block_bytes=block_bytes,
                   infer_rows=infer_rows)
    return _read("csv", paths, **_bad(options, on_error, max_errors))


def read_json(paths: Any, *, columns: Any = None, types: Any = None, block_bytes: int | None = None, infer_rows: int | None = None,
              lines: bool = False, on_error: str = "raise", max_errors: int | None = None, **more: Any) -> Dataset:
    """JSON lines, or one file with a list of objects; which of them, is read from the file, whatever `lines` says."""
    drop_hints("read_json", more)
    return _read("json", paths, **_bad(dict(columns=columns, types=_types(types), block_bytes=block_bytes, infer_rows=infer_rows), on_error,
                                       max_errors))


def read_text(paths: Any, *, column: str = "text", drop_empty_lines: bool = True, block_bytes: int | None = None, on_error: str = "raise",
              max_errors: int | None = None, encoding: str = "utf-8", **more: Any) -> Dataset:
    """One line a row."""
    drop_hints("read_text", more)
    if str(encoding).lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
        raise ValueError("read_text reads UTF-8, not %.40r" % (encoding,))
    return _read("text", paths, **_bad(dict(column=column, keep_empty=not drop_empty_lines, block_bytes=block_bytes), on_error, max_errors))


def read_tfrecords(paths: Any, *, raw: bool = False, columns: Any = None, types: Any = None, block_bytes: int | None = None,
                   infer_rows: int | None = None, on_error: str = "raise", max_errors: int | None = None,
                   **more: Any) -> Dataset:
    """tf.train.Example records; raw=True: the records as they are, in the column "bytes"."""
    drop_hints("read_tfrecords", more)
    return _read("tfrecords", paths, **_bad(dict(raw=raw, columns=columns, types=_types(types), block_bytes=block_bytes, infer_rows=infer_rows),
                                            on_error, max_errors))


_MODES = {None: 0, "L": 1, "RGB": 3, "RGBA": 4}


def read_images(paths: Any, *, size: Any = None, mode: str | None = None, include_paths: bool = False, labels: bool = False, rescale: bool = False,
                on_error: str = "raise", max_errors: int | None = None, **more: Any) -> Dataset:
    """JPEG and PNG files: the column "image" (height, width, channels). size: (height, width) to scale to; labels: the number of the image's
    folder."""
    drop_hints("read_images", more)
    if mode not in _MODES:
        raise ValueError("mode must be one of L, RGB and RGBA, not %r" % (mode,))
    if size is not None and (not isinstance(size, (list, tuple)) or len(size) != 2):
        raise TypeError("size must be (height, width), not %r" % (size,))
    height, width = (whole("size", each, 1) for each in size) if size is not None else (0, 0)
    return _read("images", paths, **_bad(dict(height=height, width=width, channels=_MODES[mode], include_paths=include_paths,
                                              labels=labels, rescale=rescale), on_error, max_errors))


def read_numpy(paths: Any, *, column: str = "data", **more: Any) -> Dataset:
    """.npy and .npz files."""
    drop_hints("read_numpy", more)
    return _read("numpy", paths, column=column)


def read_idx(files: dict[str, Any] | None = None, **named: Any) -> Dataset:
    """The files of MNIST and its like, one a column: read_idx({"image": "train-images-idx3-ubyte", "label": "train-labels-idx1-ubyte.gz"}), or
    read_idx(image=..., label=...)."""
    if files is not None and not isinstance(files, dict) or not files and not named:
        raise TypeError("read_idx needs a file for each column, such as {\"image\": \"train-images-idx3-ubyte\"}, not %r" % (files,))
    files = dict(files or {}, **named)
    return _read("idx", list(files.values()), names=list(files))


def read_binary_files(paths: Any, *, include_paths: bool = False, **more: Any) -> Dataset:
    """A file a row, in the column "bytes"."""
    drop_hints("read_binary_files", more)
    return _read("binary", paths, include_paths=include_paths)


@strict()
def read_sqlite(path: Any, table: Any, *, columns: Any = None, infer_rows: int | None = None, on_error: str = "raise",
                max_errors: int | None = None, key: str | None = None, num_blocks: int | None = None) -> Dataset:
    """A table of a SQLite file, or a query (SELECT ...). key: an indexed column of whole numbers, ranges of which are blocks, so that workers do not all run the whole query."""
    return _read("sqlite", path, **_bad(dict(table=table, columns=columns, infer_rows=infer_rows, key=key, num_blocks=num_blocks), on_error, max_errors))


def read_sql(sql: str, connection_factory: Any, **more: Any) -> Dataset:
    """Rows of a query over a DB-API connection (connection_factory() makes one). A SQLite file is read by the library itself: read_sqlite."""
    drop_hints("read_sql", more)
    if hasattr(connection_factory, "cursor") or not callable(connection_factory):
        raise TypeError("connection_factory must be a function that makes a connection, such as lambda: sqlite3.connect(path), not %s"
                        % type(connection_factory).__name__)

    def rows() -> Iterator[Table]:
        connection = connection_factory()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            names = [column[0] for column in cursor.description]
            types: dict[str, type] = {}
            while True:
                block = cursor.fetchmany(4096)
                if not block:
                    return
                columns = dict(zip(names, map(list, zip(*block))))
                for name, values in columns.items():
                    columns[name] = _of_one_type(name, values, types)
                yield _incoming.from_columns(columns)
        finally:
            connection.close()

    return of_stream(_OneThread(rows), "sql")


def _of_one_type(name: str, values: list, types: dict[str, type]) -> list:
    """A column is of the type that its first rows have: whole numbers among floating point are floating point, whole numbers with gaps are so from the beginning or an error."""
    known = {type(value) for value in values}
    if name not in types:
        numbers = bool(known & {int, float}) and known <= {int, float, type(None)}
        types[name] = int if known == {int} else float if numbers else object
    if types[name] is float:
        return [float(value) if type(value) is int and int(float(value)) == value else value for value in values]
    if types[name] is int and known & {float, type(None)}:
        raise ValueError("column %r: whole numbers in the first rows, %s later; ask for one type in the query, such as CAST(%s AS REAL) or COALESCE(%s, 0)"
                         % (name, "NULL" if type(None) in known else "fractions", _safe.text(name), _safe.text(name)))
    return values


class _OneThread:
    """A generator that runs in one thread of its own: connections of databases do not like to change threads."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self) -> Any:
        import queue
        import threading

        blocks: queue.Queue = queue.Queue(2)
        stop = threading.Event()

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
            except BaseException as error:  # raised again in the reader
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


def _need(module: str, what: str, package: str) -> ModuleType:
    import importlib

    try:
        found = importlib.import_module(module)
    except ImportError:
        raise ImportError("%s needs %s, which is not installed: pip install %s" % (what, package, package)) from None
    _refuse_old_arrow(what)
    return found


def _refuse_old_arrow(what: str) -> None:
    """Before 14.0.1 pyarrow itself unpickled what a file calls an extension type of Python (CVE-2023-47248)."""
    import sys

    version = str(getattr(sys.modules.get("pyarrow"), "__version__", "14.0.1"))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < (14, 0, 1):
        raise ImportError("%s needs pyarrow 14.0.1 or newer, not %s, which runs code that a file brings along (CVE-2023-47248): pip install --upgrade pyarrow"
                          % (what, version))


# What a row group may become in memory: this, or so many times what it has in the file if that is more. A run of equal values takes a few
# bytes in the file however long it is, so that a file of 695 bytes can ask for 100 GB.
_GROUP_BYTES = 1 << 30
_GROUP_RATIO = 1000
_WIDTHS = {"BOOLEAN": 1 / 8, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


# Otherwise pyarrow has the bytes of a whole row group in memory beside its values.
_STREAMED: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}


def _group_limit(path: str, group: Any) -> int:
    stored = sum(max(group.column(number).total_compressed_size, 0) for number in builtins.range(group.num_columns))
    return max(_GROUP_BYTES, _GROUP_RATIO * min(stored, os.path.getsize(path)))


def _refuse_group(path: str, number: int, bytes_: float) -> None:
    raise ValueError(_safe.text("%s: row group %d becomes %.1f GB in memory, too much for what it has in the file; if you trust it, write it with "
                                "smaller row groups" % (path, number, bytes_ / 1e9)))


def _check_row_group(file: Any, group: Any, path: str, number: int, columns: Any) -> None:
    """Before pyarrow asks for the memory: how many values there are is in the file's end."""
    needed = 0.0
    for at in builtins.range(group.num_columns):
        column = group.column(at)
        name = column.path_in_schema
        if columns and not any(name == each or name.startswith(each + ".") for each in columns):
            continue
        width = _WIDTHS.get(column.physical_type)
        needed += max(column.num_values, 0) * (file.schema.column(at).length if width is None else width)
    # Rare, and the sizes in the file take as long to ask for as all of the above.
    if needed > _GROUP_BYTES and needed > _group_limit(path, group):
        _refuse_group(path, number, needed)


def _repeated_texts(group: Any) -> list[str]:
    """Columns of texts that the file has once and refers to, and that could be too large when they are written out."""
    names = []
    for at in builtins.range(group.num_columns):
        column = group.column(at)
        if column.physical_type == "BYTE_ARRAY" and any("DICTIONARY" in each for each in column.encodings) \
                and column.num_values * max(column.total_uncompressed_size, 0) > _GROUP_BYTES:
            names.append(column.path_in_schema)
    return names


def _without_dictionaries(table: Any, names: Any, group: Any, path: str, number: int) -> Any:
    """The texts written out, when that is not too large."""
    import pyarrow
    from pyarrow import compute

    limit, needed, changed = _group_limit(path, group), table.nbytes, {}
    for at, field in enumerate(table.schema):
        if pyarrow.types.is_dictionary(field.type) and field.name in names:
            column = table.column(at)
            for chunk in column.chunks:
                needed += compute.sum(compute.take(compute.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
            changed[at] = column
    if needed > limit:
        _refuse_group(path, number, needed)
    for at, column in changed.items():
        table = table.set_column(at, table.schema.field(at).name, column.cast(column.type.value_type))
    return table


class _Parquet:
    """Row groups as blocks: their sizes are in the files' ends."""

    def __init__(self, paths: Any, columns: Any) -> None:
        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        self.columns, self.groups, self.rows, self.size = columns, [], [], 0
        schema = None
        for path in paths:
            file = _opened(parquet.ParquetFile, path)
            found_schema = file.schema_arrow  # made anew at each use: a second for 20,000 columns
            names = found_schema.names
            if columns:
                known = set(names)
                missing = [name for name in columns if name not in known]
                if missing:
                    raise KeyError(_safe.text("%s has no column %s; it has %s" % (path, ", ".join(missing), ", ".join(names))))
            fields = [(name, found_schema.field(name).type) for name in columns or names]
            if schema is None:
                schema, self.first = fields, path
            elif file.metadata.num_rows > 0 and fields != schema:
                different = next((one, other) for one, other in itertools.zip_longest(fields, schema, fillvalue=("nothing", "")) if one != other)
                raise ValueError(_safe.text("%s has other columns than %s: %s %s where that has %s %s" % ((path, paths[0]) + different[0] + different[1])))
            for group in builtins.range(file.num_row_groups):
                found = file.metadata.row_group(group)
                _check_row_group(file, found, path, group, columns)
                self.groups.append((path, group))
                self.rows.append(found.num_rows)
                self.size += found.total_byte_size

    def __call__(self, number: int) -> Any:
        path, group = self.groups[number]
        from unisono.data import _arrow

        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        file = _opened(parquet.ParquetFile, path, **_STREAMED)
        found = file.metadata.row_group(group)
        repeated = _repeated_texts(found)
        if repeated:
            file = _opened(parquet.ParquetFile, path, read_dictionary=repeated, **_STREAMED)
        table = _opened(lambda _: file.read_row_group(group, columns=self.columns, use_threads=False), path)
        return _arrow.from_arrow(_without_dictionaries(table, repeated, found, path, group) if repeated else table)

    @property
    def files(self) -> list[str]:
        """The file of each block."""
        return [os.fspath(path) for path, _ in self.groups]

    def empty(self) -> Any:
        """The columns, when there are no rows."""
        from unisono.data import _arrow

        parquet = _need("pyarrow.parquet", "read_parquet", "pyarrow")
        return _arrow.from_arrow(parquet.read_table(self.first, columns=self.columns).slice(0, 0))


def _opened(opener: Callable, path: str, what: str = "a Parquet file", **options: Any) -> Any:
    try:
        return opener(path, **options)
    except OSError as error:
        raise type(error)(_safe.text("%s: %s" % (path, error))) from None
    except Exception as error:  # ArrowInvalid: cut off, or something else
        raise ValueError(_safe.text("cannot read %s as %s: %s" % (path, what, error))) from None


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
            raise FileNotFoundError(_safe.text("there is no file %s" % path))
        out += found
    return out


def read_parquet(paths: Any, *, columns: Any = None, **more: Any) -> Dataset:
    """Parquet files, by pyarrow; every worker reads only the row groups that it needs, which are its blocks."""
    drop_hints("read_parquet", more)
    columns = None if columns is None else some_names(columns, "columns")
    source = _Parquet(_find(paths, (".parquet", ".pq", ".parq")), columns)
    if not source.groups:
        return of_table(source.empty())
    out = Dataset(("blocks", source, "parquet", numpy.array(source.rows, dtype=numpy.int64), source.size))
    out._guard(lambda: out._native)
    return out


def read_arrow(paths: Any, **more: Any) -> Dataset:
    """Arrow IPC files (Feather version 2): checked, and mapped if only you can write to them."""
    drop_hints("read_arrow", more)
    feather = _need("pyarrow.feather", "read_arrow", "pyarrow")

    def read(path: str) -> Any:
        # Mapped files are not copied, so other users must not be able to change them after the check.
        status = os.stat(path)
        own = status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
        table = feather.read_table(path, memory_map=own)
        # pyarrow takes offsets and indices as they are in the file, wherever they lead.
        table.validate(full=True)
        return table

    return from_arrow([_opened(read, path, "an Arrow IPC file") for path in _find(paths, (".arrow", ".feather", ".ipc"))])
