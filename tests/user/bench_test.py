"""bench_test.py - what ./bench makes of its peers: a suite whose installed peers give no number has failed, and says which peer it was."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["UNISONO_SOURCE"]


def load():
    """tools/run-bench as a module."""
    loader = importlib.machinery.SourceFileLoader("run_bench", os.path.join(SOURCE, "tools", "run-bench"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_bench", loader))
    loader.exec_module(module)
    return module


class Verdict(unittest.TestCase):
    OURS = 'print(\'{"metric": "steps_per_s", "unit": "1/s", "unisono": 200}\')'

    def setUp(self):
        self.bench = load()
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.bench.interpreter = lambda group: sys.executable if group == "there" else None

    def write(self, name, code):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!%s\n%s\n" % (sys.executable, code))
        os.chmod(path, 0o700)
        return path

    def run_suite(self, ours, peer=None, group="there", peers=True):
        """(did it succeed, the lines on stdout, what it said)"""
        if peer is not None:
            self.bench.PEERS = {"suite": [(group, self.write("peer.py", peer), "thepeer")]}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            good = self.bench.run_suite("suite", self.write("program", ours), True, peers)
        return good, [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()

    def test_ratio(self):
        good, lines, said = self.run_suite(self.OURS, 'print(\'{"metric": "steps_per_s", "peer": 100}\')')
        self.assertTrue(good, said)
        self.assertEqual([(line["peer"], line["peer_name"], line["ratio"]) for line in lines], [(100, "thepeer", 2.0)])

    def test_peer_that_ends_badly(self):
        good, lines, said = self.run_suite(self.OURS, "raise TypeError('multiple values')")
        self.assertFalse(good)
        self.assertIn("FAILED: a peer that is installed gave no number: thepeer: ", said)
        self.assertIsNone(lines[0]["ratio"])

    def test_peer_that_is_silent(self):
        good, _, said = self.run_suite(self.OURS, "pass")
        self.assertFalse(good)
        self.assertIn("thepeer: it printed no number", said)

    def test_peer_that_says_so(self):
        good, lines, said = self.run_suite(self.OURS, 'print(\'{"metric": "steps_per_s", "peer": 100}\')\nprint(\'{"failed_peer": "ray_data", "why": "crash"}\')')
        self.assertFalse(good)
        self.assertIn("ray_data: crash", said)
        self.assertEqual(len(lines), 1)

    def test_missing_peer(self):
        good, lines, said = self.run_suite(self.OURS, "", group="not there")
        self.assertTrue(good, said)
        self.assertIn("missing", lines[0]["peer_name"])

    def test_peer_inside(self):
        missing = 'print(\'{"metric": "us", "unit": "us", "unisono": 2, "peer": null, "peer_name": "openmpi: missing", "ratio": null}\')'
        for installed in (True, False):
            self.bench.INSIDE = {"suite": {"openmpi": lambda: installed}}
            good, _, said = self.run_suite(missing)
            self.assertEqual(good, not installed)
            self.assertEqual("openmpi: it is installed" in said, installed)

    def test_no_peers(self):
        """No peer is started, and a program that has its own is told."""
        self.bench.INSIDE = {"suite": {}}
        told = 'import sys\nprint(\'{"metric": "told", "unit": "", "unisono": %d}\' % ("--no-peers" in sys.argv))'
        good, lines, said = self.run_suite(told, "raise SystemExit(1)", peers=False)
        self.assertTrue(good, said)
        self.assertEqual(lines[0]["unisono"], 1)

    def test_program_that_fails(self):
        for code in ("raise SystemExit(3)", self.OURS + "\nraise SystemExit(3)", "pass"):
            good, _, said = self.run_suite(code)
            self.assertFalse(good)
            self.assertIn("FAILED", said)


class Libraries(unittest.TestCase):
    """tools/notice-libraries: a build directory that was configured before a library was installed is configured again, once."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.build = os.path.join(self.directory.name, "build")
        os.makedirs(self.build + "/meson-logs")
        with open(self.build + "/build.ninja", "w", encoding="utf-8"):
            pass
        self.log = os.path.join(self.directory.name, "meson.log")
        self.script("meson", 'echo "$@" >> %s' % self.log)
        self.install("zlib")

    def script(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n%s\n" % text)
        os.chmod(path, 0o700)

    def install(self, *names):
        self.script("pkg-config", "\n".join("echo '%s   %s - a library'" % (name, name) for name in names))

    def notice(self, *words):
        """What meson was called with."""
        open(self.log, "w", encoding="utf-8").close()
        env = dict(os.environ, PATH=self.directory.name + ":" + os.environ["PATH"])
        done = subprocess.run([os.path.join(SOURCE, "tools", "notice-libraries"), self.build, *words], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_installed_later(self):
        again = ["configure %s --clearcache" % self.build, "setup --reconfigure %s" % self.build]
        self.assertEqual(self.notice("--fresh"), [])
        self.assertEqual(self.notice(), [])
        self.install("zlib", "ompi-c")
        self.assertEqual(self.notice(), again)
        self.assertEqual(self.notice(), [])
        self.install("zlib")
        self.assertEqual(self.notice(), again)

    def test_directory_of_before(self):
        """One that nobody has looked at yet may have missed something."""
        self.assertEqual(len(self.notice()), 2)
        self.assertEqual(self.notice(), [])


if __name__ == "__main__":
    unittest.main()
