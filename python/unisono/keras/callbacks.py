"""Callbacks of fit: Keras's names. The engine runs its own; those of the user are Python objects that it calls."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import numpy as np

from unisono.keras._tensor import shared

from unisono.extend import Refused, checks_kinds, near, safe_text, strict_class, strict_module

__all__ = ["Callback", "History", "EarlyStopping", "ModelCheckpoint", "BackupAndRestore", "ReduceLROnPlateau", "LearningRateScheduler", "TensorBoard",
           "CSVLogger", "TerminateOnNaN", "LambdaCallback", "ProgbarLogger", "EpochDots", "ReportCheckpointCallback"]

HOOKS = tuple("on_%s_%s" % (what, when) for what in ("train", "epoch", "train_batch", "test", "test_batch", "predict", "predict_batch")
              for when in ("begin", "end"))


class Callback:
    """Base of callbacks of one's own: override what is needed. self.model and self.params are set before the first call."""

    model = None
    params = None

    def set_model(self, model: Any) -> None:
        """The model that is trained."""
        self.model = model

    def set_params(self, params: Any) -> None:
        """epochs, steps and verbose of the fit."""
        self.params = params

    def on_train_begin(self, logs: Any = None) -> None:
        """Before the first epoch."""

    def on_train_end(self, logs: Any = None) -> None:
        """After the last epoch."""

    def on_epoch_begin(self, epoch: Any, logs: Any = None) -> None:
        """Before an epoch."""

    def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
        """After an epoch and its validation."""

    def on_train_batch_begin(self, batch: Any, logs: Any = None) -> None:
        """Before a batch."""

    def on_train_batch_end(self, batch: Any, logs: Any = None) -> None:
        """After a batch."""

    on_batch_begin, on_batch_end = on_train_batch_begin, on_train_batch_end

    def on_test_begin(self, logs: Any = None) -> None:
        """Before a validation or evaluation."""

    def on_test_end(self, logs: Any = None) -> None:
        """After it."""

    def on_test_batch_begin(self, batch: Any, logs: Any = None) -> None:
        """Not called: the engine has no such moment."""

    def on_test_batch_end(self, batch: Any, logs: Any = None) -> None:
        """After a batch of it."""

    def on_predict_begin(self, logs: Any = None) -> None:
        """Before a prediction."""

    def on_predict_end(self, logs: Any = None) -> None:
        """After it."""

    def on_predict_batch_begin(self, batch: Any, logs: Any = None) -> None:
        """Not called: the engine has no such moment."""

    def on_predict_batch_end(self, batch: Any, logs: Any = None) -> None:
        """After a batch of it."""

    def get_state(self) -> Any:
        """What a restarted fit must know of this callback, as plain values and arrays; it becomes part of the checkpoint. None: nothing."""

    def set_state(self, state: Any) -> None:
        """Takes back what get_state gave, after on_train_begin and before the first epoch."""

    def _engine_form(self):
        """(object, names of the hooks that it really has), or (name, options) of one of the engine's own."""
        kind = type(self)
        names = _states(kind, Callback) | {name for name in HOOKS if getattr(kind, name) is not getattr(Callback, name) or name in vars(self)}
        for old, new in (("on_batch_begin", "on_train_batch_begin"), ("on_batch_end", "on_train_batch_end")):
            if getattr(kind, old) is not getattr(Callback, old) and new not in names:
                setattr(self, new, getattr(self, old))
                names.add(new)
        return self, names


def _states(kind, base):
    """get_state and set_state, when the class has both of its own."""
    both = {"get_state", "set_state"}
    return both if all(callable(getattr(kind, name, None)) and getattr(kind, name) is not getattr(base, name, None) for name in both) else set()


def _check_hooks(callback):
    """Of a generator or a coroutine nothing runs when it is called."""
    for name in HOOKS:
        hook = getattr(callback, name, None)
        if inspect.isgeneratorfunction(hook) or inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
            raise TypeError("%s.%s uses yield or async def, so nothing of it would run" % (type(callback).__name__, name))


def engine_form(callback: Any) -> Any:
    """Of anything with Keras's hooks, also callbacks of another Keras."""
    _check_hooks(callback)
    if isinstance(callback, Callback):
        return callback._engine_form()
    names = {name for name in HOOKS if callable(getattr(callback, name, None))}
    if not names:
        raise TypeError("a callback has on_epoch_end or one of its relatives; %s has none" % type(callback).__name__)
    base = next((kind for kind in type(callback).__mro__ if kind.__name__ == "Callback"), object)
    names = {name for name in names if getattr(type(callback), name, None) is not getattr(base, name, None)}
    return callback, names | _states(type(callback), base)


