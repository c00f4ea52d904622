"""Tuning in Python: what each argument of Ray's changes. Every argument that is accepted is passed here, and its effect asserted."""

import datetime
import importlib.util
import os
import tempfile
import time
import unittest

import support
from unisono import train, tune
from unisono.tune import schedulers, search, stopper
from unisono.tune._checkpoints import checkpoints_of

LOSSES = {1: [5, 1, 4], 2: [3, 2, 3]}  # by x: the first has the best value of all, the second the best last one and the best mean


def losses(config):
    for epoch, loss in enumerate(LOSSES[config["x"]]):
        with tune.checkpoint_dir(epoch) as folder, open(os.path.join(folder, "epoch"), "w", encoding="utf-8") as file:
            file.write(str(epoch))
        tune.report(loss=loss)


def lines(config):
    """x of each of ten reports: trials that fall behind have a greater loss in all of them."""
    for epoch in range(10):
        tune.report(loss=config["x"], step=epoch * 2 + 2)


def forever(config):
    while True:
        tune.report(loss=1)
        time.sleep(0.01)


def fit(trainable, tune_config=None, **settings):
    space = settings.pop("space", None)
    return tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=tune.RunConfig(verbose=0, **settings)).fit()


def run(trainable, **settings):
    return tune.run(trainable, verbose=0, **settings)


def resumes(config):
    """Twelve reports of x, also when a scheduler pauses it."""
    state = train.load_checkpoint() or {"epoch": 0}
    for epoch in range(state["epoch"], 12):
        train.save_checkpoint(epoch=epoch + 1)
        tune.report(loss=config["x"], step=epoch * 2 + 2)


def wait_for(path):
    end = time.monotonic() + 30
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError("the other trial did not report")
        time.sleep(0.01)


def population(config):
    """The trial with x = 1 begins when the other one has a score, and ends before that one goes on."""
    first, last = (os.path.join(config["folder"], name) for name in ("first", "last"))
    state = train.load_checkpoint() or {"epoch": 0}
    behind = config["x"] != 4
    for epoch in range(state["epoch"], 6):
        if behind:
            wait_for(first)
        train.save_checkpoint(epoch=epoch + 1)
        tune.report(loss=config["x"] * config["sign"], x=config["x"])
        if behind and epoch == 5:
            open(last, "w", encoding="utf-8").close()
        elif not behind and epoch >= 2:
            open(first, "w", encoding="utf-8").close()
            wait_for(last)


class Counter(tune.Trainable):
    """Counts its steps and saves the count."""

    def setup(self, config):
        self.value = 0

    def step(self):
        self.value += 1
        return {"value": self.value}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "epoch"), "w", encoding="utf-8") as file:
            file.write(str(self.value))

    def load_checkpoint(self, checkpoint):
        self.value = epoch_of(checkpoint)


def epoch_of(path):
    with open(os.path.join(path, "epoch"), encoding="utf-8") as file:
        return int(file.read())


class Spaces(unittest.TestCase):
    def draw(self, domain, count=40):
        grid = fit(lambda config: {"v": config["v"]}, tune.TuneConfig(num_samples=count, seed=3, max_concurrent_trials=2), space={"v": domain})
        return [result.metrics["v"] for result in grid]

    def multiples(self, values, q, lower, upper):
        for value in values:
            self.assertAlmostEqual(value / q, round(value / q), 6)
            self.assertTrue(lower <= value <= upper, value)
        self.assertGreater(len(set(values)), 3)

    def test_rounded(self):
        self.multiples(self.draw(tune.quniform(lower=-1, upper=2, q=0.25)), 0.25, -1, 2)
        self.multiples(self.draw(tune.qloguniform(lower=0.5, upper=64, q=0.5)), 0.5, 0.5, 64)
        self.multiples(self.draw(tune.qrandint(lower=10, upper=40, q=5)), 5, 10, 40)
        self.multiples(self.draw(tune.qrandn(mean=100, sd=10, q=2)), 2, 40, 160)

    def test_logarithmic(self):
        values = self.draw(tune.lograndint(lower=1, upper=10000))
        self.assertTrue(all(isinstance(value, int) and 1 <= value < 10000 for value in values), values)
        self.assertGreater(sum(value < 100 for value in values), 10)  # half of them, where a uniform draw has one in a hundred


