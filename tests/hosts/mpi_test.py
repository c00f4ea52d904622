"""mpi_test.py [CLASS...] - runs over hosts with mpirun or ssh, one network namespace a host; see network.py."""

import glob
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from network import COMMAND, CONTRACT, EXAMPLES, LAUNCHER, WEIGHTS, WORKER, Network, Run, comm_of, describe, finish, has_mpich, why_not

SKIP = why_not()
# What carries collectives between hosts: the classes below run over each (meson.build).
TRANSPORT = os.environ.setdefault("UNISONO_TRANSPORT", "mpi")


class Hosts(unittest.TestCase):
    names = ("a", "b")
    hide = ""

    @classmethod
    def setUpClass(cls):
        cls.net = Network(cls.names, cls.hide)

    @classmethod
    def tearDownClass(cls):
        cls.net.close()

    def tearDown(self):
        self.assertEqual(self.net.left_behind(), [], "processes are left")
        self.assertEqual(self.left_in_tmp("unisono-"), [], "directories are left")

    def left_in_tmp(self, prefix=""):
        """Files in the hosts' temporary directories; a directory that is empty does not count."""
        found = []
        for host in self.net.names:
            top = os.path.join(self.net.base, "tmp_" + host)
            found += [os.path.join(directory, name) for directory, _, names in os.walk(top) for name in names]
            found += [os.path.join(top, name) for name in os.listdir(top) if name.startswith("unisono-")]
        return [path for path in found if os.path.relpath(path, self.net.base).split(os.sep)[1].startswith(prefix)]

    def assert_tidy(self):
        """When the last process on the hosts has ended, no file is left: neither ours nor Open MPI's (8 MB a host and attempt)."""
        self.assertEqual(self.net.left_behind(), [], "processes are left")
        self.assertEqual(self.left_in_tmp(), [])

    def good(self, name, code, out, steps=20, ranks=2, number=1):
        """The run succeeded, every rank reported every step, and the carried sum is right."""
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, name, number)
        reports = run.reports()
        self.assertEqual(sorted(reports), [(rank, step) for rank in range(ranks) for step in range(1, steps + 1)])
        for (_, step), metrics in reports.items():
            self.assertAlmostEqual(metrics["sum"], step * (step + 1) / 2)
        self.assertEqual(run.about()["status"], "succeeded")
        return run

    def wait_for(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = condition()
            except (OSError, ValueError, KeyError):
                value = None
            if value:
                return value
            time.sleep(0.02)
        self.fail("it did not come to that within %g s" % seconds)

    def workers(self, name):
        """[{"rank", "pid", "host"}] once all run."""
        run = Run(self.net.storage, name)
        return self.wait_for(lambda: all(worker["pid"] for worker in run.about()["workers"]) and run.about()["iterations"] > 2
                             and run.about()["workers"])


class Short(Hosts):
    """What the quick tests have: one run, one death, one look at the network."""

    def test_two_hosts(self):
        code, out = self.net.unisono("plain", "--hosts", "a:1,b:1", "-v", "--", WORKER)
        run = self.good("plain", code, out)
        self.assertIn("transport " + TRANSPORT, run.log(1))
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "b"])
        self.assertIn("2 hosts connected to " + self.net.address("k"), out)
        self.assertEqual(len(glob.glob(run.dir + "/checkpoints/checkpoint_*")), 20)
        self.assertFalse(os.path.exists(run.dir + "/.staging"))

    def test_killed_rank(self):
        code, out = self.net.unisono("killed", "--hosts", "a:2,b:2", "--", WORKER, "die=3", "pause=10")
        run = self.good("killed", code, out, ranks=4)
        self.assertIn("transport hosts", run.log(0))
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["host"], cause["signal"]), ("signal", 3, "b", 9))
        self.assertEqual(run.about()["attempt"], 2)
        begun = re.findall(r"begins after step (\d+)", run.log(2))
        self.assertEqual(begun[0], "0")
        self.assertGreaterEqual(int(begun[1]), 7, "it did not go on from its checkpoint")
        self.assertEqual(len(run.events("placed")), 2)
        self.assert_tidy()
        death, again = run.events("cause")[0]["time"], run.events("placed")[1]["time"]
        print("from the death to all hosts again: %.0f ms" % ((again - death) * 1000))


class Transports(Hosts):
    """What carries collectives where nothing was asked for."""

    def test_default(self):
        """UCX if both hosts have it; the option wins over the environment, and what does not exist is refused."""
        has_ucx = os.path.exists(os.path.join(os.environ["UNISONO_PLUGINS"], "libunisono-ucx.so"))
        for name, words, transport in (("auto", ("--transport", "auto"), "ucx" if has_ucx else "mpi"), ("mpi", ("--transport", "mpi"), "mpi")):
            code, out = self.net.unisono(name, "--hosts", "a:1,b:1", *words, "--", WORKER)
            self.assertIn("transport " + transport, self.good(name, code, out).log(1))
        self.net.write_rsh('[ "$host" = b ] && mount --bind /dev/null %s/libunisono-ucx.so;' % os.environ["UNISONO_PLUGINS"] if has_ucx else "")
        try:
            code, out = self.net.unisono("without", "--hosts", "a:1,b:1", "--transport", "auto", "--", WORKER)
            self.assertIn("transport mpi", self.good("without", code, out).log(1))
            code, out = self.net.unisono("refused", "--hosts", "a:1,b:1", "--transport", "ucx", "--", WORKER)
            self.assertNotEqual(code, 0, out)
            self.assertIn("host %s does not have libunisono-ucx.so" % ("b" if has_ucx else "a"), out)
        finally:
            self.net.write_rsh()
        code, out = self.net.unisono("unknown", "--hosts", "a:1,b:1", "--transport", "uxc", "--", WORKER)
        self.assertNotEqual(code, 0)
        self.assertIn('unknown transport "uxc"', out)


