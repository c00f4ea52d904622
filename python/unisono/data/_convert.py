"""Tables and what people have: dictionaries of NumPy arrays, pandas, pyarrow, rows, and any Python objects.

Numbers are shared in both directions, never copied. Text becomes object arrays of str or bytes. Rows that are neither dictionaries nor numbers nor text
(tuples, tensors of a framework) are kept as pickles in one column, and come out as themselves; they never leave this user's own processes.
"""

from __future__ import annotations

import io
from typing import Any

import numpy

from unisono._unisono import Array, Error, Table

OBJECTS = "__object__"
ITEM = "item"
FORMATS = ("default", "numpy", "pandas", "pyarrow", "native")
_KINDS = {"f": True, "i": True, "u": True, "b": True}
_EXACT = 2 ** 53  # whole numbers below are exact in floating point


class TensorArray:
    """A column of tensors for a data frame: (rows, ...). What is put in a data frame as one comes out of the dataset as one array."""

    def __init__(self, values: Any) -> None:
        if isinstance(values, TensorArray):
            values = values._values
        self._values = numpy.asarray(values if hasattr(values, "__array__") else list(values))

    # No __array__: pandas takes what has one for a column of numbers, and refuses more than one dimension. This is a sequence of arrays.

    def to_numpy(self) -> Any:
        """The array."""
        return self._values

    @property
    def shape(self) -> tuple:
        """Of the whole column."""
        return self._values.shape

    @property
    def dtype(self) -> Any:
        """Of its elements."""
        return self._values.dtype

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        return self._values[index]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __repr__(self) -> str:
        return "TensorArray(shape=%s, dtype=%s)" % (self.shape, self.dtype)


# ---- out ----


def array(wrapped: Any) -> Any:
    """An Array as NumPy sees it, without a copy."""
    out = numpy.asarray(wrapped)
    # The buffer protocol's 64-bit letters are C's long long, which NumPy and others tell from int64.
    return out.view(numpy.int64 if out.dtype.kind == "i" else numpy.uint64) if out.dtype.char in "qQ" else out


def _lists(values: Any, offsets: Any) -> Any:
    out = numpy.empty(len(offsets) - 1, dtype=object)
    for i in range(len(out)):
        out[i] = values[offsets[i]:offsets[i + 1]]
    return out


def _texts(table: Any, index: int) -> Any:
    texts = table.texts(index)
    out = numpy.empty(len(texts), dtype=object)
    out[:] = texts
    return out


def _missing(column: Any, valid: Any) -> Any:
    """Numbers with gaps become floating point with NaN; whole numbers that floating point would round, bools, lists and text become objects with None."""
    kind = column.dtype.kind
    if kind in "iu" and not (numpy.abs(column[valid].astype(numpy.float64)) >= _EXACT).any():
        column, kind = column.astype(numpy.float64), "f"
    elif kind != "f":
        column = column.astype(object)
    else:
        column = column.copy()
    column[~valid] = numpy.nan if kind == "f" else None
    return column


def to_numpy(table: Any) -> Any:
    """A dictionary of arrays."""
    out = {}
    for index, (name, kind, values, offsets, valid) in enumerate(table.columns()):
        if kind == "number":
            column = array(values)
        elif kind == "list":
            column = _lists(array(values), array(offsets))
        else:
            out[name] = _texts(table, index)
            continue
        out[name] = column if valid is None else _missing(column, array(valid))
    return out


def to_pandas(table: Any) -> Any:
    """A data frame; tensors become columns of arrays."""
    import pandas

    columns = {}
    for name, column in to_numpy(table).items():
        columns[name] = column if column.ndim == 1 else list(column)
    return pandas.DataFrame(columns, copy=False)


def _arrow_valid(valid: Any) -> Any:
    import pyarrow

    if valid is None:
        return None
    return pyarrow.array(array(valid)).buffers()[1]


def _arrow_number(values: Any, valid: Any) -> Any:
    import pyarrow

    column = array(values)
    if column.ndim == 1:
        return pyarrow.array(column, mask=None if valid is None else ~array(valid))
    flat = pyarrow.array(column.reshape(-1))
    for size in reversed(column.shape[1:]):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
    if valid is None:
        return flat
    return pyarrow.Array.from_buffers(flat.type, len(column), [_arrow_valid(valid)], children=[flat.flatten()])


