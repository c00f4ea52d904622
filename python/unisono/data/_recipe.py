"""What a Dataset is made of: a recipe of plain data and functions that travels to workers, and the library's object that is made of it in each process."""

from __future__ import annotations

from typing import Any

from unisono._unisono import Array, Table
from unisono._unisono import Dataset as Native
from unisono.data import _convert
from unisono.data._cursor import draw_seed


class AutoSeed(int):
    """A seed drawn because none was given: a run that goes on with a checkpoint of another takes the other's."""

    def __reduce__(self) -> tuple:
        return AutoSeed, (int(self),)


def seed_of(seed: int | None) -> int:
    """A seed, or one that is drawn now."""
    if seed is None:
        return AutoSeed(draw_seed())
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError("seed must be a whole number, not %r" % (seed,))
    return seed.__index__() & (2 ** 64 - 1)


class Parts:
    """What a split made: several datasets of one call, made once."""

    def __init__(self, parent: Any, method: str, arguments: tuple) -> None:
        self.parent, self.method, self.arguments = parent, method, arguments
        self._made: list | None = None

    def __getstate__(self) -> dict:
        return {"parent": self.parent, "method": self.method, "arguments": self.arguments, "_made": None}

    def get(self, index: int) -> Any:
        """The library's object of one part."""
        if self._made is None:
            self._made = getattr(self.parent._native, self.method)(*self.arguments)
        return self._made[index]

    def count(self) -> int:
        """How many there are."""
        self.get(0)
        return len(self._made or ())


class TableHolder:
    """A Table that pickles."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __reduce__(self) -> tuple:
        import numpy

        columns = [(name, kind) + tuple(None if part is None else (part.dtype, part.shape, numpy.array(_convert.array(part)))
                                        for part in parts) for name, kind, *parts in self.table.columns()]
        return _unpickle_table, (self.table.num_rows, columns)


def _unpickle_table(num_rows: int, columns: list) -> TableHolder:
    def part(value: Any) -> Any:
        return None if value is None else Array(value[0], tuple(value[1]), value[2])

    return TableHolder(Table(num_rows, [(name, kind) + tuple(map(part, parts)) for name, kind, *parts in columns]))


def make(dataset: Any) -> Any:
    """The library's object of a Dataset."""
    kind, *rest = dataset._recipe
    if kind == "read":
        return Native.read(*rest)
    if kind == "table":
        return Native.read("table", [], {"table": rest[0].table})
    if kind == "python":
        function, name, rows = rest
        return Native.from_python(function, dataset._box(), name, rows)
    if kind == "blocks":
        function, name, rows, size = rest
        return Native.from_python(function, dataset._box(), name, -1, rows, size, getattr(function, "files", None))
    if kind == "part":
        return dataset._guard(rest[0].get, rest[1])
    if kind == "map":
        parent, function, name, batch_size, changes, in_order = rest
        return dataset._guard(parent._native.map, function, dataset._box(), name, batch_size, changes, in_order, getattr(function, "what", None) == "filter")
    if kind == "apply":
        parent, fitted = rest
        return dataset._guard(fitted.library.transform, parent._native)
    if kind == "many":
        parent, method, others = rest
        return dataset._guard(getattr(parent._native, method), [other._native for other in others] if isinstance(others, list) else others._native)
    parent, method, arguments = rest
    return dataset._guard(getattr(parent._native, method), *arguments)


# ---- recipes made anew ----

_CHAINED = ("apply", "map", "op")  # recipes with one dataset before


def _rebuilt(dataset: Any, change: Any) -> Any:
    """The same chain of transforms with change(recipe) in the place of each recipe; None from change: it cannot be done."""
    kind = dataset._recipe[0]
    recipe = change(dataset._recipe)
    if recipe is None:
        return None
    if kind in _CHAINED:
        parent = _rebuilt(recipe[1], change)
        if parent is None:
            return None
        recipe = (kind, parent) + tuple(recipe[2:])
    out = dataset._copy()
    out._recipe, out._made = recipe, None
    return out


def one_to_one(dataset: Any) -> Any:
    """The dataset with functions of batches taken for such that keep the number of rows; None when a filter or flat_map is among them. The library refuses what such
    a function returns when it does not."""
    def change(recipe: tuple) -> tuple | None:
        if recipe[0] != "map" or not recipe[5]:
            return recipe
        keeps = recipe[2].what == "map_batches"
        return recipe[:5] + (False,) + recipe[6:] if keeps else None

    return _rebuilt(dataset, change)


def auto_seeds(dataset: Any) -> list[int]:
    """The seeds in the chain of transforms that were drawn."""
    found: list[int] = []
    while dataset._recipe[0] in _CHAINED:
        if dataset._recipe[0] == "op":
            found += [int(argument) for argument in dataset._recipe[3] if isinstance(argument, AutoSeed)]
        dataset = dataset._recipe[1]
    return found


def reseeded(dataset: Any, seeds: list[int]) -> Any:
    """The dataset with these in their places."""
    left = list(seeds)

    def change(recipe: tuple) -> tuple:
        if recipe[0] != "op":
            return recipe
        return recipe[:3] + (tuple(AutoSeed(left.pop(0)) if isinstance(argument, AutoSeed) else argument for argument in recipe[3]),)

    return _rebuilt(dataset, change) if seeds != auto_seeds(dataset) and len(seeds) == len(auto_seeds(dataset)) else dataset
