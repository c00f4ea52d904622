"""What trials say and what is made of it: yields and returned numbers, checkpoints with their metrics, failures, resuming, seeds, arguments."""

import contextlib
import io
import os
import tempfile
import unittest

import support
from unisono import train, tune
from unisono.tune import schedulers, search, stopper

ACCURACIES = [0.5, 0.9, 0.6, 0.3]


def save_each(config, report=tune.report):
    for accuracy in ACCURACIES:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "accuracy"), "w", encoding="utf-8") as file:
                file.write(str(accuracy))
            report({"acc": accuracy}, checkpoint=train.Checkpoint.from_directory(folder))


def saved(checkpoint):
    with open(os.path.join(checkpoint.path, "accuracy"), encoding="utf-8") as file:
        return float(file.read())


def fit(trainable, tune_config=None, **settings):
    space = settings.pop("space", None)
    return tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=tune.RunConfig(verbose=0, **settings)).fit()


class Values(unittest.TestCase):
    def test_yields_are_reports(self):
        def yields(config):
            for loss in (3, 2.5):
                yield {"loss": loss}
            yield 2
            return 0

        trial = tune.run(yields, verbose=0).trials[0]
        self.assertEqual(trial.last_result["training_iteration"], 4)
        self.assertEqual(trial.metric_analysis["loss"], {"max": 3, "min": 2.5, "avg": 2.75, "last": 2.5})
        self.assertEqual((trial.metric_analysis["_metric"]["max"], trial.metric_analysis["_metric"]["last"]), (2, 0))

    def test_a_returned_number_is_the_metric(self):
        grid = fit(lambda config: config["x"] * 2, space={"x": tune.grid_search([0, 3])})
        self.assertEqual([result.metrics["_metric"] for result in grid], [0, 6])

    def test_anything_else_is_an_error(self):
        async def later(config):
            return 1

        for function, words in ((lambda config: "done", "not str"), (later, "async")):
            grid = fit(function)
            self.assertIsInstance(grid[0].error, TypeError)
            self.assertIn(words, str(grid[0].error))
        with self.assertRaises(tune.TuneError) as caught:
            tune.run(train.Trainer(backend="none", num_workers=1).to_tune_trainable(_yields_in_a_trainer), verbose=0)
        self.assertIn("has returned a generator, so nothing of it has run", str(caught.exception))

    def test_sample_from_gives_tuples(self):
        space = {"a": tune.randint(1, 9), "t": tune.sample_from(lambda spec: (spec.config.a, ["x", (2, 3)]))}
        grid = fit(lambda config: {"ok": config["t"] == (config["a"], ["x", (2, 3)])}, space=space)
        self.assertTrue(grid[0].metrics["ok"])
        self.assertEqual(grid[0].config["t"], (grid[0].config["a"], ["x", (2, 3)]))
        with self.assertRaisesRegex(TypeError, "sample_from returned object"):
            fit(lambda config: 1, space={"t": tune.sample_from(lambda spec: object())})

    def test_qlograndint(self):
        grid = fit(lambda config: config["n"], tune.TuneConfig(num_samples=20), space={"n": tune.qlograndint(4, 64, 4)})
        found = [result.metrics["_metric"] for result in grid]
        self.assertTrue(all(4 <= value <= 64 and value % 4 == 0 for value in found) and len(set(found)) > 3, found)

    def test_seeds(self):
        import random

        def draws(**keywords):
            return tune.run(_nothing, config={"x": tune.uniform(0, 1)}, verbose=0, **keywords).trials[0].config["x"]

        self.assertEqual(draws(seed=0), draws(seed=0))
        self.assertNotEqual(draws(seed=0), draws(seed=1))
        try:
            import numpy
        except ImportError:
            random.seed(7)
            first = draws()
            random.seed(7)
            self.assertEqual(first, draws())
            return
        numpy.random.seed(7)
        first, second = draws(), draws()
        self.assertNotEqual(first, second)
        numpy.random.seed(7)
        self.assertEqual([first, second], [draws(), draws()])
        for kind in (numpy.random.RandomState, numpy.random.default_rng):
            asked = [draws(search_alg=search.BasicVariantGenerator(random_state=kind(5))) for _ in range(2)]
            self.assertEqual(asked[0], asked[1])


def _nothing(config):
    return 1


def _yields_in_a_trainer(config):
    yield 1


