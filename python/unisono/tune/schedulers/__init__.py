"""Which trials go on: the names of ray.tune.schedulers. Each becomes a dictionary for the library (docs/tune.md)."""

from __future__ import annotations

from typing import Any


class TrialScheduler:
    """What all have in common: a type, options, and maybe metric and mode of their own."""

    kind = "fifo"

    def __init__(self, metric: str | None = None, mode: str | None = None, **options: Any):
        self.metric, self.mode = metric, mode
        self.options = {key: value for key, value in options.items() if value is not None}

    def _spec(self, table):
        return dict({key: table.encode(value) for key, value in self.options.items()}, type=self.kind)

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % item for item in self.options.items()))


def _refuse(name, **given):
    for key, value in given.items():
        if value:
            raise NotImplementedError("%s(%s=) is not offered" % (name, key))


class FIFOScheduler(TrialScheduler):
    """All trials run to their end."""


class AsyncHyperBandScheduler(TrialScheduler):
    """ASHA: trials that are behind their rung stop early."""

    kind = "asha"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: int = 100,
                 grace_period: int = 1, reduction_factor: int = 4, brackets: int = 1, stop_last_trials: bool = True):
        super().__init__(metric, mode, time_attr=time_attr, max_t=max_t, grace_period=grace_period, reduction_factor=reduction_factor,
                         brackets=brackets)


ASHAScheduler = AsyncHyperBandScheduler


class MedianStoppingRule(TrialScheduler):
    """time_attr counts iterations unless another is given; Ray's default counts seconds."""

    kind = "median"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, grace_period: int = 1,
                 min_samples_required: int = 3, min_time_slice: int = 0, hard_stop: bool = True):
        _refuse("MedianStoppingRule", min_time_slice=min_time_slice)
        super().__init__(metric, mode, time_attr=time_attr, grace_period=grace_period, min_samples_required=min_samples_required)


class HyperBandScheduler(TrialScheduler):
    """Brackets of trials that are halved together."""

    kind = "hyperband"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: int = 81,
                 reduction_factor: int = 3, stop_last_trials: bool = True):
        super().__init__(metric, mode, time_attr=time_attr, max_t=max_t, reduction_factor=reduction_factor)


class PopulationBasedTraining(TrialScheduler):
    """Trials that are behind take over weights and config of better ones, and change the config."""

    kind = "pbt"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, perturbation_interval: int = 4,
                 burn_in_period: float = 0.0, hyperparam_mutations: Any = None, quantile_fraction: float = 0.25, resample_probability: float = 0.25,
                 perturbation_factors: Any = (1.2, 0.8), custom_explore_fn: Any = None, log_config: bool = True, require_attrs: bool = True,
                 synch: bool = False):
        _refuse("PopulationBasedTraining", burn_in_period=burn_in_period, custom_explore_fn=custom_explore_fn, synch=synch)
        if tuple(perturbation_factors) != (1.2, 0.8):
            raise NotImplementedError("PopulationBasedTraining(perturbation_factors=) other than (1.2, 0.8) is not offered")
        for name, how in (hyperparam_mutations or {}).items():
            if callable(how):
                raise NotImplementedError("PopulationBasedTraining: the mutation of %r is a function; give a list or a tune.uniform and the like" % name)
        super().__init__(metric, mode, time_attr=time_attr, perturbation_interval=perturbation_interval, quantile_fraction=quantile_fraction,
                         resample_probability=resample_probability, mutations=hyperparam_mutations or {})


def create_scheduler(scheduler: Any, **keywords: Any) -> Any:
    """A scheduler by its name."""
    known = {"fifo": FIFOScheduler, "async_hyperband": AsyncHyperBandScheduler, "asha": AsyncHyperBandScheduler,
             "median_stopping_rule": MedianStoppingRule, "medianstopping": MedianStoppingRule, "hyperband": HyperBandScheduler,
             "pbt": PopulationBasedTraining}
    if scheduler not in known:
        raise ValueError("there is no scheduler %r; there are: %s" % (scheduler, ", ".join(known)))
    return known[scheduler](**keywords)


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.schedulers", name)
