"""What the resumable loaders of torch and TensorFlow share: a source of batches whose place in the epoch travels with every report."""

from __future__ import annotations

import json
from typing import Any

from unisono import _session

FORMAT = 1


def _parse(kept: bytes, what: str) -> dict[str, Any]:
    """The state in a checkpoint, which may be anybody's."""
    try:
        state = json.loads(kept)
    except (ValueError, RecursionError) as error:
        raise ValueError("the state of the %s in the checkpoint is damaged: %s" % (what, error)) from None
    if not isinstance(state, dict):
        raise ValueError("the state of the %s in the checkpoint is damaged: it is a %s" % (what, type(state).__name__))
    if state.get("format") != FORMAT:
        raise ValueError("the state of the %s has format %r, this version reads %d" % (what, state.get("format"), FORMAT))
    for name in ("epoch", "used"):
        if type(state.get(name)) is not int or not 0 <= state[name] < 1 << 62:
            raise ValueError("the state of the %s in the checkpoint is damaged: %s is %.40r" % (what, name, state.get(name)))
    return state


class Resumable:
    """Iterates over a source. `epoch`: how many epochs are over, so that a resumed loop is `for epoch in range(loader.epoch, epochs)`. A class for a framework says
    how an iteration begins (_begin), what is kept of it beside epoch and place (_describe), and what of that must fit (_resume)."""

    def __init__(self, source: Any, kind: str, what: str, name: str):
        self._source, self._key = source, "%s/%s" % (kind, name)
        self.epoch, self._used = 0, 0
        self._going_on: Any = None  # the state that the next iteration goes on from
        here = _session.current()
        if here is None:
            return
        if self._key in here.at_report:
            raise ValueError("two resumable %ss are called %r: give one of them another name=" % (what, name))
        here.at_report[self._key] = self._note
        kept = here.session.state(self._key)
        if kept is None:
            return
        self._going_on = self._resume(_parse(kept, what))
        self.epoch, self._used = self._going_on["epoch"], self._going_on["used"]

    def _resume(self, state: Any) -> Any:
        return state

    def _describe(self) -> dict[str, Any]:
        raise NotImplementedError

    def _begin(self) -> Any:
        raise NotImplementedError

    def _note(self):
        """At a report: what the batches that were handed out need to be gone on from."""
        state = self._going_on  # not None: not begun yet
        if state is None:
            state = dict(self._describe(), format=FORMAT, epoch=self.epoch, used=self._used)
        return json.dumps(state).encode()

    def __iter__(self):
        for batch in self._begin():
            self._used += 1
            yield batch
        self.epoch, self._used = self.epoch + 1, 0

    def __len__(self):
        return len(self._source)

    def __getattr__(self, name):
        return getattr(self._source, name)


def check_name(name: Any) -> None:
    """A TypeError for a name that is none."""
    if not isinstance(name, str) or not name:
        raise TypeError("resumable(name=%r): give a name that is not empty" % (name,))
