"""network_test.py [CLASS...] - attackers in the network, each in a namespace of its own beside the hosts of a run (tests/hosts/network.py; root only).

Greeting    strangers and replays while hosts are expected          Tap         somebody who reads all that passes the router
QuickFlood  a flood of connections while a run is launched            Flood       tens of thousands of them, six times
Middle      somebody in between who changes frames, the quick part    Between     all that can be done to a frame, in both directions
Objects     pickles and gradients that are changed between workers    Contract    the collectives' contract, sealed
Secret      --secret-file: hosts that have it, and one that has not   Frameworks  who can join connections that are not ours
Paths       a worker elsewhere names a directory of the controller    Later       keys that are stolen after traffic was recorded
Host        a host that was taken over, with its key                  Anything    random frames of such a host
Target      a host that lies to the launcher over ssh
"""

import contextlib
import glob
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
from random import Random

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "hosts"))

from decrypt import Connection, exchange, hashed
from mpi_test import TRANSPORT, Hosts
from network import COMMAND, CONTRACT, WORKER, Run, comm_of, finish, why_not
from sanitized import is_sanitized
from wiretap import streams

MARKED = os.environ.get("UNISONO_TEST_MARKED", "")
SKIP = why_not()


def x25519_public(private):
    """The public key of a private one (RFC 7748), in plain Python: an oracle of its own."""
    prime, base = 2**255 - 19, 9
    scalar = (int.from_bytes(private, "little") & ~(7 | 1 << 255)) | 1 << 254
    x2, z2, x3, z3, swap = 1, 0, base, 1, 0
    for bit in reversed(range(255)):
        now = scalar >> bit & 1
        if swap ^ now:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = now
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % prime, b * b % prime, d * a % prime, c * b % prime
        e = aa - bb
        x3, z3 = (da + cb)**2 % prime, base * (da - cb)**2 % prime
        x2, z2 = aa * bb % prime, e * (aa + 121665 * e) % prime
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, prime - 2, prime) % prime).to_bytes(32, "little")


