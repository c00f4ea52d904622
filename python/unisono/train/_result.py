"""Result: what a run left."""

from __future__ import annotations

import json
import os
from typing import Any, Self

from unisono import _paths, _safe, _unisono
from unisono._arguments import Refused, strict_class
from unisono.train._checkpoint import Checkpoint

# The library's autofilled metrics, and what they are called in Ray 2.x.
_NAMES = {"_timestamp": "timestamp", "_time_this_iter_s": "time_this_iter_s", "_training_iteration": "training_iteration", "_date": "date",
          "_hostname": "hostname", "_node_ip": "node_ip", "_pid": "pid", "_time_total_s": "time_total_s"}


def renamed(metrics: Any) -> Any:
    """Metrics with the names of Ray 2.x."""
    return {_NAMES.get(key, key): value for key, value in metrics.items()}


def worst_first(found: Any, options: dict[str, Any]) -> Any:
    """In the order of the run's CheckpointConfig, best last; equal ones, and all without a score attribute, by age. NaN and missing scores are worst."""
    attribute, sign = options.get("score_attribute"), -1 if options.get("score_order") == "min" else 1

    def score(pair):
        value = pair[1].get(renamed({attribute: None}).popitem()[0])
        is_number = isinstance(value, (int, float)) and value == value
        return (is_number, sign * value if is_number else 0)

    return sorted(found, key=score) if attribute else found


def _checkpoints(run_dir):
    """(Checkpoint, metrics) of every complete checkpoint, best last."""
    folder = os.path.join(run_dir, "checkpoints")
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        try:
            info = _unisono.checkpoint_info(path)
        except _unisono.Error:
            continue
        found.append((Checkpoint(path), renamed(info["metrics"])))
    return worst_first(found, _unisono.run_description(run_dir).get("options") or {}) if found else []


_LOCAL = Refused(None, "results are in a directory of this machine")


@strict_class({"_storage_filesystem": _LOCAL}, methods={"from_path": {"storage_filesystem": _LOCAL}})
class Result:
    """metrics (rank 0's last report), checkpoint (the newest), error, path, return_value (rank 0's), and more."""

    def __init__(self, metrics: dict[str, Any] | None = None, checkpoint: Checkpoint | None = None, error: BaseException | None = None,
                 path: str = "", metrics_dataframe: Any = None, best_checkpoints: Any = None, config: dict[str, Any] | None = None,
                 return_value: Any = None):
        self.metrics, self.checkpoint, self.error, self.path, self.return_value = metrics, checkpoint, error, path, return_value
        self._dataframe, self._best, self._config = metrics_dataframe, best_checkpoints, config

    @classmethod
    def _of(cls, left, error, config, value=None):
        metrics = renamed(left["metrics"][0] or {})
        latest = left["latest_checkpoint"]
        return cls(metrics, Checkpoint(latest) if latest else None, error, left["run_dir"], config=config, return_value=value)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Self:
        """The result of a run that is over, or of the newest one of an experiment."""
        run_dir = find_run(_paths.local(path, "Result.from_path"))
        if run_dir is None:
            raise RuntimeError("%s is not a run directory: no run.json in it" % _safe.text(os.fspath(path)))
        about = _unisono.run_description(run_dir)
        reports = _unisono.run_reports(run_dir, 0)
        latest = _unisono.checkpoint_latest(run_dir)
        error = about.get("error")
        return cls(renamed(reports[-1]) if reports else {}, Checkpoint(latest) if latest else None,
                   _unisono.Error(_safe.text(error["message"])) if error else None, run_dir, config=about.get("config"))

    @property
    def config(self) -> dict[str, Any] | None:
        """The train_loop_config."""
        return self._config

    @property
    def log_dir(self) -> Any:
        """2.0's name of path, as a Path."""
        from pathlib import Path

        return Path(self.path)

    @property
    def filesystem(self) -> str:
        """Always the local one."""
        return "local"

    @property
    def metrics_dataframe(self) -> Any:
        """Rank 0's reports as a pandas DataFrame; None without pandas."""
        if self._dataframe is None:
            try:
                import pandas
            except ImportError:
                return None
            self._dataframe = pandas.DataFrame([renamed(report) for report in _unisono.run_reports(self.path, 0)])
        return self._dataframe

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """(Checkpoint, metrics) of those that the CheckpointConfig kept, best last; without a score attribute the newest is last."""
        if self._best is None:
            self._best = _checkpoints(self.path)
        return self._best

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The checkpoint that was reported with the best value of the metric; mode: max or min."""
        if mode not in ("max", "min"):
            raise ValueError('mode must be "max" or "min", not %r' % (mode,))
        if not self.best_checkpoints:
            raise RuntimeError("this run has no checkpoint")
        scored = [(metrics[metric], checkpoint) for checkpoint, metrics in self.best_checkpoints if metric in metrics]
        if not scored:
            known = sorted({key for _, metrics in self.best_checkpoints for key in metrics})
            raise RuntimeError("no checkpoint was reported with the metric %r; there are: %s" % (metric, ", ".join(map(_safe.text, known))))
        scored = [pair for pair in scored if pair[0] == pair[0]]
        if not scored:
            raise RuntimeError("every checkpoint was reported with NaN as %r: none is best" % (metric,))
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]

    def __repr__(self):
        lines = ["error=%r" % type(self.error).__name__] if self.error is not None else []
        lines += ["metrics=%r" % (self.metrics,), "path=%r" % self.path, "filesystem='local'", "checkpoint=%r" % (self.checkpoint,)]
        return "Result(\n  %s\n)" % ",\n  ".join(lines)


def find_run(path: Any) -> Any:
    """path when it is a run directory, or the newest run below it; None when there is none."""
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.exists(os.path.join(path, "run.json")):
        return path
    runs = sorted(name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, "run.json"))) if os.path.isdir(path) else []
    return os.path.join(path, runs[-1]) if runs else None


def read_json(path: Any) -> Any:
    """A file of JSON."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)
