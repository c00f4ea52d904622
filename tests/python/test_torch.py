"""The torch backend on real PyTorch: the scripts of the guide, written anew."""

import os
import unittest

import numpy
import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import support
import unisono.data.preprocessors
import unisono.train.torch
from unisono import _codec, data, train
from unisono.train import Checkpoint, ScalingConfig, Trainer, TrainingFailedError
from unisono.train.torch import TorchCheckpoint, TorchConfig, TorchTrainer


def toy(n=96):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 4, generator=generator), torch.rand(n, 1, generator=generator)


def linear(config):
    """The guide's checkpoint example."""
    inputs, targets = toy()
    model, start = nn.Linear(4, 1), 0
    state = train.load_checkpoint()
    if state:
        model.load_state_dict(state["model_weights"])
        start = state["epoch"] + 1
    model = unisono.train.torch.prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for epoch in range(start, config["num_epochs"]):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights = model.state_dict()
        consume_prefix_in_state_dict_if_present(weights, "module.")
        train.save_checkpoint(epoch=epoch, model_weights=weights)
    return start, type(model).__name__, torch.distributed.get_world_size(), torch.distributed.get_backend()


class V1(unittest.TestCase):
    def test_checkpoints_and_process_group(self):
        group = Trainer(backend="torch", num_workers=2)
        group.start()
        self.assertEqual(group.run(linear, config={"num_epochs": 2}), [(0, "DistributedDataParallel", 2, "gloo")] * 2)
        self.assertEqual(group.run(linear, config={"num_epochs": 4}, checkpoint=group.latest_checkpoint)[0][0], 2)
        group.shutdown()
        last = group.latest_checkpoint
        self.assertEqual((last["epoch"], type(last["model_weights"]).__name__), (3, "OrderedDict"))
        self.assertEqual({key: tuple(value.shape) for key, value in last["model_weights"].items()}, {"weight": (1, 4), "bias": (1,)})
        nn.Linear(4, 1).load_state_dict(last["model_weights"])

    def test_data_loaders_are_split(self):
        def function():
            loader = train.torch.prepare_data_loader(DataLoader(TensorDataset(torch.arange(20)), batch_size=3, shuffle=True))
            seen = sorted(int(x) for (batch,) in loader for x in batch)
            by_hand = DistributedSampler(TensorDataset(torch.arange(20)), shuffle=False)
            return seen, list(by_hand), isinstance(loader.sampler, DistributedSampler), str(train.torch.get_device())

        group = Trainer(backend=TorchConfig(init_method="tcp", timeout_s=60), num_workers=2)
        group.start()
        first, second = group.run(function)
        group.shutdown()
        self.assertEqual(sorted(first[0] + second[0]), list(range(20)))
        self.assertEqual((first[1], second[1]), (list(range(0, 20, 2)), list(range(1, 20, 2))))
        self.assertEqual(first[2:], (True, "cpu"))

    def test_wrong_config(self):
        with self.assertRaisesRegex(ValueError, "init_method"):
            TorchConfig(init_method="file")


class V2(unittest.TestCase):
    def test_ddp_gradients_are_averaged_and_tensors_reported(self):
        def loop():
            torch.manual_seed(train.get_context().get_world_rank())
            model = train.torch.prepare_model(nn.Linear(4, 1))
            inputs, targets = toy()
            rank = train.get_context().get_world_rank()
            loss = nn.functional.mse_loss(model(inputs[rank::2]), targets[rank::2])
            loss.backward()
            gradient = model.module.weight.grad.clone()
            gathered = [torch.zeros_like(gradient) for _ in range(2)]
            torch.distributed.all_gather(gathered, gradient)
            train.report({"loss": loss, "same": bool(torch.equal(*gathered)), "vector": torch.ones(2)},
                         checkpoint=Checkpoint.from_dict({"weight": model.module.weight.detach(), "half": torch.ones(2, dtype=torch.bfloat16)}))

        result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
        self.assertTrue(result.metrics["same"])
        self.assertIsInstance(result.metrics["loss"], float)
        self.assertEqual(result.metrics["vector"], [1.0, 1.0])
        state = result.checkpoint.to_dict()
        self.assertEqual((state["weight"].shape, state["half"].dtype), ((1, 4), torch.bfloat16))

    def test_a_killed_worker(self):
        def loop():
            checkpoint = train.get_checkpoint()
            start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
            for epoch in range(start, 4):
                torch.distributed.all_reduce(torch.ones(1))
                train.report({"start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
                if epoch == 1 and start == 0 and train.get_context().get_world_rank() == 1:
                    import time

                    time.sleep(0.5)
                    os.kill(os.getpid(), 9)

        from unisono.train import FailureConfig, RunConfig

        result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2),
                              run_config=RunConfig(failure_config=FailureConfig(max_failures=1))).fit()
        self.assertGreater(result.metrics["start"], 0)


