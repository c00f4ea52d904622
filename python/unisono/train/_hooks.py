"""Hooks of a Backend of the user's own: on_start, on_training_start and on_shutdown run in the driver, what they execute runs in the workers.

Every worker opens a channel to the driver and waits at a gate before its train function. When all have come, the hooks are called in a thread of the
driver, and the gate opens. on_start is called once for each set of processes: again after a restart, not for a second run of warm workers. Workers that
end with their run wait at the gate again afterwards, until on_shutdown has run; for warm workers Trainer.shutdown calls it (_channel.py has the channel).
"""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any, Callable

from unisono import _driver
from unisono._channel import Channel, Link, Lost
from unisono._commands import Future, Worker

__all__ = ["Hooks", "BackendWorkerGroup"]


class Metadata:
    """Where a worker runs: node_id, node_ip, hostname, pid, gpu_ids and resource_ids."""

    def __init__(self, hostname: str, pid: int, gpu_ids: list[str]):
        self.node_id, self.node_ip, self.hostname, self.pid, self.gpu_ids = hostname, "127.0.0.1", hostname, pid, gpu_ids
        self.resource_ids = {"GPU": gpu_ids}


class _Member(Worker):
    """One worker of the group. Functions run in it with worker_group.execute_single."""

    def __init__(self, links: Any, rank: int, metadata: Metadata):
        super().__init__(links, rank)
        self.metadata = metadata

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("a worker of a Backend's worker_group has no %s: use worker_group.execute_single(rank, function)" % name)


class _Links:
    """What Worker and Future ask for: the channels by rank."""

    is_open = True

    def __init__(self, links: list[Link]):
        self.links = links

    def send(self, rank: int, command: str, arguments: tuple, keywords: dict[str, Any]) -> None:
        self.links[rank].send("call", arguments, keywords)

    def receive(self, rank: int, until: float | None = None) -> Any:
        return self.links[rank].receive(until)


class BackendWorkerGroup:
    """The workers as the hooks see them: execute, execute_async, execute_single, execute_single_async, num_workers, len, and workers[rank].metadata."""

    def __init__(self, links: list[Link]):
        channels = _Links(links)
        self.workers = [_Member(channels, link.rank, Metadata(*link.metadata)) for link in links]
        self.num_workers = len(links)

    def __len__(self) -> int:
        return self.num_workers

    def execute_single_async(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Starts func(*args, **kwargs) in one worker; unisono.get waits for its answer."""
        if not callable(func):
            raise TypeError("a worker executes a function, not %r" % (func,))
        if not 0 <= worker_index < self.num_workers:
            raise ValueError("worker_index must be from 0 to %d, not %r" % (self.num_workers - 1, worker_index))
        return self.workers[worker_index]._start("call", (func, *args), kwargs)

    def execute_single(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What func returned in one worker."""
        return self.execute_single_async(worker_index, func, *args, **kwargs).result()

    def execute_async(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Future]:
        """Starts func in every worker; unisono.get waits for the answers."""
        return [self.execute_single_async(rank, func, *args, **kwargs) for rank in range(self.num_workers)]

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """What func returned in every worker, by rank."""
        return [future.result() for future in self.execute_async(func, *args, **kwargs)]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("worker_group.%s is not supported: a hook can use execute, execute_async, execute_single, execute_single_async, "
                             "num_workers, len(worker_group) and workers[rank].metadata; the library starts and ends the workers" % name)


class Hooks:
    """The driver's half for one Trainer. ends: the workers end with their run, and on_shutdown is called before that."""

    def __init__(self, config: Any, size: int, ends: bool):
        self.config, self.size, self.ends = config, size, ends
        self.backend = config.backend_cls()
        self.failure: BaseException | None = None
        self._events: queue.Queue[Any] = queue.Queue()
        self._channel: Channel | None = None
        self._key: Any = None  # of the attempt that is under way
        self._ready: dict[int, Link] = {}
        self._ended: set[int] = set()
        self._started: list[Link] = []  # on_start has run for these, on_shutdown has not
        self._over = False  # of this attempt: workers at the gate need not wait any more

    def describe(self) -> dict[str, Any]:
        """What the workers need; opens the channel."""
        if self._channel is None:
            self._channel = Channel(self.size, lambda link, kind, *parts: self._events.put((kind, link, *parts)))
            threading.Thread(target=self._work, name="unisono-backend", daemon=True).start()
        return dict(self._channel.describe(), ends=self.ends)

    def close(self) -> None:
        """Calls on_shutdown where the workers have outlived their runs; before they end."""
        if self._channel is None:
            return
        done = threading.Event()
        self._events.put(("close", done))
        done.wait()
        self._channel.close()
        self._channel = None
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    # ---- the hooks, in one thread ----

    def _work(self) -> None:
        while True:
            kind, *parts = self._events.get()
            if kind == "close":
                self._shut_down()
                parts[0].set()
                return
            getattr(self, "_on_" + kind)(*parts)

    def _on_ready(self, link: Link, key: Any, rank: int, metadata: Any) -> None:
        if key != self._key:
            self._key, self._ready, self._ended, self._over = key, {}, set(), False
        link.rank, link.metadata = rank, metadata
        self._ready[rank] = link
        if len(self._ready) == self.size:
            self._begin([self._ready[rank] for rank in range(self.size)])

    def _begin(self, links: list[Link]) -> None:
        self.failure, group = None, BackendWorkerGroup(links)
        for name in ("on_start", "on_training_start")[links == self._started:]:
            problem = self._call(name, group)
            if problem is not None:
                self._tell(links, "raise", problem)
                return
            self._started = links
        self._tell(links, "go")

    def _on_ended(self, link: Link, went_well: bool) -> None:
        """A train function has returned, or raised; its worker waits."""
        if self._over or link not in self._ready.values():
            self._tell([link], "go")
            return
        self._ended.add(link.rank)
        if went_well and len(self._ended) < self.size:
            return
        self._over = True
        problem = self._shut_down()
        if problem is None or not went_well:
            self._tell(self._waiting(), "go")
        else:
            self._tell(self._waiting(), "raise", problem)
        if problem and not went_well:  # the train function's own exception is the run's
            self.failure = None
            _driver.write(sys.stderr, "unisono: warning: %s\n" % problem)

    def _waiting(self) -> list[Link]:
        return [self._ready[rank] for rank in self._ended]

    def _on_lost(self, link: Link) -> None:
        """The attempt is over; the library ends it."""
        if link in self._ready.values() and not self._over:
            self._over = True
            self._tell(self._waiting(), "go")

    def _shut_down(self) -> str | None:
        links, self._started = self._started, []
        if not links or any(link.is_lost for link in links):
            return None
        return self._call("on_shutdown", BackendWorkerGroup(links))

    def _call(self, name: str, group: BackendWorkerGroup) -> str | None:
        """None, or why the workers cannot go on. An exception of the hook becomes the run's."""
        try:
            hook = getattr(self.backend, name, None)
            if hook is not None:
                hook(group, self.config)
            return None
        except Lost as error:
            return str(error)
        except BaseException as error:  # carried over to the thread that runs the trainer
            self.failure = error
            return "%s.%s raised %s: %s" % (type(self.backend).__name__, name, type(error).__name__, error)

    def _tell(self, links: list[Link], *message: str) -> None:
        for link in links:
            link.send(*message)
