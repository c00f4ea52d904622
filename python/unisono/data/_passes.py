"""One pass over a dataset: batches of one epoch for one worker, and where it stands after each.

Every worker of a group gets as many batches as the others, and together they use each row of the epoch once: a worker that meets the others at each batch (DDP,
MultiWorkerMirrored) is never left alone, nor handed an empty batch. The library does that (`equal` and `no_empty` of its iterators, docs/data.md); here it is only asked for.

A place (what Pass.place gives) is a small dictionary of plain data: {"epoch", "taken" (batches), "ended", "shards", "state" (the library's)}. It counts batches that were
handed out, not what was read ahead, and is the same for all workers of a group in step.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import Any

from unisono._unisono import Table

_open: weakref.WeakSet[Handle] = weakref.WeakSet()  # iterators, whose threads must be gone before the interpreter is


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


class Pass:
    """One worker's batches of one epoch. `guard(function, *arguments)` calls into the library and turns its errors into the user's exceptions.

    blocks() gives the rows of the blocks when they are needed; place: what is left of the epoch, otherwise all of it."""

    def __init__(self, source: Any, guard: Any, blocks: Any, batch_size: int, drop_last: bool, epoch: int, shard: tuple[int, int], equal: bool,
                 place: dict | None) -> None:
        self.guard, self.epoch, self.shards = guard, epoch, shard[1]
        self.taken, self.ended = 0, False
        self.stats: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}  # goes along in the place
        shape = source.shape()
        # Where every worker reads everything or its part of every round anyway, none is left alone.
        equal = self.shards > 1 and (equal or shape["kind"] == "stream" or (shape["kind"] == "global" and shape["one_to_one"]))
        counted = equal and shape["kind"] == "block" and not shape["in_order"]
        options = {"batch_size": batch_size, "drop_remainder": int(drop_last), "shard": shard[0], "num_shards": self.shards, "epochs": 1, "first_epoch": epoch,
                   "equal": int(equal), "no_empty": int(equal), "block_rows": blocks() if counted else None, "state": place.get("state") if place else None}
        self.handle: Handle | None = Handle(guard(source.iterate, options))

    def next(self) -> Table | None:
        """The next batch; None at the end."""
        table = None if self.ended else self.guard(self.handle.native.next)
        if table is None and not self.ended:
            self.ended = True
            self._tell(self.handle.native.stats().get("left_out", 0))
        self.taken += table is not None
        return table

    def _tell(self, rows: int) -> None:
        if rows > 0:
            sys.stderr.write("unisono: %d row%s left of an epoch for %d workers: not one for each, left out\n" % (rows, "" if rows == 1 else "s", self.shards))

    def concat(self, tables: list[Table]) -> Table:
        """What was taken, one below the other, in memory that others can share (TensorFlow takes what is aligned)."""
        return self.guard(self.handle.native.concat, tables)

    def place(self) -> dict:
        """Where this pass stands: what was taken so far."""
        out = {"epoch": self.epoch, "taken": self.taken, "ended": self.ended, "shards": self.shards, **self.extra}
        if self.handle is not None and self.handle.native is not None:
            out["state"] = self.handle.native.state()
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
