"""unisono.horovod.torch on real PyTorch: the same numbers as one process with all the data, and as DDP."""

import unittest

import torch
from torch import nn

import support
from unisono.train import Trainer


def run(function, workers=2, backend="none", **options):
    trainer = Trainer(backend, workers, **options)
    trainer.start()
    try:
        return trainer.run(function)
    finally:
        trainer.shutdown()


def data(n=48):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 6, generator=generator), torch.rand(n, 1, generator=generator)


def model(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)


def alone(steps=6, momentum=0.9):
    """One process with all the data."""
    net, (inputs, targets) = model(), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
    return [parameter.detach().numpy() for parameter in net.parameters()]


class Optimizer(unittest.TestCase):
    def same(self, out, reference, tolerance=1e-6):
        for answer in out:
            for mine, other in zip(answer, reference):
                self.assertLess(abs(mine - other).max(), tolerance)

    def test_as_one_process_with_all_the_data(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            net, (inputs, targets) = model(), data()
            if hvd.rank():
                for parameter in net.parameters():
                    parameter.data.fill_(9.0)
            inputs, targets = inputs[hvd.rank()::hvd.size()], targets[hvd.rank()::hvd.size()]
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
            hvd.broadcast_parameters(net.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            for _ in range(6):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(inputs), targets).backward()
                optimizer.step()
            assert isinstance(optimizer, torch.optim.SGD)
            return [parameter.detach().numpy() for parameter in net.parameters()]

        self.same(run(loop), alone())

    def test_passes_clipping_and_unused_parameters(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            net, (inputs, targets) = model(), data()
            unused = nn.Linear(2, 2)
            inputs, targets = inputs[hvd.rank()::hvd.size()], targets[hvd.rank()::hvd.size()]
            parameters = list(net.parameters()) + list(unused.parameters())
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9), backward_passes_per_step=2,
                                                 gradient_predivide_factor=2.0, compression=hvd.Compression.none)
            for _ in range(6):
                optimizer.zero_grad(set_to_none=False)
                for half in (slice(0, 12), slice(12, 24)):
                    (nn.functional.mse_loss(net(inputs[half]), targets[half]) / 2).backward()
                optimizer.synchronize()
                norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)
                with optimizer.skip_synchronize():
                    optimizer.step()
            assert norm > 0 and unused.weight.grad.abs().sum() == 0
            return [parameter.detach().numpy() for parameter in net.parameters()]

        self.same(run(loop), alone())

    def test_more_passes_than_were_said(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            net, (inputs, targets) = model(), data()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
            nn.functional.mse_loss(net(inputs), targets).backward()
            try:
                nn.functional.mse_loss(net(inputs), targets).backward()
            except AssertionError as error:
                said = str(error)
            try:
                optimizer.zero_grad()
            except AssertionError as error:
                return said, str(error)

        said, zero = run(loop)[0]
        self.assertIn("backward_passes_per_step", said)
        self.assertIn("zero_grad", zero)

    def test_types_and_uneven_data(self):
        """float64 and bfloat16 parameters; rank 1 has one batch less and joins."""
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            wide, narrow = nn.Linear(3, 2).double(), nn.Linear(3, 2).bfloat16()
            for layer in (wide, narrow):
                nn.init.constant_(layer.weight, 1.0)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*wide.parameters(), *narrow.parameters()], lr=1.0), op=hvd.Sum)
            for _ in range(2 - hvd.rank()):
                optimizer.zero_grad()
                (wide(torch.ones(1, 3).double()).sum() + narrow(torch.ones(1, 3).bfloat16()).sum()).backward()
                optimizer.step()
            last = hvd.join()
            hvd.broadcast_parameters(dict(wide.named_parameters(prefix="w")), last)
            return last, wide.weight[0, 0].item(), narrow.weight[0, 0].item()

        # Step 1: both ranks' gradients, 2; step 2: rank 0's alone.
        out = run(loop)
        self.assertEqual(out[0], (0, 1.0 - 2 - 1, 1.0 - 2 - 1))
        self.assertEqual(out[1], (0, 1.0 - 2 - 1, 1.0 - 2))

    def test_gradients_outlive_the_group(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            net, (inputs, targets) = model(), data()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
            nn.functional.mse_loss(net(inputs), targets).backward()
            optimizer.step()
            kept = net[0].weight.grad
            before = kept.sum().item()
            hvd.shutdown()
            del optimizer
            import gc

            gc.collect()
            return before == kept.sum().item() == net[0].weight.grad.sum().item()

        self.assertEqual(run(loop), [True, True])

    def test_schedulers_and_closures(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            net, (inputs, targets) = model(), data()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0))
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            for _ in range(3):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(inputs), targets).backward()
                optimizer.step()
                scheduler.step()
            return optimizer.param_groups[0]["lr"]

        self.assertEqual(run(loop), [0.125, 0.125])


