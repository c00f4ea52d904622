"""What an experiment found: ResultGrid (Ray 2.x) and ExperimentAnalysis (1.x) over the same trials."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Iterator

from unisono import _codec, _failure, _safe
from unisono._arguments import Refused, strict_class
from unisono._unisono import Error
from unisono.tune import _space
from unisono.tune._checkpoints import best_of, checkpoints_of, flat

if TYPE_CHECKING:
    from unisono.train._checkpoint import Checkpoint
    from unisono.train._result import Result


FAILURE_FILE = "error.pkl"  # in a failed trial's directory, written by the driver with the user's key


class TuneError(Error):
    """The experiment, or one of its trials, failed."""


def _exception_of(trial):
    """The exception that ended the trial, as itself where its worker could hand it over."""
    if trial["status"] != "ERROR":
        return None
    try:
        return _failure.unpack(_codec.loads_signed(os.path.join(trial["dir"], FAILURE_FILE)), lambda text: TuneError(_safe.text(text)))
    except (OSError, _codec.PickleRefused):  # the trial was killed, or the file is not the user's own
        return TuneError(_safe.text(trial["error"] or "the trial failed"))


class TrialCheckpoint:
    """Ray 1.x's trial.checkpoint: .value is the directory."""

    def __init__(self, path: str | None):
        self.value = self.dir_or_data = path


class Trial:
    """One trial: its config, its last result, its directory."""

    def __init__(self, trial: dict[str, Any], results: Results):
        self._trial, self._results = trial, results
        self.index = trial["trial"]
        self.trial_id = "%05d" % self.index
        self.config = self.evaluated_params = results.decode(trial["config"])
        self.last_result = dict(trial["metrics"] or {}, config=self.config, trial_id=self.trial_id)
        self.logdir = self.local_path = self.path = trial["dir"]
        self.status = trial["status"]
        self.checkpoint = TrialCheckpoint(trial["checkpoint"])
        self.error_msg = trial["error"]

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Of every metric: max, min, avg, last."""
        out: dict[str, dict[str, Any]] = {}
        for metrics in self._results.history(self.index):
            for key, value in flat(metrics).items():
                if isinstance(value, (int, float)):
                    at = out.setdefault(key, {"max": -math.inf, "min": math.inf, "sum": 0.0, "n": 0})
                    at.update(last=value, max=max(at["max"], value), min=min(at["min"], value), sum=at["sum"] + value, n=at["n"] + 1)
        return {key: {"max": at["max"], "min": at["min"], "avg": at["sum"] / at["n"], "last": at["last"]} for key, at in out.items()}

    def get_error(self) -> BaseException | None:
        """Its exception, or None."""
        return _exception_of(self._trial)

    def __repr__(self) -> str:
        return "trial_%s" % self.trial_id

    __str__ = __repr__


def _pandas():
    try:
        import pandas
    except ImportError:
        raise ImportError("a DataFrame needs pandas, which is not installed: pip install pandas") from None
    return pandas


class Results:
    """The library's results, read once; what both faces use."""

    def __init__(self, tuner: Any, objects: Any, metric: str | None, mode: str | None):
        self.tuner, self.objects = tuner, objects
        self.metric, self.mode = metric, mode
        self.trials = tuner.trials()
        self._history: dict[int, list[Any]] | None = None

    def decode(self, config: dict[str, Any] | None) -> Any:
        """A value of the journal as Python has it."""
        return _space.decode(config, self.objects)

    def history(self, index: int) -> list[dict[str, Any]]:
        """All reports of a trial."""
        if self._history is None:
            self._history = {}
            for trial, _, metrics in self.tuner.reports():
                self._history.setdefault(trial, []).append(metrics)
        return self._history.get(index, [])

    def mode_of(self, metric: str | None, mode: str | None) -> str | None:
        """What was given, or the experiment's, which is the mode of its own metric only."""
        if mode is None and metric is not None and self.metric is not None and metric != self.metric:
            raise ValueError('which value of "%s" is better? Give mode="min" or mode="max": the experiment\'s is for "%s"' % (metric, self.metric))
        mode = self.mode if mode is None else mode
        if metric is not None and not mode:
            raise ValueError("no mode: give \"min\" or \"max\" here or in the TuneConfig")
        if mode not in (None, "min", "max"):
            raise ValueError('mode must be "min" or "max", not %r' % (mode,))
        return mode

    def best(self, metric: str | None, mode: str | None, scope: str) -> int:
        """The trial with the best value of a metric."""
        metric = metric or self.metric
        if not metric:
            raise ValueError("no metric: give one here or in the TuneConfig")
        mode = self.mode_of(metric, mode)
        if scope not in ("last", "all", "avg"):
            raise ValueError('scope must be "last", "all" or "avg", not %r' % (scope,))
        return self.tuner.best(metric, mode, scope)

    def rows(self, metric: str | None = None, mode: str | None = None) -> list[dict[str, Any]]:
        """One dictionary a trial, for a table."""
        rows = []
        for trial in self.trials:
            metrics = trial["metrics"]
            if metric is not None:
                scored = [(value, each) for each in self.history(trial["trial"])
                          if isinstance(value := flat(each).get(metric), (int, float)) and math.isfinite(value)]
                if not scored:
                    continue
                metrics = (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]
            row = flat(metrics)
            row["trial_id"] = "%05d" % trial["trial"]
            row.update({"config/" + key: value for key, value in flat(self.decode(trial["config"])).items()})
            row["logdir"] = trial["dir"]
            rows.append(row)
        return rows


# ---- Ray 2.x ----


