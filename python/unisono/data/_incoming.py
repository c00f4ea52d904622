"""What people have, as Tables: dictionaries of NumPy arrays, pandas, rows, and any Python objects. (Arrow is in _arrow.py, the other direction in _convert.py.)

Numbers are shared, never copied. Rows that are neither dictionaries nor numbers nor text (tuples, tensors of a framework) are kept as pickles in one column of the kind "object",
and come out as themselves; they never leave this user's own processes. Only from_objects makes such a column: bytes that were read from anywhere are never unpickled, whatever
their column is called.
"""

from __future__ import annotations

import io
from typing import Any, Iterable

import numpy

from unisono import _safe
from unisono._unisono import Array, Table

OBJECTS = "__object__"  # the name of that column, which says nothing about its kind
ITEM = "item"
EXACT = 2 ** 53  # whole numbers below are exact in floating point
_NUMBERS = "fiub"  # kinds of NumPy's types
_TEXTS = (str, bytes, bytearray, memoryview)


class TensorArray:
    """A column of tensors for a data frame: (rows, ...). What is put in a data frame as one comes out of the dataset as one array."""

    def __init__(self, values: Any) -> None:
        if isinstance(values, TensorArray):
            values = values._values
        self._values: numpy.ndarray = numpy.asarray(values if hasattr(values, "__array__") else list(values))

    # No __array__: pandas takes what has one for a column of numbers, and refuses more than one dimension. This is a sequence of arrays.

    def to_numpy(self) -> numpy.ndarray:
        """The array."""
        return self._values

    @property
    def shape(self) -> tuple:
        """Of the whole column."""
        return self._values.shape

    @property
    def dtype(self) -> numpy.dtype:
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


# ---- columns of one kind: (name, kind, values, offsets, valid) as Table takes them ----


def _contiguous(values: numpy.ndarray) -> numpy.ndarray:
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and not numpy.little_endian):
        values = values.astype(values.dtype.newbyteorder("<"))
    return numpy.ascontiguousarray(values)


def number_column(name: str, values: numpy.ndarray, valid: Array | None = None) -> tuple:
    """A column of an array of numbers, (rows, ...)."""
    values = _contiguous(values)
    try:
        return (name, "number", Array(values.dtype.name, values.shape, values), None, valid)
    except (TypeError, ValueError) as error:  # no such element type, too many dimensions
        raise type(error)("column %r: %s" % (name, _safe.text(str(error)))) from None


def _offsets(sizes: Iterable[int]) -> Array:
    offsets = numpy.concatenate([[0], numpy.cumsum(numpy.fromiter(sizes, numpy.int64))]).astype(numpy.int64)
    return Array("int64", offsets.shape, offsets)


def _valid(present: Any) -> Array | None:
    if numpy.all(present):
        return None
    valid = numpy.array(present, dtype=bool)
    return Array("bool", valid.shape, valid)


