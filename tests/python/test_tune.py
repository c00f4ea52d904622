"""Tune on real workers: the seeds' examples, Tuner and ResultGrid, schedulers, restore, errors."""

import os
import subprocess
import sys
import textwrap
import time
import unittest

import support
from unisono import train, tune
from unisono.train import Trainer
from unisono.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from unisono.tune.search import Searcher, TPESearch


def square(config):
    for epoch in range(config.get("epochs", 3)):
        tune.report(loss=config["x"] ** 2 + 1 / (epoch + 1))


def resumable(config):
    state = train.load_checkpoint() or {"epoch": 0}
    for epoch in range(state["epoch"], 9):
        train.save_checkpoint(epoch=epoch + 1)
        tune.report(loss=config["x"] + 1 / (epoch + 1))


class Seeds(unittest.TestCase):
    def test_to_tune_trainable(self):
        def train_func(config):
            results = []
            for i in range(config["num_epochs"]):
                train.report(epoch=i, accuracy=config["input"] * (i + 1))
                results.append(i)
            return results  # ignored

        trainer = Trainer(backend="none", num_workers=2)
        trainable = trainer.to_tune_trainable(train_func)
        analysis = tune.run(trainable, config={"num_epochs": 2, "input": tune.grid_search([1, 2, 3])}, verbose=0)
        self.assertEqual(str(analysis.get_best_config(metric="accuracy", mode="max")), "{'num_epochs': 2, 'input': 3}")
        self.assertEqual([trial.last_result["training_iteration"] for trial in analysis.trials], [2, 2, 2])

    def test_tune_report_in_a_trainer_s_function_names_what_to_call(self):
        trainable = Trainer(backend="none", num_workers=1).to_tune_trainable(lambda config: tune.report(x=1))
        with self.assertRaises(tune.TuneError) as caught:
            tune.run(trainable, verbose=0)
        self.assertIn("train.report", str(caught.exception))
        self.assertIn("save_checkpoint", str(caught.exception))

    def test_a_started_trainer_is_refused(self):
        trainer = Trainer(backend="none", num_workers=1)
        trainer.start()
        with self.assertRaises(RuntimeError):
            trainer.to_tune_trainable(square)
        trainer.shutdown()


