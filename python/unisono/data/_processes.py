"""A user's function in processes of its own, for work that holds the interpreter. Tables go over pipes as their buffers."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import weakref
from typing import Any

from unisono import _codec
from unisono.data._recipe import TableHolder

_WORKER = "from unisono.data import _processes; _processes.serve()"


def _send(stream: Any, data: bytes) -> None:
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def _receive(stream: Any) -> bytes:
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError
    return stream.read(int.from_bytes(size, "little"))


def serve() -> None:
    """The other process: a function first, then tables, until the pipe ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints is not an answer
    stream = sys.stdin.buffer
    try:
        sys.path[:] = pickle.loads(_receive(stream))
        function = _codec.loads(_receive(stream))
        while True:
            holder = pickle.loads(_receive(stream))
            try:
                answer: tuple[bool, Any] = (True, TableHolder(function(holder.table)))
            except Exception as error:
                answer = (False, error)
            try:
                data = pickle.dumps(answer, protocol=5)
            except Exception:
                data = pickle.dumps((False, RuntimeError(repr(answer[1]))), protocol=5)
            _send(answers, data)
    except EOFError:
        pass


class _Process:
    def __init__(self, function: Any) -> None:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([package] + [entry for entry in [os.environ.get("PYTHONPATH")] if entry]))
        # -P: the current directory may be another user's, and is not where modules come from
        self.process = subprocess.Popen([sys.executable, "-P", "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        _send(self.process.stdin, pickle.dumps(sys.path))
        _send(self.process.stdin, function)

    def __call__(self, table: Any) -> Any:
        try:
            _send(self.process.stdin, pickle.dumps(TableHolder(table), protocol=5))
            good, answer = pickle.loads(_receive(self.process.stdout))
        except (EOFError, OSError):
            raise RuntimeError("a process of a dataset's function died (exit status %s): a crash, or os._exit in it" % self.process.wait()) from None
        if not good:
            raise answer
        return answer.table

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _close_all(processes: Any) -> None:
    for process in processes:
        process.close()


class InProcesses:
    """function(Table) -> Table in one of `size` processes, which are started when they are first needed."""

    def __init__(self, function: Any, size: int) -> None:
        self.function, self.size, self.what = function, size, function.what
        self._reset()

    def _reset(self) -> None:
        self.free: queue.SimpleQueue = queue.SimpleQueue()
        self.all: list[_Process] = []
        self.started, self.lock = 0, threading.Lock()

    def __getstate__(self) -> dict:
        return {"function": self.function, "size": self.size, "what": self.what}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._reset()

    def _pickled(self) -> bytes:
        try:
            return _codec.dumps(self.function)
        except Exception as error:
            raise TypeError("%s(concurrency=) sends its function to other processes, which this one cannot be: %s" % (self.what, error)) from error

    def _take(self) -> Any:
        with self.lock:
            if self.free.empty() and self.started < self.size:
                if not self.started:
                    weakref.finalize(self, _close_all, self.all)  # also when the interpreter ends
                process = _Process(self._pickled())
                self.started += 1
                self.all.append(process)
                return process
        return self.free.get()

    def __call__(self, table: Any) -> Any:
        process = self._take()
        try:
            return process(table)
        finally:
            self.free.put(process)