class Checkpoints(unittest.TestCase):
    def test_the_best_one_by_metric(self):
        for keep, attribute, left in ((None, None, ACCURACIES), (None, "acc", ACCURACIES), (1, None, [0.3]), (1, "acc", [0.9, 0.3]), (2, "acc", [0.9, 0.6, 0.3])):
            config = tune.CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute=attribute)
            result = fit(save_each, checkpoint_config=config)[0]
            order = sorted(left) if attribute else left  # best last; without a score the newest
            self.assertEqual([(saved(checkpoint), metrics["acc"]) for checkpoint, metrics in result.best_checkpoints], [(each, each) for each in order])
            self.assertEqual(saved(result.get_best_checkpoint("acc", "max")), max(left))
            self.assertEqual(saved(result.get_best_checkpoint("acc", "min")), min(left))
            self.assertEqual(saved(result.checkpoint), 0.3)  # the newest one is there, whatever the policy keeps

    def test_the_best_is_last(self):
        config = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="acc", checkpoint_score_order="min")
        result = fit(save_each, checkpoint_config=config)[0]
        self.assertEqual([metrics["acc"] for _, metrics in result.best_checkpoints], [0.5, 0.3])

    def test_nan_is_never_the_best(self):
        result = train.Result({}, None, best_checkpoints=[("a", {"loss": float("nan")}), ("b", {"loss": 2.0}), ("c", {"loss": 1.0})])
        self.assertEqual((result.get_best_checkpoint("loss", "min"), result.get_best_checkpoint("loss", "max")), ("c", "b"))
        with self.assertRaisesRegex(RuntimeError, "none is best"):
            train.Result({}, None, best_checkpoints=[("a", {"loss": float("nan")})]).get_best_checkpoint("loss", "min")

    def test_modules_are_attributes(self):
        import subprocess
        import sys

        code = "from unisono import tune; print(tune.schedulers.ASHAScheduler.__name__, tune.stopper.MaximumIterationStopper.__name__, tune.search.TPESearch.__name__)"
        self.assertIn("MaximumIterationStopper", subprocess.run([sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE).stdout)

    def test_of_an_analysis(self):
        analysis = tune.run(save_each, metric="acc", mode="max", verbose=0)
        self.assertEqual(saved(analysis.get_best_checkpoint(analysis.trials[0])), 0.9)
        self.assertEqual(saved(analysis.get_best_checkpoint(analysis.trials[0], "acc", "min")), 0.3)
        self.assertEqual(saved(analysis.best_checkpoint), 0.9)
        with self.assertRaisesRegex(RuntimeError, "there are: acc"):
            analysis.get_best_checkpoint(analysis.trials[0], "loss", "min")

    def test_of_several_workers(self):
        trainer = train.DataParallelTrainer(save_each_rank, scaling_config=train.ScalingConfig(num_workers=2))
        result = tune.Tuner(trainer, run_config=tune.RunConfig(verbose=0)).fit()[0]
        self.assertEqual(saved(result.get_best_checkpoint("acc", "max")), 0.9)

    def test_a_class_saves_as_asked(self):
        class Counter(tune.Trainable):
            def setup(self, config):
                self.value = 0

            def step(self):
                self.value += 1
                return {"acc": self.value}

            def save_checkpoint(self, checkpoint_dir):
                with open(os.path.join(checkpoint_dir, "accuracy"), "w", encoding="utf-8") as file:
                    file.write(str(self.value))

            def load_checkpoint(self, checkpoint):
                self.value = int(saved(train.Checkpoint(checkpoint)))

        config = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
        result = fit(Counter, stop={"training_iteration": 5}, checkpoint_config=config)[0]
        self.assertEqual([(saved(checkpoint), metrics["acc"]) for checkpoint, metrics in result.best_checkpoints], [(2, 2), (4, 4), (5, 5)])
        pbt = schedulers.PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"x": [0, 1]})
        grid = fit(Counter, tune.TuneConfig(metric="acc", mode="max", num_samples=3, scheduler=pbt, max_concurrent_trials=1), space={"x": 0},
                   stop={"training_iteration": 6})
        self.assertEqual([result.metrics["acc"] for result in grid], [6, 6, 6])  # paused ones go on where they were
        for bad in ({"checkpoint_frequency": 2}, {"checkpoint_at_end": True}):
            with self.assertRaisesRegex(ValueError, "not a class"):
                fit(save_each, checkpoint_config=tune.CheckpointConfig(**bad))


def save_each_rank(config):
    save_each(config, train.report)


