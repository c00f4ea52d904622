"""OptunaSearch: an Optuna study proposes, the tuner runs. `pip install optuna` first."""

from __future__ import annotations

from typing import Any

from unisono.tune import _space
from unisono.tune.search import Searcher


def _distributions(space, path=()):
    """(path, distribution) of every parameter; constants are left alone."""
    from optuna import distributions as kinds

    for key, value in space.items():
        where = path + (key,)
        if isinstance(value, dict) and set(value) != {"grid_search"}:
            yield from _distributions(value, where)
        elif isinstance(value, dict):
            raise ValueError("%s: grid_search is for the tuner's own searcher; Optuna takes tune.choice" % "/".join(where))
        elif isinstance(value, _space.Function):
            raise NotImplementedError("%s: tune.sample_from with OptunaSearch is not offered" % "/".join(where))
        elif isinstance(value, _space.Domain):
            given = value.arguments
            made = {"choice": lambda: kinds.CategoricalDistribution(list(given)),
                    "uniform": lambda: kinds.FloatDistribution(given[0], given[1]),
                    "loguniform": lambda: kinds.FloatDistribution(given[0], given[1], log=True),
                    "quniform": lambda: kinds.FloatDistribution(given[0], given[1], step=given[2]),
                    "randint": lambda: kinds.IntDistribution(given[0], given[1] - 1),
                    "qrandint": lambda: kinds.IntDistribution(given[0], given[1], step=given[2]),
                    "lograndint": lambda: kinds.IntDistribution(given[0], given[1] - 1, log=True)}.get(value.kind)
            if made is None:
                raise NotImplementedError("%s: tune.%s has no counterpart in Optuna" % ("/".join(where), value.kind))
            yield where, made()


class OptunaSearch(Searcher):
    """Optuna's samplers as a search algorithm."""

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None, points_to_evaluate: Any = None, sampler: Any = None,
                 seed: int | None = None, evaluated_rewards: Any = None):
        try:
            import optuna  # noqa: F401
        except ImportError:
            raise ImportError("OptunaSearch needs optuna, which is not installed: pip install optuna") from None
        super().__init__(metric, mode)
        self.space, self.sampler, self.seed = space, sampler, seed
        self.points, self.study, self.trials = points_to_evaluate or [], None, {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any] | None, **spec: Any) -> Any:
        """Metric, mode and space, from the Tuner."""
        import optuna

        super().set_search_properties(metric, mode, config)
        if not self.metric or not self.mode:
            raise ValueError("OptunaSearch needs a metric and a mode")
        self.space = self.space or config or {}
        self.distributions = list(_distributions(self.space))
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(direction="minimize" if self.mode == "min" else "maximize",
                                         sampler=self.sampler or optuna.samplers.TPESampler(seed=self.seed))
        for point in self.points:
            self.study.enqueue_trial(point)
        return True

    def suggest(self, trial_id: str) -> Any:
        """The next config."""
        trial = self.study.ask({"/".join(where): kind for where, kind in self.distributions})
        self.trials[trial_id] = trial
        config = _plain(self.space)
        for where, _ in self.distributions:
            _put(config, where, trial.params["/".join(where)])
        return config

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """A trial's result."""
        import optuna

        trial = self.trials.pop(trial_id, None)
        if trial is None:
            return
        if result is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(trial, result[self.metric])

    def on_trial_restore(self, trial_id: str, config: dict[str, Any] | None) -> None:
        """The config is put into the study again, as it was."""
        fixed = {"/".join(where): _get(config, where) for where, _ in self.distributions}
        self.study.enqueue_trial(fixed)
        self.trials[trial_id] = self.study.ask({"/".join(where): kind for where, kind in self.distributions})


def _plain(space):
    return {key: _plain(value) if isinstance(value, dict) else value for key, value in space.items()}


def _put(config, where, value):
    for key in where[:-1]:
        config = config[key]
    config[where[-1]] = value


def _get(config, where):
    for key in where:
        config = config[key]
    return config
