"""Trainer.to_worker_group (v1): an object of a class in every worker, whose methods are called from here.

    group = Trainer("torch", num_workers=2).to_worker_group(TrainClass, lr=0.1)
    print(unisono.get([worker.train.remote(epochs=3) for worker in group]))
    group.shutdown()
"""

from __future__ import annotations

import time
from typing import Any, Iterator

from unisono._commands import Commands, Unanswered

__all__ = ["Future", "Worker", "WorkerGroup"]


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


class WorkerGroup:
    """The workers, by rank: group[0], len(group), for worker in group."""

    def __init__(self, group: Any, train_cls: type, arguments: tuple, keywords: dict[str, Any]):
        self._commands = Commands(group, lambda: train_cls(*arguments, **keywords))
        self._workers = [Worker(self._commands, rank) for rank in range(self._commands.size)]

    def __getitem__(self, rank: int) -> Worker:
        return self._workers[rank]

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers)

    def shutdown(self, patience_s: float = 5) -> None:
        """Ends the workers. Calls that were made have patience_s seconds to finish; their workers are killed then."""
        until = time.monotonic() + patience_s
        try:
            for worker in self._workers:
                while worker._pending:
                    worker._pending[0]._settle(until)
                    worker._pending.pop(0)
        except Unanswered:
            self._commands.kill()
        for worker in self._workers:
            worker._pending = []
        self._commands.stop()