def to_arrow(table: Any) -> Any:
    """A pyarrow table; numbers and text are shared."""
    import pyarrow

    columns = {}
    for name, kind, values, offsets, valid in table.columns():
        if kind == "number":
            columns[name] = _arrow_number(values, valid)
        elif kind == "list":
            elements = pyarrow.array(array(values))
            columns[name] = pyarrow.Array.from_buffers(pyarrow.large_list(elements.type), table.num_rows,
                                                       [_arrow_valid(valid), pyarrow.py_buffer(offsets)], children=[elements])
        else:
            type_ = pyarrow.large_string() if kind == "string" else pyarrow.large_binary()
            buffers = [_arrow_valid(valid), pyarrow.py_buffer(offsets), pyarrow.py_buffer(values)]
            columns[name] = pyarrow.Array.from_buffers(type_, table.num_rows, buffers)
    return pyarrow.table(columns)


def is_objects(table: Any) -> bool:
    """Rows that are any Python objects, kept as pickles."""
    return [column[0] for column in table.schema()] == [OBJECTS]


def to_objects(table: Any) -> list:
    """The objects that from_objects kept."""
    import pickle

    return [pickle.loads(data) for data in table.texts(0)]


def to_user(table: Any, batch_format: str | None = "default") -> Any:
    """A Table as a user wants it."""
    return converter(batch_format)(table)


def converter(batch_format: str | None = "default") -> Any:
    """to_user for many tables of one dataset."""
    if batch_format not in FORMATS and batch_format is not None:
        raise ValueError("batch_format must be one of %s, not %r" % (", ".join(FORMATS), batch_format))
    if batch_format == "native":  # the library's own Table
        return lambda table: table
    convert = {"pandas": to_pandas, "pyarrow": to_arrow}.get(batch_format, to_numpy)

    def first(table: Any) -> Any:
        nonlocal chosen
        chosen = to_objects if is_objects(table) else convert
        return chosen(table)

    chosen = first
    return lambda table: chosen(table)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, numpy.generic) and value.dtype != object else value


def to_rows(table: Any) -> Any:
    """One dictionary a row."""
    if is_objects(table):
        yield from to_objects(table)
        return
    columns = to_numpy(table)
    names = list(columns)
    for row in zip(*columns.values()) if columns else ():
        yield {name: _scalar(value) for name, value in zip(names, row)}


# ---- in ----


def _contiguous(values: Any) -> Any:
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and not numpy.little_endian):
        values = values.astype(values.dtype.newbyteorder("<"))
    return numpy.ascontiguousarray(values)


def number_column(name: str, values: Any, valid: Any = None) -> Any:
    """A column of an array of numbers, (rows, ...)."""
    values = _contiguous(values)
    return (name, "number", Array(values.dtype.name, values.shape, values), None, valid)


def _offsets(sizes: Any) -> Any:
    offsets = numpy.zeros(len(sizes) + 1, dtype=numpy.int64)
    numpy.cumsum(sizes, out=offsets[1:])
    return Array("int64", offsets.shape, offsets)


def _valid(present: Any) -> Any:
    if numpy.all(present):
        return None
    valid = numpy.array(present, dtype=bool)
    return Array("bool", valid.shape, valid)


def text_column(name: str, values: Any) -> Any:
    """A column of str or bytes; None and NaN are missing."""
    present = [value is not None and value == value for value in values]
    if any(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        kind, parts = "binary", [bytes(value) if ok else b"" for value, ok in zip(values, present)]
    else:
        kind, parts = "string", [str(value).encode("utf-8", "surrogateescape") if ok else b"" for value, ok in zip(values, present)]
    data = numpy.frombuffer(b"".join(parts) or b"\0", dtype=numpy.uint8)
    data = data[:sum(map(len, parts))]
    return (name, kind, Array("uint8", data.shape, numpy.ascontiguousarray(data)), _offsets([len(part) for part in parts]), _valid(present))


def _list_column(name: str, arrays: Any) -> Any:
    dtype = numpy.result_type(*arrays) if arrays else numpy.float64
    values = _contiguous(numpy.concatenate([each.astype(dtype, copy=False) for each in arrays]) if arrays else numpy.empty(0, dtype))
    return (name, "list", Array(values.dtype.name, values.shape, values), _offsets([len(each) for each in arrays]), None)


def _as_array(value: Any) -> Any:
    """An array for what has numbers in it, None for text, None and objects."""
    if isinstance(value, numpy.ndarray):
        return value
    if isinstance(value, TensorArray):
        return value.to_numpy()
    if isinstance(value, (str, bytes, bytearray, type(None), dict)):
        return None
    if hasattr(value, "numpy") and not hasattr(value, "iloc"):  # tensors of torch and TensorFlow
        return numpy.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, bool, int, float, numpy.generic)):
        try:
            out = numpy.asarray(value)
        except ValueError:
            return None
        return out if out.dtype.kind in _KINDS else None
    return None


