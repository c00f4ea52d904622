"""torch.distributed's handle of a call: waits, futures, what is left to do when it has ended."""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
from torch._C import _distributed_c10d as _c10d

# A future is asked for right after the call (DistributedDataParallel does): for so long its caller waits itself, which needs no second thread.
_INLINE_NS = 2_000_000


Handle = _c10d.Work
# Since torch says whether the program waits at once, it also keeps the Python part of a handle that only C++ code holds.
_KEEPS_HANDLES = hasattr(_c10d.AllreduceOptions, "asyncOp")


def _is_asked_by_python() -> bool:
    """Whether torch.distributed's functions called the group, and not C++ code."""
    frame, here = sys._getframe(2), os.path.dirname(__file__)
    while frame is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and os.path.basename(frame.f_code.co_filename) == "distributed_c10d.py"


def hand_out(queue: Any, calls: Sequence[Any], result: Any, finish: Callable[[], None] | None = None) -> Any:
    """The handle of an operation that has been started. An older torch would lose a handle that goes to C++ code, and the errors of what it offers instead: there the
    operation ends before it is handed out."""
    work = Work(queue, calls, result, finish)
    if _KEEPS_HANDLES or _is_asked_by_python():
        return work
    work.wait()
    return _c10d._create_work_from_future(work.get_future())


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
        if self._future is None:
            inner: torch.futures.Future = torch.futures.Future()
            # C++ code learns of errors only from callbacks that raise.
            self._inner, self._future = inner, inner.then(self._value)
            try:
                ended = self._advance(_INLINE_NS)
            except Exception:
                ended = True
            if ended:
                inner.set_result(None)
            else:
                _look_after(self)
        return self._future

    def _value(self, inner: torch.futures.Future) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def tell_future(self) -> None:
        """Sets the future. The last call has ended; the others end without anything that this process has yet to do."""
        try:
            self._advance(-1)
        except Exception:
            pass  # _value raises it
        self._inner.set_result(None)


# ---- futures of operations that were not waited for: one thread for each queue sets them ----

_lock = threading.Lock()


class _Watch:
    def __init__(self, queue: Any):
        self.queue, self.works = queue, {}  # type: ignore[var-annotated] # call -> the operation that ends with it
        self.thread = threading.Thread(target=self.run, name="unisono-futures", daemon=True)

    def run(self) -> None:
        while (call := self.queue.take()) is not None:
            with _lock:
                work = self.works.pop(call, None)
            if work is not None:
                work.tell_future()


_watches: dict[Any, _Watch] = {}


def _look_after(work: Work) -> None:
    call = work._calls[-1]
    with _lock:
        watch = _watches.get(work._queue)
        if watch is None:
            watch = _watches[work._queue] = _Watch(work._queue)
            watch.thread.start()
        watch.works[call] = work
    if not call.tell():  # it has ended meanwhile
        with _lock:
            watch.works.pop(call, None)
        work.tell_future()


def close(queue: Any) -> None:
    """Ends a queue, the thread that sets its futures, and what they still wait for."""
    queue.close()
    with _lock:
        watch = _watches.pop(queue, None)
    if watch is None:
        return
    if watch.thread is not threading.current_thread():
        watch.thread.join()
    for work in watch.works.values():
        work.tell_future()
