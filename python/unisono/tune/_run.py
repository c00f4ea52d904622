"""tune.run and Tuner: running an experiment, going on with one, and reading what it found."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any, Self

from unisono import _codec, _key, _safe, _unisono
from unisono._arguments import Refused, check, strict, strict_class
from unisono._unisono import Error
from unisono.train._config import CheckpointConfig, FailureConfig, RunConfig, config_of
from unisono.tune._analysis import FAILURE_FILE, ExperimentAnalysis, ResultGrid, Results, Trial, TuneError
from unisono.tune._plan import Plan, TuneConfig

_TUNER_FILE = "tuner.pkl"
_STEP_SECONDS = 0.2
_SHOW_SECONDS = 5.0
_HERE = "storage_path is a path of this machine"
# The flags of uni_tuner_open.
_RESUME_FAILED, _RESTART_FAILED, _LEAVE_UNFINISHED = 1, 2, 4


# ---- running ----


def _show(tuner, begun, last):
    counts = tuner.counts
    total = counts["expected"] if counts["expected"] >= 0 else "?"
    line = "%d of %s trials, %d running, %d failed, %.0f s" % (counts["TERMINATED"] + counts["ERROR"], total, counts["RUNNING"], counts["ERROR"],
                                                              time.monotonic() - begun)
    if line != last:
        print("unisono.tune: " + line, flush=True)
    return line


def _take_failures(tuner, told, verbose):
    """Of each failed trial: its exception into its directory, and one line unless verbose=0."""
    for number, error, directory, failure in tuner.failures():
        if number in told:
            continue
        told.add(number)
        if failure is not None:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            _key.write_signed(os.path.join(directory, FAILURE_FILE), failure)
        if verbose != 0:
            print("unisono.tune: trial %05d failed: %s" % (number, _safe.text((error or "").strip().split("\n")[0])), file=sys.stderr, flush=True)


def _fit(tuner, verbose):
    """Steps to the end. A failed experiment is returned as its exception, with the results still there. verbose=0: nothing is printed."""
    begun = shown = time.monotonic()
    line = failure = None
    told = {failed[0] for failed in tuner.failures()}
    try:
        while tuner.step(_STEP_SECONDS):
            _take_failures(tuner, told, verbose)
            if verbose and time.monotonic() - shown >= _SHOW_SECONDS:
                shown, line = time.monotonic(), _show(tuner, begun, line)
    except KeyboardInterrupt:
        tuner.stop()
        raise
    except Error as error:
        failure = error
    finally:
        _take_failures(tuner, told, verbose)
        if verbose:
            _show(tuner, begun, line)
        tuner.close()
    return failure


def _raise_failure(failure, results, fail_fast):
    """Failed trials are part of the results; anything else, and fail_fast="raise", is an exception."""
    if failure is None:
        return
    failed = [Trial(trial, results) for trial in results.trials if trial["status"] == "ERROR"]
    if fail_fast == "raise" and failed:
        raise failed[0].get_error()
    if failure.code != "EFUNCTION":
        raise failure


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


@strict_class(methods={"restore": {"storage_filesystem": Refused(None, _HERE), "_resume_config": Refused(None, "use resume_errored= and restart_errored=")},
                       "can_restore": {"storage_filesystem": Refused(None, _HERE)}})
class Tuner:
    """Tuner(trainable, param_space=, tune_config=, run_config=).fit() gives a ResultGrid; Tuner.restore(path, trainable) goes on after a kill."""

    def __init__(self, trainable: Any = None, *, param_space: dict[str, Any] | None = None, tune_config: TuneConfig | None = None,
                 run_config: RunConfig | None = None):
        if trainable is None:
            raise TypeError("a Tuner needs a trainable: a function, a Trainable class or a trainer")
        self._trainable, self._space = trainable, param_space
        self._tune = config_of(TuneConfig, tune_config)
        self._run = config_of(RunConfig, run_config if run_config is not None else getattr(trainable, "run_config", None))
        self._resume: str | None = None
        self._how, self._grid = 0, None  # type: int, ResultGrid | None
        self._plan()  # what is wrong is said now

    def _plan(self):
        return Plan(self._trainable, self._space, self._tune, self._run)

    def fit(self) -> ResultGrid:
        """Runs the trials; a ResultGrid."""
        plan = self._plan()
        tuner = plan.start(self._resume, self._how)
        if not self._resume:
            _save(plan, self._trainable, tuner.dir)
        failure = _fit(tuner, self._run.verbose if self._run.verbose is None else int(self._run.verbose))
        results = Results(tuner, plan.table.objects, plan.metric, plan.mode)
        self._grid = ResultGrid(results)
        _raise_failure(failure, results, self._run.failure_config.fail_fast)
        return self._grid

    def get_results(self) -> ResultGrid:
        """The results of the fit before; of a restored Tuner, what is in the directory."""
        if self._grid is None and self._resume is not None:
            plan = self._plan()
            return ResultGrid(Results(_unisono.Tuner.read(self._resume, None), plan.table.objects, plan.metric, plan.mode))
        if self._grid is None:
            raise RuntimeError("there are no results before fit()")
        return self._grid

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is an experiment in this directory."""
        try:
            return _key.owns(_unisono.Tuner.read(os.fspath(path), None).dir)
        except Error:
            return False

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any = None, resume_unfinished: bool = True, resume_errored: bool = False,
                restart_errored: bool = False, param_space: dict[str, Any] | None = None) -> Self:
        """Goes on with the experiment in path: finished trials stay, interrupted ones continue from their last checkpoint."""
        try:
            read = _unisono.Tuner.read(os.fspath(path), None)
        except Error as error:
            raise ValueError(error.message) from None
        _unisono.run_check_owner(read.dir)
        if resume_errored and restart_errored:
            raise ValueError("give resume_errored=True or restart_errored=True, not both")
        saved = _load(read.dir)
        if trainable is None and "trainable" not in saved:
            raise ValueError("restore needs the trainable: it could not be kept with the experiment")
        tuner = cls(trainable if trainable is not None else saved["trainable"],
                    param_space=param_space if param_space is not None else saved.get("space"), tune_config=saved.get("tune"), run_config=saved.get("run"))
        tuner._resume = read.dir
        tuner._how = _flags(resume_errored, restart_errored, not resume_unfinished)
        return tuner


