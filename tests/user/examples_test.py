"""examples_test.py - every example program does what its first comment says."""

import json
import os
import re
import signal

import support
from support import checkpoints, finish, iterations, program, run, run_json, start, wait_for, worker_pids


def test_fit(storage):
    out, _ = run([program("example_fit")], storage)
    run_dir = os.path.join(storage, "fit", "run_001")
    assert "results: " + run_dir in out, out
    for rank in (0, 1):
        assert re.search(r"^rank %d: 5 reports, last loss 0\.\d+$" % rank, out, re.M), out
        seen = iterations(run_dir, rank)
        assert list(seen) == [1, 2, 3, 4, 5], seen
        losses = [metrics["loss"] for metrics in seen.values()]
        assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 10, losses
        assert [metrics["_training_iteration"] for metrics in seen.values()] == [1, 2, 3, 4, 5]
    assert checkpoints(run_dir) == ["checkpoint_%06d" % n for n in range(1, 6)], checkpoints(run_dir)
    assert "latest checkpoint: %s/checkpoints/checkpoint_000005" % run_dir in out, out
    assert run_json(run_dir)["status"] == "succeeded"


def test_fit_counts_runs_of_one_name(storage):
    run([program("example_fit"), "-e", "1"], storage)
    run([program("example_fit"), "-e", "1"], storage)
    assert sorted(os.listdir(os.path.join(storage, "fit"))) == ["run_001", "run_002"]


def test_fit_refuses_no_workers(storage):
    _, err = run([program("example_fit"), "-n", "-1"], storage, expect=1)
    assert "EINVAL" in err and "num_workers" in err, err
    assert os.listdir(storage) == [], "a run that was refused left a directory"