class Tuners(unittest.TestCase):
    def test_fit_and_results(self):
        grid = tune.Tuner(square, param_space={"x": tune.grid_search([3, 1, 2]), "shape": (1, 2)},
                          tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2)).fit()
        best = grid.get_best_result()
        self.assertEqual((len(grid), grid.num_errors, grid.num_terminated), (3, 0, 3))
        self.assertEqual(best.config, {"x": 1, "shape": (1, 2)})
        self.assertAlmostEqual(best.metrics["loss"], 1 + 1 / 3)
        self.assertEqual(best.metrics["training_iteration"], 3)
        self.assertAlmostEqual(grid.get_best_result("loss", "max", scope="all").metrics["loss"], 9 + 1 / 3)
        with self.assertRaises(RuntimeError) as caught:
            grid.get_best_result("binary_crossentropy", "min")
        self.assertIn("they reported: loss", str(caught.exception))

    def test_stop_iterations(self):
        grid = tune.Tuner(square, param_space={"x": 1, "epochs": 100}, run_config=tune.RunConfig(stop={"training_iteration": 2})).fit()
        self.assertEqual(grid[0].metrics["training_iteration"], 2)

    def test_trainer_trainable(self):
        def loop(config):
            train.report({"score": config["a"] * config["b"], "ranks": train.get_context().get_world_size()})

        trainer = train.DataParallelTrainer(loop, train_loop_config={"a": 10, "b": 0}, scaling_config=train.ScalingConfig(num_workers=2))
        grid = tune.Tuner(trainer, param_space={"train_loop_config": {"b": tune.grid_search([1, 2])}},
                          tune_config=tune.TuneConfig(metric="score", mode="max")).fit()
        self.assertEqual(grid.get_best_result().metrics["score"], 20)
        self.assertEqual(grid[0].metrics["ranks"], 2)

    def test_errors_come_back_as_themselves(self):
        def sometimes(config):
            if config["x"] == 1:
                raise KeyError("no such key")
            tune.report(loss=0)

        grid = tune.Tuner(sometimes, param_space={"x": tune.grid_search([0, 1])}).fit()
        self.assertEqual(grid.num_errors, 1)
        self.assertIsInstance(grid[1].error, KeyError)
        with self.assertRaises(tune.TuneError):
            tune.run(sometimes, config={"x": 1}, verbose=0)
        analysis = tune.run(sometimes, config={"x": tune.grid_search([0, 1])}, raise_on_failed_trial=False, verbose=0)
        self.assertEqual([trial.status for trial in analysis.trials], ["TERMINATED", "ERROR"])

    def test_class_trainable_parameters_and_resources(self):
        class Counter(tune.Trainable):
            def setup(self, config, start=0):
                self.value = start

            def step(self):
                self.value += self.config["by"]
                return {"value": self.value, "done": self.iteration >= 2}

        analysis = tune.run(tune.with_resources(tune.with_parameters(Counter, start=100), {"cpu": 1}), config={"by": 5}, verbose=0)
        self.assertEqual(analysis.trials[0].last_result["value"], 115)

        def function(config, data=None):
            return {"sum": sum(data)}  # the last report

        analysis = tune.run(tune.with_parameters(function, data=[1, 2, 3]), verbose=0)
        self.assertEqual(analysis.trials[0].last_result["sum"], 6)

    def test_an_empty_space_gives_equal_trials(self):
        def constant(config):
            tune.report(loss=len(config))

        for space in ({}, None):
            analysis = tune.run(constant, config=space, num_samples=2, metric="loss", mode="min", verbose=0)
            self.assertEqual([(trial.config, trial.last_result["loss"]) for trial in analysis.trials], [({}, 0), ({}, 0)])
            grid = tune.Tuner(constant, param_space=space, tune_config=tune.TuneConfig(num_samples=2)).fit()
            self.assertEqual([each.config for each in grid], [{}, {}])

    def test_pbt_without_checkpoints_ends(self):
        """Trials took over from each other and began again at the start, for ever."""
        scheduler = PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"x": [1, 2]})
        analysis = tune.run(square, config={"x": tune.grid_search([1, 2, 3])}, metric="loss", mode="min", scheduler=scheduler, verbose=0,
                            max_concurrent_trials=2)
        self.assertEqual([trial.last_result["training_iteration"] for trial in analysis.trials], [3, 3, 3])

    def test_step_must_return_metrics(self):
        class Nothing(tune.Trainable):
            def step(self):
                pass

        with self.assertRaisesRegex(tune.TuneError, r"Nothing.step\(\) must return a dictionary of metrics, not None"):
            tune.run(Nothing, verbose=0)

    def test_sample_from(self):
        grid = tune.Tuner(lambda config: tune.report(ok=config["b"] == 2 * config["a"]),
                          param_space={"a": tune.randint(1, 100), "b": tune.sample_from(lambda spec: spec.config.a * 2)},
                          tune_config=tune.TuneConfig(num_samples=5)).fit()
        self.assertTrue(all(result.metrics["ok"] for result in grid))