# ---- tune.run ----


def _flags(resume_errored, restart_errored, leave_unfinished):
    return (_RESUME_FAILED if resume_errored else 0) | (_RESTART_FAILED if restart_errored else 0) | (_LEAVE_UNFINISHED if leave_unfinished else 0)


_SUFFIXES = {"ERRORED": _RESUME_FAILED, "ERRORED_ONLY": _RESUME_FAILED | _LEAVE_UNFINISHED, "RESTART_ERRORED": _RESTART_FAILED,
             "RESTART_ERRORED_ONLY": _RESTART_FAILED | _LEAVE_UNFINISHED}


def _resume_of(resume):
    """(whether to go on, whether a missing experiment begins anew, flags) of Ray's True, "AUTO", "LOCAL", "ERRORED_ONLY", "AUTO+ERRORED" and the like."""
    if resume is None or isinstance(resume, bool):
        return bool(resume), False, 0
    words = resume.split("+") if isinstance(resume, str) else [resume]
    if words[0] == "ERRORED_ONLY" and len(words) == 1:
        words = ["LOCAL", "ERRORED_ONLY"]
    if words[0] not in ("AUTO", "LOCAL") or len(words) > 2 or (len(words) == 2 and words[1] not in _SUFFIXES):
        raise ValueError("resume=%r is not supported; there are True, False, \"AUTO\", \"LOCAL\", \"ERRORED_ONLY\", and \"AUTO\" or \"LOCAL\" with one of: %s"
                         % (resume, ", ".join("+" + each for each in _SUFFIXES)))
    return True, words[0] == "AUTO", _SUFFIXES[words[1]] if len(words) == 2 else 0


_NAMES = "trials are called trial_00000 and so on"
_REFUSED = {
    "storage_filesystem": Refused(None, _HERE), "progress_reporter": Refused(None, "verbose=1 prints progress"),
    "trial_name_creator": Refused(None, _NAMES), "trial_dirname_creator": Refused(None, _NAMES),
    "export_formats": Refused(None, "export at the end of the train function"), "restore": Refused(None, "begin the train function with a checkpoint"),
    "resume_config": Refused(None, "use resume="), "server_port": Refused(None, "there is no server"),
    "log_to_file": Refused(False, "what a trial prints is in its logs/rank_0.log already", (True, None)),
    "chdir_to_trial_dir": Refused(None, "trials run in the working directory of this process: write to tune.get_trial_dir()", (False, "DEPRECATED")),
    "trial_executor": Refused(None, "trials run in worker processes of this library"), "queue_trials": Refused(None, "there is no autoscaler to wait for"),
    "loggers": Refused(None, "use callbacks="), "sync_to_driver": Refused(None, "files are written to storage_path directly"),
    "_remote": Refused(None, "the tuner runs in this process", (False,)), "_remote_string_queue": Refused(None, "the tuner runs in this process"),
    "_entrypoint": Refused(None, "it is for Ray's own telemetry"), "_experiment_checkpoint_dir": Refused(None, "use name= and resume="),
}


