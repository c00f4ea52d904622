"""hvd.elastic.TorchState and ElasticSampler: every sample is used once an epoch, whichever ranks die or join, and the weights of all ranks are the same and those of a replay."""

import time
import unittest

import torch
from torch import nn

import elastic_support
import support
import unisono.horovod.torch as hvd
from unisono.horovod import _core

SAMPLES, EPOCHS = 48, 3
COMMON = """
import torch
from torch import nn
torch.set_num_threads(1)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def samples():
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(%d, 5, generator=generator), torch.rand(%d, 1, generator=generator), torch.arange(%d))
""" % (SAMPLES, SAMPLES, SAMPLES)
LOOP = COMMON + """
import unisono.horovod.torch as hvd

hvd.init()
net, data = network(), samples()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
say(begun=hvd.rank())


def on_reset():
    for group in optimizer.param_groups:
        group["lr"] = 0.05


@hvd.elastic.run
def loop(state):
    say(entered=hvd.rank(), size=hvd.size())
    while state.epoch < %d:
        for x, y, index in torch.utils.data.DataLoader(data, batch_size=4, sampler=state.sampler):
            time.sleep(float(os.environ.get("SECONDS", "0")))
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            if "%%d.%%d of %%d" %% (state.epoch, state.batch, hvd.rank()) in os.environ.get("DIE", "").split(","):
                die("%%d.%%d" %% (state.epoch, state.batch))
            optimizer.step()
            state.sampler.record_batch(state.batch, len(index))
            # What every rank has trained in this step, in the order of the ranks; only committed steps count.
            state.steps = state.steps + [(state.epoch, hvd.allgather_object(index.tolist()))]
            state.batch += 1
            if state.batch %% 2 == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(net, optimizer, sampler=hvd.elastic.ElasticSampler(data), epoch=0, batch=0, steps=[])
state.register_reset_callbacks([on_reset])
loop(state)
say(steps=state.steps, rank=hvd.rank(), size=hvd.size(), weights=[parameter.flatten().tolist() for parameter in net.parameters()])
""" % EPOCHS


def replayed(steps):
    """One process that trains the same batches with the average of the parts' gradients."""
    namespace = {}
    exec(COMMON, namespace)
    net, data = namespace["network"](), namespace["samples"]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _, parts in steps:
        sums = None
        for part in parts:
            optimizer.zero_grad()
            x, y = (torch.stack([data[index][column] for index in part]) for column in (0, 1))
            nn.functional.mse_loss(net(x), y).backward()
            mine = [parameter.grad.clone() for parameter in net.parameters()]
            sums = mine if sums is None else [a + b for a, b in zip(sums, mine)]
        for parameter, total in zip(net.parameters(), sums):
            parameter.grad = total / len(parts)
        optimizer.step()
    return [parameter.detach().flatten() for parameter in net.parameters()]


class Elastic(unittest.TestCase):
    def right(self, ended, ranks=None):
        self.assertEqual(ended.code, 0, ended.output)
        last = ended.of("weights")
        if ranks is not None:
            self.assertEqual(len(last), ranks, ended.output)
        for each in last[1:]:
            self.assertEqual(each["weights"], last[0]["weights"], "all ranks have the same weights, to the bit")
            self.assertEqual(each["steps"], last[0]["steps"])
        steps = last[0]["steps"]
        for epoch in range(EPOCHS):
            used = [index for number, parts in steps for part in parts for index in part if number == epoch]
            self.assertEqual(sorted(set(used)), list(range(SAMPLES)))
            # The sampler fills up the last round where the ranks do not divide what is left.
            self.assertLess(len(used) - SAMPLES, 4, "epoch %d used samples more than once" % epoch)
        for mine, other in zip(last[0]["weights"], replayed(steps)):
            self.assertLess((torch.tensor(mine) - other).abs().max().item(), 2e-5)
        return last

    def test_ranks_are_replaced(self):
        ended = elastic_support.run(LOOP, "-n", "2", "--max-failures", "4", env={"DIE": "0.3 of 1,1.4 of 0"})
        last = self.right(ended, 2)
        self.assertEqual(ended.record["replaced"], 2, ended.output)
        for epoch in range(EPOCHS):
            used = [index for number, parts in last[0]["steps"] for part in parts for index in part if number == epoch]
            self.assertEqual(sorted(used), list(range(SAMPLES)), "exactly once")
        calm = elastic_support.run(LOOP, "-n", "2")
        self.assertEqual(self.right(calm, 2)[0]["steps"], last[0]["steps"], "the batches are those of a run that was left alone")
        self.assertEqual(calm.of("weights")[0]["weights"], last[0]["weights"], "and so are the weights, to the bit")

    def test_workers_come_and_go(self):
        asked = []

        def disturb(chance, alive, folder):
            wanted = (3, 1, 2)[len(asked)]
            time.sleep(4)
            asked.append(elastic_support.scale(folder, wanted).stdout)
            return len(asked) < 3

        ended = elastic_support.run(LOOP, "--workers", "1:3", "-n", "2", "--max-failures", "4", disturb=disturb, env={"DIE": "0.1 of 1", "SECONDS": "0.6"})
        self.right(ended)
        self.assertGreater(max(line["size"] for line in ended.of("entered")), 2, ended.output)


