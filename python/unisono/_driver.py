"""The driver's half: one function, many workers, one answer.

A Group is a trainer of the library whose workers are Python. It sends the function with everything it needs as an attachment (memory only),
shows what the workers print, and brings their exceptions back as themselves. Runs happen in a thread of their own, so that the caller's thread can be
interrupted.
"""

import os
import sys
import threading
import time

from unisono import _codec, _failure, _safe, _same_keras, _unisono
from unisono._unisono import Error
from unisono.train import callbacks as _callbacks

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
BACKENDS = ("torch", "tensorflow", "horovod")
NEEDS = {
    "torch": ("torch", "pip install torch (Debian: apt install python3-torch)"),
    "tensorflow": ("tensorflow", "pip install tensorflow-cpu tf_keras"),
}


def is_installed(module):
    import importlib.util

    return module in sys.modules or importlib.util.find_spec(module) is not None


def check_backend(name):
    """A module that is not there is an error now, not in the workers."""
    if name in NEEDS and not is_installed(NEEDS[name][0]):
        raise ImportError("the %s backend needs %s, which is not installed: %s" % (name, NEEDS[name][0], NEEDS[name][1]))


def check_arity(function):
    """The number of parameters of a train function, 0 or 1; more is a ValueError."""
    import inspect

    if not callable(function):
        raise TypeError("the train function must be callable, not %r" % (function,))
    count = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            count += 1
        elif count == 0 and parameter.kind is not parameter.KEYWORD_ONLY:
            count = 1
    if count > 1:
        raise ValueError("the train function takes 0 or 1 arguments (the config), not %d" % count)
    return count


def warn_unread(function, config, arity):
    """One line for a config, or a search space, that the function does not take. It is not an error: Ray runs such a function."""
    if config and arity == 0:
        sys.stderr.write("unisono: %s takes no argument: its config (%s) has no effect\n" % (name_of(function), ", ".join(map(str, config))))


def name_of(function):
    return getattr(function, "__name__", None) or type(function).__name__


def environment_of(backend, legacy_keras=False):
    """What the workers of a backend need besides what the library sets."""
    if backend != "tensorflow":
        return []
    _same_keras.use()
    return _same_keras.for_workers(legacy_keras)


# ---- what the workers print ----


class _Journal:
    """Whole lines of the run's journal, as they come."""

    def __init__(self):
        self.file, self.rest = None, b""

    def lines(self, run_dir):
        if self.file is None:
            try:
                self.file = open(os.path.join(run_dir, "journal.jsonl"), "rb", buffering=0)
            except OSError:
                return []
        *lines, self.rest = (self.rest + self.file.read()).split(b"\n")
        return lines

    def close(self):
        if self.file:
            self.file.close()


def write(stream, text):
    """To a stream that may be closed or missing; what its encoding cannot say is escaped."""
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()
    except (OSError, ValueError, AttributeError):  # closed, or there is none
        pass


class LogFollower:
    """Copies the lines of logs/rank_N.log to this process's stdout, with the rank in front (unless it is quiet); restarts and warnings go to stderr."""

    def __init__(self, trainer, num_workers, before, quiet, resumed):
        self.trainer, self.before, self.num_workers, self.quiet = trainer, before, num_workers, quiet
        # Of a run that is resumed, only the new lines.
        self.logs = None if quiet or resumed is None else _unisono.log_lines(resumed, num_workers, True)
        self.journal, self.cause, self.began = _Journal(), "", time.time()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._follow, name="unisono-logs", daemon=True)
        self.thread.start()

    def _follow(self):
        while not self.stop.wait(0.05):
            self._read()

    def _read(self, last=False):
        run_dir = self.trainer.latest_run_dir
        if run_dir is None or run_dir == self.before:
            return
        if self.logs is None and not self.quiet:
            self.logs = _unisono.log_lines(run_dir, self.num_workers, False)
        lines = _unisono.log_lines_poll(self.logs, last) if self.logs is not None else []
        if lines:
            write(sys.stdout, "".join("(rank %d) %s\n" % (rank, _safe.line(line, sys.stdout)) for rank, line in lines))
        for line in self.journal.lines(run_dir):
            self._tell(line)

    def _tell(self, line):
        """One event of the journal. The last cause is the exception's, so only those that a restart follows are told."""
        import json

        try:
            event = json.loads(line)
        except ValueError:
            return
        kind = event.get("event")
        if event.get("time", 0) < self.began:  # of the run before it was resumed
            return
        if kind == "cause":
            self.cause = event["cause"].get("message", "")
        elif kind == "warning":
            write(sys.stderr, "unisono: warning: %s\n" % _safe.text(str(event.get("message"))))
        elif kind == "attempt" and event.get("attempt", 1) > 1:
            origin = "the checkpoint in memory" if event.get("from_memory") else os.path.basename(event.get("from_checkpoint") or "") or "the beginning"
            if self.cause:
                write(sys.stderr, "unisono: %s\nunisono: restart %d from %s\n" % (_safe.text(self.cause), event["attempt"] - 1, _safe.text(origin)))
            else:
                write(sys.stderr, "unisono: resuming from %s\n" % _safe.text(origin))

    def end(self):
        self.stop.set()
        self.thread.join()
        self._read(last=True)
        self.journal.close()


