"""Who proposes configs: the names of ray.tune.search, and Searcher for your own."""


class Searcher:
    """Ask and tell: override suggest(trial_id) and on_trial_complete(trial_id, result, error). trial_id is "00007"."""

    FINISHED = "FINISHED"

    def __init__(self, metric=None, mode=None, **ignored):
        self.metric, self.mode = metric, mode

    def set_search_properties(self, metric, mode, config, **spec):
        """Called once with what the tuner has; False: this searcher has its own already."""
        self.metric, self.mode = self.metric or metric, self.mode or mode
        return True

    def suggest(self, trial_id):
        raise NotImplementedError("a Searcher needs suggest(trial_id), which returns a config, None (not now) or Searcher.FINISHED")

    def on_trial_result(self, trial_id, result):
        """Not called: searchers here learn from trials that ended."""

    def on_trial_complete(self, trial_id, result=None, error=False):
        """The trial ended; result has the metric, or is None."""

    def on_trial_restore(self, trial_id, config):
        """A resumed experiment: an earlier searcher suggested this. on_trial_complete follows when it had ended."""


class BasicVariantGenerator(Searcher):
    """Grid and random search, the default."""

    def __init__(self, points_to_evaluate=None, max_concurrent=0, constant_grid_search=False, random_state=None):
        super().__init__()
        if points_to_evaluate or constant_grid_search:
            raise NotImplementedError("BasicVariantGenerator(points_to_evaluate=, constant_grid_search=) is not offered")
        self.max_concurrent, self.random_state = max_concurrent, random_state

    def _spec(self):
        return {"type": "random"}


class TPESearch(Searcher):
    """The library's own tree-structured Parzen estimator."""

    def __init__(self, space=None, metric=None, mode=None, n_startup=10, n_candidates=24, seed=None):
        super().__init__(metric, mode)
        if space is not None:
            raise NotImplementedError("TPESearch(space=) is not offered: give the space to the tuner (param_space=, or config= of tune.run)")
        self.random_state = seed
        self.options = {"type": "tpe", "n_startup": n_startup, "n_candidates": n_candidates}

    def _spec(self):
        return dict(self.options)


class ConcurrencyLimiter(Searcher):
    """No more than max_concurrent trials at a time."""

    def __init__(self, searcher, max_concurrent, batch=False):
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent = searcher, max_concurrent


class Asked:
    """A Searcher as the library wants one."""

    def __init__(self, searcher, metric, objects):
        self.searcher, self.metric, self.table = searcher, metric, objects

    def _id(self, trial):
        return "%05d" % trial

    def ask(self, trial):
        config = self.searcher.suggest(self._id(trial))
        if config == Searcher.FINISHED:
            return False
        return None if config is None else self.table.encode(config)

    def tell(self, trial, config, value):
        failed = value != value
        self.searcher.on_trial_complete(self._id(trial), None if failed else {self.metric: value}, failed)

    def restore(self, trial, config):
        from unisono.tune._space import decode

        self.searcher.on_trial_restore(self._id(trial), decode(config, self.table.objects))


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.tune.search", name)
