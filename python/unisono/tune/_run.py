"""tune.run and Tuner: from what Ray's users write to the library's spec, and running it."""

from __future__ import annotations

import functools
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

from unisono import _codec, _driver, _key, _unisono
from unisono._unisono import Error
from unisono.train._config import CheckpointConfig, FailureConfig, RunConfig, config_of
from unisono.tune import _space
from unisono.tune._analysis import ExperimentAnalysis, ResultGrid, Results, TuneError
from unisono.tune._trainable import prepare

_TUNER_FILE = "tuner.pkl"
_STEP_SECONDS = 0.2
_SHOW_SECONDS = 5.0


@dataclass
class TuneConfig:
    """How a Tuner searches."""

    metric: str | None = None
    mode: str | None = None
    search_alg: object = None
    scheduler: object = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: object = None
    reuse_actors: object = None
    trial_name_creator: object = None
    trial_dirname_creator: object = None
    chdir_to_trial_dir: object = None
    seed: int | None = None

    def __post_init__(self):
        if self.mode not in (None, "min", "max"):
            raise ValueError('mode must be "min" or "max", not %r' % (self.mode,))
        if not isinstance(self.num_samples, int) or self.num_samples == 0 or self.num_samples < -1:
            raise ValueError("num_samples must be a whole number above 0 (or -1: until the time budget is used up), not %r" % (self.num_samples,))


# ---- from Ray's words to the spec ----


def _stop_spec(stop):
    from unisono.tune.stopper import Stopper

    if stop is None:
        return {}
    if isinstance(stop, Stopper):
        return stop._spec()
    if isinstance(stop, (list, tuple)):
        out = {}
        for each in stop:
            out.update(_stop_spec(each))
        return out
    if not isinstance(stop, dict):
        raise NotImplementedError("stop=%r is not offered; give a dictionary such as {\"training_iteration\": 10}, or a stopper of "
                                  "unisono.tune.stopper" % (stop,))
    return dict(stop)


def _sinks_spec(callbacks):
    """The loggers among Ray's callbacks: the library tells TensorBoard and MLflow of the whole experiment at its end."""
    from unisono.train.callbacks import sink_of

    out = []
    for callback in callbacks or []:
        name, asked = sink_of(callback) or (None, {})
        if name == "tensorboard" and not asked["dir"]:
            out.append({"type": name, "prefix": "ray/tune/"})
        elif name == "tensorboard":
            raise NotImplementedError("TBXLoggerCallback(logdir=) is not offered when tuning: the events are in tensorboard/ of the experiment's directory")
        elif name == "mlflow" and asked["tracking_token"]:
            raise NotImplementedError("MLflowLoggerCallback(tracking_token=) is not offered when tuning, because the experiment's files would hold it: set "
                                      "MLFLOW_TRACKING_TOKEN in the environment")
        elif name == "mlflow":
            out.append(dict({key: value for key, value in asked.items() if value and key != "rank"}, type=name))
        else:
            raise NotImplementedError("the callback %s is not offered when tuning; there are TBXLoggerCallback and MLflowLoggerCallback. Read the results "
                                      "after fit()" % type(callback).__name__)
    return out