class Returned(unittest.TestCase):
    def test_the_error_names_the_rank_that_returned_before(self):
        def loop():
            import torch.distributed as dist

            for i in range(2 + 2 * (dist.get_rank() == 0)):
                dist.all_reduce(torch.ones(2))
                train.report({"i": i})

        with self.assertRaises(TrainingFailedError) as caught:
            TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
        note = "rank 1 had returned from the train function before, after iteration 2: all ranks must take part in the same collectives"
        self.assertIn(note, "".join(caught.exception.__notes__))
        with open(os.path.join(str(caught.exception).split()[3], "run.json")) as file:
            self.assertIn(note, file.read())


class Codec(unittest.TestCase):
    def test_tensors(self):
        value = {"a": torch.arange(6).reshape(2, 3).t(), "e": torch.empty(0, 3), "s": torch.tensor(2.0), "g": torch.ones(2, requires_grad=True),
                 "b": torch.tensor([True]), "n": numpy.ones(2), "p": nn.Parameter(torch.ones(1))}
        out = _codec.decode(_codec.encode_dict(value))
        for key in "aesgb":
            self.assertEqual(out[key].dtype, value[key].dtype)
            self.assertTrue(torch.equal(out[key], value[key]))
        self.assertTrue(out["g"].requires_grad)
        self.assertIsInstance(out["p"], nn.Parameter)


class Profiler(unittest.TestCase):
    def test_traces_reach_the_driver(self):
        """The guide's profiler: traces travel with reports, to this callback alone."""
        from unisono.train import TrainingCallback
        from unisono.train.callbacks import TorchTensorboardProfilerCallback

        seen = []

        class Others(TrainingCallback):
            def handle_result(self, results, **info):
                seen.append(sorted(results[0]))

        def function():
            from unisono.train.torch import TorchWorkerProfiler

            ours = TorchWorkerProfiler()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=ours.trace_handler) as profiler:
                torch.ones(3).sum()
                profiler.step()
            train.report(**ours.get_and_clear_profile_traces(), epoch=0)

        group = Trainer("torch", 2)
        group.start()
        group.run(function, callbacks=[TorchTensorboardProfilerCallback(workers_to_log=1), Others()])
        group.shutdown()
        names = sorted(path.name for path in (group.latest_run_dir / "pytorch_profiler").iterdir())
        self.assertEqual(names, ["worker_1_epoch_0.pt.trace.json"])
        self.assertEqual([name for name in seen[0] if not name.startswith("_t")], ["epoch"])
        self.assertNotIn("_train_torch_profiler", seen[0])


def wrapped_models():
    import torch

    model = train.torch.prepare_model(torch.nn.Linear(2, 1))
    train.save_checkpoint(model=model, nested={"models": [model]}, kind=type(model).__name__)
    return model


class Wrapped(unittest.TestCase):
    def test_models_in_ddp_are_read_in_the_driver(self):
        import torch

        trainer = Trainer("torch", num_workers=2)
        trainer.start()
        returned = trainer.run(wrapped_models)
        saved = trainer.latest_checkpoint
        trainer.shutdown()
        self.assertEqual(saved["kind"], "DistributedDataParallel")
        for model in (saved["model"], saved["nested"]["models"][0], *returned):
            self.assertIs(type(model), torch.nn.Linear)
        torch.testing.assert_close(saved["model"].weight, returned[0].weight)

    def test_workers_with_a_gigabyte_of_reserved_memory(self):
        def loop():
            import torch

            train.report({"sum": float(torch.ones(4).sum())})

        result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"memory": 1 << 30})).fit()
        self.assertEqual(result.metrics["sum"], 4)


