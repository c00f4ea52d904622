"""The arguments of read_csv: the library's own, and pandas' names for the same things, which mean what they mean in pandas."""

from __future__ import annotations

import csv
from typing import Any, Callable

_QUOTING = {csv.QUOTE_MINIMAL: False, csv.QUOTE_ALL: False, csv.QUOTE_NONE: True}


def _one(name: str, value: Any, other: str, other_value: Any) -> Any:
    """One argument under two names."""
    if value is not None and other_value is not None and value != other_value:
        raise TypeError("read_csv: %s=%r and %s=%r are the same argument: give one of them" % (name, value, other, other_value))
    return other_value if value is None else value


def _character(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) != 1:
        raise ValueError("read_csv: %s must be one character, not %r" % (name, value))
    return value


def has_header(header: Any, names: Any) -> bool:
    """True, False, or as pandas says it: 0, None, "infer" (a header, unless names= gives the columns)."""
    if header == "infer" and isinstance(header, str):
        return names is None
    if header is None or isinstance(header, bool):
        return bool(header)
    if isinstance(header, int) and header == 0:
        return True
    raise ValueError('read_csv: header must be True, False, 0, None or "infer", not %r: a header is the first line' % (header,))


def _no_quotes(quoting: Any) -> bool:
    if quoting is None:
        return False
    if quoting not in _QUOTING:
        raise ValueError("read_csv: quoting must be csv.QUOTE_MINIMAL, QUOTE_ALL or QUOTE_NONE, not %r" % (quoting,))
    return _QUOTING[quoting]


def _nulls(null_values: Any, na_values: Any, keep_default_na: bool) -> dict[str, Any]:
    """null_values are all; na_values are more, as in pandas."""
    if isinstance(na_values, dict):
        raise ValueError("read_csv: na_values of single columns are not supported: give a list for all of them, or replace values with map_batches")
    if null_values is not None and (na_values is not None or not keep_default_na):
        raise TypeError("read_csv: null_values says all missing values: na_values and keep_default_na cannot be given with it")
    if null_values is not None:
        return {"null_values": [null_values] if isinstance(null_values, str) else list(null_values)}
    if na_values is None and keep_default_na:
        return {}
    given = [] if na_values is None else [na_values] if isinstance(na_values, (str, int, float)) else list(na_values)
    texts = [text for value in given for text in ([value] if isinstance(value, str) else {repr(value), "%g" % value, str(value)})]
    return {"null_values": texts, "default_nulls": bool(keep_default_na)}


def _long_rows(on_bad_lines: Any, long_rows: Any) -> Any:
    if on_bad_lines is None:
        return long_rows
    if on_bad_lines not in ("error", "skip"):
        raise ValueError('read_csv: on_bad_lines must be "error" or "skip" (stats()["skipped"] counts the rows), not %r' % (on_bad_lines,))
    return _one("on_bad_lines", on_bad_lines, "long_rows", long_rows)


def options_of(delimiter: Any, sep: Any, quote: Any, quotechar: Any, quoting: Any, header: Any, column_names: Any, names: Any, encoding: Any,
               null_values: Any, na_values: Any, keep_default_na: bool, on_bad_lines: Any, short_rows: Any, long_rows: Any,
               duplicate_names: Any) -> dict[str, Any]:
    """The library's options; those of columns are the caller's."""
    no_quotes = _no_quotes(quoting)
    mark = None if no_quotes else _character("quotechar", _one("quote", quote, "quotechar", quotechar))
    for name, value in (("encoding", encoding), ("short_rows", short_rows), ("long_rows", long_rows), ("duplicate_names", duplicate_names)):
        if value is not None and not isinstance(value, str):
            raise TypeError("read_csv: %s must be a string, not %r" % (name, value))
    return dict(delimiter=_character("delimiter", _one("delimiter", delimiter, "sep", sep)), quote=mark, no_quotes=no_quotes,
                no_header=not has_header(header, names), column_names=_one("column_names", column_names, "names", names), encoding=encoding,
                short_rows=short_rows, long_rows=_long_rows(on_bad_lines, long_rows), duplicate_names=duplicate_names,
                **_nulls(null_values, na_values, keep_default_na))


def columns_of(columns: Any, usecols: Any, types: Any, dtype: Any, have: Callable[[], list[str]]) -> tuple[Any, Any]:
    """columns and types. usecols are in the order of the file, as in pandas; dtype may be one for all. have(): the columns of the file."""
    if usecols is not None:
        if callable(usecols) or not all(isinstance(name, str) for name in usecols):
            raise TypeError("read_csv: usecols must be a list of names of columns, not %r" % (usecols,))
        there = have()
        columns = _one("columns", columns, "usecols", [name for name in there if name in usecols] + [name for name in usecols if name not in there])
    if dtype is not None and not isinstance(dtype, dict):
        dtype = dict.fromkeys(columns or have(), dtype)
    return columns, _one("types", types, "dtype", dtype)