class Deciding(unittest.TestCase):
    def test_asha(self):
        analysis = tune.run(square, config={"x": tune.uniform(-1, 1), "epochs": 16}, num_samples=20, metric="loss", mode="min", seed=3,
                            scheduler=ASHAScheduler(max_t=16, grace_period=1), max_concurrent_trials=2, verbose=0)
        iterations = [trial.last_result["training_iteration"] for trial in analysis.trials]
        self.assertEqual(max(iterations), 16)
        self.assertLess(sum(iterations), 20 * 16 / 2)
        self.assertEqual(analysis.best_result["training_iteration"], 16)

    def test_pbt_hands_checkpoints_on(self):
        analysis = tune.run(resumable, config={"x": tune.grid_search([0, 1, 5, 9])}, metric="loss", mode="min", seed=1, max_concurrent_trials=2,
                            scheduler=PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations={"x": [0, 1, 5, 9]}), verbose=0)
        self.assertTrue(all(trial.status == "TERMINATED" for trial in analysis.trials))
        self.assertNotEqual([trial.config["x"] for trial in analysis.trials], [0, 1, 5, 9])

    def test_searchers(self):
        analysis = tune.run(square, config={"x": tune.uniform(-10, 10), "epochs": 1}, num_samples=30, metric="loss", mode="min",
                            search_alg=TPESearch(seed=1), max_concurrent_trials=1, verbose=0)
        self.assertLess(analysis.best_result["loss"], 3)
        told = []

        class Mine(Searcher):
            def suggest(self, trial_id):
                return Searcher.FINISHED if int(trial_id) == 3 else {"x": int(trial_id), "epochs": 1}

            def on_trial_complete(self, trial_id, result=None, error=False):
                told.append((trial_id, result["loss"]))

        analysis = tune.run(square, num_samples=10, metric="loss", mode="min", search_alg=Mine(), max_concurrent_trials=1, verbose=0)
        self.assertEqual(told, [("00000", 1.0), ("00001", 2.0), ("00002", 5.0)])
        self.assertEqual(analysis.best_config["x"], 0)


class BadInput(unittest.TestCase):
    def test_sentences(self):
        for kind, keywords, words in (
                (ValueError, {"config": {"x": tune.uniform(2, 1)}}, "above the upper end"),
                (ValueError, {"config": {"x": tune.loguniform(0, 1)}}, "above 0"),
                (ValueError, {"config": {"x": tune.choice([])}}, "the space is empty"),
                (ValueError, {"metric": "loss"}, "has no mode"),
                (ValueError, {"mode": "best"}, "mode must be"),
                (ValueError, {"scheduler": ASHAScheduler()}, "needs a metric"),
                (TypeError, {"server_port": 1234}, "server_port"),
                (NotImplementedError, {"stop": lambda trial_id, result: True}, "is not offered"),
                (TypeError, {"scheduler": 3}, "scheduler"),
                (ValueError, {"resources_per_trial": {"tpu": 1}}, "tpu")):
            with self.assertRaises(kind, msg=keywords) as caught:
                tune.run(square, verbose=0, **keywords)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(TypeError):
            tune.uniform()
        with self.assertRaises(ValueError):
            tune.Tuner(square, param_space={"run_config": {}})
        with self.assertRaises(ValueError) as caught:
            tune.Tuner.restore("no-such-experiment")
        self.assertIn("there is no experiment", str(caught.exception))


class Restore(unittest.TestCase):
    def test_after_kill(self):
        script = textwrap.dedent("""
            import sys, time
            from unisono import train, tune

            def slow(config):
                for epoch in range(3):
                    time.sleep(0.02)
                    tune.report(loss=config["x"] / (epoch + 1))

            tune.Tuner(slow, param_space={"x": tune.grid_search(list(range(30)))}, run_config=tune.RunConfig(name="killed"),
                       tune_config=tune.TuneConfig(metric="loss", mode="max", max_concurrent_trials=2)).fit()
        """)
        child = subprocess.Popen([sys.executable, "-c", script])
        from unisono import _unisono

        place = os.path.join(_unisono.storage(None), "killed")
        deadline = time.time() + 60
        while time.time() < deadline:
            try:
                if _unisono.Tuner.read(place, None).counts["TERMINATED"] >= 3:
                    break
            except _unisono.Error:
                pass
            time.sleep(0.02)
        child.kill()
        child.wait()
        before = _unisono.Tuner.read(place, None).counts["TERMINATED"]
        self.assertTrue(3 <= before < 30, before)
        self.assertTrue(tune.Tuner.can_restore(place))
        grid = tune.Tuner.restore(place).fit()
        self.assertEqual((len(grid), grid.num_terminated), (30, 30))
        self.assertEqual(grid.get_best_result().config["x"], 29)


if __name__ == "__main__":
    support.main()
