"""The driver's half: one function, many workers, one answer.

A Group is a trainer of the library whose workers are Python. It sends the function with everything it needs as an attachment (memory only),
shows what the workers print, and brings their exceptions back as themselves. Runs happen in a thread of their own, so that the caller's thread can be
interrupted.
"""

import os
import sys
import threading
import time

from unisono import _codec, _key, _safe, _same_keras, _unisono
from unisono._unisono import Error

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
FAILURE_FILE = ".failure_rank_%d"
BACKENDS = ("torch", "tensorflow", "horovod")
NEEDS = {
    "torch": ("torch", "pip install torch (Debian: apt install python3-torch)"),
    "tensorflow": ("tensorflow", "pip install tensorflow-cpu tf_keras"),
}


class RemoteTraceback(Exception):
    """What the worker's own traceback looked like; the cause of the exception that came back."""

    def __init__(self, rank, text):
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self):
        return "\n\nOn rank %d:\n%s" % (self.rank, _safe.text(self.text))


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


def name_of(function):
    return getattr(function, "__name__", None) or type(function).__name__


def environment_of(backend, legacy_keras=False):
    """What the workers of a backend need besides what the library sets."""
    if backend != "tensorflow":
        return []
    _same_keras.use()
    return _same_keras.for_workers(legacy_keras)


# ---- what the workers print ----


class _Tail:
    """Whole lines of a file of the run directory, as they come; of a run that is resumed, only the new ones."""

    def __init__(self, resumed, *parts):
        self.parts, self.file, self.rest, self.skip = parts, None, b"", 0
        if resumed is not None:
            try:
                self.skip = os.path.getsize(os.path.join(resumed, *parts))
            except OSError:
                pass

    def lines(self, run_dir):
        if self.file is None:
            try:
                self.file = open(os.path.join(run_dir, *self.parts), "rb", buffering=0)
            except OSError:
                return
            self.file.seek(min(self.skip, os.fstat(self.file.fileno()).st_size))
        data = self.file.read(1 << 20)
        if not data and os.fstat(self.file.fileno()).st_size < self.file.tell():
            self.file.seek(0)  # it was rotated
        while data:
            lines = (self.rest + data).split(b"\n")
            self.rest = lines.pop()
            yield from lines
            data = self.file.read(1 << 20)

    def close(self):
        """What came after the last line's end."""
        if self.file:
            self.file.close()
        return [self.rest] if self.rest else []


def _settled(line):
    """The line as a terminal would show it last: bars of Keras and tqdm go over themselves with \\r and \\b hundreds of times."""
    line = line.rstrip(b"\r\b").rpartition(b"\r")[2]
    if b"\b" not in line:
        return line
    left = bytearray()
    for byte in line:
        if byte != 8:
            left.append(byte)
        elif left:
            left.pop()
    return bytes(left)


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
        self.trainer, self.before = trainer, before
        self.logs = [] if quiet else [_Tail(resumed, "logs", "rank_%d.log" % rank) for rank in range(num_workers)]
        self.journal, self.cause, self.began = _Tail(None, "journal.jsonl"), "", time.time()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._follow, name="unisono-logs", daemon=True)
        self.thread.start()

    def _follow(self):
        while not self.stop.wait(0.05):
            self._read()

    def _read(self):
        run_dir = self.trainer.latest_run_dir
        if run_dir is None or run_dir == self.before:
            return
        for rank, log in enumerate(self.logs):
            self._show(rank, log.lines(run_dir))
        for line in self.journal.lines(run_dir):
            self._tell(line)

    def _show(self, rank, lines):
        text = "".join("(rank %d) %s\n" % (rank, _safe.line(_settled(line), sys.stdout)) for line in lines)
        if text:
            write(sys.stdout, text)

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
        self._read()
        for rank, log in enumerate(self.logs):
            self._show(rank, log.close())
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
        self.secret = os.urandom(32)
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
        self._choose_workers(function)
        payload = {
            "call": _codec.dumps_call(function, config if arity else None, arity, hook),
            "path": [os.path.abspath(entry) for entry in sys.path],
            "secret": self.secret,
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

    def call(self, method, options):
        """trainer.run or trainer.fit; what the run left."""
        logs = self.follow_logs(options)
        try:
            return call_in_thread(method, options, lambda: self.trainer.stop(True))
        finally:
            if logs:
                logs.end()

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
        try:
            return self._remote_exception(result["run_dir"], code) or _error(code, status, message)
        finally:
            for rank in range(self.num_workers):
                try:
                    os.unlink(os.path.join(result["run_dir"], FAILURE_FILE % rank))
                except OSError:
                    pass

    def _remote_exception(self, run_dir, code):
        import json

        if code != "EFUNCTION":
            return None
        try:
            with open(os.path.join(run_dir, "run.json"), encoding="utf-8") as file:
                rank = json.load(file)["cause"]["rank"]
            with open(os.path.join(run_dir, FAILURE_FILE % rank), "rb") as file:
                code, data = file.read(32), file.read()
        except (OSError, KeyError, TypeError, ValueError):
            return None
        if not _key.fits(data, code, self.secret):
            return None
        pickled, name, message, text = _codec.loads(data)
        error = None
        if pickled is not None:
            try:
                error = _codec.loads(pickled)
            except Exception:  # a class that cannot be made from its arguments
                error = None
        if not isinstance(error, Exception):  # a SystemExit of a worker must not end this process
            error = _error("EFUNCTION", -17, "%s: %s" % (name, message))
        error.__cause__ = RemoteTraceback(rank, text)
        try:
            error.rank = rank
        except AttributeError:
            pass
        return error


# The library's names of options, and what Ray's scripts call them.
RAY_NAMES = {"cpus_per_worker": 'resources_per_worker={"CPU": ...}', "gpus_per_worker": 'resources_per_worker={"GPU": ...}'}


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
