"""resumable(DataLoader): workers are killed inside of epochs, and every sample is used exactly once, in the order of a run that was left alone."""

import json
import os
import random
import tempfile
import unittest

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler, Sampler, TensorDataset, WeightedRandomSampler

import support
from unisono import train
from unisono.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from unisono.train.torch import TorchTrainer, prepare_data_loader, resumable

SAMPLES, EPOCHS = 23, 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(SAMPLES).split(1))


class Own(Sampler):
    """Draws with Python's generator."""

    def __init__(self):  # the base class of torch 1.13 takes the data, that of 2.x nothing
        pass

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        order = list(range(SAMPLES))
        random.shuffle(order)
        return iter(order)


def make(kind):
    data = TensorDataset(torch.arange(SAMPLES))
    generator = torch.Generator().manual_seed(5)
    return {
        "in order": lambda: DataLoader(data, batch_size=3),
        "shuffled": lambda: DataLoader(data, batch_size=3, shuffle=True),
        "shuffled by a generator": lambda: DataLoader(data, batch_size=3, shuffle=True, generator=generator),
        "weighted": lambda: DataLoader(data, batch_size=2, sampler=WeightedRandomSampler(range(1, SAMPLES + 1), 17)),
        "own sampler": lambda: DataLoader(data, batch_size=4, sampler=Own(), drop_last=True),
        "own batches": lambda: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 5, False)),
        "one by one": lambda: DataLoader(data, batch_size=None, shuffle=True),
        "two processes": lambda: DataLoader(data, batch_size=3, shuffle=True, num_workers=2, prefetch_factor=2),
        "stream": lambda: DataLoader(Stream(), batch_size=3),
        "split": lambda: prepare_data_loader(DataLoader(data, batch_size=2, shuffle=True)),
    }[kind]()


def loop(config):
    torch.manual_seed(3)
    random.seed(4)
    loader = resumable(make(config["kind"]))
    checkpoint = train.get_checkpoint()
    seen = checkpoint.to_dict()["seen"] if checkpoint else []
    rank = train.get_context().get_world_rank()
    for epoch in range(loader.epoch, EPOCHS):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            items = [int(item) for item in (batch[0] if isinstance(batch, (list, tuple)) else batch).reshape(-1)]
            seen.append([epoch, items, float(torch.rand(1))])  # dropout draws from the same generator
            if len(seen) % config["every"] == 0:
                train.report({"count": len(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))
            if rank == config["rank"] and len(seen) in config["kills"]:
                marker = "%s_%d" % (config["marker"], len(seen))
                if not os.path.exists(marker):
                    open(marker, "w", encoding="utf-8").close()
                    os.kill(os.getpid(), 9)
    train.report({"seen": str(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))


def run(kind, workers=1, kills=(), every=2):
    with tempfile.TemporaryDirectory(prefix="unisono-test-") as marker:
        result = TorchTrainer(loop, train_loop_config={"kind": kind, "kills": list(kills), "every": every, "rank": workers - 1, "marker": marker + "/k"},
                              scaling_config=ScalingConfig(num_workers=workers),
                              run_config=RunConfig(failure_config=FailureConfig(max_failures=10))).fit()
    return result.metrics["seen"]


class Killed(unittest.TestCase):
    def check(self, kind, workers=1):
        calm = run(kind, workers)
        self.assertEqual(run(kind, workers, kills=(3, 6, 7, 13), every=1), calm)
        self.assertEqual(run(kind, workers, kills=(4, 10, 11), every=3), calm)

    def test_in_order(self):
        self.check("in order")

    def test_shuffled(self):
        self.check("shuffled")
        self.check("shuffled by a generator")

    def test_samplers(self):
        self.check("weighted")
        self.check("own sampler")
        self.check("own batches")

    def test_one_by_one(self):
        self.check("one by one")

    def test_loader_processes(self):
        self.check("two processes")

    def test_stream(self):
        self.check("stream")

    def test_split_over_workers(self):
        self.check("split", workers=2)


class Alone(unittest.TestCase):
    def test_without_a_trainer(self):
        loader = resumable(DataLoader(TensorDataset(torch.arange(5)), batch_size=2))
        self.assertEqual([len(list(loader)) for _ in range(2)], [3, 3])
        self.assertEqual((loader.epoch, len(loader), loader.batch_size), (2, 3, 2))

    def test_an_epoch_that_is_left_is_over(self):
        loader = resumable(DataLoader(TensorDataset(torch.arange(5)), batch_size=2))
        for _ in loader:
            break
        self.assertEqual([batch[0].tolist() for batch in loader], [[0, 1], [2, 3], [4]])
        self.assertEqual(loader.epoch, 2)

    def test_mistakes(self):
        loader = DataLoader(TensorDataset(torch.arange(5)))
        for wrong in (lambda: resumable(3), lambda: resumable(loader, name=""), lambda: resumable(loader, name=0), lambda: resumable(resumable(loader)),
                      lambda: resumable(loader, names="x")):
            self.assertRaises(TypeError, wrong)


def resume_from(state):
    """A loader that goes on from the state of a crafted checkpoint, and its first batch."""
    def attacker():
        train.set_state("torch loader/train", state)
        train.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))

    def victim():
        loader = resumable(DataLoader(TensorDataset(torch.arange(6)), batch_size=2, shuffle=True))
        first = [batch[0].tolist() for batch in loader][:1]
        train.report({"first": str(first), "drawn": float(numpy.random.random())})

    given = TorchTrainer(attacker, scaling_config=ScalingConfig(num_workers=1)).fit().checkpoint
    return TorchTrainer(victim, scaling_config=ScalingConfig(num_workers=1), resume_from_checkpoint=given).fit().metrics


