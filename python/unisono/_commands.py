"""Workers that wait for commands: RaySGD's TFTrainer and v1's Trainer.to_worker_group.

The workers run one long function, because a framework's cluster lives as long as its processes. Each makes an object and calls what it is told to.
Commands and answers travel over a socket in a private directory, with a secret of their own; an exception of a method is an answer, the end of a worker
is noticed at once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from multiprocessing.connection import Client, Listener
from typing import Any, Callable, Sequence

from unisono import _codec, _driver, _session

__all__ = ["Commands", "Unanswered"]


class Unanswered(TimeoutError):
    """The time to wait for an answer is over; the call is still under way."""


class Failed:
    """An exception on its way to the driver."""

    def __init__(self, error: BaseException, rank: int):
        import traceback

        self.text, self.rank = "".join(traceback.format_exception(error)), rank
        self.pickled = _codec.dumps_exception(error) or _codec.dumps(RuntimeError("%s: %s" % (type(error).__name__, error)))

    def exception(self) -> BaseException:
        """The exception again, with the worker's traceback as its cause."""
        error: BaseException = _codec.loads(self.pickled)
        error.__cause__ = _driver.RemoteTraceback(self.rank, self.text)
        error.rank = self.rank  # type: ignore[attr-defined]
        return error


def serve(asked: dict[str, Any]) -> None:
    """The train function of every worker."""
    connection = Client(asked["address"], authkey=asked["secret"])
    rank = _session.world_rank()
    connection.send(rank)  # first: making the object may wait for the other ranks
    target = asked["make"]()
    while True:
        try:
            command, arguments, keywords = _codec.loads(connection.recv_bytes())
        except EOFError:  # the driver is gone
            return
        answer: Any = None
        if command is not None:
            try:
                answer = getattr(target, command)(*arguments, **keywords)
            except Exception as error:
                if asked["fatal"]:
                    raise
                answer = Failed(error, rank)
        connection.send_bytes(_codec.dumps(answer))
        if command is None:
            return


class Commands:
    """The driver's half. make: a function without arguments; what it returns in a worker has the methods that are called. fatal: an exception of a
    method ends all workers, because the others may wait for that one."""

    def __init__(self, group: Any, make: Callable[[], Any], fatal: bool = False):
        self.size = group.num_workers
        self._group = group
        self._connections: dict[int, Any] = {}
        self._failure: BaseException | None = None
        self._done = threading.Event()
        folder = tempfile.mkdtemp(prefix="unisono-")
        secret = os.urandom(32)
        listener = Listener(os.path.join(folder, "socket"), authkey=secret)
        options = group.options(serve, {"make": make, "fatal": fatal, "address": listener.address, "secret": secret})
        self._thread = threading.Thread(target=self._run, args=(options,), name="unisono-commands", daemon=True)
        self._thread.start()
        try:
            self._gather(listener, secret)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _gather(self, listener: Any, secret: bytes) -> None:
        """All workers, or the reason why they do not come."""
        accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        accepting.start()
        while accepting.is_alive() and not self._done.is_set():
            accepting.join(0.1)
        if accepting.is_alive():  # the workers are gone: nobody else will knock
            with Client(listener.address, authkey=secret) as knock:
                knock.send(None)
            accepting.join()
        if len(self._connections) < self.size:
            self._connections = {}
            self._raise()

    def _run(self, options: dict[str, Any]) -> None:
        try:
            left = self._group.trainer.fit(options)
            self._failure = self._group.failure_of(left)
        except BaseException as error:  # shown to whoever calls next
            self._failure = error
        finally:
            self._done.set()

    def _accept(self, listener: Any) -> None:
        try:
            while len(self._connections) < self.size:
                connection = listener.accept()
                rank = connection.recv()
                if rank is None:
                    return
                self._connections[rank] = connection
        except (EOFError, OSError):  # a worker died while it was making its object
            pass
        finally:
            listener.close()

    def _raise(self) -> None:
        self._thread.join()
        raise self._failure or RuntimeError("the workers have ended")

    # ---- calls ----

    @property
    def is_open(self) -> bool:
        """Whether the workers are there to be called."""
        return bool(self._connections)

    def send(self, rank: int, command: str | None, arguments: Sequence[Any] = (), keywords: dict[str, Any] | None = None) -> None:
        """Asks a worker to call a method; receive gives the answers in the same order."""
        try:
            self._connections[rank].send_bytes(_codec.dumps((command, tuple(arguments), keywords or {})))
        except ConnectionError:
            self._raise()

    def receive(self, rank: int, until: float | None = None) -> Any:
        """The next answer of a worker; raises the exception of the method, or why the worker has ended. until: of time.monotonic(), then
        Unanswered."""
        try:
            while not self._connections[rank].poll(0.1):
                if self._done.is_set():
                    self._raise()
                if until is not None and time.monotonic() >= until:
                    raise Unanswered("rank %d has not answered yet" % rank)
            answer = _codec.loads(self._connections[rank].recv_bytes())
        except (EOFError, ConnectionError):
            self._raise()
        if isinstance(answer, Failed):
            raise answer.exception()
        return answer

    def call(self, command: str, *arguments: Any, ranks: Sequence[int] | None = None) -> list[Any]:
        """A method of all workers (or of some); their answers by rank."""
        ranks = range(self.size) if ranks is None else ranks
        for rank in ranks:
            self.send(rank, command, arguments)
        return [self.receive(rank) for rank in ranks]

    def kill(self) -> None:
        """Ends the workers in the middle of what they do."""
        self._group.trainer.stop(True)
        self._done.wait()

    def stop(self) -> None:
        """Ends the workers."""
        if not self._connections:
            return
        if not self._done.is_set():
            for rank in self._connections:
                self.send(rank, None)
        self._thread.join()
        for connection in self._connections.values():
            connection.close()
        self._connections = {}