class Operations(unittest.TestCase):
    def test_all_of_them(self):
        def loop():
            import unisono.horovod.torch as hvd

            hvd.init()
            rank = hvd.rank()
            mine = torch.full((2, 2), float(rank + 1), requires_grad=True)
            averaged = hvd.allreduce(mine)
            averaged.sum().backward()
            in_place = torch.ones(3) * rank
            handles = [hvd.allreduce_async_(in_place, op=hvd.Sum), hvd.allreduce_async(torch.tensor([rank]), average=False)]
            while not all(hvd.poll(handle) for handle in handles):
                pass
            results = [hvd.synchronize(handle) for handle in handles]
            rows, came = hvd.alltoall(torch.arange(4) + 10 * rank, splits=[1, 3])
            buffer = torch.full((2,), rank)
            sparse = hvd.synchronize(hvd.sparse_allreduce_async(torch.sparse_coo_tensor([[rank]], [1.0], (2,)), op=hvd.Sum))
            return {"average": averaged.tolist(), "gradient": mine.grad.tolist(), "in place": in_place.tolist(), "async": results[1].tolist(),
                    "half": hvd.allreduce(torch.ones(2).half(), op=hvd.Sum).dtype == torch.float16,
                    "fp16": hvd.allreduce(torch.ones(2), compression=hvd.Compression.fp16).tolist(),
                    "gather": hvd.allgather(torch.full((rank + 1, 1), rank)).tolist(), "alltoall": (rows.tolist(), came.tolist()),
                    "broadcast": (hvd.broadcast(torch.tensor([rank]), 1).tolist(), hvd.broadcast_(buffer, 1).tolist(), buffer.tolist()),
                    "scatter": hvd.reducescatter(torch.arange(4.0), op=hvd.Sum).tolist(), "sparse": sparse.to_dense().tolist(),
                    "grouped": [t.tolist() for t in hvd.grouped_allreduce([torch.ones(1), torch.zeros(1)], op=hvd.Sum)]}

        for rank, out in enumerate(run(loop)):
            self.assertEqual(out["average"], [[1.5, 1.5], [1.5, 1.5]])
            self.assertEqual(out["gradient"], [[1.0, 1.0], [1.0, 1.0]])
            self.assertEqual((out["in place"], out["async"], out["half"], out["fp16"]), ([1.0] * 3, [1], True, [1.0, 1.0]))
            self.assertEqual(out["gather"], [[0], [1], [1]])
            self.assertEqual(out["alltoall"], [([0, 10], [1, 1]), ([1, 2, 3, 11, 12, 13], [3, 3])][rank])
            self.assertEqual(out["broadcast"], ([1], [1, 1], [1, 1]))
            self.assertEqual(out["scatter"], [[0.0, 2.0], [4.0, 6.0]][rank])
            self.assertEqual((out["sparse"], out["grouped"]), ([1.0, 1.0], [[2.0], [0.0]]))

    def test_inside_the_torch_backend(self):
        def loop():
            import torch.distributed as dist
            import unisono.horovod.torch as hvd

            hvd.init()
            other = torch.ones(1)
            dist.all_reduce(other)
            return hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), other.item()

        self.assertEqual(run(loop, backend="torch"), [(2.0, 2.0)] * 2)


if __name__ == "__main__":
    support.main()
