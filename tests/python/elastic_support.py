"""Programs under hvd.elastic that are killed and scaled, as the tests of its flavours run them: `unisono run` starts one, a thread kills and scales, and what the ranks wrote is read."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

UNISONO = os.environ["UNISONO_COMMAND"]


class Ended:
    """A run that is over: its output, what its ranks wrote (dictionaries, by pid, in order), and its reports."""

    def __init__(self, name, code, output, folder, results):
        self.code, self.output = code, output
        self.said = {}
        for each in sorted(os.listdir(folder)):
            if each.startswith("said_"):
                with open(os.path.join(folder, each), encoding="utf-8") as file:
                    self.said[int(each.partition("_")[2])] = [json.loads(line) for line in file if line.endswith("\n")]
        runs = os.path.join(results, name)
        self.reports = []
        for run in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
            with open(os.path.join(runs, run, "results.jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
                self.reports += [dict(line["metrics"], rank=line["rank"], iteration=line["iteration"], attempt=line["attempt"]) for line in lines if "metrics" in line]
            with open(os.path.join(runs, run, "run.json"), encoding="utf-8") as file:
                self.record = json.load(file)

    def of(self, what):
        """The lines that have that key, of all ranks."""
        return [line for lines in self.said.values() for line in lines if what in line]

    def pids(self):
        return set(self.said)


def _watch(folder, done, disturb, seed):
    """Calls disturb(random, pids that train) until it returns False."""
    chance = random.Random(seed)
    while not done.is_set():
        alive = [int(each.partition("_")[2]) for each in sorted(os.listdir(folder)) if each.startswith("said_")]
        alive = [pid for pid in alive if os.path.exists("/proc/%d/exe" % pid)]
        if alive and disturb(chance, alive, folder) is False:
            return
        done.wait(0.005)


def run(script, *options, disturb=None, seed=0, env=None, timeout=150):
    """script: text of a program; it writes with say(**what) and has the arguments of `unisono run` as options."""
    with tempfile.TemporaryDirectory(prefix="unisono-test-") as folder:
        said, results = os.path.join(folder, "said"), os.path.join(folder, "results")
        os.mkdir(said)
        with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as file:
            file.write(_HEAD % said + script)
        done = threading.Event()
        thread = threading.Thread(target=_watch, args=(said, done, disturb, seed)) if disturb else None
        command = [UNISONO, "run", "--name", "elastic", *options, "--", sys.executable, os.path.join(folder, "train.py")]
        with subprocess.Popen(command, env=dict(os.environ, UNISONO_RESULTS=results, **(env or {})), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            if thread:
                thread.start()
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate()
                output += "\n(stopped by the test after %d s)" % timeout
            finally:
                done.set()
                if thread:
                    thread.join()
        return Ended("elastic", process.returncode, output, said, results)


def epochs(folder):
    """How many epochs the reports tell of so far. A rank that is killed when its function has ended is another matter: the group restarts."""
    path = os.path.join(os.path.dirname(folder), "results", "elastic", "run_001", "results.jsonl")
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return max((line["metrics"].get("epoch", 0) for line in lines if "metrics" in line), default=0)


def kill(pid, how=signal.SIGKILL):
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass  # it has just ended


def scale(folder, workers):
    return subprocess.run([UNISONO, "scale", "elastic", str(workers)], env=dict(os.environ, UNISONO_RESULTS=os.path.join(os.path.dirname(folder), "results")),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)


_HEAD = """
import json, os, sys, time
_said = open(os.path.join(%r, "said_%%d" %% os.getpid()), "a", 1)


def say(**what):
    _said.write(json.dumps(what) + "\\n")


def die(once):
    marker = os.path.join(os.path.dirname(_said.name), "killed_" + once)
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), 9)


"""
