"""Tables as people want them: dictionaries of NumPy arrays, pandas, rows, and any Python objects. (pyarrow is in _arrow.py, the other direction in _incoming.py.)

Numbers are shared, never copied. Text becomes object arrays of str or bytes; in a data frame it is shared, too, where pandas keeps its strings in Arrow's
buffers (from pandas 3 on, with pyarrow).
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy

from unisono._unisono import Array, Table
from unisono.data._incoming import EXACT

FORMATS = ("default", "numpy", "pandas", "pyarrow", "native")


def array(wrapped: Array) -> numpy.ndarray:
    """An Array as NumPy sees it, without a copy."""
    out = numpy.asarray(wrapped)
    # The buffer protocol's 64-bit letters are C's long long, which NumPy and others tell from int64.
    return out.view(numpy.int64 if out.dtype.kind == "i" else numpy.uint64) if out.dtype.char in "qQ" else out


def _lists(values: numpy.ndarray, offsets: numpy.ndarray) -> numpy.ndarray:
    out = numpy.empty(len(offsets) - 1, dtype=object)
    for i in range(len(out)):
        out[i] = values[offsets[i]:offsets[i + 1]]
    return out


def _texts(table: Table, index: int) -> numpy.ndarray:
    return numpy.fromiter(table.texts(index), dtype=object, count=table.num_rows)


def _unpickled(table: Table, index: int) -> list:
    """The objects that from_objects kept, of a column of the kind "object". No reader makes such a column, and no function of the user's but by from_objects."""
    import pickle

    return [pickle.loads(data) for data in table.texts(index)]


def _objects(table: Table, index: int) -> numpy.ndarray:
    values = _unpickled(table, index)
    out = numpy.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # arrays and lists among them stay what they are
        out[place] = value
    return out


def _missing(column: numpy.ndarray, valid: numpy.ndarray) -> numpy.ndarray:
    """Numbers with gaps become floating point with NaN; whole numbers that floating point would round, bools, lists and text become objects with None."""
    kind = column.dtype.kind
    if kind in "iu" and not (numpy.abs(column[valid].astype(numpy.float64)) >= EXACT).any():
        column, kind = column.astype(numpy.float64), "f"
    elif kind != "f":
        column = column.astype(object)
    else:
        column = column.copy()
    column[~valid] = numpy.nan if kind == "f" else None
    return column


def _column(table: Table, index: int, column: tuple) -> numpy.ndarray:
    """column: what columns() says of the one with this number."""
    _, kind, values, offsets, valid = column
    if kind in ("string", "binary", "object"):
        return _objects(table, index) if kind == "object" else _texts(table, index)
    out = array(values) if kind == "number" else _lists(array(values), array(offsets))
    return out if valid is None else _missing(out, array(valid))


def to_numpy(table: Table) -> dict[str, numpy.ndarray]:
    """A dictionary of arrays."""
    return {column[0]: _column(table, index, column) for index, column in enumerate(table.columns())}


def _shared_text(dtype: Any, table: Table, index: int, column: tuple) -> Any:
    """A column of strings as pandas keeps it, without a str for each. A column without any is objects; so is one with strings that are not UTF-8 (paths), which pandas's
    own strings refuse."""
    import pandas
    import pyarrow

    from unisono.data._arrow import texts

    out = texts(table.num_rows, *column[1:])
    try:
        out.validate(full=True)
    except pyarrow.ArrowInvalid:
        return pandas.Series(_texts(table, index), dtype=object)
    return dtype.__from_arrow__(out) if out.null_count < table.num_rows else _texts(table, index)


def to_pandas(table: Table) -> Any:
    """A data frame; tensors become columns of arrays."""
    import pandas

    dtype = pandas.Series([""]).dtype  # of text: with pandas 3 and pyarrow, strings in Arrow's buffers
    shares = getattr(dtype, "storage", "") == "pyarrow"
    columns: dict[str, Any] = {}
    for index, described in enumerate(table.columns()):
        is_shared = shares and described[1] == "string"
        column = _shared_text(dtype, table, index, described) if is_shared else _column(table, index, described)
        columns[described[0]] = column if column.ndim == 1 else list(column)
    return pandas.DataFrame(columns, copy=False)


def is_objects(table: Table) -> bool:
    """Rows that are any Python objects, kept as pickles: a mark in memory, never a name in the data."""
    return [column[1] for column in table.schema()] == ["object"]


def refuse_objects(fields: list, names: Any = None) -> None:
    """Objects are not tensors. fields: as Table.schema gives them; names: the columns that are wanted."""
    for name, kind, _, _ in fields:
        if kind == "object" and (names is None or name in names):
            raise TypeError("column %r holds Python objects (tuples, tensors ...): make dictionaries of numbers of them first, with map or map_batches" % name)


def to_objects(table: Table) -> list:
    """The objects that from_objects kept."""
    return _unpickled(table, 0)


def to_user(table: Table, batch_format: str | None = "default") -> Any:
    """A Table as a user wants it."""
    return converter(batch_format)(table)


def converter(batch_format: str | None = "default") -> Callable[[Table], Any]:
    """to_user for many tables of one dataset."""
    if batch_format not in FORMATS and batch_format is not None:
        raise ValueError("batch_format must be one of %s, not %r" % (", ".join(FORMATS), batch_format))
    if batch_format == "native":  # the library's own Table
        return lambda table: table
    convert: Callable[[Table], Any] = to_pandas if batch_format == "pandas" else to_numpy
    if batch_format == "pyarrow":
        from unisono.data._arrow import to_arrow as convert

    chosen: Callable[[Table], Any] | None = None

    def convert_one(table: Table) -> Any:
        nonlocal chosen
        if chosen is None:
            chosen = to_objects if is_objects(table) else convert
        return chosen(table)

    return convert_one


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, numpy.generic) and value.dtype != object else value


def to_rows(table: Table) -> Iterator[Any]:
    """One dictionary a row."""
    if is_objects(table):
        yield from to_objects(table)
        return
    columns = to_numpy(table)
    names = list(columns)
    for row in zip(*columns.values()) if columns else ():
        yield {name: _scalar(value) for name, value in zip(names, row)}
