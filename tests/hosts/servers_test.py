"""servers_test.py [CLASS...] - parameter servers over hosts: two network namespaces with a coordinator, two workers and a server; see network.py."""

import os
import re
import sys
import unittest

from mpi_test import Hosts
from network import Run, why_not

SKIP = why_not()
WORKER = os.environ["UNISONO_TEST_SERVERS"]
RESULT = re.compile(r"loss (\d+\.\d+) weights (\d+\.\d+) updates (\d+)")


class Servers(Hosts):
    def numbers(self, name, *words, servers=1, hosts="a:2,b:2"):
        """(loss, sum of the weights, updates) that the coordinator printed, and the run."""
        code, out = self.net.unisono(name, "-n", "2", "--servers", str(servers), "--hosts", hosts, "-v", "--", WORKER, *words, timeout=120)
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, name)
        found = RESULT.findall(run.log(0))
        self.assertTrue(found, run.log(0))
        return tuple(float(word) for word in found[-1]), run

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

    def again(self, name, what, rank):
        numbers, run = self.numbers(name, what, "parameter_server:sync", "10", "5", str(rank))
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["signal"]), ("signal", rank, 9))
        self.assertEqual(run.about()["attempt"], 2)
        begun = [int(word) for word in re.findall(r"begins after epoch (\d+)", run.log(0))]
        self.assertEqual((begun[0], len(begun)), (0, 2))
        self.assertGreaterEqual(begun[1], 4, "it did not go on from its checkpoint")
        return numbers

    def test_a_death_restarts_all_from_the_checkpoint(self):
        whole, _ = self.numbers("whole", "fit", "parameter_server:sync", "10")
        killed = self.again("killed", "fit", 0)
        self.assertAlmostEqual(killed[0], whole[0], delta=2e-4)
        self.assertAlmostEqual(killed[1], whole[1], delta=2e-3)
        self.again("worker", "loop", 2)


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
