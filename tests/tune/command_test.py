"""command_test.py UNISONO - `unisono tune` as a user types it: a shell program as a trial, looking at it, going on, and what is refused."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

COMMAND = sys.argv[1]
SPEC = {
    "program": ["sh", "-c", "for i in 1 2 3; do echo \"{\\\"loss\\\": $((({x} - 4) * ({x} - 4) + 10 / $i))}\" >&$UNISONO_REPORT_FD; done; "
                            "echo \"$UNISONO_CONFIG\""],
    "space": {"x": {"$grid_search": [1, 4, 7]}, "kind": {"$choice": ["<a>", "b"]}}, "metric": "loss", "mode": "min", "max_concurrent": 2,
    "seed": 3, "name": "first",
}


def run(storage, *words, code=0):
    done = subprocess.run([COMMAND, *words], text=True, capture_output=True, env=dict(os.environ, UNISONO_RESULTS=storage, COLUMNS="120"), timeout=60,
                          check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def write(storage, **changes):
    path = os.path.join(storage, "spec.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in dict(SPEC, **changes).items() if value is not None}, file)
    return path


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def test_sinks(storage):
    run(storage, "tune", write(storage, name="told", sinks=["tensorboard", {"type": "mlflow", "tags": {"team": "blue"}}]))
    directory = os.path.join(storage, "told", "tune_001")
    assert sorted(name[:6] for name in os.listdir(os.path.join(directory, "tensorboard"))) == ["events", "trial_", "trial_", "trial_"]
    root = os.path.join(directory, "mlruns")
    experiment = os.path.join(root, next(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name))))
    runs = [os.path.join(experiment, name) for name in os.listdir(experiment) if os.path.isdir(os.path.join(experiment, name, "tags"))]
    children = [path for path in runs if os.path.exists(os.path.join(path, "tags", "mlflow.parentRunId"))]
    parents = [path for path in runs if path not in children]
    assert len(children) == 3 and len(parents) == 1, runs
    assert {read(path, "tags", "mlflow.parentRunId") for path in children} == {os.path.basename(parents[0])}
    assert {read(path, "params", "x") for path in children} == {"1", "4", "7"} and {read(path, "tags", "team") for path in runs} == {"blue"}
    assert [line.split()[2] for line in read(children[0], "metrics", "loss").splitlines()] == ["1", "2", "3"]
    assert float(read(parents[0], "metrics", "loss").split()[1]) == 3 and read(parents[0], "params", "mode") == "min"
    # Somewhere it cannot be written: a warning, and the experiment is as good as ever.
    _, err = run(storage, "tune", write(storage, name="mute", sinks=[{"type": "mlflow", "tracking_uri": "/proc/nowhere"}]))
    assert "could not be told to the sink \"mlflow\"" in err, err
    assert json.loads(run(storage, "tune", "best", "mute")[0])["config"]["x"] == 4


def test_where(storage):
    """--storage, then the spec's storage_path, then UNISONO_RESULTS."""
    spec, typed = os.path.join(storage, "of_the_spec"), os.path.join(storage, "typed")
    run(storage, "tune", write(storage, name="where", storage_path=spec))
    assert os.listdir(spec) == ["where"] and not os.path.exists(os.path.join(storage, "where"))
    run(storage, "tune", "--storage", typed, write(storage, name="where", storage_path=spec))
    assert os.listdir(typed) == ["where"] and os.listdir(os.path.join(spec, "where")) == ["tune_001"]


def test_config_of_several_workers(storage):
    run(storage, "tune", write(storage, name="pairs", num_workers=2, max_concurrent=1))
    directory = json.loads(run(storage, "tune", "best", "pairs")[0])["directory"]
    for rank in (0, 1):
        logs = [os.path.join(where, name) for where, _, names in os.walk(directory) for name in names if name == f"rank_{rank}.log"]
        assert len(logs) == 1 and json.loads(read(logs[0]))["x"] == 4, (logs, rank)


