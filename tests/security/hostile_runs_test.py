"""Run directories that another user has made to harm whoever only looks at them: FIFOs, devices, endless and deep files.

Every reading command must end soon, without a crash, in 512 MB of memory.
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import attack
import support
import terminal_test

FILES = ["run.json", "journal.jsonl", "results.jsonl", "logs/rank_0.log", "logs/rank_0.log.1", "checkpoints", ".steps", ".scale", "progress.csv", "tune.jsonl"]
COMMANDS = [["ls"], ["ls", "--json"], ["show", "evil"], ["show", "--all", "evil"], ["why", "evil"], ["logs", "evil"], ["logs", "-n", "5", "evil"], ["plot", "evil"], ["tune", "show", "evil"]]
MEMORY = 512 << 20


# prlimit and not preexec_fn, which is not for a process with threads. The address sanitizer's shadow memory takes terabytes of addresses.
LIMITS = ["prlimit", "--core=0"] + ([] if "ASAN_OPTIONS" in os.environ else ["--as=%d" % MEMORY])


def look(storage):
    for words in COMMANDS:
        done = subprocess.run([*LIMITS, support.program("unisono"), *words], env=support.environment(storage), stdin=subprocess.DEVNULL, capture_output=True, timeout=20,
                              check=False)
        assert 0 <= done.returncode < 128, (words, done.returncode, done.stderr[-500:])


def replaced(make):
    """Each file of a run in turn."""
    def one(storage, number, name):
        place = os.path.join(storage, "s%d" % number)
        path = os.path.join(terminal_test.hostile_run(place), name)
        if os.path.isfile(path):
            os.unlink(path)
        make(path)
        look(place)

    def test(storage):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda item: one(storage, *item), enumerate(FILES)))
    return test


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def deep(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[" * 1_000_000)


def long_line(path):
    with open(path, "wb") as file:
        file.write(b"{" + b"x" * (8 << 20))


def many(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps({"format": "unisono run", "version": 1, "status": "failed", "num_workers": 2**31 - 1, "iterations": -1, "created": 1e300,
                               "workers": [{"rank": -5, "pid": -1, "host": None}] * 1000, "program": [None, 1, {}], "cause": [], "config": 7, "options": None}))


def wrong_types(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps({"format": "unisono results", "version": 1, "world_size": 2**31 - 1}, separators=(",", ":")) + "\n")
        for line in ({"attempt": 2**31 - 1, "rank": 2**31 - 2, "iteration": 2**63 - 1, "metrics": {}}, {"attempt": 1, "rank": 0, "iteration": 1, "metrics": {"a": 1e308}}):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


test_fifos = replaced(os.mkfifo)
test_links_to_devices = replaced(lambda path: os.symlink("/dev/zero", path))
test_links_to_themselves = replaced(lambda path: os.symlink(os.path.basename(path), path))
test_directories = replaced(os.mkdir)
test_sparse_files = replaced(sparse)
test_deep_files = replaced(deep)
test_long_lines = replaced(long_line)
test_numbers_out_of_range = replaced(many)
test_records_out_of_range = replaced(wrong_types)


def test_many_workers(storage):
    """Each of them was looked for among all: `show` took over a minute."""
    path = os.path.join(terminal_test.hostile_run(storage), "run.json")
    with open(path, encoding="utf-8") as file:
        about = json.load(file)
    about["num_workers"] = 65536
    about["workers"] = [{"rank": rank, "pid": 1, "host": "a"} for rank in reversed(range(65536))]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(about, file)
    look(storage)


def test_an_iteration_for_each_rank(storage):
    """9 MB in which every report has an iteration of its own, among 60,000 ranks: `plot` took minutes."""
    path = os.path.join(terminal_test.hostile_run(storage), "results.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"format":"unisono results","version":1,"world_size":2}\n')
        file.writelines('{"attempt":1,"rank":%d,"iteration":%d,"metrics":{"m":1}}\n' % (number % 60_000, number + 1) for number in range(150_000))
    look(storage)


def test_links_to_other_checkpoints(storage):
    """A link in place of a directory of checkpoints: `show` and `why` told of those of another run, perhaps a private one, as if they were this one's."""
    private = os.path.join(storage, "private")
    command = [support.program("unisono"), "run", "-n", "1", "--name", "real", "--storage", private, "--", "sh", "-c",
               "mkdir -p $0/d && echo 1 >$0/d/a && for i in 1 2 3; do %s report --checkpoint $0/d mine=4711; done" % support.program("unisono"), storage]
    done = subprocess.run(command, env=support.environment(storage), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    real = os.path.join(private, "real", "run_001")
    assert "checkpoint_000003" in os.listdir(os.path.join(real, "checkpoints"))
    for number, (name, target) in enumerate([("checkpoints", os.path.join(real, "checkpoints")), (".steps", real),
                                             ("checkpoints/checkpoint_000003", os.path.join(real, "checkpoints", "checkpoint_000003")),
                                             (".steps/checkpoints", os.path.join(real, "checkpoints"))]):
        place = os.path.join(storage, "l%d" % number)
        path = os.path.join(terminal_test.hostile_run(place), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
        for words in (["show", "evil"], ["show", "--all", "evil"], ["why", "evil"]):
            done = subprocess.run([support.program("unisono"), *words], env=support.environment(place), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=20, check=False)
            assert "4711" not in done.stdout and "taken at iteration" not in done.stdout and "of a step" not in done.stdout, (name, words, done.stdout)


if __name__ == "__main__":
    support.main()
