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


def every_argument():
    """Values of 2 ranks (1 and 2, or 10 and 20); the expected numbers are sums and means by hand."""
    import unisono.horovod.torch as hvd

    hvd.init()
    rank, all_ = hvd.rank(), hvd.global_process_set
    one = lambda *values: torch.tensor([value * (rank + 1) for value in values])
    wait = lambda handle: hvd.synchronize(handle).tolist()
    given, half = dict(process_set=all_, prescale_factor=2.0, postscale_factor=10.0), hvd.Compression.fp16
    out = {
        "allreduce": hvd.allreduce(one(1.0), name="a", op=hvd.Sum, **given).tolist(),
        "allreduce_async": wait(hvd.allreduce_async(one(1.0), name="b", op=hvd.Sum, prescale_factor=2.0, postscale_factor=10.0, process_set=all_)),
        "allreduce_async average": wait(hvd.allreduce_async(one(1.0), average=False)),
        "allreduce_": hvd.allreduce_(tensor=one(1.0), average=None, name="c", op=hvd.Sum, prescale_factor=2.0, postscale_factor=10.0, process_set=all_).tolist(),
        "allreduce_ average": hvd.allreduce_(tensor=one(1.0), average=True).tolist(),
        "allreduce_async_": wait(hvd.allreduce_async_(one(1.0), name="d", op=hvd.Max, prescale_factor=2.0, postscale_factor=10.0, process_set=all_)),
        "allreduce_async_ average": wait(hvd.allreduce_async_(one(1.0), average=False)),
        "grouped": [each.tolist() for each in hvd.grouped_allreduce([one(1.0), one(3.0)], name="e", op=hvd.Sum, compression=half, prescale_factor=2.0,
                                                                     postscale_factor=10.0, process_set=all_)],
        "grouped average": hvd.grouped_allreduce([one(1.0)], average=False)[0].tolist(),
        "grouped_": [each.tolist() for each in hvd.grouped_allreduce_(tensors=[one(1.0)], name="f", op=hvd.Min, prescale_factor=2.0, postscale_factor=10.0,
                                                                       process_set=all_)],
        "grouped_ average": hvd.grouped_allreduce_(tensors=[one(1.0)], average=False)[0].tolist(),
        "allgather": hvd.allgather(one(1.0), name="g", process_set=all_).tolist(),
        "allgather_async": wait(hvd.allgather_async(tensor=one(1.0), name="h", process_set=all_)),
        "broadcast": hvd.broadcast(one(1.0), 1, name="i", process_set=all_).tolist(),
        "broadcast_": hvd.broadcast_(one(1.0), 1, name="j", process_set=all_).tolist(),
        "broadcast_async": wait(hvd.broadcast_async(tensor=one(1.0), root_rank=1, name="k", process_set=all_)),
        "broadcast_async_": wait(hvd.broadcast_async_(tensor=one(1.0), root_rank=1, name="l", process_set=all_)),
        "alltoall": hvd.alltoall(one(1.0, 3.0), name="m", process_set=all_).tolist(),
        "alltoall_async": hvd.synchronize(hvd.alltoall_async(tensor=one(1.0, 3.0), splits=[1, 1], name="n", process_set=all_))[0].tolist(),
        "reducescatter": hvd.reducescatter(one(1.0, 3.0), op=hvd.Sum, name="o", compression=half, process_set=all_, prescale_factor=2.0,
                                           postscale_factor=10.0).tolist(),
        "reducescatter_async": wait(hvd.reducescatter_async(tensor=one(1.0, 3.0), op=hvd.Sum, name="p", process_set=all_)),
        "objects": (hvd.broadcast_object(rank, 1, name="q", process_set=all_), hvd.allgather_object(rank, name="r", process_set=all_)),
        "sparse": hvd.synchronize(hvd.sparse_allreduce_async(torch.sparse_coo_tensor([[0]], one(1.0), (2,)), name="s", op=hvd.Sum,
                                                             process_set=all_)).to_dense().tolist(),
        "fp16": hvd.allreduce(torch.tensor([1.0001]), compression=half).tolist(),
    }
    hvd.barrier(process_set=all_)
    hvd.DistributedOptimizer(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), process_set=all_)
    return out


EXPECTED = {
    "allreduce": [60.0], "allreduce_async": [60.0], "allreduce_async average": [3.0], "allreduce_": [60.0], "allreduce_ average": [1.5],
    "allreduce_async_": [40.0], "allreduce_async_ average": [3.0], "grouped": [[60.0], [180.0]], "grouped average": [3.0], "grouped_": [[20.0]],
    "grouped_ average": [3.0], "allgather": [1.0, 2.0], "allgather_async": [1.0, 2.0], "broadcast": [2.0], "broadcast_": [2.0], "broadcast_async": [2.0],
    "broadcast_async_": [2.0], "objects": (1, [0, 1]), "sparse": [3.0, 0.0], "fp16": [1.0],
}
EXPECTED_OF_RANK = [{"alltoall": [1.0, 2.0], "alltoall_async": [1.0, 2.0], "reducescatter": [60.0], "reducescatter_async": [3.0]},
                    {"alltoall": [3.0, 6.0], "alltoall_async": [3.0, 6.0], "reducescatter": [180.0], "reducescatter_async": [9.0]}]


class Arguments(unittest.TestCase):
    def test_each_has_its_effect(self):
        for rank, out in enumerate(run(every_argument)):
            self.assertEqual(out, {**EXPECTED, **EXPECTED_OF_RANK[rank]})

    def test_names_that_do_not_meet(self):
        """Horovod would bring them together by name; by their order, other tensors would be added up."""
        for start in ("allreduce", "allreduce_async", "allgather", "broadcast"):
            def crossed():
                import unisono.horovod.torch as hvd

                hvd.init()
                for name in ("a", "b") if hvd.rank() else ("b", "a"):
                    more = (0,) if start == "broadcast" else ()
                    out = getattr(hvd, start)(torch.ones(2), *more, name=name)
                    if start.endswith("_async"):
                        hvd.synchronize(out)

            with self.assertRaisesRegex(RuntimeError, "called operations of another name.*all ranks must call the same operations in the same order"):
                run(crossed)


if __name__ == "__main__":
    support.main()