def test_memory_is_a_reservation(storage):
    """No more trials at once than reserve what the machine has; none is limited."""
    _, err = run(storage, "tune", write(storage, name="large", memory_per_trial=1e18), code=125)
    has = float(re.search(r"a trial asks for 1e\+18 bytes of memory, but this machine has ([0-9.e+]+)", err)[1])
    program = ["sh", "-c", "mkdir $0/busy || echo overlap >>$0/seen; ulimit -v >>$0/limits; sleep 0.2; rmdir $0/busy; unisono_x={x}; "
                           "echo '{\"loss\": 1}' >&$UNISONO_REPORT_FD", storage]
    for part, overlaps in ((0.6, False), (0.3, True)):
        run(storage, "tune", write(storage, name="reserved%g" % part, program=program, max_concurrent=2, memory_per_trial=part * has))
        assert os.path.exists(os.path.join(storage, "seen")) == overlaps, part
    assert set(read(storage, "limits").split()) == {subprocess.run("ulimit -v", shell=True, text=True, capture_output=True, check=True).stdout.strip()}


def test_run_and_look(storage):
    out, _ = run(storage, "tune", write(storage))
    assert "3 of 3 trials done" in out and "best: trial 1, loss 3" in out, out
    best = json.loads(run(storage, "tune", "best", "first")[0])
    assert best["config"]["x"] == 4 and best["metrics"]["training_iteration"] == 3, best
    with open(os.path.join(best["directory"], "logs", "rank_0.log"), encoding="utf-8") as file:
        assert json.loads(file.read())["x"] == 4
    worst = json.loads(run(storage, "tune", "best", "first", "--mode", "max", "--scope", "all")[0])
    assert worst["trial"] in (0, 2) and worst["scope"] == "all", worst
    assert worst["value"] == worst["metrics"]["loss"] == 19 and worst["metrics"]["training_iteration"] == 1, worst
    table = json.loads(run(storage, "tune", "show", "first", "--json")[0])
    assert [row["status"] for row in table] == ["TERMINATED"] * 3, table
    assert run(storage, "tune", "show", "first", "--csv")[0].splitlines()[0].startswith("trial,status,iterations")
    page = run(storage, "tune", "plot", "first")[0].strip().removeprefix("wrote ")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert text.count("<svg") == 2 and "Learning curves" in text and "<td>" in text and "http" not in text and "<a>" not in text, text[:500]
    out, _ = run(storage, "tune", "resume", "first")
    assert "3 of 3 trials done" in out, out


def test_another_metric_needs_a_mode(storage):
    """The experiment's mode is for its own metric: by accuracy, min would show the worst as the best."""
    program = ["sh", "-c", "echo '{\"loss\": {x}, \"accuracy\": {x}}' >&$UNISONO_REPORT_FD"]
    run(storage, "tune", write(storage, program=program, name="two"))
    for word in ("best", "show", "plot"):
        _, err = run(storage, "tune", word, "two", "--metric", "accuracy", code=64)
        assert 'which value of "accuracy" is better?' in err, (word, err)
        run(storage, "tune", word, "two", "--metric", "loss")
    assert json.loads(run(storage, "tune", "best", "two", "--metric", "accuracy", "--mode", "max")[0])["config"]["x"] == 7
    assert "best: trial 2, accuracy 7" in run(storage, "tune", "show", "two", "--metric", "accuracy", "--mode", "max")[0]


# Each option of `unisono tune` with a value, and the words that it acts on. --storage and --color are for all.
OPTIONS = {"samples": ("1", "SPEC.json"), "concurrent": ("1", "SPEC.json"), "seed": ("1", "SPEC.json"), "name": ("n", "SPEC.json"),
           "retry": (None, "resume"), "restart": (None, "resume"), "metric": ("loss", "show best plot"), "mode": ("max", "show best plot"),
           "scope": ("avg", "best"), "output": ("-", "plot"), "log": (None, "plot"), "csv": (None, "show"), "json": (None, "show best"),
           "storage": (None, None), "color": (None, None)}


def test_options_act_or_are_refused(storage):
    spec = write(storage, name="table")
    run(storage, "tune", spec)
    known = {line.split("--")[1].split()[0] for line in run(storage, "tune", "--help")[0].splitlines() if line.lstrip()[:1] == "-"}
    assert known - {"help"} == set(OPTIONS), known ^ set(OPTIONS)
    words = {"SPEC.json": [spec], "resume": ["resume", "table"], "show": ["show", "table"], "best": ["best", "table"], "plot": ["plot", "table", "-o", "-"]}
    for option, (value, acts) in OPTIONS.items():
        if acts is None:
            continue
        for word, rest in words.items():
            given = ["--" + option] + ([value] if value else [])
            if word in acts.split():
                run(storage, "tune", *given, *rest)
            elif word == "plot" and option == "output":
                continue
            else:
                _, err = run(storage, "tune", *given, *rest, code=64)
                assert "--%s has no effect on `tune %s`" % (option, word) in err, (option, word, err)
    for pair, hint in ((("--csv", "--json"), "mutually exclusive"), (("--csv", "--metric", "loss"), "only the printed table"), (("--json", "--mode", "max"), "only the printed table")):
        assert hint in run(storage, "tune", "show", "table", *pair, code=64)[1], pair