class Sampler(unittest.TestCase):
    def setUp(self):
        hvd.init()

    def tearDown(self):
        hvd.shutdown()

    def test_as_horovod_has_it(self):
        """The numbers are those of the sampler of Horovod 0.28.1, for three ranks."""
        expected = (([8, 7, 5, 3], [5, 3], [5, 4, 6, 9]), ([2, 6, 1, 8], [1, 5], [8, 0, 7, 5]), ([0, 9, 4, 2], [4, 1], [3, 2, 1, 8]))
        for rank, (first, left, later) in enumerate(expected):
            _core.world().rank, _core.world().size = rank, 3
            sampler = hvd.elastic.ElasticSampler(range(10), seed=4)
            self.assertEqual((list(sampler), len(sampler)), (first, 4))
            sampler.record_batch(0, 2)
            self.assertEqual(sampler.state_dict(), {"epoch": 0, "processed_num": 6})
            self.assertEqual(list(sampler), first, "divided anew by reset and load_state_dict only")
            sampler.load_state_dict(sampler.state_dict())
            self.assertEqual(list(sampler), left)
            sampler.set_epoch(2)
            self.assertEqual(list(sampler), later)
            plain = hvd.elastic.ElasticSampler(range(7), shuffle=False)
            self.assertEqual(list(plain), [[0, 3, 6], [1, 4, 0], [2, 5, 1]][rank])
            plain.record_batch(0, 3)
            plain.reset()
            self.assertEqual((list(plain), len(plain)), ([], 0))

    def test_more_ranks_than_samples_are_left(self):
        """Horovod's sampler fails here."""
        for rank in range(4):
            _core.world().rank, _core.world().size = rank, 4
            sampler = hvd.elastic.ElasticSampler(range(9), shuffle=False)
            sampler.record_batch(0, 2)
            sampler.reset()
            self.assertEqual(list(sampler), [8])


class State(unittest.TestCase):
    def test_attributes(self):
        hvd.init()
        net, other = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizer = torch.optim.Adam(net.parameters())
        state = hvd.elastic.TorchState(net, optimizer, second=other, epoch=1)
        self.assertIs(state.model, net)
        before = net.weight.clone(), other.weight.clone()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            other.weight += 1
        state.epoch = 7
        state.restore()
        self.assertTrue(torch.equal(net.weight, before[0]) and torch.equal(other.weight, before[1]))
        self.assertEqual((state.epoch, optimizer.state_dict()["state"]), (1, {}))
        state.model = other  # from now on that one
        with torch.no_grad():
            other.weight += 1
        state.save()
        with torch.no_grad():
            other.weight += 5
        state.restore()
        self.assertTrue(torch.equal(other.weight, before[1] + 1))
        with self.assertRaisesRegex(TypeError, "cannot become int"):
            state.model = 3
        hvd.shutdown()


if __name__ == "__main__":
    support.main()