class History(Callback):
    """What fit returns: history (a list of numbers for each name), epoch, params, model."""

    def __init__(self):
        self.history, self.epoch = {}, []


class _Native(Callback):
    """One of the engine's own, by name and options."""

    def __init__(self, kind, **options):
        self._kind = kind
        self._options = {key: value for key, value in options.items() if value is not None}

    def _engine_form(self):
        return self._kind, self._options


# By name, as the engine's callbacks do (src/nn/callbacks/callback.c).
_LARGER = ("acc", "auc", "precision", "recall", "f1", "fbeta", "top_k")
_SMALLER = ("loss", "error", "mse", "mae", "crossentropy", "hinge", "divergence", "huber", "lr", "learning_rate")


def _mode(monitor, mode):
    """min or max; auto knows it by the name."""
    if mode not in ("auto", "min", "max"):
        raise ValueError("mode is auto, min or max, not %r" % (mode,))
    if mode != "auto":
        return mode
    if not monitor.endswith("loss") and any(word in monitor for word in _LARGER):
        return "max"
    if any(word in monitor for word in _SMALLER):
        return "min"
    raise ValueError("mode='auto' does not know whether %r is better when it is larger or smaller: give mode='max' or mode='min'" % (monitor,))


class EarlyStopping(Callback):
    """Stops when monitor has not become better for `patience` epochs."""

    def __init__(self, monitor: str = "val_loss", min_delta: float = 0, patience: int = 0, verbose: int = 0, mode: str = "auto", baseline: Any = None,
                 restore_best_weights: bool = False, start_from_epoch: int = 0):
        self._grows = _mode(monitor, mode) == "max"
        self.monitor, self.min_delta, self.patience, self.verbose, self.mode = monitor, abs(min_delta), patience, verbose, mode
        self.baseline, self.restore_best_weights, self.start_from_epoch = baseline, restore_best_weights, start_from_epoch
        self.best = self.best_weights = None
        self.wait = self.stopped_epoch = self.best_epoch = 0

    def _better(self, value, than):
        return value - self.min_delta > than if self._grows else value + self.min_delta < than

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins to count."""
        self.best = self.best_weights = None
        self.wait = self.stopped_epoch = self.best_epoch = 0

    def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
        """Stops the training when it is time."""
        if self.monitor not in logs:
            raise ValueError("EarlyStopping watches %r, which fit does not report; there are: %s" % (self.monitor, ", ".join(map(safe_text, sorted(logs)))))
        if epoch < self.start_from_epoch:
            return
        value = logs[self.monitor]
        self.wait += 1
        if self.best is None or self._better(value, self.best):
            self.best, self.best_epoch = value, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self._better(value, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def get_state(self) -> Any:
        """What it has counted, the best value and the best weights."""
        state = {"wait": self.wait, "stopped_epoch": self.stopped_epoch, "best_epoch": self.best_epoch}
        if self.best is not None:
            state["best"] = float(self.best)
        if self.best_weights is not None:
            state["best_weights"] = [shared(np.ascontiguousarray(each)) for each in self.best_weights]
        return state

    def set_state(self, state: Any) -> None:
        """Goes on counting where a checkpoint was taken."""
        self.wait, self.stopped_epoch, self.best_epoch = state["wait"], state["stopped_epoch"], state["best_epoch"]
        self.best = state.get("best")
        weights = state.get("best_weights")
        self.best_weights = None if weights is None or not self.restore_best_weights else [np.array(each) for each in weights]

    def on_train_end(self, logs: Any = None) -> None:
        """Says where it stopped."""
        if self.stopped_epoch and self.verbose:
            print("Epoch %d: early stopping" % (self.stopped_epoch + 1))
        if self.restore_best_weights and self.best_weights is not None:
            self.model.set_weights(self.best_weights)


class ModelCheckpoint(_Native):
    """Saves the model (or its weights) after every epoch; filepath may have {epoch:02d} and {val_loss:.2f}."""

    def __init__(self, filepath: Any, monitor: str = "val_loss", verbose: int = 0, save_best_only: bool = False, save_weights_only: bool = False,
                 mode: str = "auto", save_freq: str | int = "epoch"):
        super().__init__("ModelCheckpoint", path=os.fspath(filepath), monitor=monitor, verbose=verbose, save_best_only=save_best_only,
                         save_weights_only=save_weights_only, mode=_mode(monitor, mode), save_every_batches=0 if save_freq == "epoch" else int(save_freq))


class BackupAndRestore(_Native):
    """Goes on where an interrupted fit stood."""

    def __init__(self, backup_dir: Any, save_freq: str | int = "epoch", delete_checkpoint: bool = True):
        super().__init__("BackupAndRestore", directory=os.fspath(backup_dir), save_every_batches=0 if save_freq == "epoch" else int(save_freq),
                         keep=not delete_checkpoint)


class ReduceLROnPlateau(_Native):
    """A smaller learning rate when monitor has not become better for `patience` epochs."""

    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10, verbose: int = 0, mode: str = "auto",
                 min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0.0):
        if not 0 <= factor < 1:
            raise ValueError("factor must be at least 0 and below 1, not %r" % (factor,))
        super().__init__("ReduceLROnPlateau", monitor=monitor, factor=factor, patience=patience, verbose=verbose, mode=_mode(monitor, mode), min_delta=min_delta,
                         cooldown=cooldown, min_lr=min_lr)


class LearningRateScheduler(Callback):
    """The learning rate of an epoch from schedule(epoch, rate)."""

    def __init__(self, schedule: Any, verbose: int = 0):
        if not callable(schedule):
            raise TypeError("schedule must be a function(epoch, rate), not %r" % (schedule,))
        self.schedule, self.verbose = schedule, verbose
        try:
            inspect.signature(schedule).bind(0, 0.1)
            self._takes_rate = True
        except TypeError:
            self._takes_rate = False  # schedule(epoch)
        except ValueError:  # a function in C that does not tell
            self._takes_rate = True

    def on_epoch_begin(self, epoch: Any, logs: Any = None) -> None:
        """Sets the rate of this epoch."""
        rate = self.schedule(epoch, self.model.optimizer.learning_rate) if self._takes_rate else self.schedule(epoch)
        if isinstance(rate, bool) or not isinstance(rate, (int, float, np.number)):
            raise ValueError("schedule(epoch, rate) of a LearningRateScheduler must return a number, got %r" % (rate,))
        self.model.optimizer.learning_rate = float(rate)
        if self.verbose:
            print("\nEpoch %d: LearningRateScheduler setting learning rate to %s." % (epoch + 1, float(rate)))


class TensorBoard(_Native):
    """Logs for TensorBoard: train and validation below log_dir."""

    def __init__(self, log_dir: Any = "logs", histogram_freq: int = 0, write_graph: bool = True, write_images: bool = False,
                 update_freq: str | int = "epoch", profile_batch: int = 0):
        if update_freq not in ("epoch", "batch", 1):
            raise ValueError("TensorBoard(update_freq=%r) is not supported: write every epoch or every batch" % (update_freq,))
        super().__init__("TensorBoard", directory=os.fspath(log_dir), histogram_freq=histogram_freq, every_batch=update_freq != "epoch")


class CSVLogger(_Native):
    """A line an epoch."""

    def __init__(self, filename: Any, separator: str = ",", append: bool = False):
        if len(separator.encode()) != 1:
            raise ValueError("separator must be one ASCII character, not %r" % (separator,))
        super().__init__("CSVLogger", path=os.fspath(filename), separator=separator, append=append)


class TerminateOnNaN(_Native):
    """Ends fit when the loss is not a number."""

    def __init__(self):
        super().__init__("TerminateOnNaN")


class LambdaCallback(Callback):
    """A callback of functions: LambdaCallback(on_epoch_end=lambda epoch, logs: ...)."""

    def __init__(self, **functions: Any):
        for name, function in functions.items():
            if name not in HOOKS and name not in ("on_batch_begin", "on_batch_end"):
                raise TypeError("LambdaCallback() got an unexpected keyword argument %r%s" % (name, near(name, HOOKS)))
            if function is not None:
                setattr(self, name.replace("on_batch", "on_train_batch"), function)


class ProgbarLogger(Callback):
    """Lines of Keras's form on sys.stdout; fit uses it when that is not the process's own output (a notebook, a redirection)."""

    def __init__(self, verbose: int = 1):
        self._verbose = verbose

    def on_epoch_begin(self, epoch: Any, logs: Any = None) -> None:
        """Prints the epoch's number."""
        import time

        self._begun = time.monotonic()
        sys.stdout.write("Epoch %d/%d\n" % (epoch + 1, (self.params or {}).get("epochs") or 1))

    def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
        """Prints its metrics."""
        import time

        steps = (self.params or {}).get("steps")
        head = "%d/%d - " % (steps, steps) if steps and steps > 0 else ""
        sys.stdout.write("%s%.0fs - %s\n" % (head, time.monotonic() - self._begun,
                                             " - ".join("%s: %.4f" % (safe_text(name), value) for name, value in logs.items())))
        sys.stdout.flush()