def _encoded(name: str, text: Any) -> bytes:
    try:
        return str(text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError("column %r has text that is not Unicode: %s" % (name, error)) from None


def text_column(name: str, values: Iterable[Any]) -> tuple:
    """A column of str or bytes; None and NaN are missing."""
    values = list(values)
    present = [not is_missing(value) for value in values]
    known = [value for value, ok in zip(values, present) if ok]
    binary = bool(known) and all(isinstance(value, _TEXTS[1:]) for value in known)
    if not binary and any(isinstance(value, _TEXTS[1:]) for value in known):
        raise TypeError("column %r has both str and bytes: decode the bytes, or encode the text" % name)
    parts = [b"" if not ok else bytes(value) if binary else _encoded(name, value) for value, ok in zip(values, present)]
    data = numpy.frombuffer(b"".join(parts) or b"\0", dtype=numpy.uint8)[:sum(map(len, parts))]
    return (name, "binary" if binary else "string", Array("uint8", data.shape, numpy.ascontiguousarray(data)), _offsets(map(len, parts)), _valid(present))


def _list_column(name: str, arrays: list[numpy.ndarray | None]) -> tuple:
    """Arrays of different lengths; None is missing."""
    known = [each for each in arrays if each is not None]
    filled = [each for each in known if len(each)]
    dtype = numpy.result_type(*(filled or known)) if known else numpy.dtype(numpy.float64)
    if dtype.kind == "f" and any(each.dtype.kind in "iu" and (numpy.abs(each.astype(numpy.float64)) >= EXACT).any() for each in filled):
        raise TypeError("column %r has lists of whole numbers among others that would round them: give all of them as floats" % name)
    values = _contiguous(numpy.concatenate([each.astype(dtype, copy=False) for each in filled]) if filled else numpy.empty(0, dtype))
    sizes = (0 if each is None else len(each) for each in arrays)
    return (name, "list", Array(values.dtype.name, values.shape, values), _offsets(sizes), _valid([each is not None for each in arrays]))


# ---- Python values ----


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT."""
    if isinstance(value, (str, bytes, int)):  # most are
        return False
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, numpy.floating)) and value != value


def as_array(value: Any) -> numpy.ndarray | None:
    """An array for what has numbers in it, None for text, None and objects."""
    if isinstance(value, numpy.ndarray):
        return value
    if isinstance(value, TensorArray):
        return value.to_numpy()
    if isinstance(value, _TEXTS + (type(None), dict)):
        return None
    if hasattr(value, "numpy") and not hasattr(value, "iloc"):  # tensors of torch and TensorFlow
        value = value.detach().cpu() if hasattr(value, "detach") else value
        return numpy.asarray(value.float() if str(value.dtype) == "torch.bfloat16" else value)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, bool, int, float, numpy.generic)):
        try:
            out = numpy.asarray(value)
        except ValueError:
            return None
        return out if out.dtype.kind in _NUMBERS else None
    return None


def _rounded(value: Any) -> bool:
    return isinstance(value, (int, numpy.integer)) and int(float(value)) != value


def _would_round(name: str, large: int) -> TypeError:
    return TypeError("column %r has %d among other numbers, which would be rounded: give it as text, or all of them as floats" % (name, large))


def _numbers_with_gaps(name: str, values: list) -> tuple:
    """As floating point with NaN; bools, and whole numbers that this would round, keep their type and are marked as missing."""
    known = [value for value in values if not is_missing(value)]
    large = [value for value in known if _rounded(value)]
    bools = bool(known) and all(isinstance(value, (bool, numpy.bool_)) for value in known)
    if not large and not bools:
        return number_column(name, numpy.array([numpy.nan if is_missing(value) else float(value) for value in values]))
    whole = numpy.array([(False if bools else 0) if is_missing(value) else value for value in values])
    if whole.dtype.kind not in "iub":
        raise _would_round(name, large[0])
    return number_column(name, whole, _valid([not is_missing(value) for value in values]))


def _refuse_rounding(name: str, given: Any, made: numpy.ndarray) -> None:
    """NumPy makes floating point of whole numbers that no integer type holds together."""
    if made.dtype == numpy.float64 and made.ndim == 1 and isinstance(given, (list, tuple)) and (numpy.abs(made) >= EXACT).any():
        large = [value for value in given if _rounded(value)]
        if large:
            raise _would_round(name, large[0])


def _no_column(name: str, values: list) -> TypeError:
    kinds = sorted({type(value).__name__ for value in values if value is not None})
    advice = "use numbers, text, bytes, or arrays of numbers"
    if any(hasattr(value, "isoformat") or isinstance(value, numpy.datetime64) for value in values):
        advice = "make numbers (timestamp()) or text (isoformat()) of dates"
    elif len(kinds) > 1:
        advice = "all values of a column must be of one kind"
    return TypeError("column %r has values of %s, which no column can hold: %s" % (name, ", ".join(kinds), advice))


def _object_column(name: str, values: Iterable[Any]) -> tuple:
    """A column of Python values: numbers, text, arrays of one shape, arrays of different lengths."""
    values = list(values)
    known = [value for value in values if not is_missing(value)]
    if all(isinstance(value, _TEXTS) for value in known) and (known or not any(isinstance(value, float) for value in values)):
        return text_column(name, values)
    arrays = [None if value is None else as_array(value) for value in values]
    if all(value is None or each is not None and each.dtype.kind in _NUMBERS for value, each in zip(values, arrays)):
        shapes = {each.shape for each in arrays if each is not None}
        if len(shapes) == 1 and len(known) == len(values) or len(values) and all(each is not None and each.ndim == 0 for each in arrays):
            return number_column(name, numpy.stack(arrays))  # type: ignore[arg-type]
        if shapes and all(len(shape) == 1 for shape in shapes):
            return _list_column(name, arrays)
        if shapes and () not in shapes:
            raise TypeError("column %r has %s: arrays of more than one axis must all be there, and of one shape" %
                            (name, "missing values" if len(shapes) == 1 else "arrays of the shapes %s" % ", ".join(map(str, sorted(shapes)))))
    if all(isinstance(value, (bool, int, float, numpy.bool_, numpy.number)) and not isinstance(value, numpy.complexfloating) for value in known):
        return _numbers_with_gaps(name, values)
    raise _no_column(name, known)


def _unmasked(values: numpy.ma.MaskedArray) -> tuple[numpy.ndarray, Array | None]:
    """What is behind a mask is missing; of rows with several elements the whole row."""
    if values.dtype.kind == "f":
        return values.filled(numpy.nan), None
    if values.dtype.kind not in _NUMBERS:
        return values.astype(object).filled(None), None
    mask = numpy.ma.getmaskarray(values)
    return values.filled(0), _valid(~mask.reshape(len(mask), -1).any(axis=1))


def column(name: Any, values: Any) -> tuple:
    """Whatever a user gives for a column."""
    name = name if isinstance(name, str) else str(name)
    valid = None
    if isinstance(values, numpy.ma.MaskedArray) and values.ndim > 0:
        values, valid = _unmasked(values)
    elif hasattr(values, "iloc") and hasattr(values, "dtype"):
        values = _pandas_column(values)
    elif is_arrow(values) and hasattr(values, "to_pylist"):
        values = values.to_pylist()
    if not isinstance(values, numpy.ndarray):
        found = as_array(values)
        if found is not None and found.ndim > 0:
            _refuse_rounding(name, values, found)
            values = found
    if not hasattr(values, "__len__") or isinstance(values, (str, bytes)) or isinstance(values, numpy.ndarray) and values.ndim == 0:
        raise ValueError("column %r is a single value (%s): give one for each row" % (name, type(values).__name__))
    if isinstance(values, numpy.ndarray):
        if values.dtype.kind in _NUMBERS:
            return number_column(name, values, valid)
        if values.dtype.kind in "mM":
            return number_column(name, values.astype("int64"), _valid(~numpy.isnat(values)))
        if values.dtype.name == "bfloat16":
            return number_column(name, values.astype(numpy.float32))
    return _object_column(name, values)


# ---- tables ----


def from_columns(columns: dict) -> Table:
    """A Table of a dictionary of columns."""
    if not columns:
        raise ValueError("a dictionary without columns: for no rows give the columns with empty arrays (or use filter)")
    made = [column(name, values) for name, values in columns.items()]
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError("the columns have different numbers of rows: %s" % ", ".join("%s has %d" % (_safe.text(str(name)), length) for name, length in lengths.items()))
    if len({each[0] for each in made}) < len(made):
        raise ValueError("two columns have the same name: %s" % ", ".join(repr(name) for name in columns))
    return Table(next(iter(lengths.values())), made)


def _pandas_column(series: Any) -> Any:
    kind = getattr(series.dtype, "kind", "O")
    plain = isinstance(series.dtype, numpy.dtype)
    if plain and kind in _NUMBERS + "mM":
        values = series.to_numpy()
        return values.astype("datetime64[ns]" if kind == "M" else "timedelta64[ns]") if kind in "mM" else values
    if kind in "iuf" and not series.isna().any():
        return series.to_numpy(dtype=series.dtype.numpy_dtype if hasattr(series.dtype, "numpy_dtype") else None)
    if str(series.dtype).startswith("datetime"):
        return series.to_numpy(dtype="datetime64[ns]")
    out = numpy.empty(len(series), dtype=object)
    for index, value in enumerate(series.tolist()):  # lists among them stay lists
        out[index] = value
    return out


def from_pandas(frame: Any) -> Table:
    """A Table of a data frame. Dates and times are nanoseconds (int64)."""
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise TypeError("a pandas data frame is needed, not %s" % type(frame).__name__)
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise ValueError("two columns of the data frame are called %r" % next(name for name in names if names.count(name) > 1))
    return from_columns({name: _pandas_column(frame.iloc[:, index]) for index, name in enumerate(names)})


def from_objects(items: list) -> Table:
    """Any objects, as pickles in one column."""
    import pickle

    def pickled(item: Any) -> bytes:
        try:
            return pickle.dumps(item, protocol=5)
        except Exception:
            import cloudpickle

            buffer = io.BytesIO()
            cloudpickle.dump(item, buffer)
            return buffer.getvalue()

    _, _, values, offsets, _ = text_column(OBJECTS, [pickled(item) for item in items])
    return Table(len(items), [(OBJECTS, "object", values, offsets, None)])


def from_rows(rows: Iterable[Any]) -> Table:
    """A Table of a list: dictionaries by their keys, numbers and text in the column "item", anything else as it is."""
    rows = list(rows)
    if rows and all(isinstance(row, dict) for row in rows):
        names = dict.fromkeys(key for row in rows for key in row)
        if not names:
            raise ValueError("the rows are dictionaries without keys: a row needs at least one column")
        return from_columns({name: [row.get(name) for row in rows] for name in names})
    if all(isinstance(row, (bool, int, float, str, bytes, numpy.generic, numpy.ndarray, type(None))) for row in rows):
        return from_columns({ITEM: rows})
    return from_objects(rows)


def is_arrow(value: Any) -> bool:
    """Something of pyarrow's, without importing it."""
    return type(value).__module__.split(".")[0] == "pyarrow"


def from_user(value: Any) -> Table:
    """What a user's function returned for a batch."""
    if isinstance(value, Table):
        return value
    if isinstance(value, dict):
        return from_columns(value)
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        return from_pandas(value)
    if is_arrow(value):
        from unisono.data._arrow import from_arrow

        return from_arrow(value)
    if isinstance(value, numpy.ndarray):
        return from_columns({"data": value})
    if isinstance(value, (list, tuple)):
        return from_rows(value)
    raise TypeError("a function of a dataset must return a dictionary of columns, a data frame, a pyarrow table or a list of rows, not %s%s"
                    % (type(value).__name__, ": is a return missing?" if value is None else ""))