# ---- a call that can be interrupted ----


def call_in_thread(function, argument, interrupt):
    """function(argument) in a thread. An exception here (KeyboardInterrupt, a signal handler's) calls interrupt(), waits for the end, and goes on."""
    box, done = {}, threading.Event()

    def work():
        try:
            box["value"] = function(argument)
        except BaseException as error:  # carried over to the caller's thread
            box["error"] = error
        finally:
            done.set()

    threading.Thread(target=work, name="unisono-run", daemon=True).start()
    interrupted = None
    while not done.is_set():
        try:
            done.wait()
        except BaseException as error:
            interrupted = interrupted or error
            interrupt()
    if interrupted is not None:
        raise interrupted
    if "error" in box:
        raise box["error"]
    return box["value"]


# ---- the group ----


class Group:
    def __init__(self, backend="none", backend_config=None, mode="v2", quiet=False, names=None, hooks=None, context=None, **options):
        """names: what the caller's arguments are called, where the library's error names its own. hooks: of a Backend of the user's own. context: what
        the train function runs in."""
        from unisono import _runtime

        check_backend(backend)
        quiet = quiet or _runtime.is_quiet()
        self.backend, self.mode, self.quiet = backend, mode, quiet
        self.backend_config, self.hooks, self.context = backend_config or {}, hooks, context
        servers = options.get("servers", 0)
        self.num_workers = options.get("num_workers", 1) + servers + bool(servers) + options.get("evaluators", 0)  # all processes
        # -P: the worker's own directory is not a place to import from.
        program = [sys.executable, "-P", os.path.join(_PACKAGE, "_worker.py")]
        self.keras = environment_of(backend, legacy_keras=servers > 0)
        environment = self.keras + options.pop("environment", [])
        self.may_fork = not options.get("use_gpu")
        try:
            self.trainer = _unisono.Trainer(worker_program=program, backend=backend, fresh_workers=backend != "none", environment=environment,
                                            **options)
        except Error as error:
            raise _renamed(error, names or RAY_NAMES) from None

    def options(self, function, config=None, hook=None, extra=None, **run):
        """The run's options. `extra` is plain data for the worker's session."""
        arity = check_arity(function)
        warn_unread(function, config, arity)
        self._choose_workers(function)
        payload = {
            "call": _codec.dumps_call(function, config if arity else None, arity, hook),
            "path": [os.path.abspath(entry) for entry in sys.path],
            "mode": self.mode,
            "backend": self.backend,
            "backend_config": self.backend_config,
            "as_ray": "unisono.ray" in sys.modules and sys.modules["unisono.ray"].installed(),
        }
        if self.hooks is not None:
            payload["hooks"] = self.hooks.describe()
        if self.context is not None:
            payload["context"] = _codec.dumps(self.context)
        if self.backend == "tensorflow":
            _same_keras.check(payload["call"], name_of(function), self.keras)
        payload.update(extra or {})
        run.update(function=name_of(function), attachment=payload, config=_codec.describable(config or {}))
        return {key: value for key, value in run.items() if value is not None}

    def _choose_workers(self, function):
        """Forked from a template where the function needs a framework; workers that wait already stay."""
        from unisono import _runtime, _template

        if self.may_fork and _runtime.is_local() and (self.backend != "none" or not self.trainer.is_started):
            _template.use(self.trainer, function, self.backend)

    def follow_logs(self, options=None):
        resumed = (options or {}).get("resume_run")
        return LogFollower(self.trainer, self.num_workers, self.trainer.latest_run_dir, self.quiet, resumed)

    def run(self, options, callbacks=(), config=None, keep=False):
        """One run to its end, well or badly; what it left. Callbacks see every report, in the caller's thread. keep: the workers were started before, and
        stay."""
        logs, own, failed = self.follow_logs(options), _callbacks.sinks_and_own(callbacks)[1], True
        try:
            if not keep:
                self.trainer.start()
            left = self._watch(options, callbacks, own, config) if own else call_in_thread(self.trainer.run, options, lambda: self.trainer.stop(True))
            failed = left["error"] is not None
            return left
        finally:
            if not keep:
                self.trainer.shutdown()
            logs.end()
            _callbacks.begin(callbacks, self.trainer.latest_run_dir)
            _callbacks.finish(own, failed)

    def _watch(self, options, callbacks, own, config):
        iterator = self.trainer.run_iterator(options)
        try:
            _callbacks.begin(callbacks, self.trainer.latest_run_dir)
            for callback in own:
                callback.start_training(logdir=self.trainer.latest_run_dir, config=config or {})
            while (reports := iterator.next()) is not None:
                _callbacks.feed(own, self.whole(reports))
            return iterator.result()
        finally:
            if not iterator.is_finished:
                self.trainer.stop(True)
            iterator = None  # waits for the end: the traceback of an exception would keep it alive

    def whole(self, reports):
        """The reports of one iteration. In lockstep a rank without one is an error, otherwise it is behind."""
        missing = next((rank for rank, report in enumerate(reports) if report is None), None)
        if missing is None or self.mode != "v1":
            return [report or {} for report in reports]
        raise RuntimeError("rank %d did not call train.report as often as the others: every worker must report every iteration" % missing)

    def end_hooks(self):
        """Before the workers of a Trainer end."""
        if self.hooks is not None:
            self.hooks.close()

    # ---- failures ----

    def failure_of(self, result):
        """The exception of a failed run, with the worker's traceback as its cause; None when it went well."""
        if result["error"] is None:
            return None
        code, status, message = result["error"]
        if self.hooks is not None and self.hooks.failure is not None:
            self.hooks.failure, failure = None, self.hooks.failure
            return failure
        if result["failure"] is not None:
            error = _failure.unpack(_codec.loads(result["failure"]), lambda text: _error(code, status, text))
            if result["hint"]:
                error.add_note(result["hint"])
            return error
        return _error(code, status, message)


# The library's names of options, and what Ray's scripts call them.
RAY_NAMES = {"cpus_per_worker": 'resources_per_worker={"CPU": ...}', "gpus_per_worker": 'resources_per_worker={"GPU": ...}',
             "memory_per_worker": 'resources_per_worker={"memory": ...}'}


def _renamed(error, names):
    """The library's error in the words of the caller's arguments."""
    text = error.message
    for ours, theirs in names.items():
        text = text.replace(ours, theirs)
    return _error(error.code, error.status, text)


def _error(code, status, message):
    message = _safe.text(message)
    error = Error(message)
    error.code, error.status, error.message = code, status, message
    return error


def returned(result):
    """What the functions returned, by rank. What could not be sent is None, with a warning that says why."""
    import warnings

    values = [None if value is None else _codec.loads(value) for value in result["returned"]]
    for rank, value in enumerate(values):
        if isinstance(value, _codec.Unsendable):
            warnings.warn("the train function's return value on rank %d is lost: %s" % (rank, _safe.text(str(value.why))), RuntimeWarning, stacklevel=4)
            values[rank] = None
    return values