class Differ(Hosts):
    """Ranks that do not call the same: nobody gets a result, everybody is told."""

    def differs(self, hosts, rank, way, ranks):
        name = "differ%d%d%d" % (ranks, rank, way)
        code, out = self.net.unisono(name, "--hosts", hosts, "--max-failures", "0", "--", WORKER, "differ=%d" % rank, "way=%d" % way,
                                     "at=2")
        self.assertNotEqual(code, 0, out)
        run = Run(self.net.storage, name)
        for other in range(ranks):
            # Who has the right data of a broadcast may have gone on; it learns of it in its next call.
            wanted = r"EMISMATCH: .*rank \d" if way == 4 else r"told: EMISMATCH: .*rank \d"
            self.assertRegex(run.log(other), wanted, (name, other))

    def test_over_mpi(self):
        for way in range(6):
            self.differs("a:1,b:1", 1, way, 2)

    def test_over_hosts(self):
        for rank in (2, 3):  # the first of its host, which speaks to the others, and one that only the first hears
            for way in range(6):
                self.differs("a:2,b:2", rank, way, 4)


class Ended(Hosts):
    """A rank that ends with 0 while the others go on: the run names it, over MPI too, where its process waits in MPI_Finalize."""

    def ended(self, hosts, way, words):
        name = "ended%d%d" % (len(hosts), way)
        # The limit counts from the start: MPI's own start takes seconds beside other work.
        code, out = self.net.unisono(name, "--hosts", hosts, "--max-failures", "0", "--progress-timeout", "8s", "--", WORKER, "leave=1",
                                     "way=%d" % way, "at=3")
        self.assertEqual(code, 124, out)
        cause = Run(self.net.storage, name).events("cause")[0]["cause"]
        self.assertEqual(cause["class"], "no_progress")
        self.assertIn("rank 1 has %s after iteration 2, and rank 0 (iteration 2) may wait for it" % words, cause["message"])

    def test_over_mpi(self):
        self.ended("a:1,b:1", 0, "closed its session")
        self.ended("a:1,b:1", 1, "closed its session")
        self.ended("a:1,b:1", 2, "returned")

    def test_over_hosts(self):
        self.ended("a:2,b:2", 1, "closed its session")

    def test_warning(self):
        """Without a limit the run says it once, after 10 s."""
        process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--name", "warned", "--hosts", "a:1,b:1", "--", WORKER, "leave=1", "way=1", "at=3")
        run = Run(self.net.storage, "warned")
        try:
            self.wait_for(lambda: [event for event in run.events("warning") if "rank 1 has closed its session after iteration 2" in event["message"]])
        finally:
            process.terminate()
            finish(process)


class Gone(Hosts):
    """Over UCX a rank that ends is no secret: the others are told at once, and go on to their own end."""

    def test_left_alone(self):
        for way, words in ((0, "has closed its communicator"), (1, "is gone"), (2, "is gone")):
            for hosts, leaves in (("a:1,b:1", 1), ("a:2,b:2", 2)):  # in both, the first rank of the second host
                name = "gone%d%d" % (way, leaves)
                begun = time.monotonic()
                code, out = self.net.unisono(name, "--hosts", hosts, "--max-failures", "0", "--", WORKER, "leave=%d" % leaves, "way=%d" % way, "at=3")
                self.assertEqual(code, 1, out)
                self.assertLess(time.monotonic() - begun, 8)
                self.assertRegex(Run(self.net.storage, name).log(0), r"EPEER: .*all_reduce #\d+: rank 1 %s" % words)


