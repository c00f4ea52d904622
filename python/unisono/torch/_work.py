"""torch.distributed's handle of a call: waits, futures, what is left to do when it has ended."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
from torch._C import _distributed_c10d as _c10d

# A future is asked for right after the call (DistributedDataParallel does): for so long its caller waits itself, which needs no second thread.
_INLINE_NS = 2_000_000


Handle = _c10d.Work
# Since torch says whether the program waits at once it also keeps the Python part of a handle that only C++ code holds.
_KEEPS_HANDLES = hasattr(_c10d.AllreduceOptions, "asyncOp")


def hand_out(queue: Any, calls: Sequence[Any], result: Any, finish: Callable[[], None] | None = None) -> Any:
    """The handle of an operation that has been started."""
    work = Work(queue, calls, result, finish)
    return work if _KEEPS_HANDLES else _c10d._create_work_from_future(work.get_future())


class Work(Handle):
    """One operation of a group: one or more calls of its queue, and then `finish`, which copies results to where they belong."""

    def __init__(self, queue: Any, calls: Sequence[Any], result: Any, finish: Callable[[], None] | None = None):
        super().__init__()
        self._queue, self._calls, self._result, self._finish = queue, list(calls), result, finish
        self._lock = threading.Lock()
        self._future: torch.futures.Future | None = None
        self._error: BaseException | None = None

    def _advance(self, limit_ns: int) -> bool:
        """Whether all calls have ended; the results are in place then. Raises what made a call fail, each time."""
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                while self._calls:
                    if not self._calls[0].wait(limit_ns):
                        return False
                    self._calls.pop(0)
                if self._finish is not None:
                    finish, self._finish = self._finish, None
                    finish()
            except BaseException as error:
                self._error = error
                raise
        return True

    def wait(self, timeout: Any = None) -> bool:
        """Waits until the operation has ended; RuntimeError after `timeout` (a timedelta; 0 or None: the group's)."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 0
        if not self._advance(int(seconds * 1e9) if seconds > 0 else -1):
            raise RuntimeError("the operation has not ended within %g s; it goes on" % seconds)
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        try:
            return self._advance(0)
        except Exception:
            return True

    def is_success(self) -> bool:
        """Whether it has ended well."""
        try:
            return self._advance(0)
        except Exception:
            return False

    def exception(self) -> BaseException | None:
        """What made it fail."""
        return self._error

    def result(self) -> Any:
        """The tensors."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def source_rank(self) -> int:
        """Only of messages from any rank, which are not supported."""
        raise NotImplementedError("this operation has no source rank")

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors. It is set by this thread, or when the operation takes longer by one that looks after all futures."""
        if self._future is not None:
            return self._future
        self._future = future = torch.futures.Future()
        try:
            ended = self._advance(_INLINE_NS)
        except Exception as error:
            future.set_exception(error)
            return future
        if ended:
            future.set_result(self._result)
        else:
            _look_after(self)
        return future

    def tell_future(self) -> None:
        """Sets the future. The last call has ended; the others end without anything that this process has yet to do."""
        assert self._future is not None
        try:
            self._advance(-1)
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(self._result)


# ---- futures of operations that were not waited for: one thread a queue sets them ----

_lock = threading.Lock()
_watched: dict[Any, dict[Any, Work]] = {}  # queue -> call -> the operation that is behind it


def _look_after(work: Work) -> None:
    """The last call ends last: a queue's calls may overtake each other, so the others are tried again then."""
    with _lock:
        calls = _watched.get(work._queue)
        if calls is None:
            calls = _watched[work._queue] = {}
            threading.Thread(target=_watch, args=(work._queue,), name="unisono-futures", daemon=True).start()
        call = work._calls[-1]
        calls[call] = work
    if not call.tell():  # it has ended meanwhile
        with _lock:
            calls.pop(call, None)
        work.tell_future()


def _watch(queue: Any) -> None:
    while True:
        call = queue.take()
        if call is None:
            break
        with _lock:
            work = _watched[queue].pop(call, None)
        if work is not None:
            work.tell_future()
    with _lock:
        left = _watched.pop(queue, {})
    for work in left.values():
        work.tell_future()

