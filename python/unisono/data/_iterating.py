"""Passes over a Dataset: batches, rows, and where one stands."""

from __future__ import annotations

from typing import Any, Callable, Iterator

from unisono.data import _convert, _passes, _recipe
from unisono.data._cursor import Cursor, merge
from unisono.data._options import whole


def tables_of(owner: Any, **options: Any) -> Iterator[Any]:
    """The Tables of one pass over a Dataset, or of all epochs of a pipeline. options: as Iterating._begin."""
    for made in owner._passes(**options):
        try:
            while (table := made.next()) is not None:
                yield table
        finally:
            owner._last_stats = made.finish()


class Batches:
    """What iter_batches and its like return. Each iter() of it is a new pass, the next epoch: a loader that was made before the loop over the epochs gives every epoch its
    rows. next() goes through one pass by hand, which a for loop behind it goes on with."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self._make = make
        self._by_hand: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        begun, self._by_hand = self._by_hand, None
        return self._make() if begun is None else begun

    def __next__(self) -> Any:
        if self._by_hand is None:
            self._by_hand = self._make()
        try:
            return next(self._by_hand)
        except BaseException:  # at its end, or broken: what comes next is a new pass
            self._by_hand = None
            raise

    def close(self) -> None:
        """Leaves the pass that next() began."""
        begun, self._by_hand = self._by_hand, None
        if begun is not None:
            begun.close()  # type: ignore[attr-defined]


class Iterating:
    """What a Dataset has for iterating. Each iteration is an epoch, with its own order when the dataset is shuffled."""

    _cursor: Cursor
    _shard: tuple[int, int] | None

    def _passes(self, **options: Any) -> Iterator[Any]:
        """One pass; a pipeline has more."""
        yield self._begin(**options)

    def _source(self, columns: Any, joins: Any, buffer: int | None, seed: int | None, prefetch: int | None) -> Any:
        """The library's object for a pass: only these columns, some of them side by side, shuffled in windows of `buffer` rows."""
        native = self._native
        if columns is not None:
            native = self._guard(native.select, list(columns))
        for join in joins:
            native = self._guard(native.concat_columns, *join)
        if buffer is not None:
            native = native.shuffle(whole("local_shuffle_buffer_size", buffer, 1), self._cursor.seed() if seed is None else int(seed) & (2 ** 64 - 1))
        return native.prefetch(whole("prefetch_batches", prefetch, -1)) if prefetch else native

    def _begin(self, batch_size: int | None = 256, drop_last: bool = False, columns: Any = None, buffer: int | None = None, seed: int | None = None,
               prefetch: int | None = None, joins: Any = (), rehearsal: bool = False) -> Any:
        """A pass over the next epoch. rehearsal: over the first one, and it is not counted."""
        size = None if batch_size is None else whole("batch_size", batch_size, 1)
        cursor = Cursor() if rehearsal else self._cursor
        epoch = self._fixed_epoch if self._fixed_epoch is not None else cursor.epoch
        place = cursor.take_place(epoch)
        source = self._source(columns, joins, buffer, seed, prefetch)
        shape = source.shape()
        size = size or shape["batch_size"] or 256
        made = _passes.Pass(source, self._guard, self._blocks, size, bool(drop_last or shape["drop_remainder"]), epoch, self._shard or (0, 1),
                            self._equal, place)
        seeds = _recipe.auto_seeds(self)
        made.extra = dict({"local_seed": cursor.local_seed} if cursor.local_seed is not None else {}, **({"seeds": seeds} if seeds else {}))
        cursor.begin(made)

        def finish() -> Any:
            cursor.finish(made)
            return made.stats

        made.finish = finish
        return made

    def _blocks(self) -> bytearray:
        """The rows of the blocks, counted once; goes along to the workers."""
        if self._counted[0] is None:
            self._counted[0] = self._guard(self._native.count_blocks)
        return self._counted[0]

    # ---- where it stands ----

    def state_dict(self) -> dict:
        """Where the iteration in progress stands: what was taken, not what was prefetched. In a trainer's worker every reported checkpoint has it by itself."""
        return {"epoch": self._cursor.epoch, "place": self._cursor.place()}

    def load_state_dict(self, state: dict | list | tuple) -> None:
        """The next iteration goes on there, also with another number of workers; a list of the states of all ranks is merged."""
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        place = merge([each["place"] for each in states])
        self._cursor.go_on(place)
        if place is None:
            self._cursor.epoch = max(each["epoch"] for each in states)

    # ---- for users ----

    def iter_batches(self, *, batch_size: int | None = 256, batch_format: str | None = "default", drop_last: bool = False,
                     prefetch_batches: int | None = None, prefetch_blocks: int | None = None, local_shuffle_buffer_size: int | None = None,
                     local_shuffle_seed: int | None = None) -> Batches:
        """An epoch of batches each time that it is iterated: dictionaries of NumPy arrays that share the library's memory, or as batch_format says ("pandas", "pyarrow"). In a
        worker all ranks get as many batches."""
        _convert.converter(batch_format)  # a format that is none is an error now

        def epoch() -> Iterator[Any]:
            convert = _convert.converter(batch_format)
            for table in tables_of(self, batch_size=batch_size, drop_last=drop_last, prefetch=prefetch_batches, buffer=local_shuffle_buffer_size,
                                   seed=local_shuffle_seed):
                yield convert(table)

        return Batches(epoch)

    def iter_rows(self, *, prefetch_blocks: int | None = None) -> Batches:
        """An epoch of rows, as dictionaries, each time that it is iterated."""
        def epoch() -> Iterator[dict]:
            for table in tables_of(self, batch_size=1024):
                yield from _convert.to_rows(table)

        return Batches(epoch)

    def __iter__(self) -> Iterator[dict]:
        return iter(self.iter_rows())