class Faults(Hosts):
    names = ("a", "b", "c")

    def test_stopped_rank(self):
        code, out = self.net.unisono("stopped", "--hosts", "a:1,b:1", "--", WORKER, "stop=1", "pause=10")
        run = self.good("stopped", code, out)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["host"]), ("stopped", 1, "b"))
        # Who waited for it in a collective was told within a second, not after the five that a stop is given.
        self.assertIn("rank 1", run.events("cause")[0]["cause"]["message"])

    def test_killed_before_it_is_ready(self):
        code, out = self.net.unisono("early", "--hosts", "a:1,b:1", "--", "sh", "-c",
                                     '[ $RANK$UNISONO_ATTEMPT = 11 ] && kill -9 $$; exec %s pause=5' % WORKER)
        run = self.good("early", code, out)
        self.assertEqual(run.events("cause")[0]["cause"]["rank"], 1)

    def lose_b(self, name, words, how):
        process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--name", name, "-v", *words)
        self.workers(name)
        begun = time.monotonic()
        how()
        code, out = finish(process, 90)
        print("from the loss to the end: %.1f s" % (time.monotonic() - begun))
        return code, out

    def test_link_down_spare_host(self):
        code, out = self.lose_b("spare", ["--hosts", "a:1,b:1,c:1", "-n", "2", "--", WORKER, "pause=50", "steps=40"],
                                lambda: self.net.link_down("b"))
        try:
            run = self.good("spare", code, out, steps=40)
            cause = run.events("cause")[0]["cause"]
            self.assertEqual((cause["class"], cause["rank"], cause["host"]), ("host_lost", 1, "b"), (out, cause))
            self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "c"])
            self.assertIn("left out", out)
            self.assertRegex(out, r"(?m)^b:1 \| begins after step 0 ")
            self.assertRegex(out, r"(?m)^c:1 \| begins after step [1-9]", "lines carry the host that the rank is on now")
        finally:
            for pid in [int(word) for word in self.net.in_host("b", "sh", "-c", "ip netns identify $$", check=False).stdout.split()
                        if word.isdigit()]:
                os.kill(pid, signal.SIGKILL)
            self.net.link_up("b")

    def test_host_dies_at_once(self):
        """Every process of the host ends in the same moment, as when it loses power: MPI, mpirun and the agents all notice, and the host is the cause."""
        def die():
            for pid in self.net.pids("b"):
                os.kill(pid, signal.SIGKILL)
        code, out = self.lose_b("dies", ["--hosts", "a:1,b:1,c:1", "-n", "2", "--", WORKER, "pause=20", "steps=60"], die)
        run = self.good("dies", code, out, steps=60)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["host"]), ("host_lost", "b"), cause)
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "c"])

    def test_short_outage(self):
        """A link that is down for a moment is no reason to begin again: named after 1 s, given up after 5 s, and TCP sends again what was lost."""
        def moment():
            self.net.link_down("b")
            self.wait_for(lambda: [line for line in Run(self.net.storage, "moment").events("warning") if "silent" in line["message"]])
            self.net.link_up("b")
        code, out = self.lose_b("moment", ["--hosts", "a:1,b:1", "--", WORKER, "pause=50", "steps=60"], moment)
        run = self.good("moment", code, out, steps=60)
        self.assertEqual(run.about()["attempt"], 1, out)
        self.assertIn("host b is heard again", out)

    def test_long_outage(self):
        """No spare host: the same hosts are tried again until the link is back, which costs none of the allowed failures but the first."""
        def outage():
            self.net.link_down("b")
            run = Run(self.net.storage, "outage")
            try:
                self.wait_for(lambda: len([line for line in run.events("cause") if line["cause"]["class"] == "launch"]) > 1, 60)
            finally:
                self.net.link_up("b")
        code, out = self.lose_b("outage", ["--hosts", "a:1,b:1", "-f", "1", "--", WORKER, "pause=50", "steps=40"], outage)
        run = self.good("outage", code, out, steps=40)
        causes = [line["cause"] for line in run.events("cause")]
        self.assertEqual((causes[0]["class"], causes[0]["host"]), ("host_lost", "b"), causes)
        self.assertEqual({cause["class"] for cause in causes[1:]}, {"launch"}, causes)
        times = [line["time"] for line in run.events("attempt")]
        self.assertGreater(times[-1] - times[-2], times[2] - times[1] + 0.5, "each launch waits longer than the one before")

    def test_link_down_fewer_workers(self):
        code, out = self.lose_b("fewer", ["--hosts", "a:1,b:1", "--min-workers", "1", "--", WORKER, "pause=50", "steps=40"],
                                lambda: self.net.link_down("b"))
        self.net.link_up("b")
        self.assertEqual(code, 0, out)
        run = Run(self.net.storage, "fewer")
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a"])
        self.assertAlmostEqual(run.reports()[(0, 40)]["sum"], 820)

    def test_resume_after_it_went_on_with_fewer(self):
        """A host is lost, the run goes on without it and is stopped there; resumed, it has the workers that were asked for at first, or what is left."""
        process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--name", "shrunk", "--hosts", "a:1,b:1", "--min-workers", "1", "--", WORKER,
                                 "pause=50", "steps=1000")
        self.workers("shrunk")
        run = Run(self.net.storage, "shrunk")
        self.net.link_down("b")
        try:
            first = self.stop_when_alone(process, run)
            # The host is still away: those who are left are enough, again.
            process = self.net.start(COMMAND, "run", "--resume", "shrunk/run_001", "-v", "--", WORKER, "pause=50", "steps=1000")
            last = self.stop_when_alone(process, run)
            self.assertGreater(last, first)
            self.assertIn("begins after step %d" % first, run.log(0))
        finally:
            self.net.link_up("b")
        code, out = self.net.run(COMMAND, "run", "--resume", "shrunk/run_001", "-v", "--", WORKER, "steps=%d" % (last + 10))
        self.assertEqual(code, 0, out)
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "b"], out)
        self.assertIn("begins after step %d" % last, run.log(1))
        self.assertAlmostEqual(run.reports()[(1, last + 10)]["sum"], (last + 10) * (last + 11) / 2)

    def stop_when_alone(self, process, run):
        """Its last step."""
        self.wait_for(lambda: [worker["host"] for worker in run.about()["workers"] if worker["pid"]] == ["a"])
        before = run.about()["iterations"]
        self.wait_for(lambda: run.about()["iterations"] > before + 2)
        self.stop_controller()
        code, out = finish(process, 30)
        self.assertEqual(code, 75, out)
        return max(step for _, step in run.reports())

    def stop_controller(self):
        for pid in self.net.pids():
            if "unisono run" in describe(pid).replace(COMMAND, "unisono"):
                os.kill(pid, signal.SIGTERM)

    def test_control_port_silently_dropped(self):
        def drop():
            placed = self.net.in_host("k", "ss", "-Htnp").stdout
            ports = {int(line.split()[3].rsplit(":", 1)[1]) for line in placed.splitlines() if '"unisono"' in line}
            self.assertEqual(len(ports), 1, placed)
            for port in ports:
                self.net.drop_port(port)
        begun = []
        code, out = self.lose_b("dropped", ["--hosts", "a:1,b:1", "-f", "0", "--", WORKER, "pause=50", "steps=400"],
                                lambda: (begun.append(time.time()), drop()))
        run = Run(self.net.storage, "dropped")
        cause = run.events("cause")[0]
        self.assertEqual(cause["cause"]["class"], "host_lost")
        self.assertLess(cause["time"] - begun[0], 8, "silence is acted on after 5 s")
        warned = [line for line in run.events("warning") if "silent" in line["message"]]
        self.assertLess(warned[0]["time"] - begun[0], 2.5, "and named after 1")
        self.assertEqual(code, 123, out)

    def test_data_port_silently_dropped(self):
        """MPI's own connection between the workers is cut, the controller's are well: all live, all wait, and are told so."""
        def drop():
            ports = self.net.ports_between("hosts_worker", "a", "b")
            for port in ports:
                self.net.drop_port(port)
            try:
                self.wait_for(lambda: Run(self.net.storage, "data").events("cause"))
            finally:  # the next attempt may get the same port
                for port in ports:
                    self.net.drop_port(port, False)
        begun = []
        code, out = self.lose_b("data", ["--hosts", "a:1,b:1", "--", WORKER, "pause=50", "steps=60"],
                                lambda: (begun.append(time.time()), drop()))
        run = self.good("data", code, out, steps=60)
        self.assertLess(run.events("cause")[0]["time"] - begun[0], 12)
        self.assertEqual(run.about()["attempt"], 2)
        self.assertIn("drops what %s sends" % TRANSPORT.upper(), run.log(0) + run.log(1))

    def test_hosts_apart_from_the_beginning(self):
        """A firewall between the hosts, of which the controller and mpirun notice nothing: MPI cannot even begin."""
        self.net.set_apart("a", "b")
        try:
            for name, hosts in (("apart1", "a:1,b:1"), ("apart2", "a:2,b:2")):
                begun = time.monotonic()
                code, out = self.net.unisono(name, "--hosts", hosts, "-f", "0", "--", WORKER)
                self.assertEqual(code, 1, out)
                self.assertLess(time.monotonic() - begun, 15)
                self.assertIn("have come, but do not reach each other", out)
        finally:
            self.net.set_apart("a", "b", False)
        code, out = self.net.unisono("together", "--hosts", "a:1,b:1", "--", WORKER)
        self.good("together", code, out)

    def test_frozen_by_a_cgroup(self):
        """No signal, no state in /proc: only its silence tells. Such a process cannot even be killed while it is frozen."""
        group = "/sys/fs/cgroup/freezer/ut%d" % os.getpid()
        if not os.path.exists("/sys/fs/cgroup/freezer/tasks"):
            self.skipTest("no cgroup of version 1 with a freezer here")

        def write(name, text):
            with open(os.path.join(group, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.mkdir(group)
        try:
            process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--name", "frozen", "--hosts", "a:1,b:1", "--", WORKER,
                                     "pause=50", "steps=60")
            pid = [worker["pid"] for worker in self.workers("frozen") if worker["rank"] == 1][0]
            begun = time.time()
            write("cgroup.procs", str(pid))
            write("freezer.state", "FROZEN")
            run = Run(self.net.storage, "frozen")
            cause = self.wait_for(lambda: run.events("cause"))[0]
            self.assertEqual((cause["cause"]["class"], cause["cause"]["rank"], cause["cause"]["host"]), ("silent", 1, "b"))
            self.assertLess(cause["time"] - begun, 8, "silence is acted on after 5 s")
            self.wait_for(lambda: len(run.events("placed")) == 2, 30)
            code, out = finish(process, 60)
            self.good("frozen", code, out, steps=60)
        finally:
            write("freezer.state", "THAWED")
            end = time.monotonic() + 10
            while time.monotonic() < end:
                try:
                    os.rmdir(group)
                    break
                except OSError:
                    time.sleep(0.05)

    def test_stop_together(self):
        process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--hosts", "a:1,b:1", "--name", "stop", "--", WORKER, "pause=20",
                                 "steps=1000")
        self.workers("stop")
        time.sleep(0.3)
        self.stop_controller()
        code, out = finish(process, 30)
        self.assertEqual(code, 75, out)
        run = Run(self.net.storage, "stop")
        last = [max(step for rank, step in run.reports() if rank == r) for r in (0, 1)]
        self.assertEqual(last[0], last[1])
        self.assertEqual(run.events("stop")[0]["stop_at"], last[0])
        code, out = self.net.run(COMMAND, "run", "--resume", "stop/run_001", "--launcher", LAUNCHER, "--hosts", "a:1,b:1", "--", WORKER,
                                 "steps=%d" % (last[0] + 5))
        self.assertEqual(code, 0, out)
        self.assertIn("begins after step %d" % last[0], run.log(1))