class Options(unittest.TestCase):
    """Each argument has its effect."""

    def test_of_the_trainer(self):
        def loop(config):
            rows = {name: sorted(int(row["id"]) for row in train.get_dataset_shard(name).iter_rows()) for name in ("split", "whole")}
            start = train.get_checkpoint().to_dict()["epoch"]
            context = train.get_context()
            train.report({"rows": rows, "lr": config["lr"], "backend": torch.distributed.get_backend(), "metadata": context.get_metadata(), "start": start})

        result = TorchTrainer(loop, train_loop_config={"lr": 0.5}, torch_config=TorchConfig(backend="gloo", init_method="tcp", timeout_s=60),
                              scaling_config=ScalingConfig(num_workers=2), dataset_config=train.DataConfig(datasets_to_split=["split"]),
                              datasets={"split": data.range(6), "whole": data.range(4)}, metadata={"a": 1},
                              resume_from_checkpoint=Checkpoint.from_dict({"epoch": 3})).fit()
        metrics = result.metrics
        self.assertEqual((metrics["lr"], metrics["backend"], metrics["metadata"], metrics["start"]), (0.5, "gloo", {"a": 1}, 3))
        self.assertEqual((len(metrics["rows"]["split"]), metrics["rows"]["whole"]), (3, [0, 1, 2, 3]))
        other = []
        with self.assertRaisesRegex(Exception, "no_such_backend"):
            TorchTrainer(lambda: other.append(1), torch_config=TorchConfig(backend="no_such_backend")).fit()

    def test_of_the_model(self):
        def function():
            plain = train.torch.prepare_model(nn.Linear(2, 1), parallel_strategy=None)
            given = train.torch.prepare_model(nn.Linear(2, 1), parallel_strategy_kwargs={"find_unused_parameters": True})
            old = train.torch.prepare_model(nn.Linear(2, 1), True, False)
            moved = train.torch.prepare_model(nn.Linear(2, 1), move_to_device=torch.device("meta"), parallel_strategy=None)
            still = train.torch.prepare_model(nn.Linear(2, 1, device="meta"), move_to_device=False, parallel_strategy=None)
            return (type(plain).__name__, given.find_unused_parameters, type(old).__name__, moved.weight.device.type, still.weight.device.type)

        group = Trainer("torch", 2)
        group.start()
        self.assertEqual(group.run(function), [("Linear", True, "Linear", "meta", "meta")] * 2)
        group.shutdown()

    def test_of_the_loader(self):
        def function():
            loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
            whole = train.torch.prepare_data_loader(loader, add_dist_sampler=False)
            split = train.torch.prepare_data_loader(loader, move_to_device=False)
            return sum(len(batch) for (batch,) in whole), sum(len(batch) for (batch,) in split)

        group = Trainer("torch", 2)
        group.start()
        self.assertEqual(group.run(function), [(8, 4)] * 2)
        group.shutdown()

    def test_of_the_loop(self):
        model = nn.Linear(2, 1)
        optimizer = train.torch.prepare_optimizer(optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
        before = model.weight.detach().clone()
        train.torch.backward(tensor=model(torch.ones(1, 2)).sum())
        optimizer.step()
        torch.testing.assert_close(model.weight.detach(), before - 1)

    def test_of_the_checkpoint(self):
        scaler = data.preprocessors.StandardScaler(["id"])
        scaler.fit(data.range(3))
        model = nn.Linear(2, 1)
        for checkpoint in (TorchCheckpoint.from_model(model, preprocessor=scaler), TorchCheckpoint.from_state_dict(model.state_dict(), preprocessor=scaler)):
            self.assertEqual(checkpoint.get_preprocessor().stats_, scaler.stats_)
            again = TorchCheckpoint(path=checkpoint.path).get_model(nn.Linear(2, 1))
            torch.testing.assert_close(again.weight, model.weight)


class Reproducible(unittest.TestCase):
    def test_seeds(self):
        import random

        import numpy
        import torch

        drawn = []
        for _ in range(2):
            train.torch.enable_reproducibility(7)
            drawn.append((random.random(), numpy.random.rand(), float(torch.rand(()))))
        torch.use_deterministic_algorithms(False)
        self.assertEqual(drawn[0], drawn[1])


if __name__ == "__main__":
    support.main()
