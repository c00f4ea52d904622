"""elastic_test.py [CLASS...] - ranks on several hosts that die while the others keep training, over ssh and UCX; see network.py and docs/strategies.md."""

import os
import random
import re
import signal
import sys
import threading
import time
import unittest

from mpi_test import Hosts
from network import COMMAND, WEIGHTS, Run, finish, why_not

SKIP = why_not()


class Elastic(Hosts):
    names = ("a", "b")

    def start_it(self, name, *words, hosts="a:2,b:2", worker=("20", "30"), env=None):
        return self.net.start(COMMAND, "run", "--name", name, "--hosts", hosts, "-v", *words, "--", WEIGHTS, *worker,
                              env={"UNISONO_TRANSPORT": "ucx", **(env or {})})

    def run_it(self, name, *words, **options):
        return finish(self.start_it(name, *words, **options), 120)

    def undisturbed(self, name, **options):
        code, out = self.run_it(name, **options)
        self.assertEqual(code, 0, out)
        weights = set(Run(self.net.storage, name).weights())
        self.assertEqual(len(weights), 1)
        return weights

    def started(self, name, count):
        """{rank: pid} once all run and have reported."""
        run = Run(self.net.storage, name)
        self.wait_for(lambda: run.about()["iterations"] >= 1 and all(worker["pid"] for worker in run.about()["workers"]))
        pids = {worker["rank"]: worker["pid"] for worker in run.about()["workers"]}
        self.assertEqual(len(pids), count)
        return pids

    def check(self, run, out, expected, pids, dead, code=0):
        self.assertEqual(code, 0, out)
        self.assertEqual(run.about()["attempt"], 1, out)
        self.assertEqual(set(run.weights()), expected, out)
        last = {line["rank"]: line["pid"] for line in run.events("exit")}
        self.assertEqual({rank for rank in pids if pids[rank] != last[rank]}, dead, "survivors keep their processes")
        print([line for line in out.splitlines() if "after its death" in line])

    def replaced(self, name):
        return [line for line in Run(self.net.storage, name).lines("journal.jsonl") if line.get("event") == "replaced"]


class Killed(Elastic):
    def test_worker(self):
        expected = self.undisturbed("calm", worker=("0", "30"))
        process = self.start_it("killed")
        pids = self.started("killed", 4)
        os.kill(pids[3], signal.SIGKILL)
        code, out = finish(process, 60)
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, "killed")
        self.check(run, out, expected, pids, {3})

    def test_many(self):
        """At random moments of a run with random numbers, batch statistics, validation and callbacks that remember."""
        expected = self.undisturbed("rich", worker=("0", "40", "rich"))
        seed = int(os.environ.get("UNISONO_TEST_SEED", "1"))
        random.seed(seed)
        process = self.start_it("many", "--max-failures", "100", worker=("3", "40", "rich"))
        pids = self.started("many", 4)
        run, killed = Run(self.net.storage, "many"), set()
        for round in range(12):
            self.wait_for(lambda: len(self.replaced("many")) == len(killed) and not any(w.get("joining") for w in run.about()["workers"]))
            time.sleep(random.random() * 0.4)
            rank = random.randrange(4)
            now = {worker["rank"]: worker["pid"] for worker in run.about()["workers"]}
            if process.poll() is not None or not now[rank]:
                break
            os.kill(now[rank], signal.SIGKILL)
            killed.add((rank, now[rank]))
            time.sleep(0.6)
        code, out = finish(process, 60)
        print("killed with seed %d: %s" % (seed, [rank for rank, _ in sorted(killed)]))
        self.check(run, out, expected, pids, {rank for rank, _ in killed}, code)


class Lost(Elastic):
    """A host goes with all of its ranks, those on the other keep training, and a host takes its place."""

    names = ("a", "b", "c")
    expected = None

    def lose_b(self, name, how, *words, hosts="a:2,b:2", dead=frozenset({2, 3}), worker=("15", "20", "rich")):
        if not Lost.expected:
            Lost.expected = self.undisturbed("undisturbed", worker=("0", *worker[1:]))
        process = self.start_it(name, *words, hosts=hosts, worker=worker)
        pids = self.started(name, 4)
        time.sleep(0.5)
        begun = time.time()
        how()
        self.wait_for(lambda: self.replaced(name), 10)
        code, out = finish(process, 90)
        run = Run(self.net.storage, name)
        print([line for line in out.splitlines() if "after its death" in line or "host" in line])
        self.check(run, out, Lost.expected, pids, set(dead), code)
        return run, out, self.replaced(name)[0]["time"] - begun

    def end_all(self, number, *names):
        def end():
            for pid in self.net.pids(*names):
                os.kill(pid, number)
        return end

    def test_killed(self):
        """Every process of the host, its agent too; it is there again at once."""
        _, out, _ = self.lose_b("host_killed", self.end_all(signal.SIGKILL, "b"))
        self.assertIn("host b has joined, for ranks 2 to 3", out)

    def test_the_chiefs(self):
        self.lose_b("chief_killed", self.end_all(signal.SIGKILL, "a"), dead={0, 1})

    def test_spare(self):
        """The ranks move to a spare host, and the weights are, with as many ranks a host, the same bits."""
        _, out, _ = self.lose_b("spare", self.end_all(signal.SIGKILL, "b"), "-n", "4", hosts="a:2,b:2,c:2")
        self.assertIn("host c has joined, for ranks 2 to 3", out)

    def test_link_cut(self):
        """No FIN: the others find out within three seconds. When the link is there again, the host joins."""
        later = threading.Timer(4, lambda: self.net.link_up("b"))
        def cut():
            self.net.link_down("b")
            later.start()
        try:
            _, _, seconds = self.lose_b("cut", cut)
            print("known after %.2f s" % seconds)
            self.assertLess(seconds, 3)
        finally:
            self.net.link_up("b")

    def test_frozen(self):
        """Every process of the host is stopped, and continued when the others have gone on without it."""
        later = threading.Timer(6, self.end_all(signal.SIGCONT, "b"))
        def freeze():
            self.end_all(signal.SIGSTOP, "b")()
            later.start()
        try:
            _, _, seconds = self.lose_b("frozen", freeze)
            self.assertLess(seconds, 3)
        finally:
            later.join()