def test_fit_survives_a_kill(storage):
    process = start([program("example_fit"), "-e", "400"], storage)
    run_dir = os.path.join(storage, "fit", "run_001")
    wait_for(lambda: os.path.isdir(os.path.join(run_dir, "checkpoints")) and checkpoints(run_dir))
    os.kill(worker_pids(run_dir)[0], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, out + err
    assert run_json(run_dir)["attempt"] == 2, run_json(run_dir)
    assert re.search(r"^failure: rank 0 \(pid \d+\) was killed by .*(SIGKILL|signal 9)", err, re.M), err


def test_train_survives_a_kill(storage):
    try:
        binary = program("example_train")
    except FileNotFoundError:
        raise support.Skip("built without the engine") from None
    data = os.path.join(support.SOURCE, "examples/data/digits.csv")
    process = start([binary, data, "2", "300"], storage, cwd=storage)
    run_dir = os.path.join(storage, "train", "run_001")
    wait_for(lambda: os.path.isdir(os.path.join(run_dir, "checkpoints")) and checkpoints(run_dir))
    os.kill(worker_pids(run_dir)[1], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, out + err
    described = run_json(run_dir)
    assert described["attempt"] == 1 and described["replaced"] == 1, described
    seen = iterations(run_dir, 0)
    assert [metrics["epoch"] for metrics in seen.values()] == list(range(300)), list(seen)
    assert seen[300]["accuracy"] > 0.99, seen[300]
    assert os.path.exists(os.path.join(storage, "digits.keras"))


def test_start_run_run(storage):
    out, _ = run([program("example_start_run_run")], storage)
    lines = [line.split(": ", 1) for line in out.splitlines() if not line.startswith("  ")]
    values = [json.loads(text) for _, text in lines]
    assert values[0] == [[0, 1], [0, 1]], out
    assert values[1] == [[0, 1, 2, 3, 4]] * 2, out
    assert values[2] == values[3], "the workers were not kept warm: " + out
    assert not set(values[4]) & set(values[3]), "start after shutdown has the old workers: " + out
    assert sorted(os.listdir(os.path.join(storage, "start_run_run"))) == ["run_%03d" % n for n in range(1, 6)]


def test_run_iterator(storage):
    out, _ = run([program("example_run_iterator")], storage)
    expected = ["iteration %d: mean loss %.4f, worst %.4f" % (n, 2 / 2 ** n, 3 / 2 ** n) for n in range(1, 5)]
    expected += ["finished: yes"] + ["rank %d returned %.4f" % (rank, (1 + rank) / 16) for rank in range(3)]
    assert out.splitlines() == expected, out


def test_own_loop_by_itself(storage):
    out, err = run([program("example_own_loop"), "3"], storage)
    assert out == "rank 0 of 1 starts after epoch 0\n", out
    assert os.listdir(storage) == [], "a world of one kept something"
    warnings = [line for line in err.splitlines() if "report" in line]
    assert len(warnings) == 1, "one warning was expected for three reports: " + err


def test_own_loop_below_the_command(storage):
    run([program("unisono"), "run", "-n", "2", "--name", "own", "--", program("example_own_loop"), "4"], storage)
    run_dir = os.path.join(storage, "own", "run_001")
    assert run_json(run_dir)["status"] == "succeeded"
    for rank in (0, 1):
        assert list(iterations(run_dir, rank)) == [1, 2, 3, 4]
        with open(os.path.join(run_dir, "logs", "rank_%d.log" % rank), encoding="utf-8") as file:
            assert "rank %d of 2 starts after epoch 0" % rank in file.read()
    assert len(checkpoints(run_dir)) == 4, checkpoints(run_dir)


def test_own_loop_goes_on_after_a_kill(storage):
    process = start([program("unisono"), "run", "-n", "2", "--name", "own", "--", program("example_own_loop"), "25", "0.04"], storage)
    run_dir = os.path.join(storage, "own", "run_001")
    wait_for(lambda: os.path.isdir(os.path.join(run_dir, "checkpoints")) and len(checkpoints(run_dir)) >= 5)
    os.kill(worker_pids(run_dir)[1], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, out + err
    described = run_json(run_dir)
    assert described["attempt"] == 2 and described["status"] == "succeeded", described
    for rank in (0, 1):
        seen = iterations(run_dir, rank)
        assert [metrics["epoch"] for metrics in seen.values()] == list(range(1, 26)), seen
        with open(os.path.join(run_dir, "logs", "rank_%d.log" % rank), encoding="utf-8") as file:
            begun = [int(n) for n in re.findall(r"starts after epoch (\d+)", file.read())]
        assert len(begun) == 2 and begun[1] >= 4, "rank %d did not go on from its checkpoint: %s" % (rank, begun)


def test_shell_script(storage):
    run([program("unisono"), "run", "-n", "2", "--name", "shell", "--", os.path.join(support.SOURCE, "examples/report.sh"), "3"], storage,
        UNISONO=program("unisono"))
    run_dir = os.path.join(storage, "shell", "run_001")
    for rank in (0, 1):
        seen = iterations(run_dir, rank)
        assert [metrics["epoch"] for metrics in seen.values()] == [1, 2, 3], seen
        assert [metrics["loss"] for metrics in seen.values()] == [1, 0.5, 0.333333], seen
    kept = checkpoints(run_dir)
    assert len(kept) == 3, kept
    with open(os.path.join(run_dir, "checkpoints", kept[-1], "epoch"), encoding="utf-8") as file:
        assert file.read() == "3\n"


def test_python_script_without_a_library(storage):
    script = os.path.join(support.SOURCE, "examples/report_json.py")
    run([program("unisono"), "run", "-n", "2", "--name", "json", "--", "python3", script, "3"], storage)
    run_dir = os.path.join(storage, "json", "run_001")
    for rank in (0, 1):
        assert [metrics["loss"] for metrics in iterations(run_dir, rank).values()] == [(1 + rank) / epoch for epoch in (1, 2, 3)]


if __name__ == "__main__":
    support.main()
