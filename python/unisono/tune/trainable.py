"""Trainable: the class form. setup, step (one iteration, returns its metrics), save_checkpoint, load_checkpoint, cleanup."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from unisono import _session


class Trainable:
    """Override setup(config), step() and, for schedulers that pause, save_checkpoint(directory) and load_checkpoint(directory)."""

    def __init__(self, config: dict[str, Any] | None = None):
        self.config, self.iteration = config or {}, 0

    def setup(self, config: dict[str, Any] | None) -> None:
        """Once, before the first step."""

    def step(self) -> Any:
        """One iteration: a dictionary of results. A subclass has it."""
        raise NotImplementedError("a Trainable needs step(), which returns a dictionary of metrics")

    def save_checkpoint(self, checkpoint_dir: Any) -> None:
        """Writes into the directory, or returns a dictionary. Not overridden: no checkpoints."""
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Gets what save_checkpoint wrote: the directory, or the dictionary."""

    def cleanup(self) -> None:
        """Once, at the end."""

    @property
    def training_iteration(self) -> Any:
        """How many steps were done."""
        return self.iteration

    @property
    def logdir(self) -> Any:
        """The directory of this trial."""
        here = _session.current()
        return None if here is None else here.session.run_dir


class ClassTrial:
    """A Trainable as a train function: steps until it says done or the tuner ends it."""

    def __init__(self, kind: Any, frequency: int = 0, at_end: bool = False):
        self.kind, self.frequency, self.at_end = kind, frequency, at_end
        self.__name__ = kind.__name__

    def _load(self, trainable):
        given = _session.get_checkpoint()
        if given is None:
            return
        data = given.to_dict() if given._data is not None or _is_dict(given) else None
        if data is None:
            trainable.load_checkpoint(given.path)
        else:
            trainable.load_checkpoint({key: value for key, value in data.items() if not key.startswith("_")})
        trainable.iteration = _iteration(given, data or {})

    def _checkpoint(self, trainable):
        from unisono.train._checkpoint import Checkpoint

        directory = _session.current().session.checkpoint_dir()
        saved = trainable.save_checkpoint(directory)
        if isinstance(saved, dict):
            os.rmdir(directory)
            return Checkpoint.from_dict(saved)
        if not os.listdir(directory):
            os.rmdir(directory)
            return None
        return Checkpoint.from_directory(directory)

    def __call__(self, config):
        trainable = self.kind.__new__(self.kind)
        Trainable.__init__(trainable, config)
        trainable.setup(config)
        try:
            self._load(trainable)
            done = False
            while not done:
                result = trainable.step()
                if not isinstance(result, dict):
                    raise TypeError("%s.step() must return a dictionary of metrics, not %r" % (type(trainable).__name__, result))
                trainable.iteration += 1
                done = bool(result.get("done"))
                due = (self.frequency and trainable.iteration % self.frequency == 0) or (done and self.at_end)
                self._report(trainable, result, due)
        finally:
            trainable.cleanup()

    def _report(self, trainable, result, due):
        from unisono.tune._trial import TrialEnded

        try:
            _session.report(result, checkpoint=self._checkpoint(trainable) if due else None)
        except TrialEnded:  # by a stop criterion, or a scheduler that pauses it
            last = self._checkpoint(trainable) if self.at_end and not due else None
            if last is not None:
                with contextlib.suppress(TrialEnded):
                    _session.report({"_at_end": True}, checkpoint=last)
            raise


def _iteration(checkpoint, data):
    """How many steps were done when it was saved: its file says so; a dictionary from elsewhere may."""
    from unisono import _unisono

    if checkpoint.path is not None:
        with contextlib.suppress(_unisono.Error):
            return int(_unisono.checkpoint_info(checkpoint.path)["iteration"])
    return int(data.get("_current_checkpoint_id") or 0)


def _is_dict(checkpoint):
    from unisono import _unisono

    return checkpoint.path is not None and _unisono.checkpoint_info(checkpoint.path)["is_dict"]
