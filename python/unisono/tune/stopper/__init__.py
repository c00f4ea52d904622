"""When a trial is over: the names of ray.tune.stopper, as dictionaries for the library."""


class Stopper:
    def _spec(self):
        raise NotImplementedError("a Stopper of your own is not offered; use a dictionary, MaximumIterationStopper or TrialPlateauStopper")


class MaximumIterationStopper(Stopper):
    def __init__(self, max_iter):
        self.max_iter = max_iter

    def _spec(self):
        return {"training_iteration": self.max_iter}


class TimeoutStopper(Stopper):
    """For the whole experiment; the same as time_budget_s."""

    def __init__(self, timeout):
        self.seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)

    def _spec(self):
        return {}


class TrialPlateauStopper(Stopper):
    def __init__(self, metric, std=0.01, num_results=4, grace_period=4, metric_threshold=None, mode=None):
        if metric_threshold is not None:
            raise NotImplementedError("TrialPlateauStopper(metric_threshold=) is not offered")
        self.options = {"metric": metric, "std": std, "num_results": num_results, "grace_period": grace_period}

    def _spec(self):
        return {"plateau": self.options}


class CombinedStopper(Stopper):
    def __init__(self, *stoppers):
        self.stoppers = stoppers

    def _spec(self):
        out = {}
        for stopper in self.stoppers:
            out.update(stopper._spec())
        return out


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.stopper", name)