def _rounded(value: Any) -> bool:
    return isinstance(value, (int, numpy.integer)) and int(float(value)) != value


def _numbers_with_gaps(name: str, values: list) -> Any:
    """As floating point with NaN, unless that would round whole numbers: these keep their type and are marked as missing."""
    large = [value for value in values if _rounded(value)]
    if not large:
        return number_column(name, numpy.array([numpy.nan if value is None else float(value) for value in values]))
    whole = numpy.array([0 if value is None else value for value in values])
    if whole.dtype.kind not in "iu":
        raise TypeError("column %r has %d among other numbers, which would be rounded: give it as text, or all of them as floats" % (name, large[0]))
    return number_column(name, whole, _valid([value is not None for value in values]))


def _refuse_rounding(name: str, given: Any, made: Any) -> None:
    """NumPy makes floating point of whole numbers that no integer type holds together."""
    if made.dtype.kind == "f" and made.ndim == 1 and isinstance(given, (list, tuple)) and (numpy.abs(made) >= _EXACT).any():
        large = [value for value in given if _rounded(value)]
        if large:
            raise TypeError("column %r has %d among other numbers, which would be rounded: give it as text, or all of them as floats"
                            % (name, large[0]))


def _object_column(name: str, values: Any) -> Any:
    """A column of Python values: numbers, text, arrays of one shape, arrays of different lengths."""
    values = list(values)
    known = [value for value in values if value is not None]
    if all(isinstance(value, (str, bytes, bytearray, memoryview)) for value in known) or not known:
        return text_column(name, values)
    arrays = [_as_array(value) for value in values]
    if all(each is not None and each.dtype.kind in _KINDS for each in arrays):
        if len({each.shape for each in arrays}) == 1:
            return number_column(name, numpy.stack(arrays))
        if all(each.ndim == 1 for each in arrays):
            return _list_column(name, arrays)
    if all(value is None or isinstance(value, (bool, int, float, numpy.bool_, numpy.number)) and not isinstance(value, numpy.complexfloating)
           for value in values):
        return _numbers_with_gaps(name, values)
    if len(known) < len(values) and any(isinstance(value, str) for value in known):
        return text_column(name, values)
    raise TypeError("column %r has values of %s, which no column can hold: use numbers, text, bytes, or arrays of numbers"
                    % (name, ", ".join(sorted({type(value).__name__ for value in values}))))


def column(name: str, values: Any) -> Any:
    """Whatever a user gives for a column."""
    if not isinstance(name, str):
        name = str(name)
    if isinstance(values, TensorArray):
        values = values.to_numpy()
    if not isinstance(values, numpy.ndarray):
        found = _as_array(values)
        if found is not None and found.ndim > 0:
            _refuse_rounding(name, values, found)
            values = found
    if isinstance(values, numpy.ndarray) and values.ndim == 0:
        raise ValueError("column %r is a single value: rows need an axis" % name)
    if isinstance(values, numpy.ndarray) and values.dtype.kind in _KINDS and values.dtype.itemsize <= 8:
        return number_column(name, values)
    if isinstance(values, numpy.ndarray) and values.dtype.kind in "mM":
        return number_column(name, values.astype("int64"), _valid(~numpy.isnat(values)))
    if isinstance(values, numpy.ndarray) and values.dtype.name == "bfloat16":
        return number_column(name, values.astype(numpy.float32))
    return _object_column(name, values)


def _length(values: Any) -> int:
    return len(values)


