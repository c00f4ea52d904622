"""Tune beside what its users have: TensorBoard's hparams page and MLflow read an experiment, Optuna proposes, a trainer's trials share a dataset."""

import importlib.util
import os
import unittest

import support
from unisono import data, train, tune
from unisono.train.callbacks import JsonLoggerCallback, MLflowLoggerCallback, TBXLoggerCallback


def needs(module):
    return unittest.skipUnless(importlib.util.find_spec(module), "%s is not installed" % module)


def square(config):
    if config["x"] == 9:
        raise ValueError("nine")
    for epoch in range(3):
        tune.report(loss=config["x"] ** 2 + 1 / (epoch + 1), nested={"depth": epoch})


def fit(*callbacks):
    return tune.Tuner(square, param_space={"x": tune.grid_search([0, 2, 9]), "kind": "plain", "deep": {"flag": True}},
                      run_config=tune.RunConfig(callbacks=list(callbacks)), tune_config=tune.TuneConfig(metric="loss", mode="min")).fit()


class Sinks(unittest.TestCase):
    @needs("tensorboard")
    def test_hparams_plugin_reads_the_experiment(self):
        from tensorboard import context
        from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
        from tensorboard.plugins import base_plugin
        from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

        place = os.path.join(fit(TBXLoggerCallback()).experiment_path, "tensorboard")
        multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(place)
        multiplexer.Reload()
        page = backend_context.Context(base_plugin.TBContext(data_provider=data_provider.MultiplexerDataProvider(multiplexer, place)))
        asked = context.RequestContext()
        experiment = get_experiment.Handler(asked, page, "", api_pb2.GetExperimentRequest()).run()
        self.assertEqual({info.name: info.type for info in experiment.hparam_infos},
                         {"x": api_pb2.DATA_TYPE_FLOAT64, "kind": api_pb2.DATA_TYPE_STRING, "deep/flag": api_pb2.DATA_TYPE_BOOL})
        self.assertEqual([info.name.tag for info in experiment.metric_infos], ["ray/tune/loss", "ray/tune/nested/depth"])
        request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=10, allowed_statuses=[
            api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING, api_pb2.STATUS_UNKNOWN])
        for info in experiment.metric_infos:
            request.col_params.add(metric=info.name)
        groups = list_session_groups.Handler(asked, page, "", request).run().session_groups
        seen = {group.hparams["x"].number_value: (group.sessions[0].status, {value.name.tag: value.value for value in group.metric_values})
                for group in groups}
        self.assertEqual(set(seen), {0, 2, 9})
        self.assertEqual(seen[9], (api_pb2.STATUS_FAILURE, {}))
        self.assertEqual(seen[2][0], api_pb2.STATUS_SUCCESS)
        self.assertAlmostEqual(seen[2][1]["ray/tune/loss"], 4 + 1 / 3, places=5)
        for group in groups:
            session = group.sessions[0]
            self.assertLess(0, session.start_time_secs)
            self.assertLessEqual(session.start_time_secs, session.end_time_secs)

    @needs("mlflow")
    def test_mlflow_reads_parent_and_children(self):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from mlflow.tracking import MlflowClient

        place = os.path.join(fit(MLflowLoggerCallback(experiment_name="squares", tags={"team": "blue"})).experiment_path, "mlruns")
        client = MlflowClient(tracking_uri="file://" + place)
        runs = client.search_runs([client.get_experiment_by_name("squares").experiment_id])
        parent, = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        children = {run.data.params["x"]: run for run in runs if run is not parent}
        self.assertEqual({run.data.tags["mlflow.parentRunId"] for run in children.values()}, {parent.info.run_id})
        self.assertEqual({key: run.info.status for key, run in children.items()}, {"0": "FINISHED", "2": "FINISHED", "9": "FAILED"})
        self.assertEqual([metric.step for metric in client.get_metric_history(children["2"].info.run_id, "loss")], [1, 2, 3])
        self.assertAlmostEqual(parent.data.metrics["loss"], 1 / 3)
        self.assertEqual({run.data.tags["team"] for run in runs}, {"blue"})

    def test_what_is_not_offered_says_so(self):
        for callback, words in ((JsonLoggerCallback(), "JsonLoggerCallback"), (TBXLoggerCallback(logdir="elsewhere"), "logdir"),
                                (MLflowLoggerCallback(tracking_token="secret"), "MLFLOW_TRACKING_TOKEN")):
            with self.assertRaisesRegex(NotImplementedError, words):
                fit(callback)


@needs("optuna")
def _score(config):
    return {"score": config["x"] * 2, "loss": 0}