class Analysis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.analysis = run(losses, config={"x": tune.grid_search([1, 2]), "deep": {"y": 7}}, metric="loss", mode="min")

    def test_scopes(self):
        for scope, best in (("last", 2), ("all", 1), ("avg", 2)):
            self.assertEqual(self.analysis.get_best_config(metric="loss", mode="min", scope=scope)["x"], best)
            self.assertEqual(self.analysis.get_best_trial(metric="loss", mode="min", scope=scope).config["x"], best)
        self.assertEqual(self.analysis.get_best_trial(metric="loss", mode="max", scope="all").config["x"], 1)
        self.assertEqual(self.analysis.get_best_trial(metric="training_iteration", mode="max").config["x"], 1)

    def test_configs(self):
        plain, flat = self.analysis.get_all_configs(), self.analysis.get_all_configs(prefix=True)
        self.assertEqual(sorted(plain), sorted(trial.logdir for trial in self.analysis.trials))
        self.assertEqual([each["deep"] for each in plain.values()], [{"y": 7}] * 2)
        self.assertEqual([each["config/deep/y"] for each in flat.values()], [7, 7])
        self.assertEqual(sorted(flat[self.analysis.trials[0].logdir]), ["config/deep/y", "config/x"])

    def test_last_checkpoint(self):
        first, second = self.analysis.trials
        self.assertEqual(self.analysis.get_last_checkpoint(trial=second), second.checkpoint.value)
        self.assertEqual(self.analysis.get_last_checkpoint(), first.checkpoint.value)  # both trained as long: the first one
        self.assertEqual(self.analysis.get_last_checkpoint(metric="loss", mode="min"), second.checkpoint.value)
        self.assertEqual(self.analysis.get_last_checkpoint(metric="loss", mode="max"), first.checkpoint.value)
        self.assertEqual(epoch_of(first.checkpoint.value), 2)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "needs pandas")
    def test_tables(self):
        self.assertEqual(list(self.analysis.dataframe()["loss"]), [4, 3])
        self.assertEqual(list(self.analysis.dataframe(metric="loss", mode="min")["loss"]), [1, 2])
        self.assertEqual(list(self.analysis.dataframe(metric="loss", mode="max")["loss"]), [5, 3])
        grid = fit(losses, space={"x": tune.grid_search([1, 2])})
        self.assertEqual(list(grid.get_dataframe()["loss"]), [4, 3])
        self.assertEqual(list(grid.get_dataframe(filter_metric="loss", filter_mode="min")["loss"]), [1, 2])
        self.assertEqual(list(grid.get_dataframe(filter_metric="loss", filter_mode="max")["loss"]), [5, 3])


