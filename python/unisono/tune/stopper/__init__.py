"""When a trial is over: the names of ray.tune.stopper, as dictionaries for the library."""

from __future__ import annotations

from typing import Any

from unisono._arguments import Refused, strict_class

TIMEOUT = "__timeout__"  # of the whole experiment: taken out by the plan


def combined(specs: list[dict[str, Any]]) -> dict[str, Any]:
    """Criteria of several stoppers: the first one that is reached counts."""
    out: dict[str, Any] = {}
    for spec in specs:
        for key, value in spec.items():
            if key not in out or out[key] == value:
                out[key] = value
            elif key in ("training_iteration", TIMEOUT):
                out[key] = min(out[key], value)
            else:
                raise NotImplementedError("two stoppers for %r are not supported: give one (%r and %r)" % (key, out[key], value))
    return out


class Stopper:
    """Base of stoppers: a call says whether a trial stops."""

    def _spec(self):
        raise NotImplementedError("a Stopper of your own is not supported; use a dictionary, MaximumIterationStopper or TrialPlateauStopper")


@strict_class()
class MaximumIterationStopper(Stopper):
    """Stops a trial after so many reports."""

    def __init__(self, max_iter: int):
        self.max_iter = max_iter

    def _spec(self):
        return {"training_iteration": self.max_iter}


@strict_class()
class TimeoutStopper(Stopper):
    """For the whole experiment; the same as time_budget_s."""

    def __init__(self, timeout: Any):
        self.seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
        if not self.seconds > 0:
            raise ValueError("timeout must be above 0, not %r" % (timeout,))

    def _spec(self):
        return {TIMEOUT: self.seconds}


_THRESHOLD = "a trial stops on its plateau whatever the value of the metric is"


@strict_class({"metric_threshold": Refused(None, _THRESHOLD), "mode": Refused(None, _THRESHOLD)})
class TrialPlateauStopper(Stopper):
    """Stops a trial whose metric does not change any more."""

    def __init__(self, metric: str, std: float = 0.01, num_results: int = 4, grace_period: int = 4, metric_threshold: Any = None,
                 mode: str | None = None):
        self.options = {"metric": metric, "std": std, "num_results": num_results, "grace_period": grace_period}

    def _spec(self):
        return {"plateau": self.options}


class CombinedStopper(Stopper):
    """Stops when one of several says so."""

    def __init__(self, *stoppers: Any):
        self.stoppers = stoppers

    def _spec(self):
        return combined([stopper._spec() for stopper in self.stoppers])


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.stopper", name)