class _Plan:
    """Everything of one experiment: spec, attachment, searcher."""

    def __init__(self, trainable, space, tune, run, resources=None):
        if space is not None and not isinstance(space, dict):
            raise TypeError("the space must be a dictionary, not %s" % type(space).__name__)
        if isinstance(space, dict) and "run_config" in space:
            raise ValueError("run_config belongs to the Tuner, not into param_space")
        self.prepared = prepare(trainable, run.checkpoint_config, resources)
        self.tune, self.run, self.table = tune, run, _space.Table()
        self.secret = os.urandom(32)
        self.space = space
        self.metric, self.mode = tune.metric, tune.mode
        self.spec = self._spec()

    def _spec(self):
        prepared, tune, run = self.prepared, self.tune, self.run
        scheduler = tune.scheduler
        if isinstance(scheduler, str):
            from unisono.tune.schedulers import create_scheduler

            scheduler = create_scheduler(scheduler)
        if scheduler is not None and not hasattr(scheduler, "_spec"):
            raise TypeError("scheduler must be one of unisono.tune.schedulers, not %s" % type(scheduler).__name__)
        searcher, limit = self._searcher()
        for own in (scheduler, searcher):
            self.metric = self.metric or getattr(own, "metric", None)
            self.mode = self.mode or getattr(own, "mode", None)
        keep, attribute, order = run.checkpoint_config._policy()
        budget = tune.time_budget_s
        if hasattr(budget, "total_seconds"):
            budget = budget.total_seconds()
        fail = run.failure_config
        spec = {
            "function": prepared.name, "num_workers": prepared.num_workers, "backend": prepared.backend, "num_samples": tune.num_samples,
            "space": None if self.space is None else self.table.encode(self.space), "metric": self.metric, "mode": self.mode,
            "scheduler": scheduler._spec(self.table) if scheduler is not None else None, "stop": _stop_spec(run.stop) or None,
            "sinks": _sinks_spec(run.callbacks) or None,
            "max_concurrent": tune.max_concurrent_trials or limit, "time_budget": None if budget is None else float(budget),
            "max_failures": fail.max_failures, "fail_fast": bool(fail.fail_fast) or None, "name": run.name, "storage_path": run.storage_path,
            "seed": tune.seed if tune.seed is not None else getattr(searcher, "random_state", None),
            "checkpoint": dict({"num_to_keep": keep, "score_order": "min" if order else "max"}, **({"score_attribute": attribute} if attribute else {})),
            "environment": prepared.environment, "fresh_workers": tune.reuse_actors is False or None,
        }
        if self.metric is None:
            spec["mode"] = None
        if searcher is not None and hasattr(searcher, "_spec"):
            spec["searcher"] = searcher._spec()
        spec.update(prepared.resources)
        return {key: value for key, value in spec.items() if value is not None}

    def _searcher(self):
        """(searcher, how many at a time or None)"""
        from unisono.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher

        searcher, limit = self.tune.search_alg, None
        if isinstance(searcher, ConcurrencyLimiter):
            searcher, limit = searcher.searcher, searcher.max_concurrent
        if isinstance(searcher, BasicVariantGenerator):
            limit = searcher.max_concurrent or limit
        if searcher is None or isinstance(searcher, Searcher):
            return searcher, limit
        if isinstance(searcher, str):
            if searcher == "tpe":
                from unisono.tune.search import TPESearch

                return TPESearch(), limit
            if searcher in ("random", "variant_generator"):
                return BasicVariantGenerator(), limit
            if searcher == "optuna":
                from unisono.tune.search.optuna import OptunaSearch

                return OptunaSearch(), limit
            raise ValueError("there is no searcher %r; there are: random, tpe, optuna" % searcher)
        if hasattr(searcher, "suggest"):
            return searcher, limit
        raise TypeError("search_alg must be a Searcher of unisono.tune.search, not %s" % type(searcher).__name__)

    def own_searcher(self):
        """The user's searcher as the library wants it, or None."""
        from unisono.tune.search import Asked

        searcher, _ = self._searcher()
        if searcher is None or hasattr(searcher, "_spec"):
            return None
        if hasattr(searcher, "set_search_properties"):
            searcher.set_search_properties(self.metric, self.mode, self.space)
        return Asked(searcher, self.metric, self.table)

    def attachment(self):
        prepared = self.prepared
        extra = {"objects": self.table.objects, "trainer": prepared.trainer}
        arity = 1 if prepared.trainer is None and not _takes_nothing(prepared.function) else _driver.check_arity(prepared.function)
        out = {
            "call": _codec.dumps((prepared.function, None, arity, None)), "path": [os.path.abspath(entry) for entry in sys.path],
            "secret": self.secret, "mode": prepared.mode, "backend": prepared.backend, "backend_config": prepared.backend_config,
            "as_ray": "unisono.ray" in sys.modules and sys.modules["unisono.ray"].installed(),
            "tune": {"extra": _codec.dumps(extra), "trainer": prepared.trainer is not None},
        }
        if prepared.datasets is not None:
            out["datasets"] = prepared.datasets
        return out

    def start(self, resume=None, retry=False):
        program = [sys.executable, "-P", os.path.join(os.path.dirname(os.path.abspath(_driver.__file__)), "_worker.py")]
        searcher = self.own_searcher()
        try:
            return _unisono.Tuner(self.spec, program, self.attachment(), list(self.table.functions), self.table.sample, searcher, resume, retry)
        except Error as error:
            raise _translated(error) from None


def _takes_nothing(function):
    import inspect

    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _translated(error):
    if error.code == "EINVAL":
        return ValueError(error.message)
    return error


# ---- running ----


