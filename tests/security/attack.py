"""attack.py - what the attacks share: other users, a storage directory that all may write to, runs that another user left there.

The users are numbers that nobody has (the tests make no accounts). The command and the agent are copied to where those users can execute
them, because a checkout may lie in a private home directory.
"""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "user"))

import support

VICTIM, ATTACKER = 64_001, 64_002


def need_root():
    """Attacks by another user need two users."""
    if os.geteuid() != 0:
        raise support.Skip("needs root, to act as two users")


def programs(storage):
    """The folder of copies of the command and its agent that every user can execute."""
    folder = os.path.join(storage, "bin")
    if not os.path.isdir(folder):
        os.chmod(storage, 0o755)
        os.mkdir(folder, 0o755)
        for name in ("unisono", "unisono-agent"):
            shutil.copy2(support.program(name), folder)
            os.chmod(os.path.join(folder, name), 0o755)
    return folder


def shared(storage):
    """A storage directory as administrators make it for many users: mode 1777."""
    programs(storage)
    path = os.path.join(storage, "shared")
    if not os.path.isdir(path):
        os.mkdir(path)
        os.chmod(path, 0o1777)
    return path


def home(storage, uid):
    """A home directory of that user's own."""
    path = os.path.join(storage, "home-%d" % uid)
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)
        os.chown(path, uid, uid)
    return path


def call(storage, uid, *words, timeout=60, results=None, env=None, **options):
    """Runs a command as that user (0: the tests' own); words[0] == "unisono" is the copy. A CompletedProcess with text."""
    folder = programs(storage)
    command = [os.path.join(folder, "unisono") if words[0] == "unisono" else words[0], *words[1:]]
    environment = dict(os.environ, HOME=home(storage, uid), UNISONO_RESULTS=results or shared(storage), PATH=folder + ":" + os.environ["PATH"],
                       **(env or {}))
    who = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
    return subprocess.run(command, env=environment, cwd=storage, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                          timeout=timeout, check=False, **who, **options)


def give_away(path, uid, mode=None):
    """Everything below path belongs to uid."""
    for folder, _, names in os.walk(path):
        for each in [folder] + [os.path.join(folder, name) for name in names]:
            os.chown(each, uid, uid, follow_symlinks=False)
    if mode is not None:
        os.chmod(path, mode)


def readable(path):
    """Everything below path can be read by all."""
    for folder, _, names in os.walk(path):
        os.chmod(folder, 0o755)
        for name in names:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o644)


def failed_run(storage, uid, name, script):
    """A run of that user which failed; its directory, readable by all."""
    done = call(storage, uid, "unisono", "run", "-n", "1", "--max-failures", "0", "--name", name, "--", "sh", "-c", script)
    assert done.returncode != 0, done.stdout + done.stderr
    readable(os.path.join(shared(storage), name))
    return os.path.join(shared(storage), name, "run_001")


def edit_json(path, **changes):
    """Changes keys of a JSON file in place; owner and mode stay."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    content.update(changes)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def start_ticks(pid):
    """Field 22 of /proc/PID/stat."""
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


def assert_refused(done, *words):
    """It failed, with a sentence that has these words, and did not crash."""
    text = done.stdout + done.stderr
    assert done.returncode > 0, "it was done: %s" % text
    assert done.returncode < 128, "it crashed: %d %s" % (done.returncode, text)
    for word in words:
        assert word in text, "%r is not in: %s" % (word, text)
