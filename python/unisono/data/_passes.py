"""One pass over a dataset: batches of one epoch for one worker, and where it stands after each.

Every worker of a group gets as many batches as the others, and together they use each row of the epoch once: whoever meets the others at each batch (DDP,
MultiWorkerMirrored) is never left alone. How that is done depends on the order of the dataset (docs/data.md):

    RoundsPass   rows that can be read in any order: the workers take their parts of the same rounds
    BlocksPass   files cut into blocks: the blocks are counted once, and each worker has a range of rows
    SharedPass   streams, and transforms after which nobody knows the number of rows: every worker reads all and keeps its part

A last round with fewer rows than workers is added to the one before it, so that a last batch may have one row more than was asked for.

A place (what Pass.place gives) is a small dictionary of plain data: {"epoch", "taken" (batches), "ended", "how", ...}. It counts batches that were handed out,
not what was read ahead, and is the same for all workers of a group in step.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import Any, Iterator

import numpy

from unisono._unisono import Table

VERSION = 1  # of the library's own states

_open: "weakref.WeakSet[Handle]" = weakref.WeakSet()  # iterators, whose threads must be gone before the interpreter is


def _close_all() -> None:
    for iterator in list(_open):
        iterator.close()


atexit.register(_close_all)


class Handle:
    """A weakly referable holder of the library's iterator."""

    def __init__(self, native: Any) -> None:
        self.native = native
        _open.add(self)

    def close(self) -> None:
        """Ends its threads."""
        native, self.native = self.native, None
        if native is not None:
            try:
                native.close()
            except RuntimeError:  # in use by another thread
                pass


def share(total: int, index: int, count: int) -> int:
    """Where part `index` of `count` nearly equal parts of [0, total) begins: as the library cuts."""
    return total // count * index + total % count * index // count


def native_state(elements: int, epoch: int, pieces: list[list[int]]) -> dict:
    """A state of the library for one reader of the pieces of one epoch."""
    return {"version": VERSION, "elements": elements, "rounds": 0, "shards": 1, "epoch": epoch + 1, "end": epoch + 1, "pieces": pieces}


def _tell_dropped(rows: int, shards: int) -> None:
    sys.stderr.write("unisono: %d row%s left of an epoch for %d workers: not one for each, left out\n" % (rows, "" if rows == 1 else "s", shards))


class Pass:
    """One worker's batches of one epoch. `guard(function, *arguments)` calls into the library and turns its errors into the user's exceptions."""

    how = "native"

    def __init__(self, source: Any, guard: Any, batch_size: int, drop_last: bool, epoch: int, shard: tuple[int, int]) -> None:
        self.source, self.guard, self.batch_size, self.drop_last, self.epoch = source, guard, batch_size, drop_last, epoch
        self.rank, self.shards = shard
        self.taken, self.ended, self.handle, self.stats = 0, False, None, {}
        self.extra: dict[str, Any] = {}  # goes along in the place

    # ---- for the passes ----

    def _iterate(self, state: dict | None, batch_size: int, shard: int, shards: int, drop: bool) -> Handle:
        return Handle(self.guard(self.source.iterate, {"batch_size": batch_size, "drop_remainder": int(drop), "shard": shard, "num_shards": shards,
                                                       "epochs": 1, "first_epoch": self.epoch, "state": state}))

    def _next(self) -> Table | None:
        """The next batch of this worker."""
        return self.guard(self.handle.native.next)

    def _standing(self) -> dict:
        """What of the place depends on the kind of pass."""
        return {"state": self.handle.native.state()}

    # ---- for others ----

    def next(self) -> Table | None:
        """The next batch; None at the end."""
        table = None if self.ended else self._next()
        if table is None:
            self.ended = True
            return None
        self.taken += 1
        return table

    def concat(self, tables: list[Table]) -> Table:
        """What was taken, one below the other, in memory that others can share (TensorFlow takes what is aligned)."""
        return self.guard(self.handle.native.concat, tables)

    def place(self) -> dict:
        """Where this pass stands: what was taken so far."""
        out = {"epoch": self.epoch, "taken": self.taken, "ended": self.ended, "how": self.how, "shards": self.shards, **self.extra}
        if self.handle is not None and self.handle.native is not None:
            out.update(self._standing())
        return out

    def close(self) -> None:
        """Ends the threads of the pass; its statistics stay."""
        handle, self.handle = self.handle, None
        if handle is not None and handle.native is not None:
            try:
                self.stats = handle.native.stats()
            except RuntimeError:
                pass
        if handle is not None:
            handle.close()


class NativePass(Pass):
    """As the library shares it out, or all of it."""

    def __init__(self, *arguments: Any, state: dict | None = None) -> None:
        super().__init__(*arguments)
        self.handle = self._iterate(state, self.batch_size, self.rank, self.shards, self.drop_last)


