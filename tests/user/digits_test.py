"""digits_test.py - the main job of ./quickstart: it recovers from the kill, and ends where it would have ended without it."""

import os
import re

import support
from support import checkpoints, iterations, program, run, run_json

DATA = os.path.join(support.SOURCE, "examples/data/digits.csv")


def digits(storage, *options):
    out, err = run([program("digits"), "--data", DATA, "--epochs", "12", *options], storage)
    found = re.search(r"the network gets ([\d.]+) % right after 12 epochs", out)
    assert found, out + err
    return float(found.group(1)), out, err


def test_recovers_from_the_kill(storage):
    share, out, err = digits(storage, "--kill", "2", "--pace", "0.03", "--command", "unisono")
    run_dir = os.path.join(storage, "digits", "run_001")
    assert "attempts: 1 (one worker was killed and replaced" in out and "results: " + run_dir in out, out
    assert re.search(r"kills rank 2 on purpose: kill -9 \d+", err), err
    assert share > 90, share
    described = run_json(run_dir)
    assert described["status"] == "succeeded" and described["attempt"] == 1 and described["replaced"] == 1, described
    assert len(checkpoints(run_dir)) == 3, checkpoints(run_dir)
    for rank in range(4):
        assert list(iterations(run_dir, rank)) == list(range(1, 13)), "rank %d lost a report" % rank
    # The same as without the kill, to the last bit of the last loss: nothing was trained twice or left out.
    assert digits(storage, "--name", "undisturbed")[0] == share
    last = [iterations(directory, 0)[12]["val_loss"] for directory in (run_dir, os.path.join(storage, "undisturbed", "run_001"))]
    assert last[0] == last[1], last


def test_what_it_suggests_works(storage):
    _, out, _ = digits(storage, "--kill", "1", "--pace", "0.03", "--command", program("unisono"))
    commands = re.findall(r"^  (\S+/unisono \S+.*?)  ", out, re.M)
    assert len(commands) == 4, out
    shown = {command.split()[1]: run(command.split(), storage)[0] for command in commands}
    assert "killed by signal 9" in shown["why"] and "replaced     rank 1" in shown["why"], shown["why"]
    assert "succeeded" in shown["show"], shown["show"]
    assert "waiting for the next group" in shown["logs"], shown["logs"]
    assert "val_accuracy" in shown["plot"], shown["plot"]


def test_missing_data_is_a_clear_error(storage):
    _, err = run([program("digits"), "--data", "/nonexistent/digits.csv"], storage, expect=1)
    assert "EFUNCTION" in err and "/nonexistent/digits.csv" in err and "--data" in err, err


if __name__ == "__main__":
    support.main()