class Failures(unittest.TestCase):
    def test_one_line_each(self):
        def sometimes(config):
            if config["x"]:
                raise ValueError("number %d is bad\nand more" % config["x"])
            return 1

        for verbose, count in ((None, 2), (1, 2), (0, 0)):
            out = io.StringIO()
            with contextlib.redirect_stderr(out):
                tune.Tuner(sometimes, param_space={"x": tune.grid_search([0, 1, 2])}, run_config=tune.RunConfig(verbose=verbose)).fit()
            lines = sorted(line for line in out.getvalue().splitlines() if "failed:" in line)
            self.assertEqual(len(lines), count, lines)
            self.assertTrue(not lines or ("trial 00001 failed" in lines[0] and "number 1 is bad" in lines[0]), lines)

    def test_when_all_fail(self):
        results = tune.Tuner(lambda config: 1 / 0, param_space={"x": tune.grid_search([0, 1])}, tune_config=tune.TuneConfig(metric="loss", mode="min")).fit()
        with self.assertRaisesRegex(Exception, "2 of 2 failed, the first with: ZeroDivisionError"):
            results.get_best_result()

    def test_a_space_that_nothing_reads(self):
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            tune.Tuner(lambda: {"loss": 1}, param_space={"x": 1, "y": 2}).fit()
        self.assertIn("takes no argument: its config (x, y) has no effect", out.getvalue())

    def test_raise(self):
        def fails(config):
            raise KeyError("this one")

        with self.assertRaisesRegex(KeyError, "this one"):
            fit(fails, failure_config=tune.FailureConfig(fail_fast="raise"))

    def test_resume_modes(self):
        flag = os.path.join(os.environ["TMPDIR"], "resume-flag")

        def stubborn(config):
            state = train.load_checkpoint() or {"epoch": 0}
            for epoch in range(state["epoch"], 3):
                train.save_checkpoint(epoch=epoch + 1)
                tune.report(epoch=epoch, began=state["epoch"])
                if epoch == 1 and not os.path.exists(config["flag"]):
                    raise ValueError("not yet")

        def run(name, resume):
            return tune.run(stubborn, config={"flag": flag}, name=name, resume=resume, raise_on_failed_trial=False, verbose=0)

        for resume, status, began in (("AUTO", "ERROR", 0), (True, "ERROR", 0), ("AUTO+ERRORED", "TERMINATED", 2), ("ERRORED_ONLY", "TERMINATED", 2),
                                      ("LOCAL+RESTART_ERRORED", "TERMINATED", 0)):
            name = "modes-" + str(resume)
            if os.path.exists(flag):
                os.unlink(flag)
            self.assertEqual(run(name, "AUTO").trials[0].status, "ERROR")  # there is none yet: it begins
            with open(flag, "w", encoding="utf-8"):
                pass
            trial = run(name, resume).trials[0]
            self.assertEqual((trial.status, trial.last_result["began"]), (status, began), resume)
        for bad in ("NONSENSE", "AUTO+NONSENSE", "PROMPT", 3):
            with self.assertRaisesRegex(ValueError, "is not supported"):
                run("modes", bad)

    def test_results_of_a_restored_tuner(self):
        def fails(config):
            if config["x"] == 2:
                raise KeyError("two")
            return {"loss": config["x"], "kind": str(config["t"])}

        grid = fit(fails, tune.TuneConfig(metric="loss", mode="min"), space={"x": tune.grid_search([1, 2]), "t": (1, "a")})
        again = tune.Tuner.restore(grid.experiment_path).get_results()
        self.assertEqual((len(again), again.num_errors, again.get_best_result().config), (2, 1, {"x": 1, "t": (1, "a")}))
        self.assertIsInstance(again.errors[0], KeyError)
        with self.assertRaisesRegex(ValueError, "not both"):
            tune.Tuner.restore(grid.experiment_path, resume_errored=True, restart_errored=True)


class Modes(unittest.TestCase):
    def test_another_metric_needs_its_own(self):
        """The experiment's mode is for its own metric: by accuracy, min would give the worst as the best."""
        def both(config):
            return {"loss": config["x"], "acc": config["x"]}

        grid = fit(both, tune.TuneConfig(metric="loss", mode="min"), space={"x": tune.grid_search([1, 3, 2])})
        analysis = tune.run(both, config={"x": tune.grid_search([1, 3, 2])}, metric="loss", mode="min", verbose=0)
        for call in (grid.get_best_result, analysis.get_best_trial, analysis.get_best_config, analysis.get_best_logdir, analysis.dataframe, grid.get_dataframe):
            with self.assertRaisesRegex(ValueError, 'which value of "acc" is better'):
                call("acc")
            with self.assertRaisesRegex(ValueError, "not 'best'"):
                call("acc", "best")
        self.assertEqual(grid.get_best_result("acc", "max").config, {"x": 3})
        self.assertEqual(analysis.get_best_config("acc", "max"), {"x": 3})
        self.assertEqual(analysis.get_best_config(), {"x": 1})
        free = fit(both, space={"x": tune.grid_search([1, 3, 2])})
        for call in (free.get_best_result, free.get_dataframe):
            with self.assertRaisesRegex(ValueError, "no mode"):
                call("acc")