class Running(unittest.TestCase):
    def test_budgets_end_the_search(self):
        grid = fit(forever, tune.TuneConfig(time_budget_s=0.5))
        self.assertEqual(grid.num_terminated, 1)
        self.assertEqual(run(forever, time_budget_s=datetime.timedelta(seconds=0.5)).trials[0].status, "TERMINATED")

    def test_processes_of_trials(self):
        def pids(**given):
            return {trial.last_result["pid"] for trial in run(lambda config: {"pid": os.getpid()}, num_samples=3, max_concurrent_trials=1, **given).trials}

        self.assertEqual(len(pids(reuse_actors=True)), 1)
        self.assertEqual(len(pids(reuse_actors=False)), 3)
        grid = fit(lambda config: {"pid": os.getpid()}, tune.TuneConfig(num_samples=3, max_concurrent_trials=1, reuse_actors=False))
        self.assertEqual(len({result.metrics["pid"] for result in grid}), 3)

    def test_resources_limit_trials(self):
        def span(config):
            begun = time.time()
            time.sleep(0.2)
            return {"begun": begun, "ended": time.time()}

        cores = os.cpu_count()
        found = sorted((trial.last_result["begun"], trial.last_result["ended"]) for trial in run(span, num_samples=3, resources_per_trial={"cpu": cores}).trials)
        for (_, ended), (begun, _) in zip(found, found[1:]):
            self.assertLessEqual(ended, begun)  # each needs all: one after the other

    def test_places(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertTrue(run(losses, config={"x": 1}, storage_path=folder).experiment_path.startswith(folder))
        with tempfile.TemporaryDirectory() as folder:
            self.assertTrue(run(losses, config={"x": 1}, local_dir=folder).experiment_path.startswith(folder))

    def saved(self, analysis):
        return [epoch_of(checkpoint.path) for checkpoint, _ in checkpoints_of(analysis.trials[0].logdir)]

    def test_checkpoints(self):
        stop = {"training_iteration": 5}
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_freq=2)), [2, 4])
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_freq=2, checkpoint_at_end=True)), [2, 4, 5])
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_freq=1, keep_checkpoints_num=2)), [4, 5])
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_freq=1, keep_checkpoints_num=1, checkpoint_score_attr="min-value")), [1, 5])
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_freq=1, keep_checkpoints_num=1, checkpoint_score_attr="value")), [5])
        asked = tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=1)
        self.assertEqual(self.saved(run(Counter, stop=stop, checkpoint_config=asked)), [4, 5])

    def test_sync_config(self):
        self.assertEqual(run(losses, config={"x": 1}, sync_config=train.SyncConfig()).trials[0].status, "TERMINATED")
        with self.assertRaisesRegex(TypeError, "must be a SyncConfig"):
            run(losses, config={"x": 1}, sync_config=3)

    def test_failures(self):
        with tempfile.TemporaryDirectory() as folder:
            def second_time(config):
                path = os.path.join(folder, "tried")
                with open(path, "a", encoding="utf-8") as file:
                    file.write("x")
                if os.path.getsize(path) < 2:
                    raise ValueError("not yet")
                return 1

            self.assertEqual(run(second_time, max_failures=1).trials[0].status, "TERMINATED")

        def fails(config):
            if config["x"] == 0:
                raise KeyError("the first one")
            return 1

        space = {"x": tune.grid_search([0, 1, 2, 3])}
        slow = run(fails, config=space, max_concurrent_trials=1, raise_on_failed_trial=False)
        self.assertEqual([trial.status for trial in slow.trials], ["ERROR"] + ["TERMINATED"] * 3)
        fast = run(fails, config=space, max_concurrent_trials=1, raise_on_failed_trial=False, fail_fast=True)
        self.assertNotIn("TERMINATED", [trial.status for trial in fast.trials])

    def test_report(self):
        def reports(config):
            tune.report(metrics={"loss": 3})
            tune.report({"loss": 2}, more=5)

        trial = run(reports).trials[0]
        self.assertEqual(trial.metric_analysis["loss"], {"max": 3, "min": 2, "avg": 2.5, "last": 2})
        self.assertEqual(trial.last_result["more"], 5)

    def test_parameters(self):
        def needs(config, rows):
            return len(rows)

        self.assertEqual(run(tune.with_parameters(needs, rows=[1, 2])).trials[0].last_result["_metric"], 2)
        with self.assertRaisesRegex(TypeError, "'row'; did you mean 'rows'"):
            tune.with_parameters(needs, row=[1])

    def test_trainable(self):
        self.assertEqual(tune.Trainable(config={"x": 1}).config, {"x": 1})
        self.assertEqual(tune.Trainable().config, {})


class Restore(unittest.TestCase):
    def test_errored(self):
        with tempfile.TemporaryDirectory() as folder:
            flag = os.path.join(folder, "flag")

            def stubborn(config):
                state = train.load_checkpoint() or {"epoch": 0}
                for epoch in range(state["epoch"], 3):
                    train.save_checkpoint(epoch=epoch + 1)
                    tune.report(began=state["epoch"], x=config["x"])
                    if epoch == 1 and not os.path.exists(flag):
                        raise ValueError("not yet")

            grid = fit(stubborn, space={"x": 1})
            self.assertEqual(grid.num_errors, 1)
            again = tune.Tuner.restore(grid.experiment_path, trainable=stubborn, resume_unfinished=True).fit()
            self.assertEqual(again.num_errors, 1)  # an errored trial stays as it is
            with open(flag, "w", encoding="utf-8"):
                pass
            again = tune.Tuner.restore(grid.experiment_path, trainable=stubborn, restart_errored=True, param_space={"x": 1}).fit()
            self.assertEqual((again.num_errors, again[0].metrics["began"]), (0, 0))

            def other(config):
                raise KeyError("another function")

            grid = fit(other, space={"x": 1})
            again = tune.Tuner.restore(grid.experiment_path, trainable=stubborn, restart_errored=True).fit()
            self.assertEqual((again.num_errors, again[0].metrics["x"]), (0, 1))