def _show(tuner, verbose, begun, last):
    counts = tuner.counts
    total = counts["expected"] if counts["expected"] >= 0 else "?"
    line = "%d of %s trials, %d running, %d failed, %.0f s" % (counts["TERMINATED"] + counts["ERROR"], total, counts["RUNNING"], counts["ERROR"],
                                                              time.monotonic() - begun)
    if line != last:
        print("unisono.tune: " + line, flush=True)
    return line


def _fit(tuner, verbose):
    """Steps to the end. A failed experiment is returned as its exception, with the results still there."""
    begun = shown = time.monotonic()
    line = failure = None
    try:
        while tuner.step(_STEP_SECONDS):
            if verbose and time.monotonic() - shown >= _SHOW_SECONDS:
                shown, line = time.monotonic(), _show(tuner, verbose, begun, line)
    except KeyboardInterrupt:
        tuner.stop()
        raise
    except Error as error:
        failure = error
    finally:
        if verbose:
            _show(tuner, verbose, begun, line)
        tuner.close()
    return failure


def _save(plan, trainable, directory):
    """What Tuner.restore needs besides the journal: a pickle, so it carries a MAC by the user's own key."""
    try:
        data = _codec.dumps({"trainable": trainable, "tune": plan.tune, "run": plan.run, "space": plan.space})
    except Exception:  # what cannot be pickled must be given to restore
        return
    _key.write_signed(os.path.join(directory, _TUNER_FILE), data)


def _load(directory):
    try:
        return _codec.loads_signed(os.path.join(directory, _TUNER_FILE))
    except OSError:
        return {}


