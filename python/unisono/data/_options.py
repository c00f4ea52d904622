"""Arguments that users give, checked once and for all: whole numbers, names of columns, and Ray's options that mean nothing here."""

from __future__ import annotations

from typing import Any

from unisono import _safe
from unisono._arguments import HARMLESS, Refused, check, near

_MOST = 2 ** 63 - 1


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least `least`; anything else is an error that says which argument it is."""
    try:
        number = value.__index__() if not isinstance(value, bool) else None
    except AttributeError:
        number = int(value) if isinstance(value, float) and value.is_integer() else None
    if number is None:
        raise TypeError("%s must be a whole number, not %r" % (name, value))
    if number < least:
        raise ValueError("%s must be %s, not %d" % (name, "positive" if least == 1 else "at least %d" % least, number))
    if number > _MOST:
        raise ValueError("%s must be less than 2**63, not %d" % (name, number))
    return number


def names_of(columns: Any, what: str = "columns") -> list[str]:
    """A name or several as a list."""
    names = [columns] if isinstance(columns, str) else columns
    try:
        names = list(names)
    except TypeError:
        names = [names]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError("%s must be the name of a column or a list of names, not %r" % (what, wrong[0]))
    return names


def some_names(columns: Any, what: str) -> list[str]:
    """The same, and at least one."""
    names = names_of(columns, what)
    if not names:
        raise ValueError("%s must name at least one column" % what)
    return names


def check_columns(have: list[str], asked: list[str]) -> None:
    """A column that is not there is an error now."""
    missing = [name for name in asked if name not in have]
    if missing:
        raise KeyError("the dataset has no column %s; it has %s" % (", ".join(map(repr, missing)), ", ".join(map(_safe.text, have))))


# ---- options of Ray's ----

# Hints: how much at once, and where. The rows are the same without them.
HINTS = tuple(HARMLESS["unisono.data.*"])
# Options that would give other rows, with what to do instead. None and False ask for nothing.
OTHERS = {"filesystem": "files are those of this machine; mount the file system or fetch the files",
          "partition_filter": "give the paths, or a glob, of the files that are wanted",
          "partitioning": "directories give no columns; add them with map_batches",
          "shuffle": "use random_shuffle()",
          "ignore_missing_paths": "leave out the paths that are not there",
          "file_extensions": "give a glob such as directory/*.csv",
          "arrow_open_stream_args": "files are opened by their names: .gz and .zst are unpacked, nothing else",
          "tf_schema": "say the types of features with types={name: dtype}",
          "expr": "give a function of a row, such as lambda row: row[\"x\"] > 0"}


def _declared(function: str) -> list[str]:
    """The arguments of a public function or method, for the nearest one to a misspelling."""
    import inspect

    from unisono import data

    found = getattr(data, function, None) or getattr(data.Dataset, function, None)
    names = [] if found is None else [name for name, each in inspect.signature(found).parameters.items() if each.kind != each.VAR_KEYWORD]
    return [name for name in names if name != "self"]


def drop_hints(function: str, more: dict[str, Any]) -> None:
    """Hints are left out; what would change the rows is an error unless it says nothing (None, False), and so is an unknown name."""
    for name, value in more.items():
        if name in HINTS:
            continue
        if name not in OTHERS:
            raise TypeError("%s() got an unexpected keyword argument %r%s" % (function, name, near(name, _declared(function))))
        if value is not None and value is not False:
            raise TypeError("%s(%s=%.40r) is not supported: %s" % (function, name, value, OTHERS[name]))


def refuse(function: str, name: str, value: Any, default: Any, why: str) -> None:
    """An argument of the peer's that has no effect here; its default asks for nothing."""
    check("unisono.data." + function, {name: value}, (), {name: Refused(default, why)})


def num_blocks_of(more: dict[str, Any]) -> int | None:
    """How many blocks Ray's hints ask for, where a source can have any number of them."""
    asked = more.get("override_num_blocks") or more.get("parallelism")
    return None if asked in (None, -1, 0) else whole("parallelism", asked, 1)
