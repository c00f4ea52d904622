"""command_test.py - `unisono run` as its users rely on it: environment, exit codes, nothing left behind."""

import json
import os
import signal
import sys
import time

import support
from support import alive, assert_nothing_left, finish, program, run, run_json, start, wait_for, worker_pids


def unisono_run(*words):
    return [program("unisono"), "run", *words]


def test_environment_of_the_workers(storage):
    names = ["UNISONO_RANK", "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_RANK", "UNISONO_LOCAL_WORLD_SIZE", "UNISONO_NODE_RANK", "OMP_NUM_THREADS"]
    script = "import json, os; print('env', json.dumps({n: os.environ.get(n) for n in %r}))" % names
    run(unisono_run("-n", "3", "--name", "env", "--", sys.executable, "-c", script), storage)
    for rank in range(3):
        with open(os.path.join(storage, "env/run_001/logs/rank_%d.log" % rank), encoding="utf-8") as file:
            seen = json.loads(next(line for line in file if line.startswith("env "))[4:])
        assert [seen[name] for name in names[:5]] == [str(rank), "3", str(rank), "3", "0"], seen
        assert seen["OMP_NUM_THREADS"] and int(seen["OMP_NUM_THREADS"]) >= 1, seen


def test_exit_code_is_the_first_causes(storage):
    _, err = run(unisono_run("-n", "2", "--max-failures", "0", "--name", "seven", "--", "sh", "-c", 'test "$UNISONO_RANK" = 0 || exit 7; sleep 30'),
                 storage, expect=7)
    assert "rank 1" in err and "7" in err, err
    described = run_json(os.path.join(storage, "seven/run_001"))
    assert described["cause"]["class"] == "exit" and described["cause"]["rank"] == 1 and described["cause"]["exit_code"] == 7, described


def test_signal_is_128_plus_its_number(storage):
    run(unisono_run("-n", "2", "--max-failures", "0", "--name", "killed", "--", "sh", "-c", 'test "$UNISONO_RANK" = 0 || kill -9 $$; sleep 30'),
        storage, expect=137)
    described = run_json(os.path.join(storage, "killed/run_001"))
    assert described["cause"]["class"] == "signal" and described["cause"]["signal"] == 9, described


def test_a_program_that_is_not_there(storage):
    code, out, err = finish(start(unisono_run("-n", "2", "--", "/nonexistent/program"), storage))
    assert code not in (0, 1) and "/nonexistent/program" in out + err, (code, out, err)


def test_usage_error(storage):
    _, err = run(unisono_run("-n", "0", "--", "true"), storage, expect=64)
    assert "-n" in err or "workers" in err, err
    assert os.listdir(storage) == [], "a run that was refused left a directory"


def test_sigterm_stops_and_is_resumable(storage):
    process = start(unisono_run("-n", "2", "--name", "stop", "--", program("example_own_loop"), "1000", "0.02"), storage)
    run_dir = os.path.join(storage, "stop/run_001")
    wait_for(lambda: run_json(run_dir).get("status") == "running" and os.path.isdir(os.path.join(run_dir, "checkpoints"))
             and support.checkpoints(run_dir))
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 75, (code, out, err)
    last = [max(support.iterations(run_dir, rank)) for rank in (0, 1)]
    assert last[0] == last[1], "the ranks did not stop at the same iteration: %s" % last
    run(unisono_run("--resume", run_dir, "--", program("example_own_loop"), str(last[0] + 5)), storage)
    assert max(support.iterations(run_dir, 0)) == last[0] + 5


def test_killed_controller_leaves_nothing(storage):
    # The shell's child ignores SIGTERM and forks again: the hard case.
    stubborn = 'trap "" TERM; (trap "" TERM; sleep 60) & sleep 60'
    process = start(unisono_run("-n", "2", "--name", "gone", "--", "sh", "-c", stubborn), storage)
    run_dir = os.path.join(storage, "gone/run_001")
    pids = wait_for(lambda: run_json(run_dir).get("status") == "running" and worker_pids(run_dir))
    time.sleep(0.1)
    process.kill()
    finish(process)
    assert_nothing_left(storage)
    assert not any(alive(pid) for pid in pids.values())
    out, _ = run([program("unisono"), "ls", "--json"], storage)
    assert "interrupted" in out, out


def test_ls_and_show_are_json(storage):
    run(unisono_run("-n", "1", "--name", "one", "--", program("example_own_loop"), "2"), storage)
    listed, _ = run([program("unisono"), "ls", "--json"], storage)
    shown, _ = run([program("unisono"), "show", "one", "--json"], storage)
    json.loads(listed)
    assert "one/run_001" in listed and "one/run_001" in json.dumps(json.loads(shown))


def test_closed_descriptors_are_not_taken_by_files(storage):
    worker = 'echo out; echo err >&2; "%s" report loss=1' % program("unisono")
    run(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *unisono_run("-n", "2", "--name", "closed", "--", "sh", "-c", worker)], storage)
    with open(os.path.join(storage, "closed/run_001/results.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert sum("metrics" in line for line in lines) == 2, lines


def test_ls_keeps_the_names_whole(storage):
    name = "train_2026-01-31_12-00-00"
    run(unisono_run("--name", name, "--", "true"), storage)
    out, _ = run(["env", "COLUMNS=80", program("unisono"), "ls"], storage)
    assert name + "/run_001" in out and max(map(len, out.splitlines())) <= 80, out


def test_nobodys_cause_and_a_preemption_read_well(storage):
    _, err = run(unisono_run("-n", "2", "-f", "1", "--progress-timeout", "0.3s", "--", "sleep", "30"), storage, expect=124)
    assert "rank -1" not in err and err.count("the run made no progress") == 2, err
    script = 'test "$UNISONO_ATTEMPT" != 1 || kill -TERM $$; exit 0'
    _, err = run(unisono_run("-n", "1", "-f", "1", "--", "sh", "-c", script), storage)
    assert "restart 1" in err and "restart 0" not in err, err


def test_fifty_at_once(storage):
    command = unisono_run("-n", "1", "--name", "many", "--", "true")
    processes = [start(command, storage) for _ in range(50)]
    codes = [finish(process, 90)[0] for process in processes]
    assert codes == [0] * 50, codes
    assert sorted(os.listdir(os.path.join(storage, "many"))) == ["run_%03d" % n for n in range(1, 51)]


if __name__ == "__main__":
    support.main()
