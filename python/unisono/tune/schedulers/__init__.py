"""Which trials go on: the names of ray.tune.schedulers. Each becomes a dictionary for the library (docs/tune.md)."""

from __future__ import annotations

from typing import Any

from unisono._arguments import Refused, checks_kinds, near, strict_class

_TO_THE_END = "a trial that has reached max_t ends"


class TrialScheduler:
    """What all have in common: a type, options, and maybe metric and mode of their own."""

    kind = "fifo"
    pauses = False  # trials go on from a checkpoint

    def __init__(self, metric: str | None = None, mode: str | None = None, options: dict[str, Any] | None = None):
        if mode not in (None, "min", "max"):
            raise ValueError('mode must be "min" or "max", not %r' % (mode,))
        self.metric, self.mode = metric, mode
        self.options = {key: value for key, value in (options or {}).items() if value is not None}

    def _spec(self, table):
        return dict({key: table.encode(value) for key, value in self.options.items()}, type=self.kind)

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % item for item in self.options.items()))


@strict_class()
class FIFOScheduler(TrialScheduler):
    """All trials run to their end."""

    def __init__(self):
        super().__init__()


@strict_class({"stop_last_trials": Refused(True, _TO_THE_END)})
class AsyncHyperBandScheduler(TrialScheduler):
    """ASHA: trials that are behind their rung stop early."""

    kind = "asha"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: float = 100,
                 grace_period: float = 1, reduction_factor: float = 4, brackets: int = 1, stop_last_trials: bool = True):
        super().__init__(metric, mode, dict(time_attr=time_attr, max_t=max_t, grace_period=grace_period, reduction_factor=reduction_factor,
                                           brackets=brackets))


ASHAScheduler = AsyncHyperBandScheduler


@strict_class({"min_time_slice": Refused(0, "trials are ended, not paused"), "hard_stop": Refused(True, "trials are ended, not paused")})
class MedianStoppingRule(TrialScheduler):
    """Ends trials that are below the median of the others. As in Ray, time_attr counts seconds unless another is given."""

    kind = "median"

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None, grace_period: float = 60.0,
                 min_samples_required: int = 3, min_time_slice: int = 0, hard_stop: bool = True):
        super().__init__(metric, mode, dict(time_attr=time_attr, grace_period=grace_period, min_samples_required=min_samples_required))


@strict_class({"stop_last_trials": Refused(True, _TO_THE_END)})
class HyperBandScheduler(TrialScheduler):
    """Brackets of trials that are halved together."""

    kind = "hyperband"
    pauses = True

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: float = 81,
                 reduction_factor: float = 3, stop_last_trials: bool = True):
        super().__init__(metric, mode, dict(time_attr=time_attr, max_t=max_t, reduction_factor=reduction_factor))


@strict_class({"burn_in_period": Refused(0.0, "trials are compared from the first perturbation_interval on", (0,)),
               "custom_explore_fn": Refused(None, "configs change as hyperparam_mutations says"),
               "perturbation_factors": Refused((1.2, 0.8), "numbers are multiplied by 1.2 or 0.8", ([1.2, 0.8],)),
               "require_attrs": Refused(True, "a report without the metric is never compared"),
               "synch": Refused(False, "trials are compared as they come")})
class PopulationBasedTraining(TrialScheduler):
    """Trials that are behind take over weights and config of better ones, and change the config. As in Ray, time_attr counts seconds unless another is given."""

    kind = "pbt"
    pauses = True

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None, perturbation_interval: float = 60.0,
                 burn_in_period: float = 0.0, hyperparam_mutations: Any = None, quantile_fraction: float = 0.25, resample_probability: float = 0.25,
                 perturbation_factors: Any = (1.2, 0.8), custom_explore_fn: Any = None, log_config: bool = True, require_attrs: bool = True,
                 synch: bool = False):
        if not isinstance(hyperparam_mutations, dict) or not hyperparam_mutations:
            raise TypeError("hyperparam_mutations must be a dictionary of what may change, not %.40r" % (hyperparam_mutations,))
        for name, how in hyperparam_mutations.items():
            if callable(how):
                raise NotImplementedError("PopulationBasedTraining: the mutation of %r is a function; give a list or a tune.uniform and the like" % name)
        super().__init__(metric, mode, dict(time_attr=time_attr, perturbation_interval=perturbation_interval, quantile_fraction=quantile_fraction,
                                           resample_probability=resample_probability, mutations=hyperparam_mutations))


checks_kinds(AsyncHyperBandScheduler, MedianStoppingRule, HyperBandScheduler, PopulationBasedTraining)


def create_scheduler(scheduler: Any, **keywords: Any) -> Any:
    """A scheduler by its name."""
    known = {"fifo": FIFOScheduler, "async_hyperband": AsyncHyperBandScheduler, "asha": AsyncHyperBandScheduler,
             "median_stopping_rule": MedianStoppingRule, "medianstopping": MedianStoppingRule, "hyperband": HyperBandScheduler,
             "pbt": PopulationBasedTraining}
    if scheduler not in known:
        raise ValueError("there is no scheduler %r%s" % (scheduler, near(str(scheduler), known)))
    return known[scheduler](**keywords)


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.schedulers", name)
