"""Tables as people want them: dictionaries of NumPy arrays, pandas, rows, and any Python objects. (pyarrow is in _arrow.py, the other direction in _incoming.py.)

Numbers are shared, never copied. Text becomes object arrays of str or bytes.
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
    texts = table.texts(index)
    out = numpy.empty(len(texts), dtype=object)
    out[:] = texts
    return out


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


def to_numpy(table: Table) -> dict[str, numpy.ndarray]:
    """A dictionary of arrays."""
    out = {}
    for index, (name, kind, values, offsets, valid) in enumerate(table.columns()):
        if kind == "number":
            column = array(values)
        elif kind == "list":
            column = _lists(array(values), array(offsets))
        else:
            out[name] = _objects(table, index) if kind == "object" else _texts(table, index)
            continue
        out[name] = column if valid is None else _missing(column, array(valid))
    return out


def to_pandas(table: Table) -> Any:
    """A data frame; tensors become columns of arrays."""
    import pandas

    columns = {}
    for name, column in to_numpy(table).items():
        columns[name] = column if column.ndim == 1 else list(column)
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
