"""init_process_group("unisono"): the same as gloo, errors that name a rank, and every way to start the ranks."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import torch

import support

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, "torch_group_worker.py")


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def start(size, *arguments):
    port = str(free_port())
    return [subprocess.Popen([sys.executable, WORKER, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1"))
            for rank in range(size)]


def told(processes, seconds=240):
    out = []
    try:
        limit = time.monotonic() + seconds
        for process in processes:
            out.append(process.communicate(timeout=max(1, limit - time.monotonic()))[0])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return out


class Group(unittest.TestCase):
    def fine(self, size, *arguments, says="fine"):
        processes = start(size, *arguments)
        for process, out in zip(processes, told(processes)):
            self.assertEqual(process.returncode, 0, out)
            self.assertIn(says, out)
        return out

    def test_same_as_gloo(self):
        self.fine(2, "same_as_gloo", 120, says="same")
        self.fine(3, "same_as_gloo", 120, says="same")

    def test_what_gloo_lacks(self):
        for size in (1, 2, 4):
            self.fine(size, "what_gloo_lacks")

    def test_operations_that_are_not_waited_for(self):
        self.fine(2, "waiting")
        self.fine(3, "waiting")

    def test_forked_children_leave_the_group_alone(self):
        self.fine(2, "forked")

    def test_ddp_has_the_weights_of_gloo(self):
        with tempfile.TemporaryDirectory() as folder:
            weights = []
            for backend in ("gloo", "unisono"):
                path = os.path.join(folder, backend)
                self.fine(2, "ddp", backend, path)
                weights.append(torch.load(path))
            for a, b in zip(*weights):
                self.assertTrue(torch.equal(a, b))  # two ranks: one sum, one order


class Errors(unittest.TestCase):
    def test_what_is_refused_is_named(self):
        processes = start(2, "refused")
        for process, out in zip(processes, told(processes)):
            self.assertEqual(process.returncode, 0, out)
            for word in ("tag=3", "receive from a rank that is named", "sparse", "torch.bool", "1 outputs for 2 ranks", "and"):
                self.assertIn(word, out)

    def test_calls_that_differ(self):
        processes = start(3, "mismatch")
        for process, out in zip(processes, told(processes)):
            self.assertEqual(process.returncode, 0, out)
            lines = [line for line in out.splitlines() if line.startswith("told")]
            self.assertEqual(len(lines), 4, out)
            for line in lines:
                self.assertGreaterEqual(len(set(re.findall(r"rank (\d)", line))), 2, line)

    def lost(self, name, *more):
        processes = start(3, "lost", name, *more)
        try:
            for line in processes[1].stdout:
                if line.startswith("pid"):
                    break
            died = time.time() + 0.3
            for rank in (0, 2):
                out = processes[rank].communicate(timeout=120)[0]
                match = re.search(r"^told ([\d.]+) (.*rank 1.*)", out, re.M)
                self.assertTrue(match, out)
                self.assertLess(float(match.group(1)) - died, 3, out)  # a second on a quiet machine
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.communicate()

    def test_a_rank_that_is_killed(self):
        self.lost("SIGKILL")
        self.lost("SIGKILL", "future")

    def test_a_rank_that_is_stopped(self):
        self.lost("SIGSTOP")

    def test_a_rank_that_is_late(self):
        processes = start(2, "late")
        outs = told(processes)
        self.assertTrue(all("in time" in out for out in outs), outs)
        match = re.search(r"told after ([\d.]+) .*rank 1", outs[0])
        self.assertTrue(match, outs[0])
        self.assertGreater(float(match.group(1)), 3.5)


class Launchers(unittest.TestCase):
    def test_unisono_run(self):
        with tempfile.TemporaryDirectory() as storage:
            done = subprocess.run([os.environ["UNISONO_COMMAND"], "run", "-n", "2", "--storage", storage, "--name", "group", "--backend", "torch", "--", sys.executable, WORKER,
                                   "what_gloo_lacks"], capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipIf(torch.__version__.startswith("1."), "torchrun of PyTorch 1.13 fails on Python 3.11")
    def test_torchrun(self):
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port()), WORKER,
                               "what_gloo_lacks"], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("fine"), 2)

    def test_torch_trainer(self):
        from unisono.train import ScalingConfig
        from unisono.train.torch import TorchConfig, TorchTrainer

        def loop():
            import torch
            import torch.distributed as dist

            from unisono import train
            t = torch.full((3,), float(dist.get_rank()))
            dist.all_reduce(t)
            train.report({"backend": dist.get_backend(), "sum": t[0].item(), "transport": dist.group.WORLD._comm.transport})

        result = TorchTrainer(loop, torch_config=TorchConfig(backend="unisono"), scaling_config=ScalingConfig(num_workers=2)).fit()
        self.assertEqual((result.metrics["backend"], result.metrics["sum"], result.metrics["transport"]), ("unisono", 1.0, "shm"))

    def test_a_second_group_of_the_same_workers(self):
        from unisono.train import Trainer

        def loop():
            import torch
            import torch.distributed as dist

            import unisono.torch
            sums = []
            for _ in range(2):
                group = dist.new_group(backend="unisono")
                t = torch.ones(1)
                dist.all_reduce(t, group=group)
                sums.append(t.item())
                dist.destroy_process_group(group)
                del group
            return sums

        trainer = Trainer("torch", 2)
        trainer.start()
        try:
            self.assertEqual([trainer.run(loop) for _ in range(2)], [[[2.0, 2.0]] * 2] * 2)
        finally:
            trainer.shutdown()


if __name__ == "__main__":
    support.main()