def test_plot_of_diverged_trials(storage):
    program = os.path.join(storage, "train.sh")  # 20 good trials, one that explodes, one with NaN, one that is silent
    with open(program, "w", encoding="utf-8") as file:
        file.write("""for i in 1 2 3; do case $1-$i in
            20-[23]) echo '{"loss": 1e30, "accuracy": 0.1}';;
            21-3) echo '{"loss": NaN, "accuracy": 0.2}';;
            22-*) ;;
            *) echo "{\\"loss\\": $((300 / i + $1)), \\"accuracy\\": 0.$((i + $1))}";;
            esac >&$UNISONO_REPORT_FD; done""")
    run(storage, "tune", write(storage, program=["sh", program, "{x}"], space={"x": {"$grid_search": list(range(23))}}, name="wild"))
    page, err = run(storage, "tune", "plot", "wild", "-o", "-")
    assert "loss: 1 of 23 trials outside the axis, drawn at its edge: trial 20 (1e+30); --log shows the whole range\n" in err, err
    assert "loss: 1 of 23 trials not drawn, because the last value is not finite: trial 21 (NaN)\n" in err, err
    assert "loss: 1 of 23 trials not drawn, because nothing has been reported yet: trial 22\n" in err, err
    for line in err.splitlines():
        assert "<p>%s</p>" % line in page, (line, page)
    # The metric's axis ends at the worst of the good trials, and these are spread over it.
    assert ">100 (best)</text>" in page and ">119</text>" in page and "(min is best)" in page, page
    ends = {part.split('"><title>trial ')[0].split("L")[-1] for part in page.split('class="trial"')[1:] if ": loss " in part[:200]}
    assert len(ends) == 20, ends  # the diverged one is at the end of the worst
    assert "2 points of 1 trial outside the axis" in page and "1 value not drawn: not finite." in page, page
    page, err = run(storage, "tune", "plot", "wild", "--log", "-o", "-")
    assert "outside" not in err + page and ">1e+30</text>" in page and "(logarithmic)" in page, err
    page, err = run(storage, "tune", "plot", "wild", "--metric", "accuracy", "--mode", "max", "-o", "-")
    assert "outside" not in err and "Learning curves: accuracy" in page and "loss" not in page and "(max is best)" in page, err


HOSTILE = ["two words", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", "\"; touch pwned; \"", "a[$(touch pwned)]", "a\nb", ""]


def test_values_are_data_for_the_shell(storage):
    """As arguments they are anything; in a script only what means the same everywhere."""
    space = {"v": {"$grid_search": ["plain", *HOSTILE]}, "n": 0.5}
    program = ["sh", "-c", "printf '%s|' \"$1\"; echo '{\"loss\": {n}}' >&$UNISONO_REPORT_FD", "sh", "{v}"]
    run(storage, "tune", write(storage, program=program, space=space, name="argument", working_directory=storage))
    for number, value in enumerate(["plain", *HOSTILE]):
        assert read(storage, "argument", "tune_001", "trial_%05d" % number, "logs", "rank_0.log") == value + "|", value
    for number, script in enumerate(["echo '{v}'", "[[ {v} -eq 1 ]]", "a[{v}]=1", "echo $[{v}]", "echo $(( {v} ))", "let '{v}'", "declare -i y='{v}'",
                                     "test -v '{v}'", "printf -v '{v}' x", "eval '{v}'", "sh -c '{v}'"]):
        for value in HOSTILE:
            spec = write(storage, program=["bash", "-c", script], space={"v": value}, name="refused-%d" % number, working_directory=storage)
            _, err = run(storage, "tune", spec, code=64)
            assert "argument of its own" in err, err
    assert not os.path.exists(os.path.join(storage, "pwned"))


