"""The worker: started by the agent, runs the functions that the driver sends, one after the other."""

import contextlib
import os
import sys

if __name__ == "__main__":
    _package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if _package not in sys.path:
        sys.path.insert(0, _package)
    from unisono import _worker

    _worker.main()

from unisono import _autograph, _codec, _failure, _session, _unisono


def _prepare(attachment):
    """The driver's import path, so that functions of the user's own modules are found."""
    seen = set(sys.path)
    sys.path[:0] = [entry for entry in attachment["path"] if entry not in seen]
    if attachment.get("as_ray"):
        from unisono import ray

        ray.install()


def _set_up_backend(session, attachment):
    """What the backend does before the function, and afterwards."""
    backend = attachment["backend"]
    if backend == "torch":
        from unisono.train.torch import _worker as setup
    elif backend == "tensorflow":
        from unisono.train.tensorflow import _worker as setup
    elif backend == "horovod":
        from unisono.train import _horovod_worker as setup
    else:
        return lambda: None
    return setup.set_up(session, attachment["backend_config"])


def _gate(session, attachment):
    """Where the hooks of a Backend of the user's own come in."""
    if "hooks" not in attachment:
        return contextlib.nullcontext()
    from unisono.train import _hooks_worker

    return _hooks_worker.gate(attachment["hooks"], session)


def _context(attachment):
    """What the backend's configuration wants around the train function."""
    return _codec.loads(attachment["context"])() if "context" in attachment else contextlib.nullcontext()


class _Failure(RuntimeError):
    """What the library is told of an exception: its text, and in `failure` what the driver makes it from."""

    def __init__(self, error, rank):
        super().__init__("%s: %s" % (type(error).__name__, error))
        self.failure = _failure.pack(error, rank)
        sys.stderr.write("%s\n" % error if _session.was_told_to_stop(error) else _failure.text_of(error))


def _run(session, function_name):
    attachment = session.attachment
    if not isinstance(attachment, dict) or "call" not in attachment:
        raise RuntimeError("this worker was given no Python function")
    try:
        _prepare(attachment)
        _autograph.begin(session)
        finish = _set_up_backend(session, attachment)
        function, config, arity, hook = _codec.loads(attachment["call"])
        if "tune" in attachment:
            from unisono.tune import _trial

            session, function, config, arity = _trial.prepare(session, attachment, function, arity)
        with _session.begin(session, attachment):
            if hook is not None:
                hook()
            with _gate(session, attachment), _context(attachment):
                value = function(config if config is not None else {}) if arity else function()
                _codec.check_returned(value)
            answer = None if value is None else _codec.dumps_value(value)
        finish()
        return answer
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return None
        raise _Failure(error, session.world_rank) from None
    finally:
        _autograph.end()
        sys.stdout.flush()
        sys.stderr.flush()


def main():
    code = _unisono.worker_serve(_run)
    sys.stdout.flush()
    sys.stderr.flush()
    if any(name in sys.modules for name in ("torch", "tensorflow", "horovod")):
        import atexit

        atexit._run_exitfuncs()  # the user's, and those that remove temporary files
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the frameworks' threads make an ordinary end slow, and sometimes fatal
    sys.exit(code)
