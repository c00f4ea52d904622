"""ssh_test.py [CLASS...] - runs over real OpenSSH: a sshd in each host's network namespace, keys of their own, and what only ssh does.

mpi_test.py runs its classes with the launcher ssh too, over a script in place of ssh (network.py).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from mpi_test import Hosts
from network import COMMAND, WEIGHTS, WORKER, Run, comm_of, describe, finish, sh, why_not

SKIP = why_not() or (None if shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") else "sshd (openssh-server) is needed")

SSHD_CONFIG = """Port 22
HostKey {base}/host_key
AuthorizedKeysFile {base}/user_key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
SetEnv TMPDIR={base}/tmp_{host}
"""

SSH_CONFIG = """Host *
    IdentityFile {base}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {base}/known_hosts
    StrictHostKeyChecking yes
"""


class Ssh(Hosts):
    """A sshd is a process of its host, and none may be left behind: each test starts its own."""

    transport = {"UNISONO_TRANSPORT": "auto"}

    def setUp(self):
        base = self.net.base
        for key in ("host_key", "user_key", "other_key"):
            if not os.path.exists(os.path.join(base, key)):
                sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(base, key))
        with open(base + "/host_key.pub", encoding="utf-8") as file:
            words = file.read().split()[:2]
        with open(base + "/known_hosts", "w", encoding="utf-8") as file:
            file.write("".join("%s %s\n" % (name, " ".join(words)) for name in self.names))
        with open(base + "/ssh_config", "w", encoding="utf-8") as file:
            file.write(SSH_CONFIG.format(base=base))
        with open(self.net.ssh, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec ssh -F %s/ssh_config \"$@\"\n" % base)
        os.makedirs("/run/sshd", exist_ok=True)
        self.servers = {name: self.serve(name) for name in self.names}

    def serve(self, name):
        config = os.path.join(self.net.base, "sshd_" + name)
        with open(config, "w", encoding="utf-8") as file:
            file.write(SSHD_CONFIG.format(base=self.net.base, host=name))
        words = ("ip", "netns", "exec", self.net.prefix + name, "unshare", "--uts", "sh", "-c",
                 "hostname %s; exec /usr/sbin/sshd -D -e -f %s" % (name, config))
        log = open(config + ".log", "w", encoding="utf-8")
        with log:
            server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_for(lambda: ":22 " in self.net.in_host(name, "ss", "-Hltn").stdout)
        return server

    def tearDown(self):
        for server in self.servers.values():
            server.terminate()
            server.wait(10)
        super().tearDown()

    def run_it(self, name, *words, hosts="a:1,b:1", env=None):
        """Without --launcher: hosts are enough."""
        return self.net.run(COMMAND, "run", "--name", name, "--hosts", hosts, *words, env={**self.transport, **(env or {})})

    def start_it(self, name, *words):
        return self.net.start(COMMAND, "run", "--name", name, "--hosts", "a:1,b:1", "-v", *words, env=self.transport)

    def test_two_hosts(self):
        code, out = self.run_it("plain", "--", WORKER)
        run = self.good("plain", code, out)
        self.assertEqual(run.about()["launcher"], "ssh")
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["a", "b"])
        self.assertIn("transport ucx", run.log(1))
        self.assert_tidy_but_servers()

    def assert_tidy_but_servers(self):
        self.assertEqual(self.left_in_tmp(), [])

    def test_environment_alone(self):
        """A program with a trainer of its own, and the command: UNISONO_HOSTS is enough."""
        code, out = self.net.run(COMMAND, "run", "--name", "variable", "--", WORKER, env={**self.transport, "UNISONO_HOSTS": "a:1,b:1"})
        self.assertEqual(self.good("variable", code, out).about()["launcher"], "ssh")

    def test_killed_rank_and_weights(self):
        """The same bits as on one machine, also after a death."""
        lines = {}
        for name, words in (("one", ("-n", "2")), ("two", ("--hosts", "a:1,b:1")), ("four", ("--hosts", "a:2,b:2"))):
            code, out = self.net.run(COMMAND, "run", "--name", name, *words, "--", WEIGHTS, env=self.transport)
            self.assertEqual(code, 0, out)
            lines[name] = set(Run(self.net.storage, name).weights())
            self.assertEqual(len(lines[name]), 1)
        self.assertEqual(lines["one"], lines["two"])
        code, out = self.run_it("killed", "--", WORKER, "die=3", "pause=10", hosts="a:2,b:2")
        run = self.good("killed", code, out, ranks=4)
        self.assertEqual(run.about()["attempt"], 2)
        self.assertEqual(run.events("cause")[0]["cause"]["host"], "b")

    def test_connections_that_end(self):
        """When ssh ends, the run goes on: the agents' own connections count."""
        process = self.start_it("cut", "--", WORKER, "pause=20", "steps=60")
        self.workers("cut")
        clients = [pid for pid in self.net.pids("k") if comm_of(pid) == "ssh"]
        self.assertEqual(len(clients), 2)
        for pid in clients:
            os.kill(pid, signal.SIGKILL)
        code, out = finish(process)
        run = self.good("cut", code, out, steps=60)
        self.assertEqual(run.about()["attempt"], 1)

    def test_launcher_killed(self):
        process = self.start_it("launcher", "--", WORKER, "pause=20", "steps=60")
        self.workers("launcher")
        for pid in self.net.pids("k"):
            if "--ssh" in describe(pid):
                os.kill(pid, signal.SIGKILL)
        code, out = finish(process)
        self.assertEqual(self.good("launcher", code, out, steps=60).about()["attempt"], 1)

    def test_told_to_end(self):
        """SIGTERM to a host's agent, as when the machine shuts down: all ranks stop at one iteration, and the run can be resumed."""
        process = self.start_it("told", "--", WORKER, "pause=20", "steps=500")
        self.workers("told")
        for pid in self.net.pids("b"):
            if comm_of(pid) == "unisono-host":
                os.kill(pid, signal.SIGTERM)
        code, out = finish(process)
        self.assertEqual(code, 75, out)
        reports = Run(self.net.storage, "told").reports()
        last = max(step for _, step in reports)
        self.assertEqual({rank for rank, step in reports if step == last}, {0, 1})
        code, out = self.net.run(COMMAND, "run", "--resume", "told/run_001", "--", WORKER, "steps=%d" % (last + 5), env=self.transport)
        self.good("told", code, out, steps=last + 5)

    def test_nothing_in_command_lines(self):
        process = self.start_it("lines", "--", WORKER, "pause=20", "steps=60")
        self.workers("lines")
        lines = []
        for pid in self.net.pids():
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    lines.append(file.read().replace(b"\0", b" ").decode())
            except OSError:
                pass
        code, out = finish(process)
        self.good("lines", code, out, steps=60)
        with open(Run(self.net.storage, "lines").dir + "/logs/launcher.log", encoding="utf-8") as file:
            job = file.read().split("unisono-host key ")[1].split()[0]
        self.assertTrue([line for line in lines if "--order" in line], lines)
        self.assertEqual([line for line in lines if job in line or "UNISONO" in line], [])

    def test_no_login(self):
        """Another key, no server, an unknown host key: the error names the host and what to try."""
        base = self.net.base
        os.rename(base + "/user_key", base + "/right_key")
        os.rename(base + "/other_key", base + "/user_key")
        try:
            code, out = self.run_it("denied", "--", WORKER)
        finally:
            os.rename(base + "/user_key", base + "/other_key")
            os.rename(base + "/right_key", base + "/user_key")
        self.assertEqual(code, 125, out)
        self.assertRegex(out, r"Permission denied \(publickey")
        self.assertRegex(out, "(?s)without a.*password: try `ssh [ab] true`")
        self.servers["b"].terminate()
        self.servers["b"].wait(10)
        begun = time.monotonic()
        code, out = self.run_it("refused", "--", WORKER)
        self.assertEqual(code, 125, out)
        self.assertIn("Connection refused", out)
        self.assertLess(time.monotonic() - begun, 20)
        with open(base + "/known_hosts", "w", encoding="utf-8") as file:
            file.write("")
        code, out = self.run_it("unknown", "--", WORKER, hosts="a:1")
        self.assertEqual(code, 125, out)
        self.assertIn("Host key verification failed", out)

    def test_check(self):
        code, out = self.net.run(COMMAND, "check", "--hosts", "a,b")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"(?m)^b +ready +\d")
        self.servers["b"].terminate()
        self.servers["b"].wait(10)
        code, out = self.net.run(COMMAND, "check", "--hosts", "a,b")
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"(?m)^a +ready +\d")
        self.assertRegex(out, r"(?m)^b +unusable")

    def test_refused(self):
        for words, sentence in ((("--hosts", "a:1,b:1", "--transport", "mpi"), "the transport mpi needs processes that mpirun or srun started"),
                                (("--launcher", "ssh"), 'the launcher "ssh" needs hosts'),
                                (("--launcher", "rsh", "--hosts", "a:1"), "local, ssh, mpi"),
                                (("--hosts", "me@a:1"), "name the user in ~/.ssh/config"),
                                (("--hosts", "-oProxyCommand=x:1"), "is not a valid host name"),
                                (("--hosts", "a:1,b:1", "-n", "3"), "3 workers are asked for, but the hosts have 2 slots")):
            code, out = self.net.run(COMMAND, "run", *words, "--", WORKER)
            self.assertIn(code, (64, 125), (words, out))
            self.assertIn(sentence, " ".join(out.split()))
        code, out = self.run_it("nossh", "--", WORKER, env={"UNISONO_SSH": "/no/such/ssh"})
        self.assertNotEqual(code, 0)
        self.assertIn("/no/such/ssh cannot be executed: install OpenSSH's client", out)

    def test_a_host_cannot_speak_for_another(self):
        """Host a announces a key for the rank of host b before b does: it is not passed on."""
        with open(self.net.ssh, "w", encoding="utf-8") as file:
            file.write("""#!/usr/bin/env python3
import os, subprocess, sys
words = ["ssh", "-F", "{base}/ssh_config"] + sys.argv[1:]
if "a" not in sys.argv[1:]:
    os.execvp("ssh", words)
order = b""
while not order.endswith(b"\\n\\n"):
    order += os.read(0, 1)
job, attempt = order.decode().split("UNISONO_JOIN=2:")[1].split(":")[:2]
print("unisono-host key %s %s 1 %064x" % (job, attempt, 7), flush=True)
# Its own rank at the end, for a reader that takes all digits together; another one, for a reader that counts them.
print("unisono-host key %s%09d%09d%064x 1 0" % (job, int(attempt), 1, 7), flush=True)
real = subprocess.Popen(words, stdin=subprocess.PIPE)
real.stdin.write(order)
real.stdin.flush()
sys.exit(real.wait())
""".replace("{base}", self.net.base))
        code, out = self.run_it("forged", "--", WORKER)
        run = self.good("forged", code, out)
        with open(run.dir + "/logs/launcher.log", encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines.count("a: an announcement for a rank that is not its own is not passed on"), 2)


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
