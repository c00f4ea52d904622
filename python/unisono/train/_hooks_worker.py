"""The worker's half of a Backend of the user's own: a gate before (and after) the train function. See _hooks.py.

One thread reads the channel. While the main thread waits at the gate, it executes what the driver asks for; while it trains, the reading thread does.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import Any

from unisono._channel import Peer

_gates: dict[Any, Gate] = {}  # by address: a warm worker keeps its channel


class Gate(Peer):
    """One worker's channel to the hooks in the driver."""

    def __init__(self, asked: dict[str, Any], rank: int):
        super().__init__(asked, rank)
        self.ends, self._is_waiting = asked["ends"], False
        self._messages: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, name="unisono-backend", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                message = self.receive()
                if message[0] != "call" or self._is_waiting:
                    self._is_waiting = self._is_waiting and message[0] == "call"
                    self._messages.put(message)
                else:
                    self._execute(*message[1:])
        except (EOFError, OSError):  # the driver is gone, or has closed the channel
            self._messages.put(("go",))

    def _execute(self, arguments: tuple, keywords: dict[str, Any]) -> None:
        self.answer(arguments[0], arguments[1:], keywords)

    def _wait(self, *message: Any) -> None:
        """Tells the driver, and does what it asks for until it opens the gate."""
        self._is_waiting = True
        self.send(*message)
        while True:
            kind, *parts = self._messages.get()
            if kind == "go":
                return
            if kind == "raise":
                raise RuntimeError(parts[0])
            self._execute(*parts)

    @contextlib.contextmanager
    def around(self, session: Any) -> Any:
        """The gate before the train function, and the one behind it."""
        self._wait("ready", (session.run_dir, session.attempt), self.rank, _metadata())
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # the driver is gone
                self._end(False)
            raise
        self._end(True)

    def _end(self, went_well: bool) -> None:
        if self.ends:
            self._wait("ended", went_well)


def _metadata() -> tuple[str, int, list[str]]:
    import socket

    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return socket.gethostname(), os.getpid(), [each for each in gpus.split(",") if each]


def gate(asked: dict[str, Any], session: Any) -> Any:
    """The context that the train function runs in."""
    if asked["address"] not in _gates:
        _gates.clear()
        _gates[asked["address"]] = Gate(asked, session.world_rank)
    return _gates[asked["address"]].around(session)