class Attacked(Hosts):
    """A run whose host b comes when the test lets it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hold, cls.agent = os.path.join(cls.net.base, "hold"), os.path.join(cls.net.base, "agent")
        with open(cls.agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nwhile [ $(hostname) = b ] && [ -e %s ]; do sleep 0.02; done\nexec %s \"$@\"\n" % (cls.hold, os.environ["UNISONO_HOST_AGENT"]))
        os.chmod(cls.agent, 0o700)

    def setUp(self):
        self.helpers = []

    def tearDown(self):
        self.let_go()
        for helper in self.helpers:
            helper.kill()
            helper.wait()
            helper.stdin.close()
            helper.stdout.close()
        super().tearDown()

    def let_go(self):
        if os.path.exists(self.hold):
            os.unlink(self.hold)

    def begin(self, name, *options, worker=(WORKER, "pause=10", "steps=20"), held=True, launcher="mpi"):
        """Starts it; the port where the controller waits for b."""
        if held:
            with open(self.hold, "w", encoding="utf-8"):
                pass
        process = self.net.start(COMMAND, "run", "--launcher", launcher, "--hosts", "a:1,b:1", "--name", name, "-v", *options, "--", *worker,
                                 env={"UNISONO_HOST_AGENT": self.agent, **({"UNISONO_TRANSPORT": "auto"} if launcher == "ssh" else {})})
        return process, self.wait_for(self.listening) if held else None

    def listening(self):
        """The controller's port, 0 when it does not listen."""
        lines = self.net.in_host("k", "ss", "-Htnlp").stdout.splitlines()
        ports = [int(line.split()[3].rsplit(":", 1)[1]) for line in lines if '"unisono"' in line]
        self.assertLessEqual(len(ports), 1, "one port, on one address")
        return ports[0] if ports else 0

    def helper(self, name, *words):
        """A script in the namespace `name` that says "listening" first."""
        script = subprocess.Popen(("ip", "netns", "exec", self.net.prefix + name, sys.executable, *words), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.helpers.append(script)
        self.assertEqual(script.stdout.readline(), "listening\n")
        return script

    def attack(self, port, code, host="b"):
        """Python code in another host's namespace; connect() is a connection to the controller, greet(challenge...) a hello."""
        script = """
import socket, os, struct, sys, time
def connect(wait=3):
    return socket.create_connection(('%s', %d), wait)
def challenged():
    s = connect()
    first = s.recv(48, socket.MSG_WAITALL)
    assert first[:8] == b'UNISONO\\x04', first
    return s
def hello(job, rank=1, key=None, attempt=1):
    return b'UNISONO\\x05' + job + os.urandom(32) + (key or os.urandom(32)) + struct.pack('<IIII', 2, rank, attempt, 1) + os.urandom(32)
def answer(s):
    try:
        return len(s.recv(100))
    except ConnectionError:
        return 0
%s""" % (self.net.address("k"), port, code)
        done = self.net.in_host(host, sys.executable, "-c", script, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def join_variable(self):
        """What the launcher carries to the agents, as anybody can read it on the wire."""
        for pid in self.net.pids():
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    found = re.search(rb"\0UNISONO_JOIN=([^\0]+)", b"\0" + file.read())
            except OSError:
                continue
            if found:
                return found.group(1).decode()
        return None


class Greeting(Attacked):
    def test_strangers(self):
        process, port = self.begin("strangers")
        _, job, _, _, _, key, _ = self.wait_for(self.join_variable).split(":", 6)
        said = self.attack(port, """
s = challenged()
s.sendall(hello(os.urandom(16)))
print('another job:', answer(s))
s = challenged()
s.sendall(b'GET / HTTP/1.1\\r\\n' + b'x' * 200)
print('http:', answer(s))
s = challenged()
s.sendall(hello(bytes.fromhex('%s'), attempt=7))
print('another attempt:', answer(s))
s = challenged()
s.sendall(hello(bytes.fromhex('%s'), rank=99))
print('no such rank:', answer(s))
s = challenged()
begun = time.monotonic()
s.settimeout(10)
print('slow:', answer(s), time.monotonic() - begun < 2.5)
# All that crosses the network in clear text is known to this one, and it takes b's place first.
s = challenged()
s.sendall(hello(bytes.fromhex('%s'), key=bytes.fromhex('%s')))
s.settimeout(0.5)
try:
    print('unannounced:', s.recv(100))
except TimeoutError:
    print('unannounced: waits')
""" % (job, job, job, key))
        self.assertEqual(said, "another job: 0\nhttp: 0\nanother attempt: 0\nno such rank: 0\nslow: 0 True\nunannounced: waits\n")
        self.let_go()
        code, out = finish(process)
        self.good("strangers", code, out)
        for words in ("it belongs to another job", "does not speak this release's protocol", "it is of attempt 7, and attempt 1 is running",
                      "another key than the agent of rank 99 announced", "it did not prove itself within 1 s"):
            self.assertIn("a connection from %s was refused: " % self.net.address("b"), out)
            self.assertIn(words, out)

    def test_listens_only_while_hosts_are_expected(self):
        process, _ = self.begin("open", worker=(WORKER, "pause=50", "steps=60", "die=1", "at=30"))
        self.let_go()
        self.workers("open")
        self.assertEqual(self.listening(), 0, "all hosts are there")
        run = Run(self.net.storage, "open")
        self.wait_for(lambda: len(run.events("placed")) == 2, 40)  # the second attempt listened again
        self.assertEqual(self.wait_for(lambda: [self.listening()]), [0])
        code, out = finish(process)
        self.good("open", code, out, steps=60)

    def test_replayed_greeting(self):
        """The bytes that a real agent sent prove nothing a second time."""
        tap = os.path.join(self.net.base, "tap_replay")
        self.helper("r", os.path.join(HERE, "wiretap.py"), tap)
        process, port = self.begin("replay")

        self.wait_for(lambda: [line for line in self.net.in_host("k", "ss", "-Htnp").stdout.splitlines() if '"unisono"' in line])

        def captured():
            found = [data for key, data in streams(tap).items() if key[3] == port and data.startswith(b"UNISONO\5") and len(data) >= 160]
            return found and found[0]
        hello = self.wait_for(captured)
        said = self.attack(port, """
s = challenged()
s.sendall(bytes.fromhex('%s'))
print('replayed:', answer(s))
s = challenged()
s.sendall(bytes.fromhex('%s'))
print('with frames:', answer(s))
""" % (hello[:136].hex(), hello.hex()))
        self.assertEqual(said, "replayed: 0\nwith frames: 0\n")
        self.let_go()
        code, out = finish(process)
        self.good("replay", code, out)
        self.assertIn("a connection from %s was refused: it cannot prove that it is the agent of rank 0: it repeats an earlier greeting" %
                      self.net.address("b"), out)

    def test_another_user_of_the_machine(self):
        """No environment, command line or file of the run has a private key, for its own user neither."""
        process, _ = self.begin("private", worker=(WORKER, "pause=30", "steps=60"))
        self.let_go()
        self.workers("private")
        found = set()
        for pid in self.net.pids():
            for name in ("environ", "cmdline"):
                try:
                    with open("/proc/%d/%s" % (pid, name), "rb") as file:
                        found |= set(re.findall(rb"\b[0-9a-f]{64}\b", file.read()))
                except OSError:
                    pass
        for directory, _, names in os.walk(self.net.base):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        found |= set(re.findall(rb"\b[0-9a-f]{64}\b", file.read(1 << 22)))
        code, out = finish(process)
        self.good("private", code, out, steps=60)
        public = {bytes.fromhex(text.decode()) for text in found}
        self.assertTrue(public, "the public keys are there")
        self.assertFalse({key for key in public if x25519_public(key) in public}, "a private key is there")


class Secret(Attacked):
    def test_secret_file(self):
        """With one only hosts that have the same file can join; its content is nowhere to be seen."""
        path, wrong = os.path.join(self.net.base, "secret"), os.path.join(self.net.base, "wrong")
        for name, byte in ((path, b"s"), (wrong, b"w")):
            with open(name, "wb") as file:
                file.write(byte * 32)
            os.chmod(name, 0o600)
        code, out = self.net.unisono("shared", "--hosts", "a:1,b:1", "--secret-file", path, "--", WORKER)
        self.good("shared", code, out)
        os.chmod(path, 0o644)
        code, out = self.net.unisono("loose", "--hosts", "a:1,b:1", "--secret-file", path, "--", WORKER)
        self.assertEqual(code, 125, out)
        self.assertIn("chmod 600", out)
        os.chmod(path, 0o600)
        # Host b has another file at that path.
        self.net.write_rsh("[ $host = b ] && mount --bind %s %s;" % (wrong, path))
        try:
            code, out = self.net.unisono("other", "--hosts", "a:1,b:1", "--secret-file", path, "-f", "0", "--", WORKER, timeout=100)
        finally:
            self.net.write_rsh()
        self.assertNotEqual(code, 0, out)
        self.assertIn("does not have the secret file", out)
        self.assertIn(self.net.address("b"), out)


class Flooded(Attacked):
    def flood(self, name, seconds, clients):
        """Connections from a, while b is awaited; what the run said, and how many there were."""
        process, port = self.begin(name)
        floods = [self.helper("a", "-c", """
import socket, sys, time
print('listening', flush=True)
end, count, kept = time.monotonic() + %g, 0, []
while time.monotonic() < end:
    try:
        kept.append(socket.create_connection(('%s', %d), 0.5))
        count += 1
    except OSError:
        time.sleep(0.001)
    del kept[:-300]
print(count, flush=True)
""" % (seconds, self.net.address("k"), port)) for _ in range(clients)]
        time.sleep(seconds / 2)
        self.let_go()
        counts = [int(script.stdout.readline()) for script in floods]
        code, out = finish(process)
        self.good(name, code, out)
        # A slow machine may need a second try to prove itself; the flood must not be the reason.
        self.assertNotRegex(out, r"connections? from %s w(as|ere) refused[^\n]*: too many" % re.escape(self.net.address("b")))
        return sum(counts), out


class Flood(Flooded):
    def test_one_address(self):
        """For some seconds a opens all it can; b comes meanwhile and gets in, every time."""
        total = 0
        for i in range(6):
            count, out = self.flood("flood%d" % i, 6, 3)
            total += count
            self.assertIn("too many connections of this address wait to prove themselves", out)
            self.assertRegex(out, r"\d+ connections from %s were refused during the launch" % re.escape(self.net.address("a")))
        print("%d connections in 6 launches" % total)
        self.assertGreater(total, 6000)


class QuickFlood(Flooded):
    def test_one_address(self):
        count, out = self.flood("flood", 2, 1)
        print("%d connections" % count)
        self.assertGreater(count, 100)
        self.assertIn("too many connections of this address wait to prove themselves", out)


class Tap(Attacked):
    """Somebody reads all that passes the router. The hosts do not see the storage, so that everything of the run passes there."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.net.write_rsh("mount -t tmpfs none %s;" % cls.net.storage)

    def tapped(self, name, *options, worker=()):
        """A run whose every part has a mark: the streams that were seen, the mark, the output."""
        mark = secrets.token_hex(12).translate(str.maketrans("0123456789", "ghijklmnop"))
        tap = os.path.join(self.net.base, "tap_" + name)
        script = self.helper("r", os.path.join(HERE, "wiretap.py"), tap)
        process, _ = self.begin(name, "--set", "mark=" + mark, "--env", "UNISONO_TEST_MARK=" + mark, *options, worker=(MARKED, *worker), held=False)
        code, out = finish(process)
        self.assertEqual(code, 0, out)
        script.stdin.close()
        script.wait(20)
        run = Run(self.net.storage, name)
        self.assertIn("log " + mark, run.log(0))
        self.assertIn("log " + mark, run.log(1))
        self.assertEqual({metrics["text"] for metrics in run.reports().values()}, {mark})
        self.assertEqual(len(glob.glob(run.dir + "/checkpoints/checkpoint_*")), 2)
        seen = streams(tap)
        os.unlink(tap)
        self.assertGreater(sum(map(len, seen.values())), 10000, "the tap works")
        return seen, mark, out

    def where(self, seen, mark):
        """What precedes each place where the mark is readable."""
        return [(key, data[max(at - 24, 0):at]) for key, data in seen.items() for at in [data.find(mark.encode())] if at >= 0]

    def test_control(self):
        """Config, environment, metrics, logs, both kinds of checkpoints: nothing of it is readable, and no private key crosses."""
        for kind in ("directory=0", "directory=1"):
            seen, mark, out = self.tapped("control" + kind[-1], worker=("comm=0", kind))
            self.assertEqual(self.where(seen, mark), [])
            self.assertIn("(sealed)", out)
        everything = b"\n".join(seen.values())
        self.assertIn(b"UNISONO_JOIN", everything, "mpirun's own connection is plain, and was read")
        self.assertNotIn(b"UNISONO_JOB_SECRET", everything)
        # Each 32 bytes in hexadecimal that passed: none is the private half of another.
        keys = {bytes.fromhex(text.decode()) for text in re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", everything)}
        self.assertGreaterEqual(len(keys), 3, "the public keys of the controller and both hosts")
        self.assertFalse({key for key in keys if x25519_public(key) in keys})

    def test_no_seal(self):
        """The same tap reads everything when it is asked for: the test above can fail."""
        seen, mark, out = self.tapped("readable", "--no-seal", worker=("comm=0",))
        self.assertGreaterEqual(len(self.where(seen, mark)), 2)
        self.assertIn("readable: --no-seal", out)


    def test_gradients(self):
        """All kinds of collectives: readable by default, which is said before; sealed with --encrypt, in both placements of ranks."""
        seen, mark, out = self.tapped("plain")
        self.assertTrue(self.where(seen, mark))
        self.assertIn("readable in the network: gradients that %s carries (--encrypt seals them)" % TRANSPORT.upper(), out)
        for name, hosts in (("apart", "a:1,b:1"), ("pairs", "a:2,b:2")):
            seen, mark, out = self.tapped(name, "--encrypt", "--hosts", hosts)
            self.assertEqual(self.where(seen, mark), [])
            self.assertNotIn("gradients that", out)
            self.assertIn("transport done", Run(self.net.storage, name).log(1))

    def test_frameworks(self):
        """Connections that cannot be sealed: said before, and refused with --encrypt."""
        for backend, words in (("tensorflow", "TensorFlow's own gRPC connections"), ("torch", "PyTorch's own gloo or NCCL connections"),
                               ("horovod", "Horovod's own MPI or gloo connections")):
            name = "of_" + backend
            code, out = self.net.unisono(name, "--hosts", "a:1,b:1", "-b", backend, "--", "true")
            self.assertEqual(code, 0, out)
            self.assertEqual(len(re.findall("readable in the network: " + words, out)), 1, out)
            journal = Run(self.net.storage, name).lines("journal.jsonl")
            said = [i for i, line in enumerate(journal) if "readable in the network" in line.get("message", "")]
            begun = [i for i, line in enumerate(journal) if line.get("event") in ("spawned", "worker", "started")]
            self.assertTrue(said)
            self.assertTrue(not begun or said[0] < begun[0], "it is said before the workers start")
            code, out = self.net.unisono(name, "--hosts", "a:1,b:1", "-b", backend, "--encrypt", "--", "true")
            self.assertEqual(code, 125, out)
            self.assertIn("encrypt: " + words, out)
            self.assertIn("cannot be sealed", out)
            code, out = self.net.unisono(name, "--hosts", "a:2", "-b", backend, "--encrypt", "--", "true")
            self.assertEqual(code, 0, "nothing of it leaves the host: " + out)

    def test_contradiction(self):
        code, out = self.net.unisono("both", "--hosts", "a:1,b:1", "--encrypt", "--no-seal", "--", "true")
        self.assertEqual(code, 64, out)
        self.assertIn("contradict each other", out)


class Later(Attacked):
    """Every key pair that the controller and the agents make is known to the test (leak_keys.c), and so is the secret file."""

    @classmethod
    def setUpClass(cls):
        if is_sanitized(COMMAND):
            raise unittest.SkipTest("AddressSanitizer reserves terabytes, which cannot be searched for keys, and must be loaded before leak_keys")
        super().setUpClass()
        cls.leak = os.path.join(cls.net.base, "leak")
        cls.preload = {"LD_PRELOAD": os.environ["UNISONO_TEST_LEAK_KEYS"], "UNISONO_TEST_LEAK": cls.leak}
        with open(cls.agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexport %s\nexec %s\n" % (" ".join("%s=%s" % pair for pair in cls.preload.items()), os.environ["UNISONO_HOST_AGENT"]))

    def program(self, pid):
        """The name of its program; processes of the workers come and go."""
        try:
            return os.path.basename(os.readlink("/proc/%d/exe" % pid))
        except FileNotFoundError:
            return ""

    def in_memory(self, pid, wanted):
        """Which of these bytes the process has anywhere in its memory."""
        found = set()
        with open("/proc/%d/maps" % pid, encoding="utf-8") as maps, open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                start, end = (int(word, 16) for word in span.split("-"))
                if not rights.startswith("rw"):
                    continue
                try:
                    memory.seek(start)
                    data = memory.read(end - start)
                except OSError:
                    continue
                found |= {each for each in wanted if each in data}
        return found

    def test_recorded_and_stolen_later(self):
        """With both sides' long-lived private keys and the secret file, recorded traffic stays unreadable; with one connection's own ephemeral key it
        is readable (so that the attack is right), but that key is nowhere in memory once the connection stands."""
        secret, tap, stop = (os.path.join(self.net.base, name) for name in ("later_secret", "tap_later", "later_stop"))
        mark = secrets.token_hex(12)
        with open(secret, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(secret, 0o600)
        self.helper("r", os.path.join(HERE, "wiretap.py"), tap)
        process = self.net.start(COMMAND, "run", "--launcher", "mpi", "--hosts", "a:1,b:1", "--name", "later", "--secret-file", secret, "--set",
                                 "mark=" + mark, "--", "sh", "-c", "while test ! -e %s; do sleep 0.02; done" % stop,
                                 env={"UNISONO_HOST_AGENT": self.agent, **self.preload})
        try:
            run = Run(self.net.storage, "later")
            self.wait_for(lambda: len(run.about()["workers"]) == 2 and all(worker["pid"] for worker in run.about()["workers"]))
            with open(self.leak, encoding="utf-8") as file:
                pairs = dict(tuple(map(bytes.fromhex, line.split())) for line in file)

            def connections():
                seen = streams(tap)
                return [Connection(seen[key[2:] + key[:2]], data) for key, data in seen.items() if data.startswith(b"UNISONO\5") and
                        len(data) > 500 and key[2:] + key[:2] in seen]
            found = self.wait_for(lambda: len(connections()) >= 2 and connections())
            ephemeral = {pairs[key] for each in found for key in (each.controller_ephemeral, each.host_ephemeral)}
            programs = [pid for pid in self.net.pids() if self.program(pid) in ("unisono", "unisono-host")]
            self.assertEqual(len(programs), 3, "the controller and two agents")
            own = set(pairs.values()) - ephemeral
            self.assertTrue(any(self.in_memory(pid, own) for pid in programs), "long-lived keys can be found in memory: the search works")
            for pid in programs:
                self.assertFalse(self.in_memory(pid, ephemeral), "an ephemeral key is still in the memory of process %d" % pid)
        finally:
            with open(stop, "w", encoding="utf-8"):
                pass
            code, out = finish(process)
        self.assertEqual(code, 0, out)
        with open(secret, "rb") as file:
            hashed_secret = hashed(file.read(), None)
        controller_key, = set(pairs) - {key for each in found for key in (each.controller_ephemeral, each.host_ephemeral, each.host_key)}
        for each in connections():
            known = {"controller": exchange(pairs[controller_key], each.host_ephemeral), "agent": exchange(pairs[each.host_key], each.controller_ephemeral),
                     "both": exchange(pairs[controller_key], each.host_key)}
            fresh = exchange(pairs[each.controller_ephemeral], each.host_ephemeral)
            root = each.root(controller_key, hashed_secret, (fresh, known["controller"], known["agent"]))
            self.assertTrue(each.proves(root), "this is how keys are made")
            self.assertIn(mark.encode(), each.read(root), "and this is how frames are opened")
            for guess in (*known.values(), bytes(32), each.controller_ephemeral, each.host_ephemeral, b""):
                root = each.root(controller_key, hashed_secret, (guess, known["controller"], known["agent"]))
                self.assertFalse(each.proves(root))
                self.assertEqual(each.read(root), b"")


class Paths(Attacked):
    def test_a_path_of_the_controller(self):
        """A worker of another host names a directory in a way that its agent does not understand, so that no files come with it: the controller
        has a directory of that name, too, and copies nothing from there."""
        private = os.path.join(self.net.base, "private")
        os.makedirs(private, exist_ok=True)
        with open(os.path.join(private, "key"), "w", encoding="utf-8") as file:
            file.write("the controller's own")
        script = os.path.join(self.net.base, "name_it.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import os, time\nfor key in (r'ch\\u0065ckpoint', r'st\\u0061ged'):\n"
                       "    os.write(int(os.environ['UNISONO_REPORT_FD']), (r'{\"metrics\": {\"x\": 1}, \"%%s\": \"%s\"}' %% key).encode() + b'\\n')\n"
                       "time.sleep(1)\n" % private)
        process, _ = self.begin("paths", worker=(sys.executable, script), held=False)
        code, out = finish(process)
        self.assertEqual(code, 0, out)
        self.assertIn("its host sent no files for it", out)
        found = glob.glob(Run(self.net.storage, "paths").dir + "/**/key", recursive=True)
        self.assertEqual(found, [], "the controller's file is in the run")
        self.assertTrue(os.path.exists(os.path.join(private, "key")))


class Taken:
    """Host b in an attacker's hands: it proves itself, and then says what the test wants (rogue_host.c; src/group/remote.h has the frames)."""

    HELLO, PROBED, SPAWNED, _, MESSAGE, CHANNEL, LINE, BROKEN, EXITED, STOPPED, WORDS, REGION, LOG, FILE = range(2, 16)
    WELCOME, SPAWN, PART, MEMORY, SEND = range(64, 69)

    def __init__(self, door):
        self.socket, _ = door.accept()
        self.socket.settimeout(30)

    def say(self, kind, payload, times=1):
        self.socket.sendall(struct.pack("<BII", kind, times, len(payload)) + payload)

    def of_rank(self, kind, payload=b"", times=1, rank=1):
        self.say(kind, struct.pack("<i", rank) + payload, times)

    def hear(self, kind):
        """The next frame of that type, without its rank."""
        while True:
            found, size = struct.unpack("<BI", self.exactly(5))
            payload = self.exactly(size)
            if found == kind:
                return payload[4:]

    def exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError("the host has ended")
            data += piece
        return data

    def introduce(self, name=b"b", ranks=(1,)):
        ranks = bytes([0x90 + len(ranks), *ranks])
        self.of_rank(self.HELLO, b"\x85" + text("host") + b"\xd9" + bytes([len(name)]) + name + text("ranks") + ranks + text("ports") + ranks +
                     text("cpus") + b"\x01" + text("memory") + b"\x01", rank=-1)

    def join(self, name=b"b"):
        self.introduce(name)
        self.hear(self.WELCOME)
        self.of_rank(self.PROBED, b"\x83" + text("shared") + b"\xc2" + pack("scratch", "/tmp") + text("program") + b"\x90", rank=-1)
        self.hear(self.SPAWN)


class TakenOver(Attacked):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.door = socket.socket(socket.AF_UNIX)
        cls.door.bind(os.path.join(cls.net.base, "door"))
        cls.door.listen()
        cls.door.settimeout(30)
        with open(cls.agent, "w", encoding="utf-8") as file:
            # The launcher over ssh starts on the hosts what it was called itself.
            file.write("#!/bin/bash\n[ $(hostname) = b ] && exec %s %s \"$@\"\nwhile [ $(hostname) = a ] && [ -e %s ]; do sleep 0.02; done\nexec -a \"$0\" %s \"$@\"\n" %
                       (os.environ["UNISONO_TEST_ROGUE_HOST"], os.path.join(cls.net.base, "door"), cls.hold, os.environ["UNISONO_HOST_AGENT"]))

    @classmethod
    def tearDownClass(cls):
        cls.door.close()
        super().tearDownClass()

    def taken(self, name, *options, limit="60s", held=False, launcher="mpi"):
        """A run with rank 0 on an honest host, which may be held back, and rank 1 on this one, which proves itself."""
        process, _ = self.begin(name, "-f", "0", "--time-limit", limit, "--grace", "1s", *options, worker=("/bin/sleep", "100"), held=held, launcher=launcher)
        host = Taken(self.door)
        self.addCleanup(host.socket.close)
        return process, host

    def controller(self):
        """Its pid."""
        lines = self.net.in_host("k", "ss", "-Htnp").stdout
        return int(re.search(r'"unisono",pid=(\d+)', lines).group(1))


class Host(TakenOver):
    """A host that was taken over ends the run, and nothing else: the controller hears its signals and its limits, and takes bounded memory."""

    def test_memory_and_connections(self):
        """Connections beyond those that an agent needs, starts that are said again and again (each wrote run.json), mail to a rank that reads none, and a
        checkpoint that is larger than the machine's memory."""
        process, host = self.taken("memory")
        host.say(0, b"c", 200)
        host.join()
        pid = self.controller()
        self.assertLess(len(os.listdir("/proc/%d/fd" % pid)), 120)
        host.of_rank(host.SPAWNED, struct.pack("<i", 77), 20000)
        host.of_rank(host.CHANNEL, struct.pack("<ii", 16, 0) + bytes(64 + 1000000), 800)
        host.of_rank(host.REGION, struct.pack("<iiQQ", 0, 0, 0, 1 << 39) + bytes(8))
        code, out = finish(process)
        self.assertEqual(code, 70, out)
        self.assertIn("its agent has too many connections", out)
        self.assertEqual(out.count("workers started"), 1, out)
        self.assertEqual(out.count("host a does not take what it is sent"), 1, out)
        self.assertIn("rank 1 (pid 77) broke the protocol: its checkpoint is larger than the free memory here", out)

    def test_frames_without_end(self):
        """Each is a file of its own to create. The controller took all that came before it looked at anything else, and heard SIGTERM half a minute later."""
        process, host = self.taken("frames")
        host.join()
        pid, names = self.controller(), (b"%d" % number for number in range(150000))
        stop = threading.Thread(target=lambda: (self.wait_for(lambda: glob.glob(Run(self.net.storage, "frames").dir + "/.staging/rank_1*/5000"), 90),
                                                os.kill(pid, signal.SIGTERM)))
        stop.start()
        with contextlib.suppress(OSError):
            for name in names:
                host.of_rank(host.FILE, struct.pack("<QII", 0, len(name), 1) + name + b"x")
        stop.join()
        begun = time.monotonic()
        code, out = finish(process)
        self.assertEqual(code, 75, out)
        self.assertIn("asked to stop (SIGTERM)", out)
        self.assertLess(time.monotonic() - begun, 15)


    def test_ranks_of_another_host(self):
        """It is quicker than the honest host, and says that it has that one's rank, too; or that one's only. Over ssh ranks are given to hosts by us."""
        for launcher, ranks, sentence in (("ssh", (1, 0), "host b says that it has rank 0, which cannot be"), ("mpi", (0,), "does not have the rank 1 that it proved")):
            process, host = self.taken("ranks_" + launcher, held=True, launcher=launcher)
            host.introduce(ranks=ranks)
            with self.assertRaises((EOFError, OSError)):
                host.hear(host.SPAWN)
            self.let_go()
            code, out = finish(process)
            self.assertEqual(code, 125, out)
            self.assertIn(sentence, " ".join(out.split()))


LIAR = """#!{python}
import os, subprocess, sys
words = [sys.argv[0] + "_honest"] + sys.argv[1:]
if "a" not in sys.argv[1:]:
    os.execvp(words[0], words)
order = b""
while not order.endswith(b"\\n\\n"):
    order += os.read(0, 1)
job, attempt = order.decode().split("UNISONO_JOIN=2:")[1].split(":")[:2]
key = "unisono-host key " + job + " " + attempt + " 1 " + "7" * 64
{lies}
real = subprocess.Popen(words, stdin=subprocess.PIPE)
real.stdin.write(order)
real.stdin.flush()
sys.exit(real.wait())
"""


class Target(Attacked):
    """What host a prints before its agent starts."""

    def run_with(self, name, lies):
        os.rename(self.net.ssh, self.net.ssh + "_honest")
        self.addCleanup(self.net.write_rsh)
        with open(self.net.ssh, "w", encoding="utf-8") as file:
            file.write(LIAR.replace("{python}", sys.executable).replace("{lies}", lies))
        os.chmod(self.net.ssh, 0o700)
        process, _ = self.begin(name, held=False, launcher="ssh")
        return finish(process)

    def test_lines(self):
        """Keys for the rank of b in the guise of other lines, then text without end. Nothing of it counts, and the log stays short."""
        code, out = self.run_with("lines", """
for line in ("unisono-check {", "\\r", "\\0", "x" * 4095, "unisono-host joined ", "x\\x1b[2J"):
    print(line + key + "}", flush=True)
for _ in range(40000):
    print("x" * 100)
sys.stdout.flush()""")
        run = self.good("lines", code, out)
        with open(run.dir + "/logs/launcher.log", encoding="utf-8", errors="replace") as file:
            log = file.read()
        self.assertNotIn("7" * 64, log)
        self.assertEqual(log.count("a: its further output is not kept"), 1)
        self.assertLess(len(log), 300000)

    def test_check(self):
        """Text without end does not hold `unisono check`, and nothing outlives it."""
        self.addCleanup(self.net.write_rsh)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with open(self.net.ssh, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nexec sleep 777\n")
            process = self.net.start(COMMAND, "check", "--hosts", "a,b")
            self.wait_for(lambda: [pid for pid in self.net.pids("k") if comm_of(pid) == "sleep"])
            process.send_signal(number)
            self.assertEqual(finish(process, 10)[0], -number)
            self.assertEqual(self.net.left_behind(), [])
            self.assertEqual(glob.glob(self.net.storage + "/.check_*") == [], number == signal.SIGTERM)
        with open(self.net.ssh, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec yes\n")
        process = self.net.start(COMMAND, "check", "--hosts", "a,b")
        code, out = finish(process, 30)
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"(?m)^a +unusable")

    def test_blame(self):
        """It says that b is to blame, in our words."""
        code, out = self.run_with("blame", """
print("unisono-ssh: host b cannot execute /bin/true: run this to mend it", flush=True)
sys.exit(7)""")
        self.assertEqual(code, 125, out)
        out = " ".join(out.split())
        self.assertIn("before every host had connected; nothing was heard of rank 0 (a)", out)
        self.assertIn("; unisono-host on host a ended with code 7 before it had reached the controller", out)
        self.assertNotRegex(out, "message [^;]*; host b cannot execute")


class Anything(TakenOver):
    def test_frames(self):
        """Frames of every type, known or not, with random contents: the run names the host's rank, or goes on."""
        for seed in range(8):
            random = Random(seed)
            process, host = self.taken("anything%d" % seed, limit="5s")
            host.join()
            with contextlib.suppress(OSError):
                for _ in range(4000):
                    host.say(random.randrange(1, 256) if random.random() < 0.3 else random.randrange(1, 21),
                             struct.pack("<i", random.choice((1, 1, 1, -1, 0, 2, 1 << 30))) + random.randbytes(random.choice((0, 1, 2, 4, 8, 20, 24, 56, 300))))
            code, out = finish(process)
            self.assertIn(code, (70, 75, 123, 125), out)
            self.assertRegex(out, "rank 1|host b|time limit")
            self.assertNotRegex(out, "[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Contract(Attacked):
    """The collectives' contract with everything sealed: the same results, the same errors."""

    def test_all(self):
        for hosts, transport in (("a:1,b:1", TRANSPORT), ("a:2,b:2", "hosts"), ("a:2,b:1", "hosts")):
            name = "contract_" + hosts.replace(":", "").replace(",", "")
            code, out = self.net.unisono(name, "--hosts", hosts, "-f", "0", "--encrypt", "--", CONTRACT, "session", timeout=120)
            self.assertEqual(code, 0, out)
            self.assertIn("transport " + transport, Run(self.net.storage, name).log(0))

    @unittest.skipUnless(shutil.which("mpiexec.hydra"), "MPICH's mpiexec.hydra is not installed")
    def test_mpich(self):
        code, out = self.net.unisono("contract_hydra", "--hosts", "a:2,b:2", "-f", "0", "--encrypt", "--", CONTRACT, "session", timeout=120,
                                     env={"UNISONO_MPIRUN": "mpiexec.hydra", "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": self.net.rsh,
                                          "HYDRA_IFACE": "eth0"})
        self.assertEqual(code, 0, out)


class Middles(Attacked):
    def divert(self, port, way, how, number, *more):
        """What b sends to the controller's port comes to middle.py instead, in the router."""
        router, address = self.net.router, self.net.address("k")
        script = self.helper("r", os.path.join(HERE, "middle.py"), address, str(port), way, how, str(number), *more)
        words = ("iif", "pb", "to", address, "ipproto", "tcp", "dport", str(port), "lookup", "100")
        self.net.in_host("r", "ip", "route", "replace", "local", address, "dev", "lo", "table", "100")
        self.net.in_host("r", "ip", "rule", "add", *words)
        self.addCleanup(self.net.in_host, "r", "ip", "rule", "del", *words, check=False)
        self.assertTrue(router)
        return script

    def changed(self, name, way, how, number, *options, more=(), steps=20):
        """One frame of b's first connection is treated so; the run must notice, say so, and end well with a new attempt."""
        process, port = self.begin(name, *options, worker=(WORKER, "pause=20", "steps=%d" % steps))
        self.divert(port, way, how, number, *more)
        self.let_go()
        code, out = finish(process)
        run = self.good(name, code, out, steps=steps)
        causes = [record["cause"] for record in run.events("cause")]
        self.assertEqual(len(causes), 1, causes)
        self.assertEqual((causes[0]["class"], causes[0]["host"]), ("host_lost", "b"), causes)
        return causes[0]["message"]

    def test_pass(self):
        """The detour alone changes nothing: what the others see is what was done to the frame."""
        process, port = self.begin("pass")
        self.divert(port, "up", "pass", 0)
        self.let_go()
        code, out = finish(process)
        run = self.good("pass", code, out)
        self.assertEqual(run.events("cause"), [])
        self.assertIn(self.net.address("k").rsplit(".", 1)[0] + ".1", out, "b seems to be at the router")


class Objects(Attacked):
    """Somebody in between the workers' own connections, MPI's or UCX's, which prove nothing: what is unpickled must, and with --encrypt everything does."""

    port = 23017

    def between_workers(self, how, number, *more):
        """All that the workers of a and b send to each other goes through middle.py."""
        type(self).port += 2  # that of the last run is not free at once
        scripts = []
        for one, other in (("a", "b"), ("b", "a")):
            target, back = self.net.address(other), self.net.address(one)
            rules = [("iif", "p" + one, "to", target, "ipproto", "tcp", "dport", str(self.port), "lookup", "100"),
                     ("iif", "p" + other, "to", back, "ipproto", "tcp", "sport", str(self.port), "lookup", "100")]
            self.net.in_host("r", "ip", "route", "replace", "local", target, "dev", "lo", "table", "100")
            for words in rules:
                self.net.in_host("r", "ip", "rule", "add", *words)
                self.addCleanup(self.net.in_host, "r", "ip", "rule", "del", *words, check=False)
            scripts.append(self.helper("r", os.path.join(HERE, "middle.py"), target, str(self.port), "raw", how, str(number), *more))
        return {"OMPI_MCA_btl_tcp_port_min_v4": str(self.port), "OMPI_MCA_btl_tcp_port_range_v4": "1",
                "UCX_TCP_PORT_RANGE": "%d-%d" % (self.port, self.port)}, scripts

    def test_gradients(self):
        for name, number in (("whole", 1 << 40), ("flipped", 1500000)):
            env, _ = self.between_workers("flip", number)
            mark = "mark" * 6
            code, out = self.net.unisono(name, "--hosts", "a:1,b:1", "--encrypt", "-f", "0", "--set", "mark=" + mark, "--env", "UNISONO_TEST_MARK=" + mark,
                                         "--", MARKED, env=env)
            self.doCleanups()
            for script in self.helpers:
                script.kill()
            if name == "whole":
                self.assertEqual(code, 0, out)
            else:
                self.assertNotEqual(code, 0, out)
                self.assertRegex(out, r"a message of rank [01] was changed, repeated or left out on its way: possible man in the middle")

    @unittest.skipUnless(os.environ.get("UNISONO_TEST_PYTHON"), "the Python module was not built")
    def test_pickles(self):
        path = os.path.join(self.net.base, "objects.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("""
import unisono.horovod as hvd
from unisono.train import Trainer

def work():
    hvd.init()
    got = hvd.broadcast_object({"text": "a-text-that-is-sent"} if hvd.rank() == 0 else None)
    return got["text"], [each for each in hvd.allgather_object("another-%d" % hvd.rank())]

trainer = Trainer(backend="none", num_workers=2, max_retries=0)
trainer.start()
print(trainer.run(work))
trainer.shutdown()
""")
        interpreter = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        for old, new, good in (("not-there-at-all!!", "", True), ("a-text-that-is-sent", "a-text-that-is-evil", False), ("another-0", "another-9", False)):
            env, _ = self.between_workers("replace", old, new)
            env.update({"UNISONO_LAUNCHER": "mpi", "UNISONO_HOSTS": "a:1,b:1", "PYTHONPATH": os.environ["UNISONO_TEST_PYTHON"]})
            code, out = self.net.run(interpreter, path, env=env)
            self.doCleanups()
            for script in self.helpers:
                script.kill()
            self.assertEqual(code == 0, good, out)
            if good:
                self.assertIn("[('a-text-that-is-sent', ['another-0', 'another-1']), ('a-text-that-is-sent', ['another-0', 'another-1'])]", out)
            else:
                self.assertIn("an object of rank 0 was changed or repeated on its way between the hosts", out)


class Frameworks(Attacked):
    """What docs/hosts.md says of frameworks' own connections: whoever reaches their ports can join. If this fails, a framework has become better."""

    def test_anybody_joins_torch_store(self):
        if not os.path.isdir("/usr/lib/python3/dist-packages/torch"):
            self.skipTest("Debian's python3-torch is not installed")
        stop = os.path.join(self.net.base, "stop")
        script = os.path.join(self.net.base, "store.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("""
import datetime, os, sys, time
import torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, os.environ["RANK"] == "0", datetime.timedelta(seconds=60))
store.set("of_rank_" + os.environ["RANK"], "theirs")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("of_rank_0:", store.get("of_rank_0").decode(), flush=True)
""")
        process, _ = self.begin("store", "-b", "torch", worker=("/usr/bin/python3", script, stop), held=False)

        def store():
            lines = self.net.in_host("a", "ss", "-Htnlp").stdout.splitlines()
            return [int(line.split()[3].rsplit(":", 1)[1]) for line in lines if '"python3"' in line]
        port = self.wait_for(store)[0]
        code = ("import datetime, torch.distributed as dist; s = dist.TCPStore('%s', %d, None, False, datetime.timedelta(seconds=20)); "
                "print(s.get('of_rank_1').decode()); s.set('of_rank_0', 'mine')" % (self.net.address("a"), port))
        said = self.net.in_host("k", "/usr/bin/python3", "-c", code, check=False).stdout
        with open(stop, "w", encoding="utf-8"):
            pass
        code, out = finish(process)
        self.assertIn("theirs", said)
        self.assertEqual(code, 0, out)
        self.assertIn("readable in the network: PyTorch's own gloo or NCCL connections", out)
        self.assertIn("of_rank_0: mine", Run(self.net.storage, "store").log(1))


    def test_anybody_reads_gloo(self):
        """A tap in the router reads the tensors of gloo's broadcast; the run says so before a worker starts, and --encrypt does not start one."""
        if not os.path.isdir("/usr/lib/python3/dist-packages/torch"):
            self.skipTest("Debian's python3-torch is not installed")
        script, tap = os.path.join(self.net.base, "gloo.py"), os.path.join(self.net.base, "tap_gloo")
        mark = secrets.token_hex(16)
        with open(script, "w", encoding="utf-8") as file:
            file.write("""
import os, sys
import torch, torch.distributed as dist
print("a worker has started", flush=True)
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo")
tensor = torch.frombuffer(bytearray(sys.argv[1].encode() * 64), dtype=torch.uint8).clone()
dist.broadcast(tensor, 0)
""")
        code, out = self.net.unisono("gloo_encrypt", "--hosts", "a:1,b:1", "-b", "torch", "--encrypt", "--", "/usr/bin/python3", script, mark)
        self.assertEqual(code, 125, out)
        self.assertIn("encrypt: PyTorch's own gloo or NCCL connections", out)
        self.assertNotIn("a worker has started", out)
        helper = self.helper("r", os.path.join(HERE, "wiretap.py"), tap)
        process, _ = self.begin("gloo", "-b", "torch", worker=("/usr/bin/python3", script, mark), held=False)
        code, out = finish(process, 120)
        helper.stdin.close()
        helper.wait(20)
        self.assertEqual(code, 0, out)
        seen = streams(tap)
        os.unlink(tap)
        self.assertTrue([key for key, data in seen.items() if mark.encode() * 2 in data], "gloo has become unreadable: change docs/hosts.md")
        self.said_first(out, "readable in the network: PyTorch's own gloo or NCCL connections")

    def said_first(self, out, words):
        """One line, before anything of a worker's."""
        self.assertEqual(out.count(words), 1, out)
        self.assertIn("a worker has started", out)
        self.assertLess(out.index(words), out.index("a worker has started"), out)

    def test_anybody_uses_grpc(self):
        """A stranger has TensorFlow's server execute a graph that reads a file where that worker is; the run says so first, and --encrypt does not start one."""
        python = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "venv", "bin", "python")
        if not os.path.exists(python) or not glob.glob(os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "*", "site-packages", "tensorflow")):
            self.skipTest("TensorFlow is not in the environment of tools/python-env")
        place, script = os.path.join(self.net.base, "grpc"), os.path.join(self.net.base, "grpc.py")
        mark = secrets.token_hex(16)
        os.mkdir(place, 0o700)
        with open(os.path.join(place, "mark"), "w", encoding="utf-8") as file:
            file.write(mark)
        with open(script, "w", encoding="utf-8") as file:
            file.write("""
import json, os, sys, time
print("a worker has started", flush=True)
os.chdir(sys.argv[1])
cluster = json.loads(os.environ["TF_CONFIG"])
if cluster["task"]["index"] == 0:
    import tensorflow as tf
    server = tf.distribute.Server(cluster["cluster"], job_name=cluster["task"]["type"], task_index=0)
    with open("ready_", "w") as file:
        json.dump([server.target, cluster["task"]["type"]], file)
    os.rename("ready_", "ready")
while not os.path.exists("stop"):
    time.sleep(0.02)
os._exit(0)
""")
        code, out = self.net.unisono("grpc_encrypt", "--hosts", "a:1,b:1", "-b", "tensorflow", "--encrypt", "--", python, script, place)
        self.assertEqual(code, 125, out)
        self.assertIn("encrypt: TensorFlow's own gRPC connections", out)
        self.assertNotIn("a worker has started", out)
        process, _ = self.begin("grpc", "-b", "tensorflow", worker=(python, script, place), held=False)
        try:
            self.wait_for(lambda: os.path.exists(os.path.join(place, "ready")) or process.poll() is not None, 120)
            code = ("import json, os, sys\nimport tensorflow as tf\nv1 = tf.compat.v1\nv1.disable_eager_execution()\n"
                    "target, job = json.load(open(sys.argv[1]))\n"
                    "target = 'grpc://%s:' % sys.argv[2] + target.rsplit(':', 1)[1]\nos.chdir('/')\n"
                    "with tf.device('/job:%s/task:0/cpu:0' % job): answer = tf.io.read_file('mark')\n"
                    "config = v1.ConfigProto(device_filters=['/job:%s/task:0' % job])\n"
                    "with v1.Session(target, config=config) as session: print(session.run(answer).decode())\n")
            said = self.net.in_host("k", python, "-c", code, os.path.join(place, "ready"), self.net.address("a"), check=False).stdout
        finally:
            with open(os.path.join(place, "stop"), "w", encoding="utf-8"):
                pass
            code, out = finish(process, 120)
        self.assertIn(mark, said, "TensorFlow has become closed: change docs/hosts.md")
        self.assertEqual(code, 0, out)
        self.said_first(out, "readable in the network: TensorFlow's own gRPC connections")


INJECTED = "touch-injected"


class Middle(Middles):
    def test_flip(self):
        message = self.changed("flip", "up", "flip", 9)
        self.assertIn("frame 9 was changed, repeated, reordered or left out on its way: possible man in the middle", message)

    def test_injected_code(self):
        """Readable frames can be imitated in form: an order to start a program of the attacker's, in the middle of a run with --no-seal."""
        target = os.path.join(self.net.base, INJECTED)
        order = (b"\x85" + pack("mode", "p") + pack("exe", "/usr/bin/touch") + b"\xa4argv\x92" + text("touch") + text(target) + pack("cwd", "/") +
                 b"\xa3env\x90")
        payload = b"\x41" + (1).to_bytes(4, "little") + order  # src/group/remote.h: SPAWN for rank 1
        frame = (len(payload) + 17).to_bytes(4, "little") + payload + bytes(17)
        message = self.changed("inject", "down", "inject", 4, "--no-seal", more=(frame.hex(),))
        self.assertIn("frame 4 was changed", message)
        self.assertFalse(os.path.exists(target), "the attacker's program was started")


def text(value):
    data = value.encode()
    return b"\xd9" + bytes([len(data)]) + data


def pack(key, value):
    return text(key) + text(value)


class Between(Middles):
    def test_all_ways(self):
        for seal in ((), ("--no-seal",)):
            for way in ("up", "down"):
                for how, words in (("flip", "frame 4 was changed"), ("drop", "frame 4 was changed"), ("repeat", "frame 5 was changed"),
                                   ("swap", "frame 4 was changed"), ("cut", "closed the connection")):
                    if seal and how in ("drop", "cut"):
                        continue  # the same code
                    name = "%s_%s%s" % (how, way, "_plain" if seal else "")
                    with self.subTest(name):
                        message = self.changed(name, way, how, 4, *seal)
                        self.assertIn(words, message)

    def test_length_that_never_comes(self):
        """A frame whose length was enlarged swallows those that follow: silence, not a hang."""
        begun = time.monotonic()
        message = self.changed("longer", "up", "truncate", 9, steps=40)
        self.assertLess(time.monotonic() - begun, 40)
        self.assertRegex(message, "nothing was heard of it in time|was changed")


if __name__ == "__main__":
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