class Schedulers(unittest.TestCase):
    def lengths(self, scheduler, function=lines, **settings):
        """Reports of the trials with x = 1, 2, 3, 4, one after the other."""
        grid = fit(function, tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=1, **settings), space={"x": tune.grid_search([1, 2, 3, 4])})
        return [result.metrics["training_iteration"] for result in grid]

    def test_asha(self):
        self.assertEqual(self.lengths(schedulers.ASHAScheduler(time_attr="training_iteration", metric="loss", mode="min", max_t=10, grace_period=2, reduction_factor=2)), [10, 2, 2, 2])
        self.assertEqual(self.lengths(schedulers.ASHAScheduler(time_attr="step", metric="loss", mode="min", max_t=100, grace_period=4, reduction_factor=2)), [10, 2, 2, 2])
        self.assertEqual(self.lengths(schedulers.ASHAScheduler(metric="loss", mode="max", max_t=10, grace_period=2, reduction_factor=2))[3], 10)
        self.assertEqual(self.lengths(schedulers.ASHAScheduler(metric="loss", mode="min", max_t=3)), [3, 1, 1, 1])

    def test_median(self):
        self.assertEqual(self.lengths(schedulers.MedianStoppingRule(time_attr="training_iteration", metric="loss", mode="min", grace_period=3, min_samples_required=1))[0], 10)
        short = self.lengths(schedulers.MedianStoppingRule(time_attr="training_iteration", metric="loss", mode="min", grace_period=3, min_samples_required=2))
        self.assertEqual(short, [10, 10, 3, 3])  # two to compare with, and three reports of grace
        self.assertEqual(self.lengths(schedulers.MedianStoppingRule(time_attr="training_iteration", metric="loss", mode="max", grace_period=3, min_samples_required=2)), [10] * 4)
        self.assertEqual(self.lengths(schedulers.MedianStoppingRule(time_attr="training_iteration", metric="loss", mode="min", grace_period=100)), [10] * 4)

    def test_asha_brackets(self):
        def lengths(brackets):
            scheduler = schedulers.ASHAScheduler(metric="loss", mode="min", max_t=10, grace_period=1, reduction_factor=2, brackets=brackets)
            grid = fit(lines, tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=1, seed=1), space={"x": tune.grid_search(list(range(12)))})
            return {result.metrics["training_iteration"] for result in grid}

        self.assertEqual(lengths(1), {10, 1})
        self.assertEqual(lengths(3), {10, 1, 2, 4})  # the graces of the brackets: 1, 2 and 4

    def test_hyperband(self):
        def lengths(scheduler):
            grid = fit(resumes, tune.TuneConfig(scheduler=scheduler), space={"x": tune.grid_search(list(range(9)))})
            return [result.metrics["training_iteration"] for result in grid]

        self.assertEqual(lengths(schedulers.HyperBandScheduler(metric="loss", mode="min", max_t=9, reduction_factor=3)), [9, 3, 3, 1, 1, 1, 1, 1, 1])
        self.assertEqual(lengths(schedulers.HyperBandScheduler(metric="loss", mode="max", max_t=9, reduction_factor=3)), [1, 1, 1, 1, 1, 1, 3, 3, 9])
        self.assertEqual(max(lengths(schedulers.HyperBandScheduler(metric="loss", mode="min", max_t=3, reduction_factor=3))), 3)
        self.assertIn(4, lengths(schedulers.HyperBandScheduler(metric="loss", mode="min", max_t=9, reduction_factor=2)))
        by_step = schedulers.HyperBandScheduler(time_attr="step", metric="loss", mode="min", max_t=9, reduction_factor=3)
        self.assertLess(max(lengths(by_step)), 9)  # a report counts two steps

    def population(self, scheduler, sign=1):
        """The last x of the trial that began with 1, the worst for mode="max"."""
        with tempfile.TemporaryDirectory() as folder:
            space = {"x": tune.grid_search([1.0, 4.0]), "folder": folder, "sign": sign}
            grid = fit(tune.with_resources(population, {"cpu": 0.1}), tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=2, seed=1), space=space)
            self.assertEqual(grid.num_errors, 0, grid.errors)
            return grid[0].metrics["x"]

    def test_population(self):
        common = {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_mutations": {"x": tune.uniform(100, 101)}}
        changed = schedulers.PopulationBasedTraining(metric="loss", mode="max", quantile_fraction=0.25, resample_probability=0, **common)
        self.assertIn(round(self.population(changed), 3), (3.2, 4.8))  # 4, the better one's, times 0.8 or 1.2
        drawn = schedulers.PopulationBasedTraining(metric="loss", mode="max", quantile_fraction=0.25, resample_probability=1, **common)
        self.assertTrue(100 <= self.population(drawn) <= 101)
        nothing = schedulers.PopulationBasedTraining(metric="loss", mode="max", quantile_fraction=0, resample_probability=1, **common)
        self.assertEqual(self.population(nothing), 1)
        least = schedulers.PopulationBasedTraining(metric="loss", mode="min", quantile_fraction=0.25, resample_probability=0, **common)
        self.assertEqual(self.population(least), 1)  # the best one now
        self.assertIn(round(self.population(least, -1), 3), (3.2, 4.8))

    def test_create(self):
        self.assertEqual(schedulers.create_scheduler(scheduler="asha", max_t=7).options["max_t"], 7)
        self.assertIsInstance(schedulers.create_scheduler("pbt", hyperparam_mutations={"x": [1, 2]}), schedulers.PopulationBasedTraining)
        with self.assertRaisesRegex(TypeError, "did you mean 'max_t'"):
            schedulers.create_scheduler("asha", mx_t=3)
        with self.assertRaisesRegex(TypeError, "unexpected"):
            schedulers.TrialScheduler(anything=1)


class Searchers(unittest.TestCase):
    def test_max_concurrent(self):
        def span(config):
            begun = time.time()
            time.sleep(0.1)
            return {"begun": begun, "ended": time.time()}

        grid = fit(span, tune.TuneConfig(num_samples=3, search_alg=search.BasicVariantGenerator(max_concurrent=1)))
        found = sorted((result.metrics["begun"], result.metrics["ended"]) for result in grid)
        for (_, ended), (begun, _) in zip(found, found[1:]):
            self.assertLessEqual(ended, begun)

    def test_metric_and_mode(self):
        class Own(search.Searcher):
            def __init__(self):
                super().__init__(metric="loss", mode="max")
                self.seen = []

            def suggest(self, trial_id):
                return {"x": len(self.seen) + 1} if len(self.seen) < 2 else self.FINISHED

            def on_trial_complete(self, trial_id, result=None, error=False):
                self.seen.append(result)

        bare = search.Searcher(metric="loss", mode="max")
        self.assertEqual((bare.metric, bare.mode), ("loss", "max"))
        own = Own()
        grid = fit(lambda config: {"loss": config["x"], "other": 0}, tune.TuneConfig(search_alg=own, num_samples=2, max_concurrent_trials=1))
        self.assertEqual(own.seen, [{"loss": 1}, {"loss": 2}])
        self.assertEqual(grid.get_best_result().config["x"], 2)
        plain = search.BasicVariantGenerator()
        plain.set_search_properties(metric="loss", mode="min", config={})
        self.assertEqual((plain.metric, plain.mode), ("loss", "min"))
        self.assertEqual((own.set_search_properties("other", "min", {}), own.metric, own.mode), (True, "loss", "max"))  # its own stay


class Plateaus(unittest.TestCase):
    def reports(self, **given):
        def flattens(config):
            for epoch in range(20):
                tune.report(loss=max(10 - epoch, 5), noise=epoch % 2)

        return fit(flattens, stop=stopper.TrialPlateauStopper(**given))[0].metrics["training_iteration"]

    def test_each_argument(self):
        self.assertEqual(self.reports(metric="loss"), 9)  # 5 since the sixth report: four of them
        self.assertEqual(self.reports(metric="loss", num_results=6), 11)
        self.assertEqual(self.reports(metric="loss", grace_period=15), 15)
        self.assertEqual(self.reports(metric="loss", std=100), 4)
        self.assertEqual(self.reports(metric="noise"), 20)


if __name__ == "__main__":
    support.main()
