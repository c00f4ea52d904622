"""Trainer.to_worker_group (v1): an object of a class in every worker, whose methods are called from here.

    group = Trainer("torch", num_workers=2).to_worker_group(TrainClass, lr=0.1)
    print(unisono.get([worker.train.remote(epochs=3) for worker in group]))
    group.shutdown()
"""

from __future__ import annotations

import time
from typing import Any, Iterator

from unisono.extend import Commands, Unanswered, Worker

__all__ = ["WorkerGroup"]


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