class Reserved(Hosts):
    """memory_per_worker is checked against what each host has, before a worker starts."""

    def test_too_much(self):
        code, out = self.net.unisono("reserved", "--hosts", "a:1,b:1", "--memory", "900T", "--", WORKER)
        self.assertNotEqual(code, 0, out)
        self.assertRegex(out, r"1 workers with 921600.0 GiB each need 921600.0 GiB, but host [ab] has [0-9.]+ GiB")
        self.assertEqual(Run(self.net.storage, "reserved").about()["attempt"], 1)


class Launcher(Hosts):
    """mpirun or its daemon on a host is killed: a failure with a name, never "asked to stop", and the run goes on."""

    names = ("a", "b", "c")

    def kill(self, name, program, host, words=("--hosts", "a:1,b:1")):
        """Kills that program of mpirun's in the host's namespace while the run is under way."""
        process = self.net.start(COMMAND, "run", "--launcher", LAUNCHER, "--name", name, "-v", *words, "--", WORKER, "pause=50", "steps=40")
        self.workers(name)
        pids = [pid for pid in self.net.pids(host) if comm_of(pid) == program]
        self.assertTrue(pids, [describe(pid) for pid in self.net.pids(host)])
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return finish(process, 90)

    def assert_went_on(self, name, code, out, says):
        run = self.good(name, code, out, steps=40)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual(cause["class"], "launcher", cause)
        self.assertIn(says, cause["message"])
        self.assertEqual(run.about()["attempt"], 2)
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "b"], "no host is left out")
        self.assertNotIn("asked to stop", out)
        self.assert_tidy()
        return run

    def test_mpirun_killed(self):
        code, out = self.kill("mpirun", "mpirun", "k")
        self.assert_went_on("mpirun", code, out, "mpirun was killed by signal 9")

    def test_daemon_killed(self):
        code, out = self.kill("orted", "orted", "b")
        self.assert_went_on("orted", code, out, "on host b")

    def test_daemon_killed_with_a_spare_host(self):
        """The host itself is well: it is used again."""
        code, out = self.kill("spared", "orted", "a", ("--hosts", "a:1,b:1,c:1", "-n", "2"))
        self.assert_went_on("spared", code, out, "on host a")

    def test_budget(self):
        code, out = self.kill("once", "mpirun", "k", ("--hosts", "a:1,b:1", "-f", "0"))
        self.assertEqual(code, 123, out)
        self.assertEqual(Run(self.net.storage, "once").about()["status"], "failed")
        self.assertIn("mpirun", out)
        self.assert_tidy()


