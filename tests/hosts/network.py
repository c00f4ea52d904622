"""network.py - several hosts on one machine: a network namespace each, behind a router that forwards between them.

Network(names) makes namespaces with one interface (eth0, 10.R.i.2/24) each; `k` is where the controller runs. Names are resolved by files that
`ip netns exec` puts over /etc. rsh is the agent for mpirun: it enters the host's namespace, with a host name and a TMPDIR of its own.
Everything is named after this process's number and removed by close().
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

COMMAND = os.environ["UNISONO_TEST_COMMAND"]
WORKER = os.environ["UNISONO_TEST_WORKER"]
CONTRACT = os.environ["UNISONO_TEST_CONTRACT"]
WEIGHTS = os.environ.get("UNISONO_TEST_WEIGHTS", "")
# How runs start their hosts: the classes of mpi_test.py run with each (meson.build).
LAUNCHER = os.environ.get("UNISONO_TEST_LAUNCHER", "mpi")
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")

RSH = """#!/bin/sh
# rsh HOST COMMAND...: enters the namespace of that host
host=$1
shift
exec ip netns exec {prefix}$host unshare --uts --mount sh -c "hostname $host; export TMPDIR={base}/tmp_$host; {hide} $*"
"""

SSH = """#!/bin/sh
# ssh [-o OPTION] [-X]... HOST COMMAND: the words that unisono gives to OpenSSH
while [ "${{1#-}}" != "$1" ]; do
    [ "$1" = -o ] && shift
    shift
