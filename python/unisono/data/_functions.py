"""A user's functions as functions of Tables, which is what the library calls."""

from __future__ import annotations

from typing import Any, Callable

import numpy

from unisono.data import _convert


def name_of(function: Any) -> str:
    """For messages and statistics."""
    return getattr(function, "__name__", type(function).__name__)


def _own(batch: Any) -> Any:
    """A batch that a function may change in place: what is kept in memory (small files, arrays, caches) must be the same in the next epoch."""
    if isinstance(batch, dict):
        return {name: column.copy() if isinstance(column, numpy.ndarray) and not column.flags.writeable else column for name, column in batch.items()}
    return batch.copy() if hasattr(batch, "iloc") else batch


class Batches:
    """function(Table) -> Table around a user's function of batches. A class is made once a process, as its state (a model) asks for."""

    def __init__(self, function: Any, batch_format: str | None, arguments: tuple = (), keywords: dict | None = None,
                 constructor: tuple = ((), None)) -> None:
        self.function, self.batch_format = function, batch_format
        self.arguments, self.keywords, self.constructor = arguments, keywords or {}, constructor
        self.made: Any = None

    def __getstate__(self) -> dict:
        return dict(self.__dict__, made=None)

    def __call__(self, table: Any) -> Any:
        if self.made is None:
            self.made = self.function(*self.constructor[0], **(self.constructor[1] or {})) if isinstance(self.function, type) else self.function
        answer = self.made(_own(_convert.to_user(table, self.batch_format)), *self.arguments, **self.keywords)
        if hasattr(answer, "__next__"):  # a generator of batches
            return _concat([_convert.from_user(each) for each in answer])
        return _convert.from_user(answer)


def _concat(tables: list) -> Any:
    if len(tables) == 1:
        return tables[0]
    return _convert.from_rows([row for table in tables for row in _convert.to_rows(table)])


class Rows:
    """The same for a function of rows; how: "map", "flat_map" or "filter"."""

    def __init__(self, function: Callable, how: str) -> None:
        self.function, self.how = function, how

    def __call__(self, table: Any) -> Any:
        rows, function = _convert.to_rows(table), self.function
        if self.how == "filter":
            return table.gather(numpy.array([i for i, row in enumerate(rows) if function(row)], dtype=numpy.int64))
        if self.how == "map":
            out = [function(row) for row in rows]
        else:
            out = [made for row in rows for made in function(row)]
        return _convert.from_rows(out) if out else table.slice(0, 0)


def is_filter(dataset: Any) -> bool:
    """Its rows have the columns of those before."""
    return dataset._recipe[0] == "map" and isinstance(dataset._recipe[2], Rows) and dataset._recipe[2].how == "filter"


class AddColumn:
    """A batch with one column more."""

    def __init__(self, name: str, function: Callable) -> None:
        self.name, self.function = name, function

    def __call__(self, batch: Any) -> Any:
        values = self.function(batch)
        batch = dict(batch) if isinstance(batch, dict) else batch
        batch[self.name] = values
        return batch
