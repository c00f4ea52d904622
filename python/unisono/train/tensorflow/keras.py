"""ReportCheckpointCallback: Keras's logs as reports, the model as checkpoints."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from unisono import _session
from unisono._arguments import strict
from unisono.train._checkpoint import Checkpoint
from unisono.train.tensorflow import _checkpoint

_EVENTS = {"%s_%s" % (what, when) for what in ("epoch", "train_batch", "test_batch", "predict_batch", "train", "test", "predict")
           for when in ("begin", "end")}


def _base():
    """Keras's Callback of the Keras that this process uses."""
    from tensorflow.keras.callbacks import Callback

    return Callback


def _events(value, what):
    events = [value] if isinstance(value, str) else list(value)
    wrong = [event for event in events if event not in _EVENTS]
    if wrong:
        raise ValueError("%s: %s is not an event of Keras; there are: %s" % (what, ", ".join(map(repr, wrong)), ", ".join(sorted(_EVENTS))))
    return set(events)


def _names(metrics):
    """{reported name: Keras's name}, or None for all."""
    if metrics is None:
        return None
    if isinstance(metrics, str):
        metrics = [metrics]
    return dict(metrics) if isinstance(metrics, dict) else {name: name for name in metrics}


class _Reporter:
    """The behaviour, mixed into Keras's own class by ReportCheckpointCallback."""

    def _set_up(self, checkpoint_on, report_metrics_on, metrics):
        self._checkpoint_on = _events(checkpoint_on, "checkpoint_on")
        self._report_on = _events(report_metrics_on, "report_metrics_on")
        self._metrics = _names(metrics)
        self._used = self._checkpoint_on | self._report_on

    def _save(self, folder):
        path = os.path.join(folder, "model.keras")
        self.model.save(path)
        _checkpoint.sign(path)

    def _handle(self, event, logs):
        here = _session.current()
        if here is not None:  # datasets read ahead: what was trained on is known only here
            here.fitting = event != "train_end" and (here.fitting or event == "train_begin")
            here.steps += event in ("train_batch_end", "test_batch_end")
        if event not in self._used:
            return
        logs = logs or {}
        if self._metrics is None:
            metrics = dict(logs.items())
        else:
            missing = [name for name in self._metrics.values() if name not in logs]
            if missing:
                raise KeyError("Keras reports no %s at %s; there are: %s" % (", ".join(missing), event, ", ".join(sorted(logs))))
            metrics = {name: logs[source] for name, source in self._metrics.items()}
        if event in self._checkpoint_on:
            with tempfile.TemporaryDirectory() as folder:
                self._save(folder)
                _session.report(metrics, checkpoint=Checkpoint.from_directory(folder))
        else:
            _session.report(metrics)


def _hook(event):
    def of_run(self, logs=None):
        self._handle(event, logs)

    def of_step(self, index, logs=None):
        self._handle(event, logs)

    call = of_step if "batch" in event or "epoch" in event else of_run
    call.__name__ = "on_" + event
    return call


def make_report_callback(base: type) -> Any:
    """The class on a Keras's own Callback (unisono.keras has one, too)."""

    @strict(name="unisono.train.tensorflow.keras.ReportCheckpointCallback")
    def __init__(self, checkpoint_on="epoch_end", report_metrics_on="epoch_end", metrics=None):
        base.__init__(self)
        self._set_up(checkpoint_on, report_metrics_on, metrics)

    body = {"on_" + event: _hook(event) for event in _EVENTS}
    body.update(__init__=__init__, __doc__="Reports Keras's metrics (metrics: None for all, a name, a list, or {reported: Keras's name}) at "
                "report_metrics_on, and a checkpoint with them at checkpoint_on.", __module__=__name__)
    return type("ReportCheckpointCallback", (_Reporter, base), body)


def __getattr__(name):
    # The class is made when it is asked for, because its base is TensorFlow's.
    if name == "ReportCheckpointCallback":
        value = make_report_callback(_base())
        globals()[name] = value
        return value
    from unisono._missing import complain

    return complain("unisono.train.tensorflow.keras", name, ["ReportCheckpointCallback"])