_FINITE = {"filter_nan_and_inf": Refused(True, "a value that is NaN or infinite is never the best")}


@strict_class(methods={"get_best_result": _FINITE})
class ResultGrid:
    """The results of a Tuner: len, [i], iteration, get_best_result, get_dataframe."""

    def __init__(self, results: Results):
        self._results = results
        self.experiment_path, self.filesystem = results.tuner.dir, "local"

    def _result(self, trial):
        from unisono.train._checkpoint import Checkpoint
        from unisono.train._result import Result, worst_first

        config = self._results.decode(trial["config"])
        metrics = dict(trial["metrics"] or {}, config=config, trial_id="%05d" % trial["trial"])
        history = self._results.history(trial["trial"])
        try:
            frame = _pandas().DataFrame([flat(each) for each in history]) if history else None
        except ImportError:
            frame = None
        return Result(metrics, Checkpoint(trial["checkpoint"]) if trial["checkpoint"] else None, _exception_of(trial),
                      trial["dir"], frame, worst_first(checkpoints_of(trial["dir"]), self._results.tuner.spec.get("checkpoint") or {}), config)

    def __len__(self) -> int:
        return len(self._results.trials)

    def __getitem__(self, index: int) -> Result:
        return self._result(self._results.trials[index])

    def __iter__(self) -> Iterator[Result]:
        return (self._result(trial) for trial in self._results.trials)

    @property
    def errors(self) -> list[BaseException]:
        """The exceptions of the trials that failed."""
        return [error for error in (_exception_of(trial) for trial in self._results.trials) if error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return sum(trial["status"] == "ERROR" for trial in self._results.trials)

    @property
    def num_terminated(self) -> int:
        """How many trials came to their end."""
        return sum(trial["status"] == "TERMINATED" for trial in self._results.trials)

    def get_best_result(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> Result:
        """The Result of the best trial; RuntimeError names what was reported when no trial has the metric."""
        return self._result(self._results.trials[self._results.best(metric, mode, scope)])

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> Any:
        """A row a trial: its last report, or the one with the best filter_metric."""
        if filter_mode and not filter_metric:
            raise ValueError("filter_mode needs filter_metric")
        mode = self._results.mode_of(filter_metric, filter_mode)
        return _pandas().DataFrame(self._results.rows(filter_metric, mode))

    def __repr__(self) -> str:
        return "ResultGrid<%d trials, %d errors>" % (len(self), self.num_errors)


# ---- Ray 1.x ----


@strict_class(methods={"get_best_trial": _FINITE})
class ExperimentAnalysis:
    """What tune.run returns."""

    def __init__(self, results: Results):
        self._results = results
        self.trials = [Trial(trial, results) for trial in results.trials]
        self.experiment_path = results.tuner.dir
        self.default_metric, self.default_mode = results.metric, results.mode

    def get_best_trial(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> Trial:
        """The trial with the best value of the metric; scope: last, all, avg."""
        return self.trials[self._results.best(metric, mode, scope)]

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> dict[str, Any]:
        """That trial's config, or None."""
        return self.get_best_trial(metric, mode, scope).config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str:
        """That trial's directory, or None."""
        return self.get_best_trial(metric, mode, scope).logdir

    def get_best_checkpoint(self, trial: Trial, metric: str | None = None, mode: str | None = None) -> Checkpoint | None:
        """The trial's checkpoint that was reported with the best value of the metric; None when the trial has no checkpoint."""
        found = checkpoints_of(trial.logdir)
        if not found:
            return None
        return best_of(found, metric or self.default_metric or "training_iteration", self._results.mode_of(metric, mode) or "max")

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str = "training_iteration", mode: str = "max") -> str | None:
        """The newest checkpoint of a trial; when none is given, of the best one by the metric, which is the one that trained longest."""
        trial = trial or self.get_best_trial(metric, mode)
        return trial.checkpoint.value

    @property
    def best_trial(self) -> Trial:
        """The best trial by the experiment's own metric and mode; so are the others."""
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any]:
        """Its config."""
        return self.best_trial.config

    @property
    def best_logdir(self) -> str:
        """Its directory."""
        return self.best_trial.logdir

    @property
    def best_result(self) -> dict[str, Any]:
        """Its last report."""
        return self.best_trial.last_result

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """Its best checkpoint."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_dataframe(self) -> Any:
        """The best trial's reports as a DataFrame."""
        return self.trial_dataframes[self.best_logdir]

    @property
    def best_result_df(self) -> Any:
        """The best trial's last report as a DataFrame."""
        return _pandas().DataFrame([flat(self.best_result)])

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Last reports by the trial's id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> Any:
        """Last reports as a DataFrame, a row a trial."""
        frame = _pandas().DataFrame([flat(trial.last_result) for trial in self.trials])
        return frame.set_index("trial_id") if len(frame) else frame

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """DataFrames of all reports by the trial's directory."""
        pandas = _pandas()
        return {trial.logdir: pandas.DataFrame([flat(metrics) for metrics in self._results.history(trial.index)]) for trial in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """A row a trial: its last report, or the one with the best metric."""
        mode = self._results.mode_of(metric, mode)
        return _pandas().DataFrame(self._results.rows(metric, mode))

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Configs by the trial's directory; prefix: flat, with "config/" before the names."""
        if prefix:
            return {trial.logdir: {"config/" + key: value for key, value in flat(trial.config).items()} for trial in self.trials}
        return {trial.logdir: trial.config for trial in self.trials}

    def stats(self) -> dict[str, Any]:
        """Numbers of the experiment: its trials by their state."""
        return {"timestamp": os.path.getmtime(self.experiment_path)}