class Arguments(unittest.TestCase):
    def test_none_is_swallowed(self):
        for call, words in (
                (lambda: tune.run(_nothing, chekpoint_freq=1), "did you mean 'checkpoint_freq'"),
                (lambda: tune.run(_nothing, server_port=1), "there is no server"),
                (lambda: tune.run(_nothing, chdir_to_trial_dir=True), "get_trial_dir"),
                (lambda: tune.run(_nothing, log_to_file="out.txt"), "rank_0.log"),
                (lambda: tune.TuneConfig(trial_name_creator=str), "trial_00000"),
                (lambda: tune.TuneConfig(num_sample=3), "did you mean 'num_samples'"),
                (lambda: tune.Tuner(_nothing, params={}), "param_space"),
                (lambda: tune.Tuner.restore(".", storage_filesystem=1), "path of this machine"),
                (lambda: tune.uniform(0, 1, low=1), "unexpected keyword"),
                (lambda: schedulers.ASHAScheduler(stop_last_trials=False), "max_t"),
                (lambda: schedulers.MedianStoppingRule(hard_stop=False), "ended, not paused"),
                (lambda: schedulers.MedianStoppingRule(min_time_slice=5), "ended, not paused"),
                (lambda: schedulers.PopulationBasedTraining(synch=True), "as they come"),
                (lambda: schedulers.PopulationBasedTraining(), "hyperparam_mutations"),
                (lambda: schedulers.ASHAScheduler(max_t=None), "max_t must be a number"),
                (lambda: schedulers.ASHAScheduler(time_attr=0), "time_attr must be a text"),
                (lambda: schedulers.HyperBandScheduler(metric=[]), "metric must be a text or None"),
                (lambda: schedulers.MedianStoppingRule(min_samples_required=1.5), "min_samples_required must be a whole number"),
                (lambda: tune.TuneConfig(metric=""), "metric must be a name"),
                (lambda: schedulers.PopulationBasedTraining(perturbation_factors=(2, 0.5)), "1.2 or 0.8"),
                (lambda: schedulers.FIFOScheduler(max_t=3), "unexpected keyword"),
                (lambda: search.ConcurrencyLimiter(search.TPESearch(), 2, batch=True), "as soon as"),
                (lambda: search.TPESearch(seeds=1), "did you mean 'seed'"),
                (lambda: search.BasicVariantGenerator(points_to_evaluate=[{"x": 1}]), "grid_search"),
                (lambda: search.Searcher(metric="a", mode="min", other=1), "other"),
                (lambda: stopper.TrialPlateauStopper("loss", metric_threshold=0.5), "whatever the value")):
            with self.assertRaises(TypeError, msg=words) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_values_that_mean_nothing(self):
        for call in (lambda: tune.TuneConfig(time_budget_s=0), lambda: tune.TuneConfig(num_samples=0), lambda: tune.TuneConfig(max_concurrent_trials=-1),
                     lambda: tune.run(_nothing, resources_per_trial={"cpu": 0}), lambda: tune.run(_nothing, seed=-1), lambda: stopper.TimeoutStopper(0),
                     lambda: search.Searcher(mode="best"), lambda: tune.run(_nothing, storage_path="a", local_dir="b"),
                     lambda: tune.run(_nothing, checkpoint_config=tune.CheckpointConfig(), keep_checkpoints_num=1)):
            with self.assertRaises(ValueError):
                call()

    def test_one_metric(self):
        """A scheduler's own metric is not dropped beside the experiment's: that is an error, as in Ray."""
        for own in (schedulers.ASHAScheduler(metric="other", mode="min"), schedulers.ASHAScheduler(metric="loss", mode="max")):
            with self.assertRaisesRegex(ValueError, "give it once"):
                tune.Tuner(_nothing, tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=own)).fit()

    def test_stoppers_are_combined(self):
        both = stopper.CombinedStopper(stopper.MaximumIterationStopper(7), stopper.MaximumIterationStopper(2))

        def forever(config):
            while True:
                tune.report(loss=1)

        self.assertEqual(fit(forever, stop=both)[0].metrics["training_iteration"], 2)
        grid = fit(forever, stop=stopper.TimeoutStopper(0.5))  # ends at all
        self.assertEqual(grid.num_terminated, 1)
        with self.assertRaisesRegex(NotImplementedError, "two stoppers"):
            fit(forever, stop=[{"loss": 1}, {"loss": 2}])


if __name__ == "__main__":
    support.main()
