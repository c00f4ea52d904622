"""The channel between a driver and its workers, for calls: a socket in a private directory, and a secret of its own that both ends prove.

Messages are pickled tuples whose first part says what they are. ("answer", value) is kept for Link.receive; what else a worker says goes to `hear`. The
end of a worker is noticed at once. Used by _commands.py and by the hooks of a Backend (train/_hooks.py).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import shutil
import tempfile
import threading
import time
import weakref
from multiprocessing.connection import Client, Listener
from typing import Any, Callable

from unisono import _codec
from unisono._failure import Failed


class Unanswered(TimeoutError):
    """The time to wait for an answer is over; the call is still under way."""


class Lost(RuntimeError):
    """A worker ended while it was used."""


_LOST = object()


class Link:
    """The driver's end of one worker's connection; its rank is known when the worker has said it."""

    def __init__(self, connection: Any, hear: Callable[..., None]):
        self._connection, self.rank, self.is_lost = connection, -1, False
        self._answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, args=(hear,), name="unisono-link", daemon=True).start()

    def _read(self, hear: Callable[..., None]) -> None:
        try:
            while data := self._connection.recv_bytes():
                kind, *parts = _codec.loads(data)
                if kind == "answer":
                    self._answers.put(parts[0])
                else:
                    hear(self, kind, *parts)
        except (EOFError, OSError):
            pass
        self._lose()
        self._connection.close()
        hear(self, "lost")

    def send(self, *message: Any) -> None:
        """One message; a worker that is gone is noticed when its answer is waited for."""
        try:
            self._connection.send_bytes(_codec.dumps(message))
        except OSError:
            self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        self._answers.put(_LOST)

    def receive(self, until: float | None = None) -> Any:
        """The next answer; raises what the call raised, Lost, or Unanswered at `until` of time.monotonic()."""
        try:
            answer = self._answers.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise Unanswered("rank %d has not answered yet" % self.rank) from None
        if answer is _LOST:
            self._answers.put(_LOST)
            raise Lost("rank %d ended while it was used" % self.rank)
        if isinstance(answer, Failed):
            raise answer.exception()
        return answer


class Channel:
    """The driver's end. hear(link, kind, *parts) is called in a thread of the link: what a worker says, and "lost"."""

    def __init__(self, size: int, hear: Callable[..., None]):
        folder = tempfile.mkdtemp(prefix="unisono-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True)  # at exit, when it is never closed
        self._secret, self._closing = os.urandom(32), threading.Event()
        self._listener = Listener(os.path.join(folder, "socket"), authkey=self._secret, backlog=size)
        threading.Thread(target=_accept, args=(self._listener, self._closing, hear), name="unisono-channel", daemon=True).start()

    def describe(self) -> dict[str, Any]:
        """What Peer needs; for the workers' eyes only."""
        return {"address": self._listener.address, "secret": self._secret}

    def close(self) -> None:
        """No new connections; those that are there stay."""
        self._closing.set()
        try:
            Client(self._listener.address, authkey=self._secret).close()  # wakes the thread that accepts
        except (OSError, EOFError):
            pass
        self._remove()


def _accept(listener: Any, closing: threading.Event, hear: Callable[..., None]) -> None:
    while not closing.is_set():
        try:
            connection = listener.accept()
        except (EOFError, ConnectionError, multiprocessing.AuthenticationError):  # a worker died while it was knocking
            continue
        except OSError:
            return
        if not closing.is_set():
            Link(connection, hear)
    with contextlib.suppress(FileNotFoundError):  # close() has removed the socket's directory meanwhile
        listener.close()


class Peer:
    """The worker's end."""

    def __init__(self, asked: dict[str, Any], rank: int):
        self._connection, self._lock, self.rank = Client(asked["address"], authkey=asked["secret"]), threading.Lock(), rank

    def send(self, *message: Any) -> None:
        """One message, from any thread."""
        data = _codec.dumps(message)
        with self._lock:
            self._connection.send_bytes(data)

    def receive(self) -> Any:
        """The driver's next message; EOFError or OSError when it is gone."""
        return _codec.loads(self._connection.recv_bytes())

    def answer(self, function: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        """Calls the function; its value or its exception is the answer."""
        try:
            value: Any = function(*arguments, **keywords)
        except Exception as error:
            value = Failed(error, self.rank)
        try:
            self.send("answer", value)
        except (EOFError, OSError):
            pass
        except Exception as error:  # an answer that cannot be pickled
            self.send("answer", Failed(error, self.rank))
