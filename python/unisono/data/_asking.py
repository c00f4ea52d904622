"""Questions to a Dataset, most of which read it: schema, count, take, aggregates, and the whole of it for other libraries."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator

from unisono.data import _convert
from unisono.data._cursor import Cursor
from unisono.data._iterating import tables_of
from unisono.data._options import some_names, whole
from unisono.data._schema import Schema


def _whole_sum(values: Any) -> int:
    """Exact: a block of int64 could overflow, its halves cannot."""
    if values.dtype.kind == "b":
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum()) if values.dtype.itemsize == 8 else int(values.sum(dtype="int64"))


class Asking:
    """What a Dataset has for asking. Of a worker's shard none of it counts as an epoch."""

    _native: Any  # of the Dataset
    _guard: Callable
    _shard: tuple[int, int] | None
    _cursor: Cursor
    _recipe: tuple

    def _read(self, batch_size: int) -> Iterator[Any]:
        return tables_of(self, batch_size=batch_size, rehearsal=self._cursor.tracked)

    def schema(self, fetch_if_missing: bool = True) -> Schema:
        """Names and types of the columns."""
        return Schema(self._guard(self._native.schema).schema())

    def columns(self, fetch_if_missing: bool = True) -> list[str]:
        """The columns' names."""
        return self.schema().names

    def count(self) -> int:
        """Rows (of this shard)."""
        if self._shard is None:
            return self._guard(self._native.count)
        return sum(table.num_rows for table in tables_of(self, batch_size=4096, rehearsal=True))

    def num_blocks(self) -> int:
        """Parts that are read at once; windows count in them."""
        return self._native.num_blocks

    def size_bytes(self) -> int:
        """Of the files or arrays; -1 if unknown."""
        return self._native.nbytes

    def take(self, limit: int = 20) -> list[dict]:
        """The first rows."""
        if self._shard is None:
            return list(_convert.to_rows(self._guard(self._native.take, whole("limit", limit))))
        rows: list[dict] = []
        for table in tables_of(self, batch_size=max(1, min(whole("limit", limit), 1024)), rehearsal=True):
            rows += _convert.to_rows(table)
            if len(rows) >= limit:
                break
        return rows[:limit]

    def take_all(self, limit: int | None = None) -> list[dict]:
        """All rows; more than `limit` of them are an error."""
        rows: list[dict] = []
        for table in self._read(1024):
            rows += _convert.to_rows(table)
            if limit is not None and len(rows) > limit:
                raise ValueError("the dataset has more than %d rows" % limit)
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """The first rows as one batch."""
        return _convert.to_user(self._guard(self._native.take, whole("batch_size", batch_size)), batch_format)

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def order(self) -> str:
        """Which of the three orders the dataset has, and in what units: one sentence."""
        return self._native.order()

    def plan(self, num_shards: int) -> list[dict]:
        """Which rank reads what."""
        return self._guard(self._native.plan, whole("num_shards", num_shards, 1))

    def stats(self) -> dict:
        """Of the last iteration: rows, bytes, seconds that the loop waited for data, bad rows that were skipped ..."""
        return getattr(self, "_last_stats", {})

    def input_files(self) -> list[str]:
        """The files that are read."""
        return sorted({piece["file"] for rank in self.plan(1) for piece in rank["pieces"] if piece.get("file")})

    # ---- aggregates ----

    def unique(self, column: str) -> list:
        """The values of a column, each once, in the order in which they come."""
        seen: dict = {}
        for table in self.select_columns([column])._read(4096):
            seen.update(dict.fromkeys(_convert.to_numpy(table)[column].tolist()))
        return list(seen)

    def _numbers(self, name: str) -> Iterator[Any]:
        """The values of one column, block by block; missing ones are left out, as pandas and Ray have it."""
        import numpy

        for table in self.select_columns([name])._read(4096):
            values = _convert.to_numpy(table)[name]
            if values.dtype == object:
                values = numpy.array([value for value in values if value is not None] or [math.nan])
            if values.dtype.kind not in "iufb":
                raise TypeError("column %r holds no numbers: it has no sum, mean, min or max" % name)
            if values.dtype.kind == "f":
                values = values[~numpy.isnan(values)].astype("float64")
            if len(values):
                yield values

    def _aggregate(self, name: str, on: Any, ddof: int = 1) -> Any:
        """A number, or of several columns {"sum(x)": a number, ...}, as in Ray."""
        columns = self.columns() if on is None else some_names(on, "on")
        if len(columns) <= 1:
            return self._aggregate_one(name, columns[0], ddof) if columns else None
        return {"%s(%s)" % (name, column): self._aggregate_one(name, column, ddof) for column in columns}

    def _aggregate_one(self, name: str, column: str, ddof: int) -> Any:
        """One pass in blocks: count, mean and squared distances are joined pairwise, so that no digits are lost; sums of whole numbers are exact."""
        total: Any = 0
        mean, squares, low, high, count = 0.0, 0.0, None, None, 0
        for values in self._numbers(column):
            size, own = values.size, float(values.mean(dtype="float64"))
            delta = own - mean
            squares += ((values.astype("float64") - own) ** 2).sum() + delta * delta * count * size / (count + size)
            mean += delta * size / (count + size)
            count += size
            total += float(values.sum()) if values.dtype.kind == "f" else _whole_sum(values)
            low = values.min() if low is None else min(low, values.min())
            high = values.max() if high is None else max(high, values.max())
        if count == 0:
            return None
        return {"sum": total, "mean": mean, "min": low.item(), "max": high.item(),
                "std": float((squares / (count - ddof)) ** 0.5) if count > ddof else math.nan}[name]

    def sum(self, on: Any = None) -> Any:
        """Of a column of numbers; of several (None: all) a dictionary."""
        return self._aggregate("sum", on)

    def mean(self, on: Any = None) -> Any:
        """Of a column of numbers; of several (None: all) a dictionary."""
        return self._aggregate("mean", on)

    def min(self, on: Any = None) -> Any:
        """Of a column of numbers; of several (None: all) a dictionary."""
        return self._aggregate("min", on)

    def max(self, on: Any = None) -> Any:
        """Of a column of numbers; of several (None: all) a dictionary."""
        return self._aggregate("max", on)

    def std(self, on: Any = None, ddof: int = 1) -> Any:
        """Of a column of numbers, of several (None: all) a dictionary; NaN, as in pandas, of no more rows than ddof."""
        return self._aggregate("std", on, ddof)

    # ---- to others ----

    def _whole(self) -> list:
        return list(self._read(65536)) or [self._native.schema()]

    def to_pandas(self, limit: int | None = None) -> Any:
        """A data frame of all rows. limit: more rows than that are an error, as in Ray."""
        import pandas

        if limit is not None and self.count() > limit:
            raise ValueError("the dataset has more than %d rows: take them with limit(%d).to_pandas()" % (limit, limit))
        return pandas.concat([_convert.to_pandas(table) for table in self._whole()], ignore_index=True)

    def to_arrow(self) -> Any:
        """A pyarrow table of all rows."""
        import pyarrow

        from unisono.data import _arrow

        return pyarrow.concat_tables([_arrow.to_arrow(table) for table in self._whole()])

    def to_numpy(self) -> dict:
        """A dictionary of arrays of all rows."""
        import numpy

        parts = [_convert.to_numpy(table) for table in self._whole()]
        return {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}