class Storage(Hosts):
    """Hosts with a disk of their own: the storage of the controller is hidden from them."""

    @classmethod
    def setUpClass(cls):
        cls.net = Network(cls.names)
        cls.net.write_rsh("mount -t tmpfs none %s;" % cls.net.storage)

    def test_checkpoints_and_logs_come_over_the_channel(self):
        for kind in ("directory=0", "directory=1"):
            name = "apart" + kind[-1]
            code, out = self.net.unisono(name, "--hosts", "a:1,b:1", "-v", "--", WORKER, "die=1", "pause=10", kind, "size=200000")
            run = self.good(name, code, out)
            self.assertIn("no shared storage", out)
            self.assertGreaterEqual(int(re.findall(r"begins after step (\d+)", run.log(1))[1]), 5)
            self.assertIn("ends after step 20", run.log(0))
            self.assertEqual(len(glob.glob(run.dir + "/checkpoints/checkpoint_*")), 20)

    def test_what_cannot_be_read_does_not_become_a_checkpoint(self):
        """A file that root cannot read either (a process's memory at 0), and a directory that is gone: the run says which, and keeps no checkpoint."""
        script = os.path.join(self.net.base, "name_it.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import json, os, sys, tempfile, time\nkind = sys.argv[1]\nhere = tempfile.mkdtemp()\nplace = os.path.join(here, 'state')\nos.mkdir(place)\n"
                       "with open(os.path.join(place, 'a'), 'w') as out:\n    out.write('whole')\n"
                       "os.symlink('a', os.path.join(place, 'b'))\n"
                       "if kind == 'gone':\n    place += '_gone'\n"
                       "if kind == 'unreadable':\n    open(place + '/c', 'w').close()\n    os.system('mount --bind /proc/%d/mem %s/c' % (os.getpid(), place))\n"
                       "line = {'metrics': {'x': 1}, 'checkpoint': place}\n"
                       "os.write(int(os.environ['UNISONO_REPORT_FD']), json.dumps(line).encode() + b'\\n')\ntime.sleep(2)\n")
        for kind in ("good", "gone", "unreadable"):
            code, out = self.net.unisono(kind, "--hosts", "a:1,b:1", "-v", "--", "python3", script, kind)
            run = Run(self.net.storage, kind)
            found = glob.glob(run.dir + "/checkpoints/checkpoint_*/**/*", recursive=True)
            names = sorted({os.path.basename(path) for path in found})
            if kind == "good":
                self.assertEqual(code, 0, out)
                self.assertIn("a", names)
                self.assertNotIn("b", names, "links are not sent")
            else:
                self.assertNotEqual(code, 0, out)
                self.assertRegex(out, "host [ab] cannot send a checkpoint directory: cannot (list|read|look)")
                self.assertEqual(found, [])


class Interfaces(Hosts):
    """Which of its addresses the controller offers."""

    def test_name_that_resolves_to_the_loopback(self):
        path = "/etc/netns/%sk/hosts" % self.net.prefix
        with open(path, encoding="utf-8") as file:
            before = file.read()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(before.replace(self.net.address("k") + " k", "127.0.1.1 k"))
            code, out = self.net.unisono("loopback", "--hosts", "a:1,b:1", "-v", "--", WORKER)
            self.good("loopback", code, out)
            self.assertIn("connected to " + self.net.address("k"), out)
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(before)

    def test_interface(self):
        code, out = self.net.unisono("named", "--hosts", "a:1,b:1", "--interface", "eth0", "-v", "--", WORKER)
        self.good("named", code, out)
        part = self.net.address("k").rsplit(".", 2)[0] + ".0.0/16"
        code, out = self.net.unisono("subnet", "--hosts", "a:1,b:1", "--interface", part, "-v", "--", WORKER, "comm=0")
        self.good("subnet", code, out)
        code, out = self.net.unisono("wrong", "--hosts", "a:1,b:1", "--interface", "eth7", "--", WORKER)
        self.assertEqual(code, 125, out)
        self.assertIn("eth0 " + self.net.address("k"), out)


