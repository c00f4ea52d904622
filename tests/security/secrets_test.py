"""Secrets for workers: they come from the environment or from a private file, and are written to no file and shown to nobody."""

import json
import os
import subprocess
import sys

import attack
import support
from attack import ATTACKER

SECRET = "hunter2-%d" % os.getpid()
NAMES = ["API_KEY", "HF_TOKEN", "client_secret", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MY_CREDENTIALS"]


def unisono(storage, *words, code=0, **more):
    done = subprocess.run([support.program("unisono"), *words], env=support.environment(storage, **more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def assert_nowhere(storage, *outputs):
    """In no file below storage (but those that the test made there) and in no output."""
    for folder, _, names in os.walk(storage):
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith("given") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                assert SECRET.encode() not in file.read(), path
    for output in outputs:
        assert SECRET not in output, output


def check_worker(*names):
    """A program that ends well when it has the values."""
    return ["sh", "-c", " && ".join('[ "$%s" = "%s-$SUFFIX" ]' % (name, SECRET.rsplit("-", 1)[0]) for name in names)]


SUFFIX = SECRET.rsplit("-", 1)[1]


def test_env_name(storage):
    words = [word for name in NAMES for word in ("-e", name)]
    done = unisono(storage, "run", "-n", "2", *words, "-e", "SUFFIX=" + SUFFIX, "--", *check_worker(*NAMES), **dict.fromkeys(NAMES, SECRET))
    assert_nowhere(storage, done.stdout, done.stderr)
    names = json.loads(unisono(storage, "show", "--json").stdout)["options"]["environment"]
    assert set(NAMES) <= set(names), names
    done = unisono(storage, "run", "-e", "NOT_SET_ANYWHERE", "--", "true", code=64)
    assert "NOT_SET_ANYWHERE is not set" in done.stderr, done.stderr
    unisono(storage, "run", "-e", "", "--", "true", code=64)
    unisono(storage, "run", "-e", "=x", "--", "true", code=64)


def test_names_that_look_like_secrets(storage):
    """Each of them is known: -e NAME=VALUE warns that ps shows it."""
    for name in ("A_KEY", "a_token_b", "SECRETS", "PASSWORD", "passwd", "CREDENTIAL"):
        done = unisono(storage, "run", "-q", "-e", "%s=%s" % (name, SECRET), "--", "true")
        assert name in done.stderr and SECRET not in done.stderr, (name, done.stderr)
    done = unisono(storage, "run", "-q", "-e", "LEARNING_RATE=1", "--", "true")
    assert "LEARNING_RATE" not in done.stderr, done.stderr


def test_env_file(storage):
    path = os.path.join(storage, "given")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# secrets\n\n" + "".join("%s=%s\n" % (name, SECRET) for name in NAMES[:-1]) + NAMES[-1] + "\nSUFFIX=%s\r\nSPACED=a b = c\n" % SUFFIX)
    os.chmod(path, 0o600)
    program = check_worker(*NAMES)
    program[2] += ' && [ "$SPACED" = "a b = c" ]'
    done = unisono(storage, "run", "-n", "2", "--env-file", path, "--", *program, **{NAMES[-1]: SECRET})
    assert_nowhere(storage, done.stdout, done.stderr)
    # A word wins over the file.
    unisono(storage, "run", "--env-file", path, "-e", "API_KEY=other", "--", "sh", "-c", '[ "$API_KEY" = other ]', **{NAMES[-1]: SECRET})
    for mode in (0o640, 0o604, 0o644, 0o620):
        os.chmod(path, mode)
        done = unisono(storage, "run", "--env-file", path, "--", "true", code=125)
        assert "chmod 600" in done.stderr, done.stderr
        assert_nowhere(storage, done.stdout, done.stderr)
    os.chmod(path, 0o600)
    for text in ("BAD LINE=%s\n" % SECRET, "=%s\n" % SECRET, "A=1\nB = %s\n" % SECRET, "A=1\0%s\n" % SECRET):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = unisono(storage, "run", "--env-file", path, "--", "true", code=64)
        assert_nowhere(storage, done.stdout, done.stderr)
    for bad, code in ((storage, 64), (os.path.join(storage, "none"), 125), ("/dev/zero", 64)):
        unisono(storage, "run", "--env-file", bad, "--", "true", code=code)
    os.unlink(path)
    os.mkfifo(path, 0o600)
    unisono(storage, "run", "--env-file", path, "--", "true", code=64)  # and does not wait for a writer


def test_env_file_of_another_user(storage):
    attack.need_root()
    path = os.path.join(storage, "given")
    with open(path, "w", encoding="utf-8") as file:
        file.write("LD_PRELOAD=/tmp/evil.so\n")
    os.chmod(path, 0o600)
    os.chown(path, ATTACKER, ATTACKER)
    assert "not yours" in unisono(storage, "run", "--env-file", path, "--", "true", code=125).stderr


def test_visible_values_are_warned_of(storage):
    done = unisono(storage, "run", "-e", "API_KEY=" + SECRET, "--", "true")
    assert "with `ps`" in done.stderr and SECRET not in done.stderr, done.stderr
    assert_nowhere(storage, done.stdout)
    assert "with `ps`" not in unisono(storage, "run", "-e", "LEVEL=3", "--", "true").stderr


def test_dry_run_hides(storage):
    path = os.path.join(storage, "variables")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write("API_KEY=%s\n" % SECRET)
    for words in ([], ["--json"]):
        done = unisono(storage, "run", "--dry-run", *words, "-n", "2", "--env-file", path, "--", "true")
        assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, (done.stdout, done.stderr)
    for words in ([], ["--json"]):
        done = unisono(storage, "run", "--dry-run", *words, "-n", "2", "-e", "API_KEY", "-e", "LEVEL=3", "--", "true", API_KEY=SECRET)
        assert SECRET not in done.stdout + done.stderr, done.stdout


def test_not_in_the_list_of_processes(storage):
    """While a run goes on, no command line of any process has the value."""
    process = support.start([support.program("unisono"), "run", "-n", "1", "--name", "live", "-e", "API_KEY", "--", "sleep", "60"], storage, API_KEY=SECRET)
    try:
        support.wait_for(lambda: support.worker_pids(os.path.join(storage, "live", "run_001")))
        for pid in os.listdir("/proc"):
            if pid.isdigit():
                try:
                    with open("/proc/%s/cmdline" % pid, "rb") as file:
                        assert SECRET.encode() not in file.read(), pid
                except OSError:
                    pass
        assert_nowhere(storage)
    finally:
        process.terminate()
        support.finish(process)


def test_tune(storage):
    """The journal of an experiment has the names only; resuming takes the values from the environment."""
    for number, environment in enumerate((["API_KEY=" + SECRET], ["API_KEY"])):
        spec = os.path.join(storage, "given.json")
        with open(spec, "w", encoding="utf-8") as file:
            json.dump({"program": ["sh", "-c", '[ "$API_KEY" = "$(cat given-value)" ]'], "space": {"x": 1}, "name": "tuned%d" % number, "environment": environment,
                       "working_directory": storage}, file)
        with open(os.path.join(storage, "given-value"), "w", encoding="utf-8") as file:
            file.write(SECRET)
        done = unisono(storage, "tune", spec, **({"API_KEY": SECRET} if number else {}))
        assert "1 of 1 trials done" in done.stdout and "failed" not in done.stdout, done.stdout + done.stderr
        assert_nowhere(storage, done.stdout, done.stderr)
        unisono(storage, "tune", "show", "tuned%d" % number)
        assert "API_KEY is not set" in unisono(storage, "tune", "resume", "tuned%d" % number, code=64).stderr


PYTHON = """
import os, sys
from unisono import _unisono
path = sys.argv[1]
for options in ({"environment": ["API_KEY"]}, {"environment_file": path}):
    _unisono.Trainer(storage_path=sys.argv[2], num_workers=1, backend="none", worker_program=[sys.executable], **options)
try:
    _unisono.Trainer(storage_path=sys.argv[2], worker_program=[sys.executable], environment=["NOT_SET_ANYWHERE"])
except Exception as error:
    assert "NOT_SET_ANYWHERE is not set" in str(error), error
else:
    raise AssertionError("not refused")
os.chmod(path, 0o644)
try:
    _unisono.Trainer(storage_path=sys.argv[2], worker_program=[sys.executable], environment_file=path)
except Exception as error:
    assert "chmod 600" in str(error), error
else:
    raise AssertionError("not refused")
"""


def test_python(storage):
    """The same options mean the same."""
    path = os.path.join(storage, "given")
    with open(path, "w", encoding="utf-8") as file:
        file.write("API_KEY=%s\n" % SECRET)
    os.chmod(path, 0o600)
    done = subprocess.run([sys.executable, "-c", PYTHON, path, storage], capture_output=True, text=True, timeout=60, check=False,
                          env=support.environment(storage, PYTHONPATH=os.path.join(support.BUILD, "python"), API_KEY=SECRET))
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    support.main()
