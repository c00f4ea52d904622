"""Workers that wait for commands: RaySGD's TFTrainer and v1's Trainer.to_worker_group.

The workers run one long function, because a framework's cluster lives as long as its processes. Each makes an object and calls what it is told to.
An exception of a method is an answer (_channel.py).
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Sequence

from unisono import _session
from unisono._channel import Channel, Link, Lost, Peer, Unanswered

__all__ = ["Commands", "Future", "Unanswered", "Worker"]


def serve(asked: dict[str, Any]) -> None:
    """The train function of every worker."""
    peer = Peer(asked["channel"], _session.world_rank())
    peer.send("hello", peer.rank)  # first: making the object may wait for the other ranks
    target = asked["make"]()
    while True:
        try:
            command, arguments, keywords = peer.receive()
        except EOFError:  # the driver is gone
            return
        if command is None:
            return
        method = getattr(target, command)
        if asked["fatal"]:
            peer.send("answer", method(*arguments, **keywords))
        else:
            peer.answer(method, arguments, keywords)


class Commands:
    """The driver's half. make: a function without arguments; what it returns in a worker has the methods that are called. fatal: an exception of a
    method ends all workers, because the others may wait for that one."""

    def __init__(self, group: Any, make: Callable[[], Any], fatal: bool = False):
        self.size = group.num_workers
        self._group = group
        self._links: dict[int, Link] = {}
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._done = False
        channel = Channel(self.size, self._hear)
        try:
            options = group.options(serve, {"make": make, "fatal": fatal, "channel": channel.describe()})
            self._thread = threading.Thread(target=self._run, args=(options,), name="unisono-commands", daemon=True)
            self._thread.start()
            with self._changed:  # all workers, or the reason why they do not come
                self._changed.wait_for(lambda: self._done or len(self._links) == self.size)
        finally:
            channel.close()
        if len(self._links) < self.size:
            self._links = {}
            self._raise()

    def _hear(self, link: Link, kind: str, *parts: Any) -> None:
        if kind == "hello":
            link.rank = parts[0]
            with self._changed:
                self._links[link.rank] = link
                self._changed.notify_all()

    def _run(self, options: dict[str, Any]) -> None:
        try:
            left = self._group.trainer.fit(options)
            self._failure = self._group.failure_of(left)
        except BaseException as error:  # shown to the next caller
            self._failure = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _raise(self) -> None:
        self._thread.join()
        raise self._failure or RuntimeError("the workers have ended")

    # ---- calls ----

    @property
    def is_open(self) -> bool:
        """Whether the workers are there to be called."""
        return bool(self._links)

    def send(self, rank: int, command: str | None, arguments: Sequence[Any] = (), keywords: dict[str, Any] | None = None) -> None:
        """Asks a worker to call a method; receive gives the answers in the same order."""
        self._links[rank].send(command, tuple(arguments), keywords or {})

    def receive(self, rank: int, until: float | None = None) -> Any:
        """The next answer of a worker; raises the exception of the method, or why the worker has ended. until: of time.monotonic(), then
        Unanswered."""
        try:
            return self._links[rank].receive(until)
        except Lost:
            self._raise()

    def call(self, command: str, *arguments: Any, ranks: Sequence[int] | None = None) -> list[Any]:
        """A method of all workers (or of some); their answers by rank."""
        ranks = range(self.size) if ranks is None else ranks
        for rank in ranks:
            self.send(rank, command, arguments)
        return [self.receive(rank) for rank in ranks]

    def kill(self) -> None:
        """Ends the workers in the middle of what they do."""
        self._group.trainer.stop(True)
        self._thread.join()

    def stop(self) -> None:
        """Ends the workers."""
        if self._links:
            for rank in self._links:
                self.send(rank, None)
            self._thread.join()
            self._links = {}


class Future:
    """The answer of a method, some time. result() waits for it; unisono.get does that for one or a list."""

    def __init__(self, worker: Worker):
        self._worker, self._done = worker, False
        self._value: Any = None
        self._error: BaseException | None = None

    def _settle(self, until: float | None = None) -> None:
        try:
            self._value = self._worker._commands.receive(self._worker._rank, until)
        except Unanswered:  # still under way
            raise
        except Exception as error:
            self._error = error
        self._done = True

    def result(self, timeout: float | None = None) -> Any:
        """What the method returned; raises what it raised, or a TimeoutError after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._done:  # answers come in the order of the calls
            self._worker._pending[0]._settle(until)
            self._worker._pending.pop(0)
        if self._error is not None:
            raise self._error
        return self._value


class _Method:
    def __init__(self, worker: Worker, name: str):
        self._worker, self._name = worker, name

    def remote(self, *arguments: Any, **keywords: Any) -> Future:
        return self._worker._start(self._name, arguments, keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise TypeError("call it as worker.%s.remote(...): it runs in the worker, and unisono.get waits for it" % self._name)


class Worker:
    """The object in one worker. worker.method.remote(...) calls a method there."""

    def __init__(self, commands: Commands, rank: int):
        self._commands, self._rank = commands, rank
        self._pending: list[Future] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self, name)

    def _start(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Future:
        if not self._commands.is_open:
            raise RuntimeError("this worker group is shut down")
        future = Future(self)
        self._commands.send(self._rank, name, arguments, keywords)
        self._pending.append(future)
        return future
