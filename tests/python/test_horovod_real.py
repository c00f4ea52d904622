"""The horovod backend with real Horovod (tools/build-horovod builds it): its own DistributedOptimizer under HorovodTrainer and Trainer, the rendezvous
of a group that starts again, and the same numbers from unisono.horovod."""

import os
import shutil
import sys
import unittest

import support
import unisono

PLACE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "horovod")
sys.path.append(PLACE)  # functions travel with the driver's path

from unisono import _driver, train
from unisono.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, Trainer
from unisono.train.horovod import HorovodConfig, HorovodTrainer


def fit(hvd, steps=5):
    import torch
    from torch import nn

    torch.manual_seed(0)
    inputs = torch.randn(32, 4)
    targets = inputs.sum(1, keepdim=True)
    inputs, targets = inputs[hvd.rank()::hvd.size()], targets[hvd.rank()::hvd.size()]
    model = nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return [round(value, 5) for value in model.weight.flatten().tolist()]


def loop():
    import horovod.torch as hvd

    hvd.init()
    return hvd.__file__, hvd.size(), hvd.rank(), fit(hvd)


def own():
    import unisono.horovod.torch as hvd

    hvd.init()
    return fit(hvd)


@unittest.skipUnless(os.path.isdir(os.path.join(PLACE, "horovod")), "real Horovod is not built: tools/build-horovod")
class Real(unittest.TestCase):
    def run_with(self, function, backend):
        trainer = Trainer(backend, 2)
        trainer.start()
        try:
            return trainer.run(function)
        finally:
            trainer.shutdown()

    def test_the_same_as_ours(self):
        real = self.run_with(loop, HorovodConfig(timeout_s=60))
        self.assertTrue(all(PLACE in answer[0] for answer in real), real)
        self.assertEqual([answer[1:3] for answer in real], [(2, 0), (2, 1)])
        self.assertEqual(self.run_with(own, "none"), [answer[3] for answer in real])

    def test_a_killed_worker(self):
        def dying():
            import horovod.torch as hvd

            hvd.init()
            weights = fit(hvd)
            again = train.get_checkpoint() is not None
            train.report({"again": again, "size": hvd.size(), "sum": sum(weights)}, checkpoint=Checkpoint.from_dict({"weights": weights}))
            if not again:
                import time

                time.sleep(1.0)
                if hvd.rank() == 1:
                    os.kill(os.getpid(), 9)
                time.sleep(60)

        result = HorovodTrainer(dying, scaling_config=ScalingConfig(num_workers=2),
                                run_config=RunConfig(failure_config=FailureConfig(max_failures=1))).fit()
        self.assertEqual((result.metrics["again"], result.metrics["size"]), (True, 2))

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_over_mpi(self):
        """Workers that mpirun started: Horovod's controller and its operations are MPI's."""
        def function():
            import horovod.torch as hvd

            hvd.init()
            return hvd.mpi_built(), hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.size(), hvd.rank(), fit(hvd)

        unisono.init(hosts="localhost:2")
        self.addCleanup(unisono.shutdown)
        found = self.run_with(function, HorovodConfig(timeout_s=60))
        self.assertEqual([answer[:5] for answer in found], [(True, True, False, 2, 0), (True, True, False, 2, 1)])
        unisono.shutdown()
        self.assertEqual(self.run_with(own, "none"), [answer[5] for answer in found])

    def test_ours_when_asked_for(self):
        def function():
            import horovod.torch as hvd

            hvd.init()
            return hvd.__name__

        os.environ["UNISONO_HOROVOD"] = "own"
        self.addCleanup(os.environ.pop, "UNISONO_HOROVOD")
        self.assertEqual(self.run_with(function, "horovod"), ["unisono.horovod.torch"] * 2)


if __name__ == "__main__":
    support.main()
