"""fresh_clone_test.py - ./quickstart as a newcomer meets it: a fresh clone, an empty home, nobody at the terminal."""

import os
import re
import subprocess

import support


def test_quickstart(storage):
    clone, home = os.path.join(storage, "clone"), os.path.join(storage, "home")
    os.mkdir(home)
    done = subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", support.SOURCE, clone], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        raise support.Skip("this is no git repository: " + done.stdout.strip())
    env = {name: os.environ[name] for name in ("PATH", "LC_ALL", "http_proxy", "https_proxy") if name in os.environ}
    done = subprocess.run(["./quickstart"], cwd=clone, env=dict(env, HOME=home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=1100, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "kills rank 2 on purpose" in done.stdout and "attempts: 2" in done.stdout, done.stdout[-5000:]
    right = re.search(r"the network gets ([\d.]+) % right after 40 epochs", done.stdout)
    assert right and float(right.group(1)) > 95, done.stdout[-5000:]
    assert os.path.isdir(os.path.join(home, "unisono_results", "digits", "run_001"))
    # Nothing but the build trees is new in the clone.
    status = subprocess.run(["git", "-c", "safe.directory=*", "status", "--porcelain"], cwd=clone, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert status == "", status


if __name__ == "__main__":
    support.main()