class Tuner:
    """Tuner(trainable, param_space=, tune_config=, run_config=).fit() gives a ResultGrid; Tuner.restore(path, trainable) goes on after a kill."""

    def __init__(self, trainable: Any = None, *, param_space: dict[str, Any] | None = None, tune_config: TuneConfig | None = None,
                 run_config: RunConfig | None = None):
        if trainable is None:
            raise TypeError("a Tuner needs a trainable: a function, a Trainable class or a trainer")
        self._trainable, self._space = trainable, param_space
        self._tune = config_of(TuneConfig, tune_config)
        self._run = config_of(RunConfig, run_config if run_config is not None else getattr(trainable, "run_config", None))
        self._resume, self._retry, self._grid = None, False, None
        self._plan()  # what is wrong is said now

    def _plan(self):
        return _Plan(self._trainable, self._space, self._tune, self._run)

    def fit(self) -> ResultGrid:
        """Runs the trials; a ResultGrid."""
        plan = self._plan()
        tuner = plan.start(self._resume, self._retry)
        if not self._resume:
            _save(plan, self._trainable, tuner.dir)
        failure = _fit(tuner, self._run.verbose or 0)
        self._grid = ResultGrid(Results(tuner, plan.table.objects, plan.secret, plan.metric, plan.mode))
        if failure is not None and failure.code != "EFUNCTION":
            raise failure
        return self._grid

    def get_results(self) -> ResultGrid:
        """The results of the fit before."""
        if self._grid is None:
            raise RuntimeError("there are no results before fit()")
        return self._grid

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is an experiment in this directory."""
        try:
            return _key.owns(_unisono.Tuner.read(os.fspath(path), None).dir)
        except Error:
            return False

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any = None, resume_unfinished: bool = True, resume_errored: bool = False,
                restart_errored: bool = False, param_space: dict[str, Any] | None = None, storage_filesystem: Any = None) -> Self:
        """Goes on with the experiment in path: finished trials stay, interrupted ones continue from their last checkpoint."""
        try:
            read = _unisono.Tuner.read(os.fspath(path), None)
        except Error as error:
            raise ValueError(error.message) from None
        _unisono.run_check_owner(read.dir)
        saved = _load(read.dir)
        if trainable is None and "trainable" not in saved:
            raise ValueError("restore needs the trainable: it could not be kept with the experiment")
        tuner = cls(trainable if trainable is not None else saved["trainable"], param_space=param_space or saved.get("space"),
                    tune_config=saved.get("tune"), run_config=saved.get("run"))
        tuner._resume, tuner._retry = read.dir, resume_errored or restart_errored
        return tuner


# ---- tune.run ----

_NOT_OFFERED = {
    "storage_filesystem": "storage_path is a local path", "progress_reporter": "verbose=1 prints progress", "trial_name_creator": "trials are trial_00000 and so on",
    "trial_dirname_creator": "trials are trial_00000 and so on", "export_formats": "export at the end of the train function",
    "restore": "begin the train function with a checkpoint", "server_port": "there is no server",
}


def run(run_or_experiment: Any, *, name: str | None = None, metric: str | None = None, mode: str | None = None, stop: Any = None,
        time_budget_s: float | None = None, config: dict[str, Any] | None = None, resources_per_trial: Any = None, num_samples: int = 1,
        storage_path: Any = None, storage_filesystem: Any = None, search_alg: Any = None, scheduler: Any = None, checkpoint_config: Any = None,
        verbose: Any = None, progress_reporter: Any = None, log_to_file: bool = False, trial_name_creator: Any = None,
        trial_dirname_creator: Any = None, chdir_to_trial_dir: bool = True, sync_config: Any = None, export_formats: Any = None,
        max_failures: int = 0, fail_fast: bool = False, restore: Any = None, server_port: Any = None, resume: bool = False, reuse_actors: Any = None,
        raise_on_failed_trial: bool = True, callbacks: Any = None, max_concurrent_trials: int | None = None, keep_checkpoints_num: int | None = None,
        checkpoint_score_attr: str | None = None, checkpoint_freq: int = 0, checkpoint_at_end: bool = False, local_dir: Any = None,
        seed: int | None = None) -> ExperimentAnalysis:
    """Runs the trials and returns an ExperimentAnalysis. What is not offered says so."""
    here = locals()
    for key, instead in _NOT_OFFERED.items():
        if here[key]:
            raise NotImplementedError("tune.run(%s=) is not offered: %s" % (key, instead))
    if checkpoint_config is None:
        attribute, order = checkpoint_score_attr, "max"
        if attribute and attribute.startswith("min-"):
            attribute, order = attribute[4:], "min"
        checkpoint_config = CheckpointConfig(num_to_keep=keep_checkpoints_num, checkpoint_score_attribute=attribute, checkpoint_score_order=order,
                                             checkpoint_frequency=checkpoint_freq, checkpoint_at_end=checkpoint_at_end)
    tune = TuneConfig(metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler, num_samples=num_samples,
                      max_concurrent_trials=max_concurrent_trials, time_budget_s=time_budget_s, reuse_actors=reuse_actors, seed=seed)
    settings = RunConfig(name=name, storage_path=storage_path or local_dir, failure_config=FailureConfig(max_failures, fail_fast if max_failures == 0 else False),
                         checkpoint_config=checkpoint_config, verbose=verbose, stop=stop, callbacks=callbacks)
    plan = _Plan(run_or_experiment, config, tune, settings, resources_per_trial)
    place = None
    if resume and resume not in ("PROMPT",):
        if not name:
            raise ValueError("tune.run(resume=) needs the experiment's name")
        place = os.path.join(_unisono.storage(storage_path or local_dir), name)
        if resume == "AUTO" and not Tuner.can_restore(place):
            place = None
    tuner = plan.start(place, resume == "ERRORED_ONLY")
    failure = _fit(tuner, 1 if verbose is None else int(bool(verbose)))
    analysis = ExperimentAnalysis(Results(tuner, plan.table.objects, plan.secret, plan.metric, plan.mode))
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if failure is not None and failure.code != "EFUNCTION":
        raise failure
    if failed and raise_on_failed_trial:
        error = TuneError("%d of %d trials did not complete: %s. %s: %s" % (len(failed), len(analysis.trials), failed, failed[0], failed[0].error_msg))
        raise error from failed[0].get_error()
    return analysis


# ---- helpers of Ray's ----


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """The trainable with large objects that do not belong into the config."""
    import inspect

    if inspect.isclass(trainable):
        kind = type(trainable.__name__, (trainable,), {})
        setup = trainable.setup

        def with_them(self, config):
            setup(self, config, **parameters)

        kind.setup = with_them
        return kind

    @functools.wraps(trainable)
    def function(config):
        return trainable(config, **parameters)

    function.__signature__ = inspect.Signature([inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    return function


def with_resources(trainable: Any, resources: Any) -> Any:
    """The trainable with what each of its trials needs: {"cpu": 2, "gpu": 0}."""
    import inspect

    if inspect.isclass(trainable):
        return type(trainable.__name__, (trainable,), {"_unisono_resources": resources})

    @functools.wraps(trainable)
    def function(config):
        return trainable(config)

    function._unisono_resources = resources
    return function