class EpochDots(Callback):
    """A dot an epoch, and a line with all metrics every report_every epochs (what tfdocs.modeling.EpochDots prints)."""

    def __init__(self, report_every: int = 100, dot_every: int = 1):
        self.report_every, self.dot_every = report_every, dot_every

    def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
        """A dot, and every 100 epochs the metrics."""
        if epoch % self.report_every == 0:
            sys.stdout.write("\nEpoch: %d, %s\n" % (epoch, "".join("%s:%.4f,  " % (safe_text(name), logs[name]) for name in sorted(logs))))
        if epoch % self.dot_every == 0:
            sys.stdout.write(".")
        sys.stdout.flush()


strict_class()(EarlyStopping)
strict_class({"initial_value_threshold": Refused(None, "the first epoch is always the best so far")})(ModelCheckpoint)
strict_class({"double_checkpoint": Refused(False, "a backup is written whole or not at all")})(BackupAndRestore)
strict_class({"epsilon": Refused(None, "it is called min_delta")})(ReduceLROnPlateau)
strict_class()(LearningRateScheduler)
strict_class({"write_graph": Refused(True, "the graph is always written"), "write_images": Refused(False, "weights are not written as images"),
              "profile_batch": Refused(0, "use fit's own times: unisono.keras writes no profile", (False,)),
              "write_steps_per_second": Refused(False, "the progress bar shows it"), "embeddings_freq": Refused(0, "embeddings are not written"),
              "embeddings_metadata": Refused(None, "embeddings are not written")})(TensorBoard)