def test_failures_are_told(storage):
    program = ["sh", "-c", "test {x} != 4 || exit 3; echo '{\"loss\": 1}' >&$UNISONO_REPORT_FD"]
    _, err = run(storage, "tune", write(storage, program=program, name="some"))
    lines = [line for line in err.splitlines() if "trial 1 failed: " in line]
    assert len(lines) == 1 and "3" in lines[0].split("failed: ")[1], err


def test_failed_trials_go_on_or_begin_again(storage):
    program = ["sh", "-c", "echo '{\"loss\": 1}' >&$UNISONO_REPORT_FD; test -e go"]
    run(storage, "tune", write(storage, program=program, name="again", working_directory=storage), code=1)
    run(storage, "tune", "resume", "again", code=1)
    _, err = run(storage, "tune", "resume", "again", "--retry", "--restart", code=64)
    assert "not both" in err, err
    with open(os.path.join(storage, "go"), "w", encoding="utf-8"):
        pass
    out, _ = run(storage, "tune", "resume", "again", "--restart")
    assert "3 of 3 trials done" in out and "failed" not in out, out


def test_a_dead_tuner_does_not_run(storage):
    program = ["sh", "-c", "echo '{\"loss\": 1}' >&$UNISONO_REPORT_FD; sleep 600"]
    child = subprocess.Popen([COMMAND, "tune", write(storage, program=program, name="dead")], stdout=subprocess.DEVNULL,
                             env=dict(os.environ, UNISONO_RESULTS=storage))
    directory = os.path.join(storage, "dead", "tune_001")
    while not (os.path.exists(os.path.join(directory, "tune.jsonl")) and read(directory, "tune.jsonl").count('"e":"report"') == 2):
        assert child.poll() is None
        time.sleep(0.02)
    assert [row["status"] for row in json.loads(run(storage, "tune", "show", "dead", "--json")[0])] == ["RUNNING"] * 2
    child.kill()
    child.wait()
    out, _ = run(storage, "tune", "show", "dead")
    assert "2 interrupted" in out and "running" not in out.lower(), out
    assert [row["status"] for row in json.loads(run(storage, "tune", "show", "dead", "--json")[0])] == ["INTERRUPTED"] * 2


def test_names_that_no_trial_reports(storage):
    """A misspelled name in stop or time_attr had no effect, without a word."""
    for changes, words in (({"stop": {"los": {"below": 3}}}, 'never reported the metric "los"; it reported loss: this stop criterion ends no trial'),
                           ({"scheduler": {"type": "asha", "time_attr": "epoch"}}, 'never reported the metric "epoch"; it reported loss: the scheduler')):
        _, err = run(storage, "tune", write(storage, name="misspelled", **changes))
        assert words in err, err
    _, err = run(storage, "tune", write(storage, name="well", stop={"training_iteration": 2, "loss": {"below": 0}}, scheduler={"type": "asha"}))
    assert "never reported" not in err, err


def test_empty_space(storage):
    program = ["sh", "-c", "echo \"{\\\"loss\\\": ${#UNISONO_CONFIG}}\" >&$UNISONO_REPORT_FD"]
    for space in ({}, None):
        run(storage, "tune", write(storage, name="equal", space=space, program=program, num_samples=2))
        found = json.loads(run(storage, "tune", "best", "equal")[0])
        assert found["config"] == {} and found["metrics"]["loss"] == len("{}"), found


def test_refused(storage):
    for changes, words in (({"space": {"x": {"$uniform": [2, 1]}}}, "above the upper end"),
                           ({"mode": None}, "has no mode"), ({"program": None}, 'has no "program", for example'),
                           ({"metrik": "loss"}, 'no option "metrik"'), ({"name": "-rf"}, "begins with a dash"), ({"sinks": ["print"]}, "there are tensorboard and mlflow"), ({"program": ["/no/such/program"]}, "/no/such/program")):
        _, err = run(storage, "tune", write(storage, **changes), code=1 if "program" in changes and changes["program"] else 64)
        assert words in err, (changes, err)
    _, err = run(storage, "tune", "show", "nothing", code=1)
    assert "there is no experiment" in err, err
    run(storage, "tune", write(storage, metric="accuracy", name="other"))
    _, err = run(storage, "tune", "best", "other", code=1)
    assert "they reported: loss" in err, err


for name, test in [(name, value) for name, value in list(globals().items()) if name.startswith("test_")]:
    with tempfile.TemporaryDirectory() as place:
        test(place)
    print("[       OK ] %s" % name, flush=True)