class Resized(Elastic):
    """The number of workers changes: nobody waits for a host that is lost, and a new one can be added."""

    names = ("a", "b", "c")

    def sums(self, name):
        """Of each rank's weights; equal to rounding."""
        run = Run(self.net.storage, name)
        found = [re.findall(r"^sums (.*)$", run.log(worker["rank"]), re.M) for worker in run.about()["workers"]]
        return [[float(word) for word in lines[-1].split()] for lines in found if lines]

    def check_sums(self, name, expected):
        for sums in self.sums(name):
            for one, other in zip(sums, expected):
                self.assertAlmostEqual(one, other, delta=1e-3 * max(1, abs(other)))

    def expected(self):
        code, out = self.run_it("fixed", worker=("0", "20"))
        self.assertEqual(code, 0, out)
        return self.sums("fixed")[0]

    def test_goes_on_with_fewer(self):
        """With a minimum the others go on at once; the host joins when it is there again."""
        expected = self.expected()
        process = self.start_it("fewer", "--workers", "2:4", worker=("20", "20"))
        pids, run = self.started("fewer", 4), Run(self.net.storage, "fewer")
        self.net.link_down("b")
        self.wait_for(lambda: run.about()["members"] == 2, 10)
        before = run.about()["iterations"]
        self.wait_for(lambda: run.about()["iterations"] > before, 20)
        self.net.link_up("b")
        self.wait_for(lambda: run.about()["members"] == 4, 30)
        code, out = finish(process, 90)
        print([line for line in out.splitlines() if "workers" in line])
        self.assertEqual(code, 0, out)
        self.assertEqual(run.about()["attempt"], 1, out)
        last = {line["rank"]: line["pid"] for line in run.events("exit")}
        self.assertEqual({rank for rank in (0, 1) if pids[rank] != last[rank]}, set())
        self.check_sums("fewer", expected)

    def test_scaled(self):
        expected = self.expected()
        process = self.start_it("scaled", "--workers", "1:4", "-n", "2", worker=("20", "20"))
        self.wait_for(lambda: Run(self.net.storage, "scaled").about()["iterations"] >= 1)
        for count in ("4", "3", "4"):
            code, out = finish(self.net.start(COMMAND, "scale", "scaled", count))
            self.assertEqual(code, 0, out)
        code, out = finish(process, 90)
        self.assertEqual(code, 0, out)
        self.check_sums("scaled", expected)

    def test_added_host(self):
        """A run over two hosts gets a third one while it trains; what cannot be added is refused, and the run goes on."""
        expected = self.expected()
        process = self.start_it("added", "--workers", "1:6", "-n", "4", worker=("40", "20"))
        pids, run = self.started("added", 4), Run(self.net.storage, "added")
        for words, sentence in ((("--hosts", "c:2"), "write +HOST:SLOTS"), (("6", "--hosts", "+c:2"), "not both"), ((), "which hosts to add"),
                                (("--hosts", "+-oX:1"), "is not a valid host name"), (("--hosts", "+b:2"), "its output says why")):
            code, out = finish(self.net.start(COMMAND, "scale", "added", *words))
            self.assertNotEqual(code, 0, words)
            self.assertIn(sentence, " ".join(out.split()))
        code, out = finish(self.net.start(COMMAND, "scale", "added", "--hosts", "+c:2"))
        self.assertEqual(code, 0, out)
        self.assertIn("6 workers", out)
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "a", "b", "b", "c", "c"])
        code, out = finish(process, 90)
        self.assertEqual(code, 0, out)
        self.assertIn("host b is not added: it is in the run already", out)
        last = {line["rank"]: line["pid"] for line in run.events("exit")}
        self.assertEqual({rank for rank in pids if pids[rank] != last[rank]}, set())
        self.check_sums("added", expected)


class Apart(Elastic):
    def test_no_way_between(self):
        """Both hosts reach the controller, but not each other: the ranks do not meet for ever."""
        process = self.start_it("apart", "--max-failures", "0", worker=("20", "200"))
        self.started("apart", 4)
        self.net.set_apart("a", "b")
        try:
            code, out = finish(process, 120)
        finally:
            self.net.set_apart("a", "b", False)
        self.assertNotEqual(code, 0, out)
        self.assertIn("the network between the hosts drops what UCX sends", out)


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