class Foreign(Hosts):
    """Inside somebody else's mpirun: the same run, but no restart."""

    def mpirun(self, name, *words, hosts="a:2,b:2", program=WORKER, timeout=60):
        return self.net.run("mpirun", "--allow-run-as-root", "--host", hosts, "-x", "UNISONO_RESULTS", "-x", "UNISONO_PLUGINS", "-x",
                            "UNISONO_AGENT", "-x", "UNISONO_HOST_AGENT", COMMAND, "run", "--name", name, "-v", "--", program, *words,
                            timeout=timeout)

    def test_runs(self):
        code, out = self.mpirun("foreign")
        run = self.good("foreign", code, out, ranks=4)
        self.assertIn("transport hosts", run.log(3))

    @unittest.skipUnless(WEIGHTS, "the native engine was not built")
    def test_mpirun_is_content(self):
        """A strategy's workers finalise MPI: mpirun ends with 0, and leaves nothing in the temporary directory (it left 8 MB a host)."""
        for hosts in ("a:1,b:1", "a:2,b:2"):
            name = "content" + hosts[2]
            code, out = self.mpirun(name, hosts=hosts, program=WEIGHTS)
            self.assertEqual(code, 0, out)
            self.assertEqual(Run(self.net.storage, name).about()["status"], "succeeded")
            self.assert_tidy()

    def test_the_file_for_joining_is_private(self):
        # It is gone as soon as all have joined: the second host comes a second later.
        process = self.net.start("mpirun", "--allow-run-as-root", "--host", "a:1,b:1", "-x", "UNISONO_RESULTS", "-x", "UNISONO_PLUGINS",
                                 "-x", "UNISONO_AGENT", "-x", "UNISONO_HOST_AGENT", "sh", "-c", 'sleep "$OMPI_COMM_WORLD_RANK"; exec "$@"', "sh", COMMAND,
                                 "run", "--name", "joined", "--", WORKER, "pause=20")
        modes = self.wait_for(lambda: {os.stat(path).st_mode & 0o777 for path in glob.glob(self.net.storage + "/.join_*")})
        self.assertEqual(modes, {0o600})
        code, out = finish(process)
        self.good("joined", code, out)

    def test_killed_daemons(self):
        """orted on the controller's own host, on another one, and above a shell: the run names it. It ended as "asked to stop", with 75."""
        for host, wrapper in (("a", ()), ("b", ()), ("a", ("sh", "-c", '"$@"; exit $?', "sh"))):
            name = "daemon%s%d" % (host, len(wrapper))
            process = self.net.start("mpirun", "--allow-run-as-root", "--host", "a:1,b:1", "-x", "UNISONO_RESULTS", "-x", "UNISONO_PLUGINS", "-x",
                                     "UNISONO_AGENT", "-x", "UNISONO_HOST_AGENT", *wrapper, COMMAND, "run", "--name", name, "--", WORKER,
                                     "pause=20", "steps=1000")
            self.workers(name)
            os.kill(next(pid for pid in self.net.pids(host) if comm_of(pid) == "orted"), signal.SIGKILL)
            finish(process)
            self.assertEqual(self.net.left_behind(), [])
            run = Run(self.net.storage, name)
            self.assertEqual((run.about()["status"], run.about()["exit_code"]), ("failed", 123))
            cause = run.events("cause")[0]["cause"]
            self.assertEqual(cause["class"], "launcher", cause)
            self.assertIn("orted, which the launcher had started on host %s, has ended or was killed" % host, cause["message"])
        for host in self.net.names:  # what a killed orted leaves of its session is the user's mpirun's
            for path in glob.glob(os.path.join(self.net.base, "tmp_" + host, "ompi.*")):
                shutil.rmtree(path)

    def test_killed_mpirun(self):
        """mpirun itself, the parent of every orted: the run names it, and does not stay "running". Also when the controller gets no CPU
        until orted has killed all that it started and has ended."""
        for hosts, wrapper, held in (("a:1,b:1", (), False), ("a:2,b:2", ("sh", "-c", '"$@"; exit $?', "sh"), False), ("a:1,b:1", (), True),
                                     ("a:2,b:2", ("sh", "-c", '"$@"; exit $?', "sh"), True)):
            name = "mpirun%d%d" % (len(wrapper), held)
            process = self.net.start("mpirun", "--allow-run-as-root", "--host", hosts, "-x", "UNISONO_RESULTS", "-x", "UNISONO_PLUGINS", "-x",
                                     "UNISONO_AGENT", "-x", "UNISONO_HOST_AGENT", *wrapper, COMMAND, "run", "--name", name, "--", WORKER,
                                     "pause=20", "steps=1000")
            self.workers(name)
            run = Run(self.net.storage, name)
            controller = run.about()["controller"]["pid"]
            if held:
                os.kill(controller, signal.SIGSTOP)
            os.kill(next(pid for pid in self.net.pids("k") if comm_of(pid) == "mpirun"), signal.SIGKILL)
            if held:
                self.wait_for(lambda: "orted" not in [comm_of(pid) for pid in self.net.pids("a")])
                os.kill(controller, signal.SIGCONT)
            finish(process)
            self.assertEqual(self.net.left_behind(20), [])
            # orted kills what it has started within a second: that is not the controller, which writes everything in its own time.
            self.assertEqual((run.about()["status"], run.about()["exit_code"]), ("failed", 123))
            shown = json.loads(self.net.run(COMMAND, "show", "--json", name)[1])
            self.assertEqual(shown["status"], "failed")
            cause = run.events("cause")[0]["cause"]
            self.assertEqual(cause["class"], "launcher", cause)
            self.assertIn("the launcher (mpirun) has ended or was killed", cause["message"])
        for host in self.net.names:
            for path in glob.glob(os.path.join(self.net.base, "tmp_" + host, "ompi.*")):
                shutil.rmtree(path)

    def test_mpirun_is_told_to_stop(self):
        """Its user's SIGTERM stops the run: every rank at the same step, with its checkpoint, and a run that can be resumed."""
        process = self.net.start("mpirun", "--allow-run-as-root", "--host", "a:1,b:1", "-x", "UNISONO_RESULTS", "-x", "UNISONO_PLUGINS", "-x",
                                 "UNISONO_AGENT", "-x", "UNISONO_HOST_AGENT", COMMAND, "run", "--name", "told", "--", WORKER, "pause=20",
                                 "steps=1000")
        self.workers("told")
        os.kill(next(pid for pid in self.net.pids("k") if comm_of(pid) == "mpirun"), signal.SIGTERM)
        finish(process)
        self.assertEqual(self.net.left_behind(20), [])
        run = Run(self.net.storage, "told")
        self.assertEqual((run.about()["status"], run.about()["exit_code"]), ("stopped", 75), run.events("cause"))

    def test_no_restart(self):
        code, out = self.mpirun("ends", "die=2", "pause=10")
        run = Run(self.net.storage, "ends")
        about = run.about()
        self.assertEqual(about["exit_code"], 137)
        self.assertEqual(about["attempt"], 1)
        self.assertIn("there is no restart; the last complete checkpoint is checkpoint_0000", about["error"]["message"])
        self.assertNotEqual(code, 0, out)
        code, out = self.net.run(COMMAND, "run", "--resume", "ends/run_001", "--launcher", LAUNCHER, "--hosts", "a:2,b:2", "--", WORKER)
        self.good("ends", code, out, ranks=4)