strict_class()(CSVLogger)
strict_class({"raise_error": Refused(False, "look at the history after fit")})(TerminateOnNaN)
checks_kinds(EarlyStopping, ModelCheckpoint, BackupAndRestore, ReduceLROnPlateau, LearningRateScheduler, TensorBoard, CSVLogger, ProgbarLogger, EpochDots)


_FIT_STATE = "fit_state"  # a folder beside model.keras: history, and what callbacks remember


def _make_report_callback():
    from unisono.extend import current_session
    from unisono.train.tensorflow.keras import make_report_callback

    base = make_report_callback(Callback)

    class ReportCheckpointCallback(base):
        __doc__ = base.__doc__
        _late = None

        def _engine_form(self):
            # The end of an epoch is reported when every callback has seen it: the checkpoint has what they remember.
            names = {"on_" + event for event in self._used | {"epoch_begin", "train_begin", "train_end"}}
            return self, (names - {"on_epoch_end"}) | ({"after_epoch"} if "epoch_end" in self._used else set())

        def after_epoch(self, epoch, logs=None):
            """The end of an epoch, after the other callbacks."""
            self._handle("epoch_end", logs)

        def on_train_begin(self, logs=None):
            """Goes on as the fit before the restart stood, when this one begins with that epoch."""
            here = current_session()
            path = None if here is None else here.session.get_checkpoint()
            path = os.path.join(path, _FIT_STATE) if path is not None and path.startswith(here.session.run_dir + os.sep) else None
            if path is not None and os.path.isdir(path):
                self.model._history_from = self.model._native().load_fit_state(path)
            super().on_train_begin(logs)

        def _save(self, folder):
            super()._save(folder)
            self.model._native().save_fit_state(os.path.join(folder, _FIT_STATE))

        def _handle(self, event, logs):
            here = current_session()
            if event == "epoch_end" and here is not None and here.mode == "v1" and here.session.world_size > 1:
                # The chief ends an epoch before the others, and a report of v1's trainer waits for all: it is made when all are past the end.
                self._late = dict(logs)
                return
            if self._late is not None:
                late, self._late = self._late, None
                super()._handle("epoch_end", late)
            super()._handle(event, logs)
            if here is not None and here.session.should_stop():
                self.model.stop_training = True

    return ReportCheckpointCallback


def __getattr__(name):
    # unisono.train is loaded only for those who report from a worker.
    if name == "ReportCheckpointCallback":
        value = globals()[name] = _make_report_callback()
        return value
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


strict_module(globals())