def from_columns(columns: Any) -> Any:
    """A Table of a dictionary of columns."""
    made = [column(name, values) for name, values in columns.items()]
    lengths = {name: _length(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError("the columns have different numbers of rows: %s" % ", ".join("%s has %d" % pair for pair in lengths.items()))
    return Table(next(iter(lengths.values())) if lengths else 0, made)


def _pandas_column(series: Any) -> Any:
    if series.dtype == object:
        return series.tolist()
    if series.dtype.kind in "iufb" and isinstance(series.dtype, numpy.dtype):
        return series.to_numpy()
    if getattr(series.dtype, "kind", "O") in "iuf" and not series.isna().any():
        return series.to_numpy(dtype=series.dtype.numpy_dtype if hasattr(series.dtype, "numpy_dtype") else None)
    if str(series.dtype).startswith("datetime"):
        return series.to_numpy(dtype="datetime64[ns]")
    return [None if missing else value for value, missing in zip(series.tolist(), series.isna())]


def from_pandas(frame: Any) -> Any:
    """A Table of a data frame."""
    if not frame.columns.is_unique:
        raise ValueError("two columns of the data frame are called %r" % frame.columns[frame.columns.duplicated()][0])
    return from_columns({str(name): _pandas_column(frame[name]) for name in frame.columns})


def from_arrow(table: Any) -> Any:
    """Zero copy where Arrow's layout is ours (the Arrow C data interface)."""
    import pyarrow
    from pyarrow.cffi import ffi

    fields = []
    for field in table.schema:
        kind = field.type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if isinstance(kind, pyarrow.ExtensionType):
            kind = kind.storage_type
        if pyarrow.types.is_decimal(kind) or pyarrow.types.is_null(kind):
            kind = pyarrow.float64()
        for view, plain in (("is_string_view", pyarrow.large_string()), ("is_binary_view", pyarrow.large_binary())):
            if getattr(pyarrow.types, view, lambda t: False)(kind):
                kind = plain
        fields.append(pyarrow.field(field.name, kind))
    schema = pyarrow.schema(fields)
    if not schema.equals(table.schema):
        arrays = [(column.cast(field.type) if not isinstance(column.type, pyarrow.ExtensionType)
                   else pyarrow.chunked_array([chunk.storage for chunk in column.chunks], type=field.type))
                  for column, field in zip(table.columns, fields)]
        table = pyarrow.Table.from_arrays(arrays, schema=schema)
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pyarrow.RecordBatch.from_arrays([pyarrow.array([], type=field.type) for field in fields], schema=schema)
    c_schema, c_array = ffi.new("struct ArrowSchema*"), ffi.new("struct ArrowArray*")
    batch._export_to_c(int(ffi.cast("uintptr_t", c_array)), int(ffi.cast("uintptr_t", c_schema)))
    try:
        return Table.from_arrow(int(ffi.cast("uintptr_t", c_schema)), int(ffi.cast("uintptr_t", c_array)))
    except Error as error:
        refused = [field for field in fields if 'column "%s"' % field.name in error.message]
        if error.code != "EUNSUPPORTED" or not refused:
            raise
        raise TypeError("column %r is of Arrow's type %s, which is not read: leave it out, or cast it" % (refused[0].name, refused[0].type)) from None
    finally:
        if c_schema.release != ffi.NULL:
            c_schema.release(c_schema)


def from_objects(items: Any) -> Any:
    """Any objects, as pickles in one column."""
    import pickle

    def pickled(item: Any) -> Any:
        try:
            return pickle.dumps(item, protocol=5)
        except Exception:
            import cloudpickle

            buffer = io.BytesIO()
            cloudpickle.dump(item, buffer)
            return buffer.getvalue()

    return Table(len(items), [text_column(OBJECTS, [pickled(item) for item in items])])


def from_rows(rows: Any) -> Any:
    """A Table of a list: dictionaries by their keys, numbers and text in the column "item", anything else as it is."""
    rows = list(rows)
    if rows and all(isinstance(row, dict) for row in rows):
        names = dict.fromkeys(key for row in rows for key in row)
        return from_columns({name: [row.get(name) for row in rows] for name in names})
    if all(isinstance(row, (bool, int, float, str, bytes, numpy.generic, numpy.ndarray)) for row in rows):
        return from_columns({ITEM: rows})
    return from_objects(rows)


def from_user(value: Any) -> Any:
    """What a user's function returned for a batch."""
    if isinstance(value, Table):
        return value
    if isinstance(value, dict):
        return from_columns(value)
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        return from_pandas(value)
    if type(value).__module__.split(".")[0] == "pyarrow":
        return from_arrow(value)
    if isinstance(value, numpy.ndarray):
        return from_columns({"data": value})
    if isinstance(value, (list, tuple)):
        return from_rows(value)
    raise TypeError("a function of a dataset must return a dictionary of columns, a data frame, a pyarrow table or a list of rows, not %s"
                    % type(value).__name__)
