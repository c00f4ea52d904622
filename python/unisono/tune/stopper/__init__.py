"""When a trial is over: the names of ray.tune.stopper, as dictionaries for the library."""

from __future__ import annotations

from typing import Any


class Stopper:
    """Base of stoppers: a call says whether a trial stops."""

    def _spec(self):
        raise NotImplementedError("a Stopper of your own is not offered; use a dictionary, MaximumIterationStopper or TrialPlateauStopper")


class MaximumIterationStopper(Stopper):
    """Stops a trial after so many reports."""

    def __init__(self, max_iter: Any):
        self.max_iter = max_iter

    def _spec(self):
        return {"training_iteration": self.max_iter}


class TimeoutStopper(Stopper):
    """For the whole experiment; the same as time_budget_s."""

    def __init__(self, timeout: Any):
        self.seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)

    def _spec(self):
        return {}


class TrialPlateauStopper(Stopper):
    """Stops a trial whose metric does not change any more."""

    def __init__(self, metric: str | None, std: float = 0.01, num_results: int = 4, grace_period: int = 4, metric_threshold: Any = None,
                 mode: str | None = None):
        if metric_threshold is not None:
            raise NotImplementedError("TrialPlateauStopper(metric_threshold=) is not offered")
        self.options = {"metric": metric, "std": std, "num_results": num_results, "grace_period": grace_period}

    def _spec(self):
        return {"plateau": self.options}


class CombinedStopper(Stopper):
    """Stops when one of several says so."""

    def __init__(self, *stoppers: Any):
        self.stoppers = stoppers

    def _spec(self):
        out = {}
        for stopper in self.stoppers:
            out.update(stopper._spec())
        return out


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.stopper", name)