class WindowsPass(NativePass):
    """One worker over shuffled blocks, in the windows that several would use: another number of workers can go on from its places."""

    def __init__(self, *arguments: Any, window: int, state: dict | None = None) -> None:
        self.window = window
        super().__init__(*arguments, state=self._cut(arguments[0].num_blocks, arguments[4], state))

    def _cut(self, places: int, epoch: int, state: dict | None) -> dict:
        pieces: list[list[int]] = []
        for _, begin, end, unit, skip in state["pieces"] if state else [[epoch, 0, places, 0, 0]]:
            while begin < end:
                size = unit or min(self.window, end - begin)
                pieces.append([epoch, begin, begin + size, size, skip])
                begin, unit, skip = begin + size, 0, 0
        return native_state(places, epoch, pieces)

    def _standing(self) -> dict:
        """Windows that nobody began need not be told one by one."""
        state = self.handle.native.state()
        pieces: list[list[int]] = []
        for epoch, begin, end, unit, skip in state["pieces"]:
            if pieces and skip == 0 and pieces[-1][4] == 0 and pieces[-1][2] == begin:
                pieces[-1][2] = end
            else:
                pieces.append([epoch, begin, end, unit if skip else 0, skip])
        return {"state": dict(state, pieces=pieces)}


class RoundsPass(Pass):
    """A part of every round, from any place that all ranks share."""

    def __init__(self, *arguments: Any, state: dict | None = None) -> None:
        super().__init__(*arguments)
        begin = state["pieces"][0][1] if state and state["pieces"] else 0
        left = self.source.known_rows - begin if not state or state["pieces"] else 0
        size = self.batch_size * self.shards
        rest = left % size
        self.joined = left // size if 0 < rest < self.shards and not self.drop_last else -1  # the batch that gets the rest
        self.handle = self._iterate(state, self.batch_size, self.rank, self.shards, self.drop_last)
        if self.joined == 0:
            _tell_dropped(rest, self.shards)

    def _next(self) -> Table | None:
        if self.joined == 0:
            return None
        table = super()._next()
        if self.taken + 1 == self.joined:
            last = super()._next()
            table = table if last is None or last.num_rows == 0 else Table.concat([table, last])
        return table if self.joined < 0 or self.taken < self.joined else None


class SharedPass(Pass):
    """Everybody reads everything, in rounds of one batch for each, and keeps a part. One round is held back: the last one may have to be added to it."""

    def __init__(self, *arguments: Any, state: dict | None = None) -> None:
        super().__init__(*arguments)
        self.handle = self._iterate(state, self.batch_size * self.shards, 0, 1, self.drop_last)
        self.after = self.handle.native.state()
        self.held = self._round()

    def _round(self) -> tuple[Table, dict] | None:
        table = self.guard(self.handle.native.next)
        return None if table is None else (table, self.handle.native.state())

    def _standing(self) -> dict:
        return {"state": self.after}

    def _next(self) -> Table | None:
        if self.held is None:
            return None
        (table, after), self.held = self.held, self._round()
        if self.held is not None and self.held[0].num_rows < self.shards:
            table, after, self.held = Table.concat([table, self.held[0]]), self.held[1], None
        if table.num_rows < self.shards:
            _tell_dropped(table.num_rows, self.shards)
            return None
        self.after = after
        return table.slice(share(table.num_rows, self.rank, self.shards), share(table.num_rows, self.rank + 1, self.shards))


# ---- blocks ----


class Blocks:
    """The rows of each block of a dataset in the block order; counted once, goes along to the workers."""

    def __init__(self, source: Any, guard: Any) -> None:
        self.num_blocks = source.num_blocks
        self.rows = self._count(source, guard)

    @staticmethod
    def _count(source: Any, guard: Any) -> numpy.ndarray:
        from concurrent.futures import ThreadPoolExecutor

        blocks, parts = source.num_blocks, 4
        with ThreadPoolExecutor(parts) as pool:
            counted = list(pool.map(lambda part: guard(source.count_blocks, share(blocks, part, parts), share(blocks, part + 1, parts)), range(parts)))
        return numpy.concatenate([numpy.frombuffer(rows, dtype=numpy.int64) for rows in counted])


class Layout:
    """The rows of an epoch's order: which place (of a block) has which rows."""

    def __init__(self, source: Any, shape: dict, blocks: Blocks, epoch: int) -> None:
        order = numpy.frombuffer(source.block_order(epoch), dtype=numpy.int64)
        if len(order) != blocks.num_blocks:
            raise ValueError("the dataset has %d blocks, %d were counted: its files have changed" % (len(order), blocks.num_blocks))
        self.starts = numpy.concatenate([[0], numpy.cumsum(blocks.rows[order])])
        self.total, self.places, self.window = int(self.starts[-1]), len(order), shape["window"]
        self.shuffled = shape["shuffle"]

    def pieces(self, epoch: int, begin: int, end: int) -> list[list[int]]:
        """Rows [begin, end) as pieces of the library's states: whole windows, the first rows of which are skipped."""
        first = int(numpy.searchsorted(self.starts, begin, side="right")) - 1
        last = int(numpy.searchsorted(self.starts, end, side="left"))
        at, out = first // self.window * self.window, []
        skip = begin - int(self.starts[at])
        if not self.shuffled:  # what follows needs no window of its own
            head = [[epoch, at, at + 1, 1, skip]] if skip else []
            at += len(head)
            return head + ([[epoch, at, last, 0, 0]] if at < last else [])
        while at < last:
            size = min(self.window, self.places - at)
            out.append([epoch, at, at + size, size, skip])
            at, skip = at + size, 0
        return out

    def ranges(self, pieces: list[list[int]]) -> list[list[int]]:
        """The other way round."""
        out = [[int(self.starts[begin]) + skip, int(self.starts[end])] for _, begin, end, _, skip in pieces]
        return [[begin, end] for begin, end in out if begin < end]


