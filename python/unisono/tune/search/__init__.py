"""What proposes configs: the names of ray.tune.search, and Searcher for your own."""

from __future__ import annotations

from typing import Any

from unisono._arguments import Refused, strict_class


class Searcher:
    """Ask and tell: override suggest(trial_id) and on_trial_complete(trial_id, result, error). trial_id is "00007"."""

    FINISHED = "FINISHED"

    def __init__(self, metric: str | None = None, mode: str | None = None):
        if mode not in (None, "min", "max"):
            raise ValueError('mode must be "min" or "max", not %r' % (mode,))
        self.metric, self.mode = metric, mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any] | None) -> Any:
        """Called once with what the tuner has; False: this searcher has its own already."""
        self.metric, self.mode = self.metric or metric, self.mode or mode
        return True

    def suggest(self, trial_id: str) -> Any:
        """A config for the trial; None: not now."""
        raise NotImplementedError("a Searcher needs suggest(trial_id), which returns a config, None (not now) or Searcher.FINISHED")

    def on_trial_result(self, trial_id: str, result: Any) -> None:
        """Not called: searchers here learn from trials that ended."""

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The trial ended; result has the metric, or is None."""

    def on_trial_restore(self, trial_id: str, config: dict[str, Any] | None) -> None:
        """A resumed experiment: an earlier searcher suggested this. on_trial_complete follows when it had ended."""


@strict_class({"points_to_evaluate": Refused(None, "use tune.grid_search, or a Searcher of your own", ([],)),
               "constant_grid_search": Refused(False, "every repetition of the grid draws new random values")})
class BasicVariantGenerator(Searcher):
    """Grid and random search, the default."""

    def __init__(self, points_to_evaluate: Any = None, max_concurrent: int = 0, constant_grid_search: bool = False, random_state: Any = None):
        super().__init__()
        self.max_concurrent, self.random_state = max_concurrent, random_state

    def _spec(self):
        return {"type": "random"}


@strict_class({"space": Refused(None, "give the space to the tuner (param_space=, or config= of tune.run)")})
class TPESearch(Searcher):
    """The library's own tree-structured Parzen estimator."""

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None, n_startup: int = 10, n_candidates: int = 24,
                 seed: int | None = None):
        super().__init__(metric, mode)
        self.random_state = seed
        self.options = {"type": "tpe", "n_startup": n_startup, "n_candidates": n_candidates}

    def _spec(self):
        return dict(self.options)


@strict_class({"batch": Refused(False, "a trial begins as soon as another has ended")})
class ConcurrencyLimiter(Searcher):
    """No more than max_concurrent trials at a time."""

    def __init__(self, searcher: Any, max_concurrent: int, batch: bool = False):
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError("max_concurrent must be at least 1, not %r" % (max_concurrent,))
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent = searcher, max_concurrent


class Asked:
    """A Searcher as the library wants one."""

    def __init__(self, searcher: Any, metric: str | None, objects: Any):
        self.searcher, self.metric, self.table = searcher, metric, objects

    def _id(self, trial):
        return "%05d" % trial

    def ask(self, trial: Any) -> Any:
        """The next config of a searcher of one's own."""
        config = self.searcher.suggest(self._id(trial))
        if config == Searcher.FINISHED:
            return False
        return None if config is None else self.table.encode(config)

    def tell(self, trial: Any, config: dict[str, Any] | None, value: Any) -> None:
        """A trial's result."""
        failed = value != value
        self.searcher.on_trial_complete(self._id(trial), None if failed else {self.metric: value}, failed)

    def restore(self, trial: Any, config: dict[str, Any] | None) -> None:
        """The configs that were asked for before."""
        from unisono.tune._space import decode

        self.searcher.on_trial_restore(self._id(trial), decode(config, self.table.objects))


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.search", name)
