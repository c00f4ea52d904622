"""A position in a dataset over many epochs: the pass in progress, the number of the next epoch, and what a checkpoint says about it."""

from __future__ import annotations

import os
from typing import Any

from unisono._unisono import Dataset as Native
from unisono.data._passes import Pass


def draw_seed() -> int:
    """A seed for an order without one."""
    return int.from_bytes(os.urandom(6), "little")


class Cursor:
    """One for each dataset that is iterated; what is derived from a worker's shard shares the shard's (tracked)."""

    def __init__(self, tracked: bool = False) -> None:
        self.tracked = tracked
        self.epoch = 0  # of the next pass
        self.pending: dict | None = None  # the next pass goes on from this place
        self.live: Pass | None = None
        self.last: dict | None = None  # the place of the last pass, when it is over
        self.local_seed: int | None = None  # of local shuffles without one
        self.consumed: Any = None  # says how many batches of the live pass were used, where a consumer reads ahead
        self.log: list[tuple[int, dict]] = []  # places behind those

    def seed(self) -> int:
        """Of local shuffles: drawn once, the same after a restart."""
        if self.local_seed is None:
            self.local_seed = draw_seed()
        return self.local_seed

    # ---- passes ----

    def take_place(self, epoch: int) -> dict | None:
        """The place to go on from in that epoch; only the first pass gets it."""
        pending, self.pending = self.pending, None
        return pending if pending is not None and pending["epoch"] == epoch else None

    def begin(self, made: Pass) -> None:
        """A pass began: the one behind it is the next epoch."""
        self.live, self.consumed, self.log = made, None, []
        self.epoch = made.epoch + 1

    def finish(self, made: Pass) -> None:
        """The pass came to its end, or was left before it: the next one is a new epoch."""
        if self.live is made:
            if self.consumed is not None and (made.ended or int(self.consumed()) < made.taken):  # what was handed on may still be used
                self.last = None
            else:
                self.live, self.last = None, dict(made.place(), ended=True)
        made.close()

    # ---- reading ahead ----

    def read_ahead(self, consumed: Any) -> None:
        """From now on batches count when consumed() says so."""
        self.consumed, self.log = consumed, [(0, self.live.place())]

    def note(self) -> None:
        """A batch was handed to a consumer that reads ahead."""
        made = self.live
        self.log.append((made.taken, made.place()))
        if len(self.log) % 256 == 0:
            self._forget()

    def _forget(self) -> None:
        used = int(self.consumed())
        while len(self.log) > 1 and self.log[1][0] <= used:
            self.log.pop(0)

    # ---- places ----

    def place(self) -> dict | None:
        """Where the next batch would come from; None when nothing was read yet."""
        if self.live is None:
            return self.pending if self.last is None else self.last
        if self.consumed is None:
            return self.live.place()
        self._forget()
        used = int(self.consumed())
        if self.live.ended and used >= self.live.taken:
            return dict(self.live.place(), ended=True)
        return next((place for taken, place in reversed(self.log) if taken <= used), self.log[0][1] if self.log else self.live.place())

    def go_on(self, place: dict | None) -> None:
        """The next pass goes on from a place (or begins the epoch behind it)."""
        self.live, self.last, self.pending = None, None, None
        if place is None:
            return
        self.local_seed = place.get("local_seed", self.local_seed)
        self.epoch = place["epoch"] + (1 if place["ended"] else 0)
        if place["ended"]:
            self.last = place
        else:
            self.pending = place


# ---- what checkpoints have ----


def envelope(place: dict) -> dict:
    """A place as a state that the controller can choose from: of the ranks' states it hands on the one that is furthest."""
    return {"version": 1, "elements": 0, "rounds": 1, "shards": place["shards"], "epoch": place["epoch"] + 1, "end": -1,
            "pieces": [] if place["ended"] else [[place["epoch"], place["taken"], 0, 0, 0]], "place": place}


def merge(given: list[dict | None]) -> dict | None:
    """One place of those of all ranks."""
    places = [place for place in given if place is not None]
    if len(places) < len(given):
        return None
    furthest = max(places, key=lambda place: (place["epoch"], place["ended"], place["taken"]))
    here = [place for place in places if place["epoch"] == furthest["epoch"]]
    going = [place for place in here if not place["ended"]]
    if len(places) == 1 or not going or going[0]["state"].get("all"):
        return furthest
    if len(here) < len(places):
        return None
    return dict(going[0], state=Native.merge_states([place["state"] for place in here]))