def cut(ranges: list[list[int]], begin: int, end: int) -> list[list[int]]:
    """Rows [begin, end) of what ranges give one after the other."""
    out, at = [], 0
    for first, last in ranges:
        low, high = max(first, first + begin - at), min(last, first + end - at)
        if low < high:
            out.append([low, high])
        at += last - first
    return out


class BlocksPass(Pass):
    """A range of rows of the epoch for each worker; the block at its border is read by both neighbours."""

    how = "blocks"

    def __init__(self, *arguments: Any, layout: Layout, ranges: list[list[int]] | None = None) -> None:
        super().__init__(*arguments)
        self.layout = layout
        self.left = [[0, layout.total]] if ranges is None else [list(each) for each in ranges]
        self.rows = sum(end - begin for begin, end in self.left)
        least, size = self.rows // self.shards, self.batch_size
        self.batches = least // size if self.drop_last else (least + size - 1) // size
        if least == 0 and self.rows > 0:
            _tell_dropped(self.rows, self.shards)
        self.tables, self.rest = self._tables(cut(self.left, *self._own(self.rank, 0))), None

    def _own(self, rank: int, batches: int) -> tuple[int, int]:
        """The rows of a rank that are left after that many batches."""
        begin, end = share(self.rows, rank, self.shards), share(self.rows, rank + 1, self.shards)
        return (end, end) if batches >= self.batches else (begin + batches * self.batch_size, end)

    def _tables(self, ranges: list[list[int]]) -> Iterator[Table]:
        """Tables of at most a batch; a new iterator of the library for each range."""
        for begin, end in ranges:
            state = native_state(self.layout.places, self.epoch, self.layout.pieces(self.epoch, begin, end))
            self.close()
            self.handle = self._iterate(state, self.batch_size, 0, 1, False)
            while begin < end:
                table = self.guard(self.handle.native.next)
                if table is None:
                    raise ValueError("the dataset gives fewer rows than were counted: its files or functions have changed")
                yield table if table.num_rows <= end - begin else table.slice(0, end - begin)
                begin += table.num_rows

    def _next(self) -> Table | None:
        if self.taken == self.batches:
            return None
        begin, end = self._own(self.rank, self.taken)
        wanted = self.batch_size if self.taken + 1 < self.batches or self.drop_last else end - begin
        parts = []
        while wanted > 0:
            table, self.rest = self.rest if self.rest is not None else next(self.tables), None
            if table.num_rows > wanted:
                table, self.rest = table.slice(0, wanted), table.slice(wanted, table.num_rows)
            parts.append(table)
            wanted -= table.num_rows
        return parts[0] if len(parts) == 1 else Table.concat(parts)

    def _standing(self) -> dict:
        return {}

    def place(self) -> dict:
        """As of every pass, with the rows that are left of the epoch for all ranks."""
        left = [each for rank in range(self.shards) for each in cut(self.left, *self._own(rank, self.taken))]
        joined: list[list[int]] = []
        for begin, end in left:
            if joined and joined[-1][1] == begin:
                joined[-1][1] = end
            else:
                joined.append([begin, end])
        return dict(super().place(), ranges=[] if self.ended else joined)


# ---- which one ----


def begin(source: Any, guard: Any, shape: dict, blocks: Any, batch_size: int, drop_last: bool, epoch: int, shard: tuple[int, int], equal: bool,
          place: dict | None) -> Pass:
    """A pass over `epoch`, or over what a place left of it. blocks() gives the Blocks when they are needed."""
    arguments = (source, guard, batch_size, drop_last, epoch, shard)
    state = place.get("state") if place else None
    if shape["kind"] == "block" and (place and place["how"] == "blocks" or equal and shard[1] > 1 and not shape["in_order"]):
        layout = Layout(source, shape, blocks(), epoch)
        ranges = place["ranges"] if place and place["how"] == "blocks" else layout.ranges(state["pieces"]) if state else None
        return BlocksPass(*arguments, layout=layout, ranges=ranges)
    if shape["kind"] == "global" and shape["one_to_one"]:
        return RoundsPass(*arguments, state=state) if shard[1] > 1 else NativePass(*arguments, state=state)
    if equal and shard[1] > 1:
        return SharedPass(*arguments, state=state)
    if equal and shape["kind"] == "block" and shape["shuffle"]:
        return WindowsPass(*arguments, window=shape["window"], state=state)
    return NativePass(*arguments, state=state)
