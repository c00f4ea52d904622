"""kills_test.py - kills by the hundred (./test --soak): whatever dies and whenever, nothing is lost and nothing is left behind.

UNISONO_SOAK_ROUNDS says how many rounds each kind gets. The moments are random; the seed is printed, and UNISONO_SOAK_SEED repeats it.
"""

import os
import random
import re
import signal
import time

import support
from support import assert_nothing_left, finish, iterations, program, run, run_json, start, wait_for, worker_pids

ROUNDS = int(os.environ.get("UNISONO_SOAK_ROUNDS", "20"))
SEED = int(os.environ.get("UNISONO_SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))
EPOCHS = 25


def begin(storage, name, failures="-1"):
    process = start([program("unisono"), "run", "-n", "3", "--max-failures", failures, "--name", name, "--", program("example_own_loop"), str(EPOCHS),
                     "0.01"], storage)
    return process, os.path.join(storage, name, "run_001")


def assert_whole(run_dir):
    """Every epoch of every rank exactly once, in the last attempt that reported it, and on from a checkpoint."""
    for rank in range(3):
        epochs = [metrics["epoch"] for metrics in iterations(run_dir, rank).values()]
        assert epochs == list(range(1, EPOCHS + 1)), "rank %d: %s" % (rank, epochs)
    assert len(support.checkpoints(run_dir)) >= 1
    assert not os.path.exists(os.path.join(run_dir, ".staging")) or os.listdir(os.path.join(run_dir, ".staging")) == []


def test_workers(storage):
    print("seed", SEED)
    dice = random.Random(SEED)
    for number in range(ROUNDS):
        process, run_dir = begin(storage, "worker_%d" % number)
        pids = wait_for(lambda: worker_pids(run_dir))
        time.sleep(dice.uniform(0, 0.25))
        try:
            os.kill(pids[dice.randrange(3)], signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended by itself
        code, out, err = finish(process)
        assert code == 0, "round %d: %s\n%s" % (number, out, err)
        assert_whole(run_dir)
        assert_nothing_left(storage)


def test_all_workers_at_once(storage):
    dice = random.Random(SEED + 1)
    for number in range(max(1, ROUNDS // 5)):
        process, run_dir = begin(storage, "all_%d" % number)
        pids = wait_for(lambda: len(worker_pids(run_dir)) == 3 and worker_pids(run_dir))
        time.sleep(dice.uniform(0, 0.2))
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        code, out, err = finish(process)
        assert code == 0, "round %d: %s\n%s" % (number, out, err)
        assert_whole(run_dir)


def test_controller_then_resume(storage):
    dice = random.Random(SEED + 2)
    for number in range(max(1, ROUNDS // 5)):
        process, run_dir = begin(storage, "controller_%d" % number)
        wait_for(lambda: run_json(run_dir).get("status") == "running")
        time.sleep(dice.uniform(0, 0.2))
        process.kill()
        finish(process)
        assert_nothing_left(storage)
        if run_json(run_dir)["status"] == "succeeded":
            continue  # it was quicker
        run([program("unisono"), "run", "--resume", run_dir], storage)
        assert_whole(run_dir)


def test_frozen_worker(storage):
    """SIGSTOP is acted on after 5 s: few rounds."""
    for number in range(max(1, ROUNDS // 50)):
        process, run_dir = begin(storage, "frozen_%d" % number)
        pids = wait_for(lambda: worker_pids(run_dir))
        time.sleep(0.05)
        os.kill(pids[1], signal.SIGSTOP)
        code, out, err = finish(process)
        assert code == 0, out + err
        with open(os.path.join(run_dir, "journal.jsonl"), encoding="utf-8") as file:
            assert re.search(r'"class": ?"stopped"', file.read())
        assert_whole(run_dir)


if __name__ == "__main__":
    support.main()