@unittest.skipUnless(has_mpich(), "MPICH is not installed, or this build was configured before it was (tools/notice-libraries)")
class Mpich(Hosts):
    """The other family of MPI: Hydra as launcher, its own plug-in."""

    def hydra(self, name, *words):
        return self.net.unisono(name, "--hosts", "a:2,b:2", "-v", "--", *words,
                                env={"UNISONO_MPIRUN": "mpiexec.hydra", "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": self.net.rsh,
                                     "HYDRA_IFACE": "eth0"})

    def test_contract(self):
        code, out = self.hydra("contract", "sh", "-c", "[ -n \"$PMI_PORT\" ] && exec %s session" % CONTRACT)
        self.assertEqual(code, 0, out)

    def test_without_the_plugin(self):
        """Open MPI's plug-in does not stand in: it would make a world of one process of each rank."""
        hide = "mount --bind /dev/null %s/libunisono-mpi-mpich.so;" % os.environ["UNISONO_PLUGINS"]
        self.net.write_rsh(hide)
        try:
            code, out = self.hydra("without", WORKER)
            self.assertNotEqual(code, 0)
            self.assertIn("libunisono-mpi-mpich.so", out)
            self.assertNotIn("rank 0 of 1", out)
        finally:
            self.net.write_rsh()

    def test_killed_rank(self):
        code, out = self.hydra("killed", WORKER, "die=3", "pause=10")
        run = self.good("killed", code, out, ranks=4)
        # Hydra ends all of a host when a connection of MPI's breaks, often before our agent can say who died.
        self.assertIn(run.events("cause")[0]["cause"]["rank"], (2, 3), run.events("cause"))


@unittest.skipUnless(WEIGHTS, "the native engine was not built")
class Same(Hosts):
    """One program, one result, one kind of directory, whichever launcher started it (slurm_test.py has Slurm)."""

    def trained(self, name, *words):
        code, out = self.net.run(COMMAND, "run", "--name", name, "--cpus", "1", *words, "--", WEIGHTS)
        self.assertEqual(code, 0, out)
        return Run(self.net.storage, name)

    def test_weights_bit_for_bit(self):
        local = self.trained("local", "-n", "2")
        weights = local.weights()
        self.assertEqual(len(weights), 2)
        self.assertEqual(len(set(weights)), 1, "the ranks differ")
        for name, hosts in (("apart", "a:1,b:1"), ("together", "a:2")):
            run = self.trained(name, "--launcher", LAUNCHER, "--hosts", hosts)
            self.assert_tidy()
            with open(run.dir + "/logs/launcher.log", encoding="utf-8") as file:
                self.assertEqual([line for line in file if not line.startswith("unisono-host key")], [])
            self.assertEqual(run.weights(), weights)
            self.assertEqual(run.files() - {"logs/launcher.log"}, local.files())
            self.assertEqual(set(run.about()) ^ set(local.about()), set())


