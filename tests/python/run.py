#!/usr/bin/env python3
"""run.py TEST_FILE [MODULE...] - runs a file of tests with an interpreter that has the modules; exits 77, naming what is missing, when none has.
A module with a question mark is only a wish.

Candidates: this interpreter, Debian's, and the environment of tools/python-env when it is there already. Nothing is installed here.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def candidates():
    yield sys.executable
    yield "/usr/bin/python3"
    done = subprocess.run([os.path.join(ROOT, "tools/python-env"), "--path"], text=True, stdout=subprocess.PIPE, check=False)
    yield done.stdout.strip()


def has(python, modules):
    code = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in %r) or sys.version_info < (3, 11))" % (modules,)
    return os.access(python, os.X_OK) and subprocess.run([python, "-c", code], check=False, stderr=subprocess.DEVNULL).returncode == 0


def main(test, *modules):
    test, _, group = test.partition(" ")  # "FILE GROUP": the group's tests of a file
    wishes = ["cloudpickle"] + [module.rstrip("?") for module in modules]
    modules = ["cloudpickle"] + [module for module in modules if not module.endswith("?")]
    python = next((python for asked in (wishes, modules) for python in candidates() if python and has(python, asked)), None)
    if python is None:
        print("skipped: no Python of at least 3.11 here has %s" % " and ".join(modules))
        return 77
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, UNISONO_RESULTS=os.path.join(folder, "results"), XDG_CONFIG_HOME=os.path.join(folder, "config"),
                   PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]), TMPDIR=folder, PYTHONDONTWRITEBYTECODE="1",
                   UNISONO_TEST_GROUP=group or "none")
        return subprocess.run([python, "-W", "error::UserWarning:unisono", os.path.join(HERE, test)], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
