"""The worker's half of a trial: its config, its reports, and how it learns that it is over."""

from __future__ import annotations

import contextlib
import inspect
import os
from typing import Any, Callable

from unisono import _codec, _session
from unisono._unisono import Error
from unisono.tune import _space

_INSTEAD = ("%s is not for the train function of a trainer, which runs under the tuner as it does by itself: call train.report() and "
            "train.save_checkpoint() there")


class TrialEnded(SystemExit):
    """The scheduler or a stop criterion ended the trial. Not an Exception: a train function's `except Exception` does not catch it."""

    def __init__(self):
        super().__init__(0)


class _Session:
    """The session of a trial: a report that was the last one ends the function."""

    def __init__(self, session):
        self._session, self.directory = session, None

    def __getattr__(self, name):
        return getattr(self._session, name)

    def report(self, metrics, convert, data, directory):
        if directory is None and data is None:
            directory, self.directory = self.directory, None
        try:
            self._session.report(metrics, convert, data, directory)
        except Error as error:
            if error.code == "ECANCELED":
                raise TrialEnded() from None
            raise


def _of_trainer(trainer):
    """A trainer's loop: its own config with what the trial's changes of it."""
    def run(function, config, arity):
        loop = dict(trainer.get("config") or {})
        loop.update(config.get("train_loop_config", {}) if trainer["air"] else config)
        _codec.check_returned(function(loop) if arity else function())
    return run


def _of_function(function, config, arity):
    if not arity:
        value = function()
    elif "checkpoint_dir" in inspect.signature(function).parameters:  # Ray 1.x
        value = function(config, checkpoint_dir=_session.current().session.get_checkpoint())
    else:
        value = function(config)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("an async function is not supported as a trainable: run it with asyncio.run() in an ordinary one")
    while inspect.isgenerator(value):
        try:
            _report_value(next(value))
        except StopIteration as end:
            value = end.value
    _report_value(value)


def _report_value(value):
    """What a function yields, or returns at its end, is a report: a dictionary, or a number, which is called _metric as in Ray."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a scalar of numpy's, torch's or TensorFlow's
        value = value.item()
    if isinstance(value, dict):
        _session.report(value)
    elif isinstance(value, (int, float)):
        _session.report({"_metric": value})
    elif value is not None:
        raise TypeError("a trainable returns or yields a dictionary of metrics, a number or None, not %s %.60r" % (type(value).__name__, value))


def prepare(session: Any, attachment: Any, function: Callable[..., Any], arity: Any) -> Any:
    """(session, function, config, arity) as the worker's loop wants them."""
    about = attachment["tune"]
    extra = _codec.loads(about["extra"])
    config = _space.decode(session.config, extra["objects"])
    trainer = extra["trainer"]
    call = _of_function if trainer is None else _of_trainer(trainer)
    return _Session(session), lambda given: call(function, given, arity), config, 1


# ---- what a train function calls ----


def _here(name):
    here = _session.current()
    if here is not None and here.in_trainer:
        raise RuntimeError(_INSTEAD % name)
    return here


def report(_metric: Any = None, *, metrics: Any = None, checkpoint: Any = None, **more: Any) -> Any:
    """One result of this trial: a dictionary, or keywords; the first argument may be a single number (_metric)."""
    here = _here("tune.report")
    values = dict(more)
    for given in (_metric, metrics):
        if isinstance(given, dict):
            values.update(given)
        elif given is not None:
            values["_metric"] = given
    if here is None:
        return _session.outside("tune.report")
    return _session.report(values, checkpoint=checkpoint)


@contextlib.contextmanager
def checkpoint_dir(step: Any = None) -> Any:
    """A directory to write files into; they are the checkpoint of the next report."""
    here = _here("tune.checkpoint_dir")
    if here is None:
        _session.outside("tune.checkpoint_dir")
        import tempfile

        with tempfile.TemporaryDirectory() as path:
            yield path
        return
    path = here.session.checkpoint_dir()
    yield path
    here.session.directory = path


def get_trial_dir() -> Any:
    """The directory of this trial."""
    here = _session.current()
    return None if here is None else here.session.run_dir


def get_trial_name() -> Any:
    """The name of this trial."""
    path = get_trial_dir()
    return None if path is None else os.path.basename(path)


get_trial_id = get_trial_name