@strict(_REFUSED)
def run(run_or_experiment: Any, *, name: str | None = None, metric: str | None = None, mode: str | None = None, stop: Any = None,
        time_budget_s: float | None = None, config: dict[str, Any] | None = None, resources_per_trial: Any = None, num_samples: int = 1,
        storage_path: Any = None, search_alg: Any = None, scheduler: Any = None, checkpoint_config: Any = None, verbose: Any = None,
        sync_config: Any = None, max_failures: int = 0, fail_fast: Any = False, resume: Any = None, reuse_actors: Any = None,
        raise_on_failed_trial: bool = True, callbacks: Any = None, max_concurrent_trials: int | None = None, keep_checkpoints_num: int | None = None,
        checkpoint_score_attr: str | None = None, checkpoint_freq: int = 0, checkpoint_at_end: bool = False, local_dir: Any = None,
        seed: int | None = None) -> ExperimentAnalysis:
    """Runs the trials and returns an ExperimentAnalysis."""
    if checkpoint_config is None:
        attribute, order = checkpoint_score_attr, "max"
        if attribute and attribute.startswith("min-"):
            attribute, order = attribute[4:], "min"
        checkpoint_config = CheckpointConfig(num_to_keep=keep_checkpoints_num, checkpoint_score_attribute=attribute, checkpoint_score_order=order,
                                             checkpoint_frequency=checkpoint_freq, checkpoint_at_end=checkpoint_at_end)
    elif keep_checkpoints_num is not None or checkpoint_score_attr is not None or checkpoint_freq or checkpoint_at_end:
        raise ValueError("give checkpoint_config=, or keep_checkpoints_num= and its relatives, not both")
    if storage_path is not None and local_dir is not None:
        raise ValueError("give storage_path= or local_dir= (its older name), not both")
    tune = TuneConfig(metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler, num_samples=num_samples,
                      max_concurrent_trials=max_concurrent_trials, time_budget_s=time_budget_s, reuse_actors=reuse_actors, seed=seed)
    settings = RunConfig(name=name, storage_path=storage_path if storage_path is not None else local_dir, sync_config=sync_config,
                         failure_config=FailureConfig(max_failures, fail_fast), checkpoint_config=checkpoint_config, verbose=verbose, stop=stop,
                         callbacks=callbacks)
    go_on, may_begin, how = _resume_of(resume)
    if go_on and not name:
        raise ValueError("tune.run(resume=) needs the experiment's name")
    place = os.path.join(_unisono.storage(settings.storage_path), name) if go_on and name else None
    if place is not None and may_begin and not Tuner.can_restore(place):
        place = None
    plan = Plan(run_or_experiment, config, tune, settings, resources_per_trial)
    tuner = plan.start(place, how)
    if place is None:
        _save(plan, run_or_experiment, tuner.dir)
    failure = _fit(tuner, 1 if verbose is None else int(verbose))
    results = Results(tuner, plan.table.objects, plan.metric, plan.mode)
    _raise_failure(failure, results, fail_fast)
    analysis = ExperimentAnalysis(results)
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if failed and raise_on_failed_trial:
        error = TuneError("%d of %d trials did not complete: %s. %s: %s" % (len(failed), len(analysis.trials), failed, failed[0], failed[0].error_msg))
        raise error from failed[0].get_error()
    return analysis


# ---- helpers of Ray's ----


def _check_parameters(function, parameters):
    """A parameter that the train function (or setup) does not take is an error now, not in every trial."""
    import inspect

    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if not any(each.kind is each.VAR_KEYWORD for each in known):
        check("unisono.tune.with_parameters", parameters, [each.name for each in known][1:])


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """The trainable with large objects that do not belong into the config."""
    import inspect

    _check_parameters(trainable.setup if inspect.isclass(trainable) and hasattr(trainable, "setup") else trainable, parameters)
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
