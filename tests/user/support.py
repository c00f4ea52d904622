"""support.py - what the user tests share: finding the programs of the build, running them with a limit, reading run directories.

A test script calls main() at its end: every function test_* runs with a storage directory of its own and is shown as cmocka shows it, so
that ./test counts them one by one.
"""

import contextlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ["UNISONO_BUILD"]
SOURCE = os.environ["UNISONO_SOURCE"]


class Skip(Exception):
    """Raised by a test that cannot run here; the sentence says why."""


def program(name):
    """The path of a program that the build made."""
    for folder in ("examples", "src/cli", "benchmarks", "src/group", "."):
        path = os.path.join(BUILD, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("the build has no program %s" % name)


def library():
    """The path of libunisono.so in the build."""
    for folder, _, names in os.walk(os.path.join(BUILD, "src")):
        if "libunisono.so" in names:
            return os.path.join(folder, "libunisono.so")
    raise FileNotFoundError("the build has no libunisono.so")


def environment(storage, **more):
    """The test's own, with the command on the PATH and results below storage."""
    env = dict(os.environ, UNISONO_RESULTS=storage, PATH=os.path.dirname(program("unisono")) + ":" + os.environ["PATH"])
    env.update(more)
    return env


def start(command, storage, cwd=SOURCE, **more):
    return subprocess.Popen(command, env=environment(storage, **more), cwd=cwd, text=True, errors="replace", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def finish(process, timeout=60):
    """Waits; (exit code, stdout, stderr). On a timeout everything is killed and the test fails with what was printed."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError("%s did not end in %d s\nstdout:\n%s\nstderr:\n%s" % (process.args, timeout, out, err)) from None
    return process.returncode, out, err


def run(command, storage, expect=0, timeout=60, **more):
    """Runs to the end and checks the exit code; (stdout, stderr)."""
    code, out, err = finish(start(command, storage, **more), timeout)
    assert code == expect, "%s ended with %d, not %d\nstdout:\n%s\nstderr:\n%s" % (command, code, expect, out, err)
    return out, err


def wait_for(what, seconds=20):
    """The first true value of what()."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("waited %d s in vain for %s" % (seconds, inspect.getsource(what).strip()))


def run_json(run_dir):
    """run.json, or {} while it is not there."""
    try:
        with open(os.path.join(run_dir, "run.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, json.JSONDecodeError):
        return {}


def results(run_dir):
    """All lines of results.jsonl after the first."""
    with open(os.path.join(run_dir, "results.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    assert lines and lines[0]["format"] == "unisono results", lines[:1]
    return lines[1:]


def iterations(run_dir, rank):
    """iteration -> metrics of a rank, the last attempt of each."""
    found = {}
    for line in results(run_dir):
        if line["rank"] == rank and (line["iteration"] not in found or found[line["iteration"]][0] <= line["attempt"]):
            found[line["iteration"]] = (line["attempt"], line["metrics"])
    return {iteration: metrics for iteration, (_, metrics) in sorted(found.items())}


def checkpoints(run_dir):
    return sorted(os.listdir(os.path.join(run_dir, "checkpoints")))


def worker_pids(run_dir):
    """rank -> pid of the present attempt, once all have started."""
    workers = run_json(run_dir).get("workers") or []
    return {worker["rank"]: worker["pid"] for worker in workers} if all(worker["pid"] for worker in workers) else {}


def alive(pid):
    """Not a zombie."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def processes_of(storage):
    """Pids of workers and agents that still have this storage directory in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    if storage.encode() in file.read() and alive(int(name)):
                        found.append(int(name))
            except OSError:
                continue
    return found


def patience():
    """Two seconds is the promise; a machine with more than four runnable processes a core cannot show it."""
    return 2 if os.getloadavg()[0] <= 4 * os.cpu_count() else 10


def assert_nothing_left(storage, seconds=None):
    seconds = seconds or patience()
    deadline = time.monotonic() + seconds
    while (left := processes_of(storage)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, "processes %s are still there %g s after the run" % (left, seconds)


def main():
    module = sys.modules["__main__"]
    wanted = sys.argv[1:]
    failed = 0
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        print("[ RUN      ] " + name, flush=True)
        storage = tempfile.mkdtemp(prefix="unisono-test-")
        try:
            function(storage)
            assert_nothing_left(storage)
            print("[       OK ] " + name, flush=True)
        except Skip as why:
            print("%s\n[  SKIPPED ] %s" % (why, name), flush=True)
        except Exception:  # every kind of failure of a test is a failure
            # What programs printed can be long; its end is what matters.
            print("\n".join(traceback.format_exc().splitlines()[-60:]))
            failed += 1
            print("[  FAILED  ] " + name, flush=True)
        finally:
            for pid in processes_of(storage):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(storage, ignore_errors=True)
    sys.exit(1 if failed else 0)
