"""scale_test.py - `unisono run --workers MIN:MAX` and `unisono scale`, as a user types them, on an example that trains with fit."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ["UNISONO_BUILD"]
COMMAND = os.path.join(BUILD, "src/cli/unisono")
PROGRAM = os.path.join(BUILD, "examples/engine/engine_digits_mlp")
PATIENCE_S = 60


class Scale(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.environment = dict(os.environ, UNISONO_RESULTS=self.place.name)
        self.run_process = None

    def tearDown(self):
        if self.run_process and self.run_process.poll() is None:
            self.run_process.kill()
        if self.run_process:
            self.run_process.wait()
        self.place.cleanup()

    def start(self, *options):
        self.output = open(os.path.join(self.place.name, "output"), "w+")
        self.addCleanup(self.output.close)
        self.run_process = subprocess.Popen([COMMAND, "run", "--name", "digits", *options, "--", PROGRAM, "--strategy", "multi_worker", "--epochs", "100000", "--quiet"],
                                            env=self.environment, stdout=self.output, stderr=self.output)

    def command(self, *words):
        return subprocess.run([COMMAND, *words], env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def description(self):
        try:
            with open(os.path.join(self.place.name, "digits/run_001/run.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def wait_for(self, check, what):
        begun = time.monotonic()
        while not check():
            self.assertIsNone(self.run_process.poll(), "the run ended while waiting for " + what)
            self.assertLess(time.monotonic() - begun, PATIENCE_S, what)
            time.sleep(0.02)

    def scale(self, workers):
        done = self.command("scale", "digits", str(workers), "--timeout", "%ds" % PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("%d worker" % workers, done.stdout)
        self.assertEqual(self.description()["members"], workers)

    def pids(self):
        return {entry["rank"]: entry["pid"] for entry in self.description()["workers"] if entry["pid"]}

    def test_scales(self):
        self.start("--workers", "1:4", "-n", "2")
        self.wait_for(lambda: len(self.description().get("workers", [])) == 4 and len(self.pids()) == 2, "two workers")
        chief = self.pids()[0]
        for workers in (4, 1, 3):
            self.scale(workers)
        self.assertEqual(self.pids()[0], chief)
        shown = self.command("show", "digits").stdout
        self.assertIn("3 (1 to 4)", shown)
        self.assertRegex(self.command("ls").stdout, r"digits/run_001 .* 3 ")
        for words, says in ((("scale", "digits", "9"), "1 to 4 workers, not 9"), (("scale", "digits", "0"), "not a number of workers"),
                            (("scale", "digits", "two"), "not a number of workers"), (("scale", "nothing", "2"), "nothing")):
            done = self.command(*words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stdout)
        self.assertEqual(self.description()["members"], 3)
        os.kill(self.pids()[2], signal.SIGTERM)
        self.wait_for(lambda: self.description()["members"] == 2, "the worker to leave")
        os.kill(self.pids()[1], signal.SIGKILL)
        self.wait_for(lambda: "killed by signal 9" in self.command("why", "digits").stdout, "the loss in why")
        self.assertEqual(self.command("stop", "digits").returncode, 0)
        self.run_process.wait()
        done = self.command("scale", "digits", "2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not running", done.stdout)
        self.output.seek(0)
        self.assertIn("resized: 4 workers: rank 3 joined", self.output.read())

    def test_requests_by_hand(self):
        """A worker can write any request into the run's directory."""
        self.start("--workers", "2:3", "-n", "2")
        self.wait_for(lambda: self.description().get("members") == 2 and self.description().get("status") == "running", "two workers")
        folder = os.path.join(self.place.name, "digits/run_001")
        request, elsewhere = os.path.join(folder, ".scale"), os.path.join(self.place.name, "elsewhere")
        for number, text in enumerate(("0", "1", "4", "65537", "-1", "4294967298", "99999999999999999999", "", "two", "\0" * 4096)):
            with open(request + "_draft", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(request + "_draft", request)
            self.wait_for(lambda: not os.path.lexists(request), "the request %r to be taken" % text)
            self.wait_for(lambda wanted=number + 1: self.said().count("does not have a number from 2 to 3") == wanted, "a warning about %r" % text)
        with open(elsewhere, "w", encoding="utf-8") as file:
            file.write("3")
        os.symlink(elsewhere, request)
        time.sleep(1)  # some looks, which find nothing
        self.assertEqual((self.description()["target"], self.description()["members"]), (2, 2))
        self.scale(3)
        self.assertEqual(self.command("stop", "--now", "digits").returncode, 0)

    def said(self):
        with open(self.output.name, encoding="utf-8") as file:
            return file.read()

    def test_refused(self):
        for value in ("4:2", "0:2", "2", "a:b", "2:4:6", "1:1000"):
            done = self.command("run", "--workers", value, "--", "true")
            self.assertNotEqual(done.returncode, 0, value)
        done = self.command("run", "--workers", "1:2", "--min-workers", "1", "--", "true")
        self.assertIn("leave --min-workers out", done.stdout)
        self.assertIn("2 (1 to 4)", self.command("run", "--workers", "1:4", "-n", "2", "--dry-run", "--", "true").stdout)
        self.start("-n", "2")
        self.wait_for(lambda: self.description().get("status") == "running", "the run")
        done = self.command("scale", "digits", "1")
        self.assertIn("--workers MIN:MAX", done.stdout)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.command("stop", "--now", "digits").returncode, 0)


if __name__ == "__main__":
    unittest.main()