class Crafted(unittest.TestCase):
    """The state in a checkpoint of somebody else."""

    def state(self, **changes):
        from unisono.train.torch._resumable import _Generators

        now = _Generators(DataLoader(TensorDataset(torch.arange(6)), batch_size=2)).get()
        now.update(changes.pop("now", {}))
        return json.dumps(dict({"format": 1, "epoch": 0, "used": 1, "length": 3, "world_size": 1, "now": now, "start": now, "sampler_epoch": None}, **changes)).encode()

    def test_as_it_should_be(self):
        self.assertNotEqual(resume_from(self.state())["first"], "[]")

    def test_more_batches_than_can_be_counted(self):
        self.assertEqual(resume_from(self.state(used=1 << 60))["first"], "[]")

    def test_numpys_place(self):
        kind, keys, _, gauss, cached = json.loads(self.state())["now"]["numpy"]
        for place in (10 ** 6, 625, -1, 1.5, "1", None):
            with self.assertRaisesRegex(Exception, "generators that the checkpoint keeps for the loader are damaged: NumPy's place"):
                resume_from(self.state(now={"numpy": [kind, keys, place, gauss, cached]}))

    def test_damaged(self):
        for state in (b"[" * 100000, b"{", b"[]", b"\xff", self.state(used=-1), self.state(used="1"), self.state(used=1 << 70), self.state(epoch=True),
                      self.state(now={"torch": "AA=="}), self.state(now={"python": 3}), self.state(start=None), self.state(world_size="1"),
                      self.state(now={"numpy": 1})):
            with self.assertRaisesRegex(Exception, "damaged"):
                resume_from(state)


class Mistakes(unittest.TestCase):
    def test_two_of_one_name(self):
        def twice():
            loader = DataLoader(TensorDataset(torch.arange(5)))
            resumable(loader)
            resumable(loader, name="validation")
            resumable(loader)

        with self.assertRaisesRegex(Exception, "two resumable loaders are called 'train'"):
            TorchTrainer(twice, scaling_config=ScalingConfig(num_workers=1)).fit()

    def test_other_data_after_a_restart(self):
        def other():
            first = train.get_checkpoint() is None
            loader = resumable(DataLoader(TensorDataset(torch.arange(10 if first else 12)), batch_size=2))
            for _ in loader:
                train.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
                if first:
                    import time

                    time.sleep(0.5)
                    os.kill(os.getpid(), 9)

        with self.assertRaisesRegex(Exception, "the loader has 6 batches, and the one whose place was kept had 5"):
            TorchTrainer(other, scaling_config=ScalingConfig(num_workers=1),
                         run_config=RunConfig(failure_config=FailureConfig(max_failures=1))).fit()


if __name__ == "__main__":
    support.main()
