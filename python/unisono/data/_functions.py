"""A user's functions as functions of Tables, which is what the library calls."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy

from unisono._unisono import Table
from unisono.data import _convert, _incoming
from unisono.data._options import drop_hints, whole


def name_of(function: Any) -> str:
    """For messages and statistics."""
    return getattr(function, "__name__", type(function).__name__)


def _own(batch: Any) -> Any:
    """A batch that a function may change in place: what is kept in memory (small files, arrays, caches) must be the same in the next epoch."""
    if isinstance(batch, dict):
        return {name: column.copy() if isinstance(column, numpy.ndarray) and not column.flags.writeable else column for name, column in batch.items()}
    return batch.copy() if hasattr(batch, "iloc") else batch


class UserFunction:
    """A function, or a class that is made once a process, as its state (a model) asks for; with the arguments that a user gave for it."""

    def __init__(self, what: str, function: Any, options: dict[str, Any]) -> None:
        if not callable(function):
            raise TypeError("%s needs a function or a class, not %s" % (what, type(function).__name__))
        self.what, self.function = what, function
        self.arguments, self.keywords = _tuple(options, "fn_args"), _dictionary(options, "fn_kwargs")
        self.constructor = _tuple(options, "fn_constructor_args"), _dictionary(options, "fn_constructor_kwargs")
        self.made: Any = None
        if any(self.constructor) and not isinstance(function, type):
            raise TypeError("%s: fn_constructor_args and fn_constructor_kwargs are for a class, and %s is not one; fn_args and fn_kwargs go to a function"
                            % (what, name_of(function)))
        drop_hints(what, options)

    def __getstate__(self) -> dict:
        return dict(self.__dict__, made=None)

    def call(self, value: Any) -> Any:
        """The function's answer."""
        if self.made is None:
            self.made = self.function(*self.constructor[0], **self.constructor[1]) if isinstance(self.function, type) else self.function
        return self.made(value, *self.arguments, **self.keywords)


def _tuple(options: dict[str, Any], name: str) -> tuple:
    given = options.pop(name, None)
    if given is not None and not isinstance(given, (list, tuple)):
        raise TypeError("%s must be a list, not %r" % (name, given))
    return tuple(given or ())


def _dictionary(options: dict[str, Any], name: str) -> dict[str, Any]:
    given = options.pop(name, None)
    if given is not None and (not isinstance(given, dict) or any(not isinstance(key, str) for key in given)):
        raise TypeError("%s must be a dictionary of names and values, not %r" % (name, given))
    return dict(given or {})


class Batches(UserFunction):
    """function(Table) -> Table around a user's function of batches."""

    def __init__(self, what: str, function: Any, batch_format: str | None, options: dict[str, Any]) -> None:
        super().__init__(what, function, options)
        _convert.converter(batch_format)  # a format that is none is an error now
        self.batch_format = batch_format

    def __call__(self, table: Table) -> Table:
        answer = self.call(_own(_convert.to_user(table, self.batch_format)))
        if not hasattr(answer, "__next__"):
            return _incoming.from_user(answer)
        tables = [_incoming.from_user(each) for each in answer]  # a generator of batches
        return Table.concat(tables) if tables else table.slice(0, 0)


class Rows(UserFunction):
    """The same for a function of rows; what: "map", "flat_map" or "filter"."""

    def __call__(self, table: Table) -> Table:
        rows = _convert.to_rows(table)
        if self.what == "filter":
            return table.gather(numpy.array([i for i, row in enumerate(rows) if self._answer(row)], dtype=numpy.int64))
        if self.what == "map":
            out = [self._row(row) for row in rows]
        else:
            out = [made for row in rows for made in self._rows(row)]
        return _incoming.from_rows(out) if out else table.slice(0, 0)

    def _answer(self, row: Any) -> Any:
        """A generator or a coroutine is true whatever its function would say: nothing of it has run."""
        made = self.call(row)
        if inspect.isgenerator(made) or inspect.iscoroutine(made):
            made.close()
            raise TypeError("the function of %s (%s) returned a %s: nothing of it has run; do not use yield or async def"
                            % (self.what, name_of(self.function), type(made).__name__))
        return made

    def _row(self, row: Any) -> Any:
        made = self._answer(row)
        if made is None:
            raise TypeError("the function of map (%s) returned None for a row: it must return the new row, a dictionary; filter leaves rows out"
                            % name_of(self.function))
        return made

    def _rows(self, row: Any) -> Any:
        made = self.call(row)
        if isinstance(made, (dict, str, bytes)) or not hasattr(made, "__iter__"):
            raise TypeError("the function of flat_map (%s) must return a list of rows, not %s" % (name_of(self.function), type(made).__name__))
        return made


class AddColumn:
    """A batch with one column more."""

    def __init__(self, name: str, function: Callable) -> None:
        self.name, self.function, self.__name__ = name, function, name_of(function)

    def __call__(self, batch: Any) -> Any:
        values = self.function(batch)
        if _incoming.is_arrow(batch):
            batch = batch.drop_columns([self.name]) if self.name in batch.column_names else batch
            return batch.append_column(self.name, values if _incoming.is_arrow(values) else [values])
        batch = dict(batch) if isinstance(batch, dict) else batch
        batch[self.name] = values
        return batch


def processes_of(compute: Any, concurrency: Any) -> int:
    """How many processes a function shall run in; 0: on the reading threads."""
    if compute not in (None, "tasks", "actors") and not hasattr(compute, "size"):
        raise TypeError("compute must be None, \"tasks\", \"actors\" or an ActorPoolStrategy, not %r" % (compute,))
    asked = concurrency if concurrency is not None else getattr(compute, "size", None)
    if isinstance(asked, (list, tuple)):  # from, to
        if not asked:
            raise ValueError("concurrency must be a number or a pair (from, to), not %r" % (asked,))
        asked = max(whole("concurrency", each, 1) for each in asked)
    processes = 0 if asked is None else whole("concurrency", asked, 1)
    return processes if processes > 1 else 0