class Optuna(unittest.TestCase):
    def search(self, **asked):
        from unisono.tune.search.optuna import OptunaSearch

        return OptunaSearch(seed=1, **asked)

    def test_finds_the_minimum(self):
        def bowl(config):
            tune.report(loss=(config["x"] - 1) ** 2 + config["deep"]["n"] + (config["kind"] == "bad"))

        space = {"x": tune.uniform(-5, 5), "deep": {"n": tune.randint(0, 4)}, "kind": tune.choice(["good", "bad"]), "constant": 7}
        tuned = tune.TuneConfig(metric="loss", mode="min", num_samples=40, search_alg=self.search(), max_concurrent_trials=1)
        grid = tune.Tuner(bowl, param_space=space, tune_config=tuned).fit()
        best = grid.get_best_result()
        self.assertEqual(len(grid), 40)
        self.assertLess(best.metrics["loss"], 1)
        self.assertEqual((best.config["constant"], best.config["kind"], best.config["deep"]["n"]), (7, "good", 0))

    def test_each_argument(self):
        import optuna
        from unisono.tune.search.optuna import OptunaSearch

        class Sevens(optuna.samplers.RandomSampler):
            def sample_independent(self, study, trial, param_name, param_distribution):
                return 7

        asked = OptunaSearch(space={"x": tune.randint(0, 10)}, metric="score", mode="max", sampler=Sevens())
        grid = tune.Tuner(_score, tune_config=tune.TuneConfig(search_alg=asked, num_samples=3), run_config=tune.RunConfig(verbose=0)).fit()
        self.assertEqual([result.config["x"] for result in grid], [7, 7, 7])
        self.assertEqual(asked.study.direction, optuna.study.StudyDirection.MAXIMIZE)
        self.assertEqual(sorted(trial.value for trial in asked.study.trials), [14, 14, 14])  # of the metric that it has itself

    def test_failures_points_and_two_at_a_time(self):
        def picky(config):
            if config["x"] > 4:
                raise ValueError("too much")
            tune.report(score=config["x"])

        search = self.search(points_to_evaluate=[{"x": 9}, {"x": 3}])
        grid = tune.Tuner(picky, param_space={"x": tune.randint(0, 10)}, tune_config=tune.TuneConfig(
            metric="score", mode="max", num_samples=12, search_alg=tune.search.ConcurrencyLimiter(search, max_concurrent=2))).fit()
        self.assertEqual([grid[0].config["x"], grid[1].config["x"]], [9, 3])
        self.assertEqual((len(grid), bool(grid[0].error)), (12, True))
        self.assertGreaterEqual(grid.get_best_result().metrics["score"], 3)

    def test_goes_on_after_a_restore(self):
        def maybe(config):
            if not os.path.exists(config["flag"]):
                raise ValueError("not yet")
            tune.report(loss=config["x"] ** 2)

        flag = os.path.join(os.environ["TMPDIR"], "optuna-flag")
        tuned = tune.TuneConfig(metric="loss", mode="min", num_samples=5, search_alg=self.search(), max_concurrent_trials=1)
        grid = tune.Tuner(maybe, param_space={"x": tune.uniform(-1, 1), "flag": flag}, tune_config=tuned).fit()
        before = [result.config["x"] for result in grid]
        self.assertEqual(grid.num_errors, 5)
        with open(flag, "w", encoding="utf-8"):
            pass
        grid = tune.Tuner.restore(grid.experiment_path, resume_errored=True).fit()
        self.assertEqual((grid.num_errors, [result.config["x"] for result in grid]), (0, before))


class Datasets(unittest.TestCase):
    def test_a_trainer_s_trials_have_their_shards(self):
        def loop(config):
            shard = train.get_dataset_shard("train")
            total = sum(row["n"] for row in shard.iter_rows())
            train.report({"score": total * config["factor"], "ranks": train.get_context().get_world_size()})

        trainer = train.DataParallelTrainer(loop, train_loop_config={"factor": 0}, scaling_config=train.ScalingConfig(num_workers=2),
                                            datasets={"train": data.from_items([{"n": 3} for _ in range(8)])})
        grid = tune.Tuner(trainer, param_space={"train_loop_config": {"factor": tune.grid_search([1, 5])}},
                          tune_config=tune.TuneConfig(metric="score", mode="max")).fit()
        self.assertEqual([(result.metrics["score"], result.metrics["ranks"]) for result in grid], [(12, 2), (60, 2)])
        self.assertEqual(grid.get_best_result().config["train_loop_config"]["factor"], 5)

    @needs("torch")
    def test_torch_trainer(self):
        def loop(config):
            import tempfile

            import torch
            from unisono.train import torch as train_torch

            model = train_torch.prepare_model(torch.nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
            for _ in range(3):
                for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=8, dtypes=torch.float32):
                    loss = torch.nn.functional.mse_loss(model(batch["x"].reshape(-1, 1)), batch["y"].reshape(-1, 1))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                with tempfile.TemporaryDirectory() as folder:
                    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
                    train.report({"loss": loss.item()}, checkpoint=train.Checkpoint.from_directory(folder))

        from unisono.train.torch import TorchTrainer

        rows = data.from_items([{"x": n / 32, "y": n / 16} for n in range(32)])
        trainer = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2), datasets={"train": rows})
        grid = tune.Tuner(trainer, param_space={"train_loop_config": {"lr": tune.grid_search([1e-6, 0.3])}},
                          tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1)).fit()
        best = grid.get_best_result()
        self.assertEqual((grid.num_errors, best.config["train_loop_config"]["lr"], best.metrics["training_iteration"]), (0, 0.3, 3))
        with best.checkpoint.as_directory() as folder:
            self.assertIn("model.pt", os.listdir(folder))


if __name__ == "__main__":
    support.main()
