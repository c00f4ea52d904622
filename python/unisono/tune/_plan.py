"""From what Ray's users write to the library's spec: TuneConfig, and a Plan of one experiment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from unisono import _codec, _driver, _unisono
from unisono._arguments import Refused, strict_class
from unisono._unisono import Error
from unisono.train._config import RunConfig
from unisono.tune import _space
from unisono.tune._trainable import prepare
from unisono.tune.stopper import TIMEOUT, Stopper, combined

_NAMES = "trials are called trial_00000 and so on"
_WHERE = "trials run in the working directory of this process: write to tune.get_trial_dir()"


@strict_class({"trial_name_creator": Refused(None, _NAMES), "trial_dirname_creator": Refused(None, _NAMES),
               "chdir_to_trial_dir": Refused(None, _WHERE, (False, "DEPRECATED"))})
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
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            raise TypeError("metric must be a name, or None, not %r" % (self.metric,))
        if self.mode not in (None, "min", "max"):
            raise ValueError('mode must be "min" or "max", not %r' % (self.mode,))
        if not isinstance(self.num_samples, int) or self.num_samples == 0 or self.num_samples < -1:
            raise ValueError("num_samples must be a whole number above 0 (or -1: until the time budget is used up), not %r" % (self.num_samples,))
        if self.max_concurrent_trials is not None and (not isinstance(self.max_concurrent_trials, int) or self.max_concurrent_trials < 0):
            raise ValueError("max_concurrent_trials must be None or a whole number above 0, not %r" % (self.max_concurrent_trials,))
        budget = _seconds(self.time_budget_s)
        if budget is not None and not budget > 0:
            raise ValueError("time_budget_s must be above 0 (None: no limit), not %r" % (self.time_budget_s,))


# ---- from Ray's words to the spec ----


def _seconds(budget):
    return budget.total_seconds() if hasattr(budget, "total_seconds") else budget


def _seed_of(given):
    """The experiment's seed: the one that was given (a number, or a generator of numpy's), or one drawn from the generator that the script has seeded: numpy's
    when it is in use, as in Ray, otherwise the module random's."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 0:
            raise ValueError("seed must be 0 or more, not %d" % given)
        return given
    if given is None:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            import random

            return random.getrandbits(62)
        given = numpy.random
    if hasattr(given, "item") and not hasattr(given, "random"):
        return _seed_of(given.item())
    for name in ("integers", "randint"):  # a Generator, a RandomState
        if hasattr(given, name):
            return int(getattr(given, name)(0, 2**31 - 1))
    raise TypeError("seed must be a whole number, not %s" % type(given).__name__)


def _stop_spec(stop):
    if stop is None:
        return {}
    if isinstance(stop, Stopper):
        return stop._spec()
    if isinstance(stop, (list, tuple)):
        return combined([_stop_spec(each) for each in stop])
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


class Plan:
    """Everything of one experiment: spec, attachment, searcher."""

    def __init__(self, trainable: Any, space: dict[str, Any] | None, tune: TuneConfig, run: RunConfig, resources: Any = None):
        if space is not None and not isinstance(space, dict):
            raise TypeError("the space must be a dictionary, not %s" % type(space).__name__)
        if isinstance(space, dict) and "run_config" in space:
            raise ValueError("run_config belongs to the Tuner, not into param_space")
        self.prepared = prepare(trainable, run.checkpoint_config, resources, getattr(tune.scheduler, "pauses", False))
        self.tune, self.run, self.table = tune, run, _space.Table()
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
            self.metric = self._one("metric", self.metric, own)
            self.mode = self._one("mode", self.mode, own)
        keep, attribute, order = run.checkpoint_config._policy()
        stop = _stop_spec(run.stop)
        budgets = [budget for budget in (_seconds(tune.time_budget_s), stop.pop(TIMEOUT, None)) if budget is not None]
        fail = run.failure_config
        spec = {
            "function": prepared.name, "num_workers": prepared.num_workers, "backend": prepared.backend, "num_samples": tune.num_samples,
            "space": None if self.space is None else self.table.encode(self.space), "metric": self.metric, "mode": self.mode,
            "scheduler": scheduler._spec(self.table) if scheduler is not None else None, "stop": stop or None,
            "sinks": _sinks_spec(run.callbacks) or None,
            "max_concurrent": tune.max_concurrent_trials or limit, "time_budget": float(min(budgets)) if budgets else None,
            "max_failures": fail.max_failures, "fail_fast": bool(fail.fail_fast) or None, "name": run.name, "storage_path": run.storage_path,
            "checkpoint": dict({"num_to_keep": keep, "score_order": "min" if order else "max"}, **({"score_attribute": attribute} if attribute else {})),
            "environment": prepared.environment, "fresh_workers": tune.reuse_actors is False or None,
        }
        if self.metric is None:
            spec["mode"] = None
        if searcher is not None and hasattr(searcher, "_spec"):
            spec["searcher"] = searcher._spec()
        spec.update(prepared.resources)
        return {key: value for key, value in spec.items() if value is not None}

    def _one(self, name, value, own):
        """There is one metric (and one mode): the search, the scheduler and the searcher have the same."""
        other = getattr(own, name, None)
        if value is not None and other is not None and value != other:
            raise ValueError("%s(%s=%r), but the experiment has %s=%r: give it once, to the TuneConfig" % (type(own).__name__, name, other, name, value))
        return other if value is None else value

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

    def own_searcher(self) -> Any:
        """The user's searcher as the library wants it, or None."""
        from unisono.tune.search import Asked

        searcher, _ = self._searcher()
        if searcher is None or hasattr(searcher, "_spec"):
            return None
        if hasattr(searcher, "set_search_properties"):
            searcher.set_search_properties(self.metric, self.mode, self.space)
        return Asked(searcher, self.metric, self.table)

    def attachment(self) -> dict[str, Any]:
        """What the workers need besides the config."""
        prepared = self.prepared
        extra = {"objects": self.table.objects, "trainer": prepared.trainer}
        arity = 1 if prepared.trainer is None and not _takes_nothing(prepared.function) else _driver.check_arity(prepared.function)
        _driver.warn_unread(prepared.function, self.space if prepared.trainer is None else (self.space or {}).get("train_loop_config"), arity)
        out = {
            "call": _codec.dumps((prepared.function, None, arity, None)), "path": [os.path.abspath(entry) for entry in sys.path],
            "mode": prepared.mode, "backend": prepared.backend, "backend_config": prepared.backend_config,
            "as_ray": "unisono.ray" in sys.modules and sys.modules["unisono.ray"].installed(),
            "tune": {"extra": _codec.dumps(extra), "trainer": prepared.trainer is not None},
        }
        if prepared.datasets is not None:
            out["datasets"] = prepared.datasets
        return out

    def start(self, resume: str | None = None, how: int = 0) -> Any:
        """The library's tuner: a new one, or one that goes on in `resume`."""
        if resume is None:
            own = getattr(self._searcher()[0], "random_state", None)
            self.spec["seed"] = _seed_of(self.tune.seed if self.tune.seed is not None else own)
        program = [sys.executable, "-P", os.path.join(os.path.dirname(os.path.abspath(_driver.__file__)), "_worker.py")]
        searcher = self.own_searcher()
        try:
            return _unisono.Tuner(self.spec, program, self.attachment(), list(self.table.functions), self.table.sample, searcher, resume, how)
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
