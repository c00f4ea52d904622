"""OptunaSearch: an Optuna study proposes, the tuner runs. `pip install optuna` first."""

from __future__ import annotations

from typing import Any

from unisono._arguments import Refused, strict_class
from unisono.tune import _space
from unisono.tune.search import Searcher


def _distribution(domain, name):
    """A number's domain in Optuna's words."""
    from optuna import distributions as kinds

    given = domain.arguments
    made = {"uniform": lambda: kinds.FloatDistribution(given[0], given[1]),
            "loguniform": lambda: kinds.FloatDistribution(given[0], given[1], log=True),
            "quniform": lambda: kinds.FloatDistribution(given[0], given[1], step=given[2]),
            "randint": lambda: kinds.IntDistribution(given[0], given[1] - 1),
            "qrandint": lambda: kinds.IntDistribution(given[0], given[1], step=given[2]),
            "lograndint": lambda: kinds.IntDistribution(given[0], given[1] - 1, log=True)}.get(domain.kind)
    if made is None:
        raise NotImplementedError("%s: tune.%s has no counterpart in Optuna" % (name, domain.kind))
    return made()


def _has_domains(tree):
    if isinstance(tree, dict):
        return any(_has_domains(item) for item in tree.values())
    if isinstance(tree, (list, tuple)):
        return any(_has_domains(item) for item in tree)
    return isinstance(tree, (_space.Domain, _space.Function))


def _configure(tree, suggest, name=""):
    """The tree with a value for each domain, by suggest(name, distribution). Values of a choice that have parameters inside are chosen by number, and their
    parameters have the number in their names."""
    from optuna import distributions as kinds

    if isinstance(tree, dict) and set(tree) == {"grid_search"}:
        raise ValueError("%s: grid_search is for the tuner's own searcher; Optuna takes tune.choice" % name)
    if isinstance(tree, dict):
        return {key: _configure(item, suggest, "%s/%s" % (name, key) if name else str(key)) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)) and _has_domains(tree):
        return type(tree)(_configure(item, suggest, "%s/%d" % (name, number)) for number, item in enumerate(tree))
    if isinstance(tree, _space.Function):
        raise NotImplementedError("%s: tune.sample_from with OptunaSearch is not supported" % name)
    if not isinstance(tree, _space.Domain):
        return tree
    if tree.kind != "choice":
        return suggest(name, _distribution(tree, name))
    if not _has_domains(tree.arguments):
        return suggest(name, kinds.CategoricalDistribution(list(tree.arguments)))
    number = suggest(name, kinds.CategoricalDistribution(list(range(len(tree.arguments)))))
    return _configure(tree.arguments[number], suggest, "%s[%d]" % (name, number))


def _params_of(tree, config, out, name=""):
    """What was suggested for this config, by name; the other way round."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            _params_of(item, config[key], out, "%s/%s" % (name, key) if name else str(key))
    elif isinstance(tree, (list, tuple)) and _has_domains(tree):
        for number, item in enumerate(tree):
            _params_of(item, config[number], out, "%s/%d" % (name, number))
    elif isinstance(tree, _space.Domain) and tree.kind == "choice" and _has_domains(tree.arguments):
        out[name] = next(number for number, item in enumerate(tree.arguments) if _fits(item, config))
        _params_of(tree.arguments[out[name]], config, out, "%s[%d]" % (name, out[name]))
    elif isinstance(tree, _space.Domain):
        out[name] = config


def _fits(tree, value):
    """Whether the value can have come of the tree."""
    if isinstance(tree, _space.Domain) and tree.kind == "choice":
        return any(_fits(item, value) for item in tree.arguments)
    if isinstance(tree, _space.Domain):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and tree.arguments[0] <= value <= tree.arguments[1]
    if isinstance(tree, dict):
        return isinstance(value, dict) and tree.keys() == value.keys() and all(_fits(item, value[key]) for key, item in tree.items())
    if isinstance(tree, (list, tuple)):
        return type(tree) is type(value) and len(tree) == len(value) and all(map(_fits, tree, value))
    return tree is value or tree == value


@strict_class({"study_name": Refused(None, "the study is kept with the experiment, not in a storage of Optuna's"),
               "storage": Refused(None, "the study is kept with the experiment: Tuner.restore() goes on with it"),
               "evaluated_rewards": Refused(None, "give points_to_evaluate=, which are run")})
class OptunaSearch(Searcher):
    """Optuna's samplers as a search algorithm."""

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None, points_to_evaluate: Any = None, sampler: Any = None,
                 study_name: str | None = None, storage: Any = None, seed: int | None = None, evaluated_rewards: Any = None):
        try:
            import optuna  # noqa: F401
        except ImportError:
            raise ImportError("OptunaSearch needs optuna, which is not installed: pip install optuna") from None
        super().__init__(metric, mode)
        self.space, self.sampler, self.seed = space, sampler, seed
        self.points, self.study = points_to_evaluate or [], None  # type: Any, Any
        self.trials: dict[str, Any] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any] | None) -> Any:
        """Metric, mode and space, from the Tuner."""
        import optuna

        super().set_search_properties(metric, mode, config)
        if not self.metric or not self.mode:
            raise ValueError("OptunaSearch needs a metric and a mode")
        self.space = self.space or config or {}
        _configure(self.space, _first)  # what is wrong is said now
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(direction="minimize" if self.mode == "min" else "maximize",
                                         sampler=self.sampler or optuna.samplers.TPESampler(seed=self.seed))
        for point in self.points:
            self.study.enqueue_trial(point)
        return True

    def suggest(self, trial_id: str) -> Any:
        """The next config."""
        trial = self.study.ask()
        self.trials[trial_id] = trial
        return _configure(self.space, _suggest_of(trial))

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
        fixed: dict[str, Any] = {}
        _params_of(self.space, config, fixed)
        self.study.enqueue_trial(fixed)
        self.trials[trial_id] = trial = self.study.ask()
        _configure(self.space, _suggest_of(trial))


def _suggest_of(trial):
    from optuna import distributions as kinds

    def suggest(name, distribution):
        if isinstance(distribution, kinds.CategoricalDistribution):
            return trial.suggest_categorical(name, distribution.choices)
        kind = trial.suggest_int if isinstance(distribution, kinds.IntDistribution) else trial.suggest_float
        return kind(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
    return suggest


def _first(name, distribution):
    """Any value of the distribution."""
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low
