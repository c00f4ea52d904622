"""pyarrow's tables as Tables and back, without a copy where Arrow's layout is the library's (the Arrow C data interface)."""

from __future__ import annotations

from typing import Any

import numpy

from unisono import _safe
from unisono._unisono import Error, Table
from unisono.data._convert import array


def _is(kind: Any, *names: str) -> bool:
    """Whether pyarrow says one of these of a type; older versions do not know all of them."""
    import pyarrow

    return any(getattr(pyarrow.types, "is_" + name, lambda _: False)(kind) for name in names)


def _readable(kind: Any) -> Any:
    """The type that a column is cast to before it is read; mostly itself."""
    import pyarrow

    if _is(kind, "dictionary", "run_end_encoded"):
        kind = kind.value_type
    if _is(kind, "null"):
        return pyarrow.float64()
    if _is(kind, "decimal"):
        return pyarrow.float64() if kind.scale > 0 else pyarrow.int64() if kind.precision <= 18 else pyarrow.large_string()
    if _is(kind, "string_view"):
        return pyarrow.large_string()
    if _is(kind, "binary_view", "fixed_size_binary"):
        return pyarrow.large_binary()
    if _is(kind, "time32"):
        return pyarrow.int32()
    return pyarrow.int64() if _is(kind, "time64") else kind


def _tensors(column: Any) -> Any:
    """A column of Arrow's (or Ray's) tensors of one shape as fixed-size lists of fixed-size lists."""
    import pyarrow

    kind = column.type
    storage = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
    shape = getattr(kind, "shape", None)
    if not isinstance(shape, (list, tuple)) or len(shape) < 2:
        return storage
    if getattr(kind, "permutation", None) not in (None, list(range(len(shape)))):
        raise TypeError("tensors with permuted axes are not read: make them contiguous")
    elements = storage.combine_chunks()
    elements = elements.chunk(0) if isinstance(elements, pyarrow.ChunkedArray) else elements
    flat = elements.flatten()
    for size in reversed(shape):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, int(size))
    return pyarrow.chunked_array([flat])


def _prepared(table: Any) -> Any:
    import pyarrow

    columns, names = [], []
    for field, column in zip(table.schema, table.columns):
        try:
            if isinstance(field.type, pyarrow.ExtensionType) or hasattr(field.type, "storage_type"):
                column = _tensors(column)
            kind = _readable(column.type)
            columns.append(column if kind == column.type else _cast(column, kind))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, TypeError) as error:
            raise TypeError("column %r is of Arrow's type %s, which is not read: %s" % (field.name, _safe.text(str(field.type)), _safe.text(str(error)))) from None
        names.append(field.name)
    return pyarrow.table(columns, schema=pyarrow.schema([pyarrow.field(name, column.type) for name, column in zip(names, columns)]))


def _cast(column: Any, kind: Any) -> Any:
    if _is(column.type, "run_end_encoded"):
        import pyarrow.compute

        column = pyarrow.compute.run_end_decode(column)
    return column.cast(kind)


def from_arrow(table: Any) -> Table:
    """A pyarrow table or record batch. Dates, times and durations are numbers of their unit."""
    import pyarrow
    from pyarrow.cffi import ffi

    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    if not isinstance(table, pyarrow.Table):
        raise TypeError("a pyarrow table is needed, not %s" % type(table).__name__)
    table = _prepared(table)
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pyarrow.RecordBatch.from_arrays([pyarrow.array([], type=field.type) for field in table.schema],
                                                                       schema=table.schema)
    c_schema, c_array = ffi.new("struct ArrowSchema*"), ffi.new("struct ArrowArray*")
    batch._export_to_c(int(ffi.cast("uintptr_t", c_array)), int(ffi.cast("uintptr_t", c_schema)))
    try:
        return Table.from_arrow(int(ffi.cast("uintptr_t", c_schema)), int(ffi.cast("uintptr_t", c_array)))
    except Error as error:
        refused = [field for field in table.schema if 'column "%s"' % _safe.text(field.name) in error.message]
        if error.code != "EUNSUPPORTED" or not refused:
            raise
        raise TypeError("column %r is of Arrow's type %s: %s"
                        % (refused[0].name, _safe.text(str(refused[0].type)), error.message.partition(": ")[2])) from None
    finally:
        if c_schema.release != ffi.NULL:
            c_schema.release(c_schema)


# ---- out ----


def _valid(valid: Any) -> Any:
    import pyarrow

    return None if valid is None else pyarrow.array(array(valid)).buffers()[1]


def _numbers(values: Any, valid: Any) -> Any:
    import pyarrow

    column: numpy.ndarray = array(values)
    if column.ndim == 1:
        return pyarrow.array(column, mask=None if valid is None else ~array(valid))
    flat = pyarrow.array(column.reshape(-1))
    for size in reversed(column.shape[1:]):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
    if valid is None:
        return flat
    return pyarrow.Array.from_buffers(flat.type, len(column), [_valid(valid)], children=[flat.flatten()])


def texts(rows: int, kind: str, values: Any, offsets: Any, valid: Any) -> Any:
    """A column of strings or of bytes, shared."""
    import pyarrow

    buffers = [_valid(valid), pyarrow.py_buffer(offsets), pyarrow.py_buffer(values)]
    return pyarrow.Array.from_buffers(pyarrow.large_string() if kind == "string" else pyarrow.large_binary(), rows, buffers)


def to_arrow(table: Table) -> Any:
    """A pyarrow table; numbers and text are shared."""
    import pyarrow

    columns = {}
    for name, kind, values, offsets, valid in table.columns():
        if kind == "number":
            columns[name] = _numbers(values, valid)
        elif kind == "list":
            elements = pyarrow.array(array(values))
            columns[name] = pyarrow.Array.from_buffers(pyarrow.large_list(elements.type), table.num_rows,
                                                       [_valid(valid), pyarrow.py_buffer(offsets)], children=[elements])
        elif kind == "object":
            raise TypeError("column %r holds Python objects, which Arrow cannot: make dictionaries of them first, with map or map_batches" % name)
        else:
            columns[name] = texts(table.num_rows, kind, values, offsets, valid)
    return pyarrow.table(columns)
