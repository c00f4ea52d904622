"""Callbacks of Ray Train v1: what sees every report of all workers.

The JSON, TensorBoard and MLflow loggers are the library's own sinks (no tensorboardX, no mlflow needed); what a user writes runs in the driver,
in the caller's thread, in the order of the list.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from unisono import _safe
from unisono._arguments import Refused, strict_class
from unisono.train.callbacks.results_preprocessors import ExcludedKeysResultsPreprocessor, IndexedResultsPreprocessor
from unisono.train.callbacks.results_preprocessors import SequentialResultsPreprocessor

PYTORCH_PROFILER_KEY = "_train_torch_profiler"
ALL_RESERVED_KEYS = {PYTORCH_PROFILER_KEY}
__all__ = ["TrainingCallback", "PrintCallback", "JsonLoggerCallback", "TBXLoggerCallback", "MLflowLoggerCallback", "TorchTensorboardProfilerCallback",
           "TrainCallbackLogdirManager"]


class TrainingCallback:
    """Base of callbacks. Override start_training, handle_result, finish_training."""

    results_preprocessor: Any = None
    RESERVED_KEYS: Any = {}

    def start_training(self, logdir: Any, config: dict[str, Any] | None, **info: Any) -> None:
        """Called once before the first report."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Called for every report: a dictionary for each worker, by rank."""

    def finish_training(self, error: bool = False, **info: Any) -> None:
        """Called once at the end; error says whether the run failed."""

    def process_results(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Prepares the results as this callback wants them, then handle_result."""
        unwanted = ALL_RESERVED_KEYS - set(self.RESERVED_KEYS)
        steps = [ExcludedKeysResultsPreprocessor(unwanted)]
        if self.results_preprocessor is not None:
            steps.append(self.results_preprocessor)
        self.handle_result(SequentialResultsPreprocessor(steps).preprocess(results), **info)


@strict_class()
class TrainCallbackLogdirManager:
    """Where a callback writes: its own directory, or the run's."""

    def __init__(self, logdir: Any = None, create_logdir: bool = True):
        self._logdir = None if logdir is None else Path(logdir)
        self._default: Path | None = None
        self._create = create_logdir

    def setup_logdir(self, default_logdir: Any) -> Path:
        """The directory to use when none was given; makes it."""
        self._default = Path(default_logdir)
        if self._create:
            self.logdir_path.mkdir(parents=True, exist_ok=True)
        return self.logdir_path

    @property
    def logdir_path(self) -> Path:
        """The directory; RuntimeError before it is known."""
        path = self._logdir or self._default
        if path is None:
            raise RuntimeError("the log directory is not known before training starts")
        return path


class PrintCallback(TrainingCallback):
    """Prints every report as JSON."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Prints the list of the workers' dictionaries."""
        print(_safe.text(json.dumps(results, indent=4, default=str)))
        sys.stdout.flush()


class _Logger(TrainingCallback):
    """A logger that is a sink of the library: the run feeds the sink with every report. The methods of a subclass are called as well; what they would
    write instead of the report is refused."""

    def __init__(self, logdir=None):
        self._manager = TrainCallbackLogdirManager(logdir)
        self._reported = None

    def process_results(self, results, **info):
        """Remembers the report, then as every callback."""
        self._reported = ExcludedKeysResultsPreprocessor(ALL_RESERVED_KEYS).preprocess(results)
        super().process_results(results, **info)

    def handle_result(self, results, **info):
        """The sink has written the report already."""
        if self._reported is not None and list(results) != self._reported:
            raise NotImplementedError("%s writes each report as it was reported: its handle_result cannot be given other results. Report what is to "
                                      "be logged, or derive from TrainingCallback" % type(self).__name__)

    @property
    def logdir(self):
        """Where it writes: its own directory, or the run's once a run has begun."""
        return self._manager.logdir_path

    def _began(self, run_dir):
        """The run that it logs."""
        if run_dir is not None:
            self._manager._default = Path(run_dir)

    def _place(self):
        return None if self._manager._logdir is None else str(self._manager._logdir)


@strict_class()
class JsonLoggerCallback(_Logger):
    """results.json: [[dictionaries of report 1], ...]; a valid document at every moment."""

    def __init__(self, logdir: Any = None, filename: str | None = None, workers_to_log: int = 0):
        super().__init__(logdir)
        self._filename = filename or "results.json"
        self._workers = IndexedResultsPreprocessor(workers_to_log)._indices

    @property
    def log_path(self) -> Path:
        """The file."""
        return self.logdir / self._filename

    def _sink(self):
        return "json", {"dir": self._place(), "filename": self._filename, "ranks": self._workers}


@strict_class()
class TBXLoggerCallback(_Logger):
    """TensorBoard's event files."""

    def __init__(self, logdir: Any = None, worker_to_log: int = 0):
        super().__init__(logdir)
        self._rank = _one_rank(worker_to_log)

    def _sink(self):
        return "tensorboard", {"dir": self._place(), "prefix": "ray/train/", "rank": self._rank}


@strict_class({"registry_uri": Refused(None, "no model is registered; register it with mlflow itself"),
               "log_params_on_trial_end": Refused(False, "the config is logged when the run begins")})
class MLflowLoggerCallback(_Logger):
    """MLflow: a tracking server, or files below the run's directory."""

    def __init__(self, tracking_uri: Any = None, registry_uri: Any = None, experiment_id: Any = None, experiment_name: Any = None, tags: Any = None,
                 save_artifact: bool = False, logdir: Any = None, worker_to_log: int = 0, tracking_token: Any = None,
                 log_params_on_trial_end: bool = False):
        super().__init__(logdir)
        self._asked = {"tracking_uri": tracking_uri or (str(Path(logdir) / "mlruns") if logdir else None), "experiment_id": experiment_id,
                       "experiment_name": experiment_name, "save_artifact": save_artifact, "rank": _one_rank(worker_to_log),
                       "tags": {str(key): str(value) for key, value in (tags or {}).items()}, "tracking_token": tracking_token}

    def _sink(self):
        return "mlflow", self._asked


@strict_class()
class TorchTensorboardProfilerCallback(TrainingCallback):
    """Writes the traces that the torch profiler's handler reports (train.torch.TorchWorkerProfiler)."""

    RESERVED_KEYS = [PYTORCH_PROFILER_KEY]

    def __init__(self, logdir: Any = None, workers_to_log: Any = None):
        self._manager = TrainCallbackLogdirManager(logdir)
        self.results_preprocessor = IndexedResultsPreprocessor(workers_to_log)

    def start_training(self, logdir: Any, config: dict[str, Any] | None, **info: Any) -> None:
        """Makes the directory."""
        self._manager.setup_logdir(Path(logdir) / "pytorch_profiler")

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Writes each trace to a file."""
        for result in results:
            for name, content in result.get(PYTORCH_PROFILER_KEY) or []:
                (self._manager.logdir_path / Path(name).name).write_text(content, encoding="utf-8")


def _one_rank(rank):
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise TypeError("worker_to_log must be an integer, not %r" % (rank,))
    if rank < 0:
        raise ValueError("worker_to_log must not be negative, it is %d" % rank)
    return rank


_LOGGERS = (JsonLoggerCallback, TBXLoggerCallback, MLflowLoggerCallback)


def sink_of(callback: Any) -> Any:
    """(name, options) when the library writes what this callback logs, otherwise None."""
    return callback._sink() if isinstance(callback, _LOGGERS) else None


def sinks_and_own(callbacks: Any) -> tuple[list[Any], list[TrainingCallback]]:
    """The sinks of the loggers, and the callbacks whose methods are called: those of the user's own classes, subclasses of loggers too."""
    for callback in callbacks:
        if not isinstance(callback, TrainingCallback):
            raise TypeError("callbacks are TrainingCallbacks or the loggers of unisono.train.callbacks, not %s" % type(callback).__name__)
    return [callback._sink() for callback in callbacks if isinstance(callback, _LOGGERS)], [each for each in callbacks if type(each) not in _LOGGERS]


def begin(callbacks: Any, run_dir: Any) -> None:
    """The loggers among them learn the run's directory."""
    for callback in callbacks:
        if isinstance(callback, _LOGGERS):
            callback._began(run_dir)


def feed(callbacks: list[TrainingCallback], results: list[dict[str, Any]]) -> None:
    """One report of all workers, to every callback."""
    for callback in callbacks:
        callback.process_results(results)


def finish(callbacks: list[TrainingCallback], failed: bool) -> None:
    """finish_training of all of them. The first exception is raised, after the others have had their turn; it does not hide that of a run that failed."""
    first = None
    for callback in callbacks:
        try:
            callback.finish_training(error=failed)
        except Exception as error:
            if first is None and not failed:
                first = error
            else:
                traceback.print_exc()
    if first is not None:
        raise first