done
exec {rsh} "$@"
"""


def sh(*words, check=True):
    return subprocess.run(words, check=check, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def why_not():
    """A sentence when namespaces cannot be made here, or None."""
    if os.geteuid() != 0:
        return "hosts as network namespaces need root"
    if not shutil.which("ip") or not shutil.which("mpirun"):
        return "ip (iproute2) and mpirun (openmpi-bin) are needed"
    name = "ut%d_try" % os.getpid()
    made = sh("ip", "netns", "add", name, check=False)
    if made.returncode:
        return "no network namespaces here: " + made.stdout.strip()
    sh("ip", "netns", "del", name, check=False)
    return None


def has_mpich():
    """Its launcher is installed, and this build has the plug-in."""
    return shutil.which("mpiexec.hydra") and os.path.exists(os.path.join(os.environ.get("UNISONO_PLUGINS", ""), "libunisono-mpi-mpich.so"))


class Network:
    def __init__(self, names=("a", "b"), hide=""):
        self.names = ["k"] + list(names)
        self.prefix = "ut%d_" % os.getpid()
        self.base = tempfile.mkdtemp(prefix="unisono-hosts-")
        self.storage = os.path.join(self.base, "results")
        self.part = os.getpid() % 200 + 20
        os.mkdir(self.storage)
        self.router = self.prefix + "r"
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        self.write_rsh(hide)

    def write_rsh(self, hide=""):
        self.rsh = os.path.join(self.base, "rsh")
        with open(self.rsh, "w", encoding="utf-8") as file:
            file.write(RSH.format(prefix=self.prefix, base=self.base, hide=hide))
        os.chmod(self.rsh, 0o700)
        self.ssh = os.path.join(self.base, "ssh")
        with open(self.ssh, "w", encoding="utf-8") as file:
            file.write(SSH.format(rsh=self.rsh))
        os.chmod(self.ssh, 0o700)

    def address(self, name):
        return "10.%d.%d.2" % (self.part, self.names.index(name) + 1)

    def build(self):
        sh("ip", "netns", "add", self.router)
        self.in_host("r", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        lines = "127.0.0.1 localhost\n" + "".join("%s %s\n" % (self.address(name), name) for name in self.names)
        for index, name in enumerate(self.names, 1):
            space, net = self.prefix + name, "10.%d.%d." % (self.part, index)
            os.makedirs("/etc/netns/" + space, exist_ok=True)
            with open("/etc/netns/%s/hosts" % space, "w", encoding="utf-8") as file:
                file.write(lines)
            with open("/etc/netns/%s/resolv.conf" % space, "w", encoding="utf-8") as file:
                file.write("nameserver 127.0.0.1\n")
            os.mkdir(os.path.join(self.base, "tmp_" + name))
            sh("ip", "netns", "add", space)
            sh("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", "p" + name, "netns", self.router)
            sh("ip", "-n", space, "addr", "add", net + "2/24", "dev", "eth0")
            sh("ip", "-n", space, "link", "set", "lo", "up")
            sh("ip", "-n", space, "link", "set", "eth0", "up")
            sh("ip", "-n", self.router, "addr", "add", net + "1/24", "dev", "p" + name)
            sh("ip", "-n", self.router, "link", "set", "p" + name, "up")
            sh("ip", "-n", space, "route", "add", "default", "via", net + "1")

    def in_host(self, name, *words, check=True):
        return sh("ip", "netns", "exec", self.prefix + name, *words, check=check)

    def link_down(self, name):
        sh("ip", "-n", self.router, "link", "set", "p" + name, "down")

    def link_up(self, name):
        sh("ip", "-n", self.router, "link", "set", "p" + name, "up")
        # The kernel notices the carrier up to a second later; until then nothing passes, and what starts now would fail.
        deadline = time.monotonic() + 20
        for here, there in (("k", name), (name, "k")):
            while "refused" not in self.in_host(here, "bash", "-c", "exec 3<>/dev/tcp/%s/9" % self.address(there), check=False).stdout:
                assert time.monotonic() < deadline, "the link of %s stays down" % name

    def set_apart(self, one, other, apart=True):
        """What these two hosts send to each other is swallowed, silently; both reach everybody else."""
        for a, b in ((one, other), (other, one)):
            sh("ip", "-n", self.router, "rule", "add" if apart else "del", "from", self.address(a), "to", self.address(b), "blackhole")

    def drop_port(self, port, drop=True):
        """What is sent to or from that TCP port is swallowed on its way, silently; or not any more."""
        for word in ("dport", "sport"):
            sh("ip", "-n", self.router, "rule", "add" if drop else "del", "ipproto", "tcp", word, str(port), "blackhole")

    def ports_between(self, program, one, other):
        """Of the TCP connections of that program between two hosts."""
        lines = self.in_host(one, "ss", "-Htnp").stdout.splitlines()
        ours = [line.split() for line in lines if '"%s"' % program in line and self.address(other) + ":" in line]
        assert ours, lines
        return {words[i].rsplit(":", 1)[1] for words in ours for i in (3, 4)}

    def environment(self, more=None):
        env = dict(os.environ, UNISONO_RESULTS=self.storage, OMPI_MCA_plm_rsh_agent=self.rsh, UNISONO_SSH=self.ssh, TMPDIR=os.path.join(self.base, "tmp_k"))
        if "ASAN_OPTIONS" in env:  # what an MPI library leaves behind at the end of a process is not ours
            env["ASAN_OPTIONS"] += ":detect_leaks=0"
        env.update(more or {})
        return env

    def start(self, *words, env=None):
        return subprocess.Popen(("ip", "netns", "exec", self.prefix + "k") + words, env=self.environment(env), text=True, errors="replace",
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.base)

    def run(self, *words, env=None, timeout=60):
        process = self.start(*words, env=env)
        return finish(process, timeout)

    def unisono(self, name, *words, **options):
        return self.run(COMMAND, "run", "--launcher", LAUNCHER, "--name", name, *words, **options)

    def pids(self, *names):
        """Processes in the namespaces of these hosts, or of all."""
        found = []
        for name in names or self.names:
            found += [int(word) for word in sh("ip", "netns", "pids", self.prefix + name, check=False).stdout.split() if word.isdigit()]
        return found

    def left_behind(self, seconds=5.0):
        """Waits until nobody is left in the namespaces; those who are."""
        end = time.monotonic() + seconds
        while self.pids() and time.monotonic() < end:
            time.sleep(0.05)
        return [describe(pid) for pid in self.pids()]

    def close(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for name in self.names + ["r"]:
            sh("ip", "netns", "del", self.prefix + name, check=False)
            shutil.rmtree("/etc/netns/" + self.prefix + name, ignore_errors=True)
        shutil.rmtree(self.base, ignore_errors=True)


def describe(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return "%d %s" % (pid, file.read().replace(b"\0", b" ").decode(errors="replace")[:120])
    except OSError:
        return str(pid)


def comm_of(pid):
    """Name of its program, or "" when it has ended."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def finish(process, timeout=60):
    """(exit code, what it printed). On a timeout it is killed and the test fails."""
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            out, _ = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        raise AssertionError("it did not end within %g s; it said:\n%s" % (timeout, out))
    return process.returncode, out


class Run:
    """A run directory, as a user finds it."""

    def __init__(self, storage, name, number=1):
        self.dir = os.path.join(storage, name, "run_%03d" % number)

    def about(self):
        with open(os.path.join(self.dir, "run.json"), encoding="utf-8") as file:
            return json.load(file)

    def lines(self, name):
        with open(os.path.join(self.dir, name), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def events(self, kind):
        return [line for line in self.lines("journal.jsonl") if line.get("event") == kind]

    def reports(self):
        """{(rank, iteration): metrics} of the last attempt that reported it."""
        return {(line["rank"], line["iteration"]): line["metrics"] for line in self.lines("results.jsonl") if "metrics" in line}

    def files(self):
        """What a run's directory has, without what the collectives' recorder keeps."""
        found = {os.path.relpath(os.path.join(directory, name), self.dir) for directory, _, names in os.walk(self.dir) for name in names}
        return {name for name in found if not name.startswith("collectives/")}

    def weights(self):
        """What each rank of weights_worker said of its weights."""
        return [re.findall(r"^weights .*$", self.log(worker["rank"]), re.M)[-1] for worker in self.about()["workers"]]

    def log(self, rank):
        with open(os.path.join(self.dir, "logs", "rank_%d.log" % rank), encoding="utf-8") as file:
            return file.read()
