"""servers_test.py [CLASS...] - parameter servers over hosts: two network namespaces with a coordinator, two workers and a server; see network.py."""

import os
import re
import signal
import sys
import time
import unittest

from mpi_test import Hosts
from network import COMMAND, Run, finish, has_mpich, why_not

SKIP = why_not()
WORKER = os.environ["UNISONO_TEST_SERVERS"]
RESULT = re.compile(r"loss (\d+\.\d+) weights (\d+\.\d+) updates (\d+)")


class Members(Hosts):
    env = {}

    def numbers(self, name, *words, servers=1, hosts="a:2,b:2"):
        """(loss, sum of the weights, updates) that the coordinator printed, and the run."""
        code, out = self.net.unisono(name, "-n", "2", "--servers", str(servers), "--hosts", hosts, "-v", "--", WORKER, *words, timeout=120,
                                     env=self.env)
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, name)
        found = RESULT.findall(run.log(0))
        self.assertTrue(found, run.log(0))
        return tuple(float(word) for word in found[-1]), run

    def again(self, name, what, rank):
        """That rank kills itself in the middle, and all go on from the checkpoint."""
        numbers, run = self.numbers(name, what, "parameter_server:sync", "10", "5", str(rank))
        self.assertEqual(run.about()["attempt"], 2)
        begun = [int(word) for word in re.findall(r"begins after epoch (\d+)", run.log(0))]
        self.assertEqual((begun[0], len(begun)), (0, 2))
        self.assertGreaterEqual(begun[1], 4, "it did not go on from its checkpoint")
        return numbers, run.events("cause")[0]["cause"]


class Servers(Members):
    def test_fit(self):
        code, out = self.net.run(WORKER, "fit", "none", "6")
        self.assertEqual(code, 0, out)
        alone = tuple(float(word) for word in RESULT.findall(out)[-1])
        together, run = self.numbers("synchronous", "fit", "parameter_server:sync", "6")
        self.assertEqual(sorted(worker["host"] for worker in run.about()["workers"]), ["a", "a", "b", "b"])
        self.assertAlmostEqual(together[0], alone[0], delta=2e-4)
        self.assertAlmostEqual(together[1], alone[1], delta=2e-3)
        self.assertEqual(together[2], 36)
        free, _ = self.numbers("asynchronous", "fit", "parameter_server", "6")
        self.assertEqual(free[2], 36)
        bounded, _ = self.numbers("bounded", "fit", "parameter_server:bounded=1", "6", servers=2, hosts="a:3,b:2")
        self.assertEqual(bounded[2], 36)

    def test_loop_of_ones_own(self):
        numbers, _ = self.numbers("loop", "loop", "parameter_server", "10")
        self.assertEqual(numbers[2], 60)
        first, _ = self.numbers("short", "loop", "parameter_server", "1")
        self.assertLess(numbers[0], first[0])

    def test_a_death_restarts_all_from_the_checkpoint(self):
        whole, _ = self.numbers("whole", "fit", "parameter_server:sync", "10")
        killed, cause = self.again("killed", "fit", 0)
        self.assertEqual((cause["class"], cause["rank"], cause["signal"]), ("signal", 0, 9))
        self.assertAlmostEqual(killed[0], whole[0], delta=2e-4)
        self.assertAlmostEqual(killed[1], whole[1], delta=2e-3)
        _, cause = self.again("worker", "loop", 2)
        self.assertEqual((cause["class"], cause["rank"], cause["signal"]), ("signal", 2, 9))


class Silence(Members):
    """Members that stand still and networks that swallow: the others, who only wait for messages, are told."""

    names = ("a", "b", "c")

    def begin(self, name, *words, what="fit"):
        process = self.net.start(COMMAND, "run", "--launcher", "mpi", "--name", name, "-n", "2", "--servers", "1", "-v", *words, "--", WORKER,
                                 what, "parameter_server:sync", "60", "5")
        return process, self.workers(name)

    def good_end(self, name, process, epochs=60):
        code, out = finish(process, 90)
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, name)
        self.assertTrue(RESULT.findall(run.log(0)), run.log(0))
        self.assertEqual(run.about()["attempt"], 2)
        self.assertEqual(max(step for _, step in run.reports()), epochs)
        return run

    def stop(self, name, role, what="fit"):
        process, workers = self.begin(name, "--hosts", "a:2,b:2", what=what)
        rank, pid = [(worker["rank"], worker["pid"]) for worker in workers if worker["rank"] == {"worker": 1, "server": 3}[role]][0]
        begun = time.time()
        os.kill(pid, signal.SIGSTOP)
        run = self.good_end(name, process)
        cause = run.events("cause")[0]
        self.assertEqual((cause["cause"]["class"], cause["cause"]["rank"]), ("stopped", rank))
        self.assertLess(cause["time"] - begun, 2, "not after the five seconds that a stop is given")
        told = "".join(run.log(other) for other in range(4) if other != rank)
        self.assertIn("rank %d is stopped or silent" % rank, told)

    def test_stopped_server(self):
        self.stop("server", "server")

    def test_stopped_worker(self):
        self.stop("worker", "worker")
        self.stop("scheduled", "worker", what="loop")

    def test_link_down(self):
        process, _ = self.begin("link", "--hosts", "a:2,b:2,c:2")
        begun = time.time()
        self.net.link_down("b")
        try:
            run = self.good_end("link", process)
            cause = run.events("cause")[0]
            self.assertEqual((cause["cause"]["class"], cause["cause"]["host"]), ("host_lost", "b"))
            self.assertLess(cause["time"] - begun, 20, "silence is acted on after 5 s")
            self.assertEqual(sorted({worker["host"] for worker in run.about()["workers"]}), ["a", "c"])
        finally:
            self.net.link_up("b")

    def test_data_port_silently_dropped(self):
        """What MPI sends between the members is swallowed, and the controller's connections are well."""
        process, _ = self.begin("data", "--hosts", "a:2,b:2")
        ports = self.net.ports_between("servers_worker", "a", "b")
        run = Run(self.net.storage, "data")
        begun = time.time()
        for port in ports:
            self.net.drop_port(port)
        try:
            self.wait_for(lambda: run.events("cause"))
        finally:  # the next attempt may get the same port
            for port in ports:
                self.net.drop_port(port, False)
        self.good_end("data", process)
        self.assertLess(run.events("cause")[0]["time"] - begun, 14)
        self.assertIn("drops what %s sends" % os.environ.get("UNISONO_TRANSPORT", "mpi").upper(), "".join(run.log(rank) for rank in range(4)))


@unittest.skipUnless(has_mpich(), "MPICH is not installed, or this build was configured before it was (tools/notice-libraries)")
class Hydra(Members):
    """MPICH."""

    def setUp(self):
        self.env = {"UNISONO_MPIRUN": "mpiexec.hydra", "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": self.net.rsh, "HYDRA_IFACE": "eth0"}

    def test_fit_and_loop(self):
        for name, what in (("fit", "parameter_server:sync"), ("loop", "parameter_server")):
            numbers, _ = self.numbers(name, name, what, "6")
            self.assertEqual(numbers[2], 36)

    def test_a_death_restarts_all_from_the_checkpoint(self):
        _, cause = self.again("killed", "loop", 2)
        self.assertEqual((cause["class"], cause["rank"], cause["signal"]), ("signal", 2, 9))


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