@unittest.skipUnless(os.environ.get("UNISONO_TEST_PYTHON"), "the Python module was not built")
class Python(Hosts):
    """Scripts that know nothing of hosts, over MPI by two variables of the environment."""

    def script(self, *words):
        interpreter = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # Debian's own: it may have torch
        return self.net.run(interpreter, *words, timeout=150,
                            env={"UNISONO_LAUNCHER": LAUNCHER, "UNISONO_HOSTS": "a:1,b:1", "PYTHONPATH": os.environ["UNISONO_TEST_PYTHON"]})

    def test_no_framework(self):
        path = os.path.join(self.net.base, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write('''
import socket
from unisono import train
from unisono.train import Trainer

def work(config):
    for i in range(config["steps"]):
        train.report(step=i)
    return train.world_rank(), train.world_size(), socket.gethostname()

trainer = Trainer(backend="none", num_workers=2)
trainer.start()
print(trainer.run(work, config={"steps": 3}))
trainer.shutdown()
''')
        code, out = self.script(path)
        self.assertEqual(code, 0, out)
        self.assertIn("[(0, 2, 'a'), (1, 2, 'b')]", out)

    def test_torch(self):
        if not os.path.isdir("/usr/lib/python3/dist-packages/torch"):
            self.skipTest("Debian's python3-torch is not installed")
        code, out = self.script(os.path.join(EXAMPLES, "python", "v1_torch_ddp.py"))
        self.assertEqual(code, 0, out)
        self.assertIn("workers agree: True", out)


class Programs(Hosts):
    """The same path, another file: found before anything runs."""

    @classmethod
    def setUpClass(cls):
        cls.net = Network(cls.names)
        cls.directory = os.path.join(cls.net.base, "program")
        cls.other = os.path.join(cls.net.base, "other")
        for place, word in ((cls.directory, "relu"), (cls.other, "tanh")):
            os.mkdir(place)
            with open(place + "/train.sh", "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n: %s\nexec %s \"$@\"\n" % (word, WORKER))
            os.chmod(place + "/train.sh", 0o755)

    def on_b(self, words):
        """Commands that host b runs before its processes start."""
        self.net.write_rsh('[ "$host" = b ] && { %s; };' % words if words else "")

    def run_it(self, name, *words, env=None):
        return self.net.unisono(name, "--hosts", "a:1,b:1", "--", *words, env=env)

    def test_other_program(self):
        program = self.directory + "/train.sh"
        for name, words in (("direct", [program]), ("script", ["sh", program])):
            code, out = self.run_it(name + "_same", *words)
            self.good(name + "_same", code, out)
            self.on_b("mount --bind %s %s" % (self.other, self.directory))
            try:
                code, out = self.run_it(name, *words)
                self.assertEqual(code, 125, out)
                self.assertIn("train.sh is not the same file on host b as on host a", out)
                self.assertEqual(Run(self.net.storage, name).about()["attempt"], 1, "it would not help to try again")
                code, out = self.run_it(name + "_allowed", *words, env={"UNISONO_DIFFERENT_PROGRAMS": "1"})
                self.good(name + "_allowed", code, out)
            finally:
                self.on_b("")

    def check(self, *words, env=None):
        code, out = self.net.run(COMMAND, "check", "--launcher", LAUNCHER, "--hosts", *words, "--json", env=env)
        return code, {entry["host"]: entry for entry in json.loads(out)}

    def test_check_hosts(self):
        """`unisono check --hosts`: what an operator tries first."""
        code, hosts = self.check("a,b")
        self.assertEqual(code, 0, hosts)
        self.assertEqual([hosts[name]["state"] for name in ("a", "b")], ["ready", "ready"], hosts)
        self.assertEqual(hosts["b"]["reaches"], self.net.address("k"))
        self.assertIn("openmpi", hosts["b"]["plugins"])
        self.assertTrue(hosts["b"]["shares_storage"])
        code, out = self.net.run(COMMAND, "check", "--launcher", LAUNCHER, "--hosts", "a,b")
        self.assertRegex(out, r"(?m)^b +ready +\d")
        # The agent is not there.
        self.on_b("mount --bind /dev/null %s" % os.environ["UNISONO_HOST_AGENT"])
        try:
            code, hosts = self.check("a,b")
            self.assertEqual((code, hosts["a"]["state"], hosts["b"]["state"]), (1, "ready", "unusable"), hosts)
            # Its disk is full; its clock cannot be set in a namespace.
            self.on_b("mount -t tmpfs -o size=1m none %s/tmp_b" % self.net.base)
            code, hosts = self.check("a,b")
            self.assertEqual((code, hosts["b"]["state"]), (1, "unusable"), hosts)
            self.assertIn("free", hosts["b"]["note"])
        finally:
            self.on_b("")
        # It is down.
        self.net.link_down("b")
        try:
            code, hosts = self.check("a,b")
            self.assertEqual((code, hosts["a"]["state"], hosts["b"]["state"]), (1, "ready", "unusable"), hosts)
        finally:
            self.net.link_up("b")
        code, out = self.net.run(COMMAND, "check", "--hosts", "a,,b")
        self.assertNotEqual(code, 0)
        self.assert_tidy()

    def test_check_release(self):
        """Another release on one host."""
        place = os.path.join(self.net.base, "release")
        os.makedirs(place, exist_ok=True)
        with open(place + "/unisono-host", "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho \'unisono-check {"version": "0.0.1", "reaches": "x", "plugins": ["mpich"], "time": 1}\'\n')
        os.chmod(place + "/unisono-host", 0o755)
        code, hosts = self.check("a,b", env={"UNISONO_HOST_AGENT": place + "/unisono-host"})
        self.assertEqual((code, hosts["b"]["state"]), (1, "unusable"))
        self.assertIn("it has unisono 0.0.1", hosts["b"]["note"])
        self.assertIn("behind", hosts["b"]["note"])

    def test_dry_run(self):
        """The plan is the launcher's: which mpirun, and where each rank is."""
        code, out = self.net.unisono("plan", "--hosts", "a:2,b:2", "-n", "3", "--dry-run", "--json", "--", WORKER)
        self.assertEqual(code, 0, out)
        plan = json.loads(out)
        self.assertEqual(plan["launcher"], LAUNCHER)
        self.assertIn("a:2,b:1", plan["launcher_command"])
        self.assertEqual([(worker["host"], worker["local_rank"], worker["node_rank"]) for worker in plan["workers"]],
                         [("a", 0, 0), ("a", 1, 0), ("b", 0, 1)])
        self.assertEqual([worker["environment"]["UNISONO_LOCAL_WORLD_SIZE"] for worker in plan["workers"]], ["2", "2", "1"])
        code, out = self.net.unisono("plan", "--hosts", "a:2,b:2", "--dry-run", "--", WORKER)
        self.assertIn("host b", out)
        self.assertFalse(os.path.exists(self.net.storage + "/plan"))

    def test_missing_library(self):
        """127 is how the dynamic linker ends: another try would end in the same way."""
        code, out = self.net.unisono("library", "--hosts", "a:1,b:1", "--", "sh", "-c", "exit 127")
        self.assertEqual(code, 127, out)
        about = Run(self.net.storage, "library").about()
        self.assertEqual(about["attempt"], 1)
        self.assertIn("not found there", about["error"]["message"])

    def test_no_unisono_there(self):
        """The host that cannot start its agent is named, not the one that waited for it."""
        agent = os.environ["UNISONO_HOST_AGENT"]
        self.on_b("mount --bind /dev/null %s" % agent)
        try:
            code, out = self.run_it("missing", WORKER)
            self.assertEqual(code, 125, out)
            about = Run(self.net.storage, "missing").about()
            self.assertIn("host b cannot execute " + agent, about["error"]["message"])
            self.assertNotIn("host a", about["error"]["message"])
            self.assertEqual(about["attempt"], 1, "it would not help to try again")
        finally:
            self.on_b("")


class Contract(Hosts):
    """The collectives' contract over hosts: each transport, even and uneven hosts."""

    def test_all(self):
        for hosts, transport in (("a:1,b:1", TRANSPORT), ("a:2,b:2", "hosts"), ("a:2,b:1", "hosts"), ("a:3", "shm")):
            name = "contract_" + hosts.replace(":", "").replace(",", "")
            code, out = self.net.unisono(name, "--hosts", hosts, "-f", "0", "--", CONTRACT, "session")
            self.assertEqual(code, 0, out)
            self.assertIn("transport " + transport, Run(self.net.storage, name).log(0))


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
