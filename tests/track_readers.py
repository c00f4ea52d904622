#!/usr/bin/env python3
"""The sinks, read by the programs that people read them with: TensorBoard, the MLflow client and server, Python's csv and json.

    track_readers.py WRITER [test ...]

WRITER is the program built from src/track/write_for_readers.c. Run by `meson test --suite readers` through track_readers.sh, which finds a Python
that has the readers, or skips.
"""
import csv
import http.server
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["GIT_PYTHON_REFRESH"] = "quiet"
WRITER = sys.argv[1]


def clean_environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    env.update(extra)
    return env


def write(directory, *sinks, reports=10, pause_ms=0, code=0, **env):
    command = [WRITER, str(directory), str(reports), str(pause_ms), str(code), *sinks]
    return subprocess.run(command, env=clean_environment(**env), capture_output=True, text=True, timeout=120)


def must_write(directory, *sinks, **options):
    done = write(directory, *sinks, **options)
    assert done.returncode == 0, f"{done.args} gave {done.returncode}: {done.stderr}"
    return done


def loss(i, rank=0):
    return math.nan if i == 3 else -math.inf if i == 4 else 1 / i + 100 * rank


def same(a, b, rel=0.0):
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=rel, abs_tol=0)


# Iterations as the sinks see them: attempt 2 comes back to 5 and 6.
ITERATIONS = [1, 2, 3, 4, 5, 6, 5, 6, 7, 8, 9, 10]


def test_csv(tmp):
    must_write(tmp, "csv")
    with open(tmp / "progress.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [int(r["_training_iteration"]) for r in rows] == ITERATIONS
    for row, i in zip(rows, ITERATIONS):
        assert same(float(row["loss"]), loss(i)), row
        assert float(row["eval.accuracy"]) == 0.5 + 0.01 * i
        assert row["note"] == 'a "quoted", line\nof text é'
        assert row["done"] == str(i % 2 == 0)
        assert row["late,column"] == (str(i) if i >= 5 else "")  # added later, empty before
        weights = json.loads(row["weights"])
        assert len(weights) == 50 and weights[1] == 0.1 * i
        assert i != 3 or weights[49] == math.inf
    assert not list(tmp.glob("*.tmp*")), list(tmp.iterdir())


def test_json(tmp):
    must_write(tmp, "json")
    with open(tmp / "results.json") as f:
        results = json.load(f)
    assert len(results) == len(ITERATIONS)
    for ranks, i in zip(results, ITERATIONS):
        assert len(ranks) == 2
        for rank, metrics in enumerate(ranks):
            assert same(metrics["loss"], loss(i, rank))
            assert metrics["eval"] == {"accuracy": 0.5 + 0.01 * i, "count": 1000 * i}
            assert metrics["done"] is (i % 2 == 0)


def test_json_is_whole_at_every_moment(tmp):
    """json.load takes it whenever it looks, and it grows."""
    process = subprocess.Popen([WRITER, str(tmp), "400", "5", "0", "json"], env=clean_environment())
    path, sizes, reads = tmp / "results.json", set(), 0
    while process.poll() is None:
        if path.exists():
            with open(path) as f:
                sizes.add(len(json.load(f)))
            reads += 1
        time.sleep(0.002)
    assert process.returncode == 0
    assert reads > 50 and len(sizes) > 5, (reads, sizes)
    assert len(json.load(open(path))) == 402


def accumulator(directory):
    from tensorboard.backend.event_processing import event_accumulator

    events = event_accumulator.EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    return events


def test_tensorboard(tmp):
    from tensorboard.plugins.hparams import plugin_data_pb2

    must_write(tmp, "tensorboard")
    events = accumulator(tmp)
    scalars = events.Scalars("ray/train/loss")
    assert [e.step for e in scalars] == list(range(1, 11)), scalars  # what the restart took back is dropped
    for e in scalars:
        assert same(e.value, loss(e.step), 1e-6), e
        assert e.wall_time == 1700000000.25 + e.step
    assert [e.step for e in events.Scalars("ray/train/late,column")] == list(range(5, 11))
    assert [e.value for e in events.Scalars("ray/train/weights/nonfinite")] == [1.0]
    tags = set(events.Tags()["scalars"])
    assert "ray/train/eval/accuracy" in tags and not any("_timestamp" in t or "_training_iteration" in t for t in tags), tags
    histograms = events.Histograms("ray/train/weights")
    assert [e.step for e in histograms] == list(range(1, 11))
    for e in histograms:
        h, numbers = e.histogram_value, [k * 0.1 * e.step for k in range(50 if e.step != 3 else 49)]
        assert h.num == len(numbers) == sum(h.bucket) and h.min == 0 and math.isclose(h.max, max(numbers))
        assert math.isclose(h.sum, sum(numbers)) and math.isclose(h.sum_squares, sum(x * x for x in numbers))
        below = 0
        for limit, count in zip(h.bucket_limit, h.bucket):
            below += count
            assert below == sum(x <= limit * (1 + 1e-12) for x in numbers), (limit, below)
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["lr"].number_value == 0.001 and start.hparams["epochs"].number_value == 10
    assert start.hparams["model/name"].string_value == "mlp" and start.hparams["model/layers"].string_value == "[64, 10]"
    assert start.hparams["shuffle"].bool_value is True and "nothing" not in start.hparams
    assert start.group_name == "readers/run_001" and start.start_time_secs > 1.7e9
    content = events.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    assert plugin_data_pb2.HParamsPluginData.FromString(content).session_end_info.status == 1


def test_tensorboard_hparams_table(tmp):
    """The HPARAMS page itself, asked of a real TensorBoard: both runs with their outcome, hyperparameters and metrics."""
    must_write(tmp / "good", "tensorboard")
    must_write(tmp / "bad", "tensorboard", code=-16)
    port = free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp), "--host", "127.0.0.1", "--port", str(port),
               "--load_fast", "false", "--reload_interval", "1"]
    # It notes that it runs in the temporary directory, and leaves the note there.
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=str(tmp)))
    try:
        def ask(page, body=None):
            data = None if body is None else json.dumps(body).encode()
            url = f"http://127.0.0.1:{port}/experiment/defaultExperimentId/data/plugin/hparams/{page}"
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)

        groups = []
        experiment = {}

        def loaded():
            nonlocal groups, experiment
            experiment = ask("experiment", {"experimentName": ""})
            columns = [{"metric": m["name"]} for m in experiment.get("metricInfos", [])]
            query = {"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
                     "colParams": columns, "startIndex": 0, "sliceSize": 100, "aggregationType": "AGGREGATION_AVG"}
            groups = ask("session_groups", query).get("sessionGroups", [])
            return len(groups) > 0 and any(g.get("metricValues") for g in groups)

        wait_until(loaded, 60)
        names = {info["name"] for info in experiment["hparamInfos"]}
        assert {"lr", "epochs", "shuffle", "model/name"} <= names, names
        sessions = [s for g in groups for s in g["sessions"]]
        assert {s["status"] for s in sessions} == {"STATUS_SUCCESS", "STATUS_FAILURE"}, sessions
        metrics = {m["name"]["tag"] for m in experiment["metricInfos"]}
        assert "ray/train/loss" in metrics, metrics
    finally:
        server.terminate()
        server.wait(30)


def check_mlflow_run(client, experiment_name, status, infinity=-math.inf):
    experiment = client.get_experiment_by_name(experiment_name)
    assert experiment is not None, experiment_name
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 1, runs
    run = runs[0]
    assert run.info.status == status and run.info.run_name == "readers/run_001" and run.info.end_time >= run.info.start_time
    assert run.data.params == {"lr": "0.001", "epochs": "10", "model/layers": "[64, 10]", "model/name": "mlp",
                               "shuffle": "True", "nothing": "None"}, run.data.params
    tags = run.data.tags
    assert tags["team"] == "b/e:st" and tags["purpose"] == "tests é" and tags["mlflow.source.name"] == "train", tags
    history = client.get_metric_history(run.info.run_id, "loss")
    assert sorted(m.step for m in history) == sorted(ITERATIONS) or sorted(m.step for m in history) == list(range(1, 11)), history
    for m in history:
        expected = infinity if m.step == 4 else loss(m.step)
        assert same(m.value, expected), (m.step, m.value)
        assert m.timestamp == 1700000000250 + 1000 * m.step
    assert {m.step for m in client.get_metric_history(run.info.run_id, "eval/accuracy")} == set(range(1, 11))
    assert {m.step for m in client.get_metric_history(run.info.run_id, "late_column")} == set(range(5, 11))
    return run


def check_artifacts(client, run):
    listed = client.list_artifacts(run.info.run_id, "checkpoints/checkpoint_000001")
    assert [a.path for a in listed] == ["checkpoints/checkpoint_000001/model weights.bin"], listed
    assert listed[0].file_size == 5


def test_mlflow_files(tmp):
    from mlflow import MlflowClient

    must_write(tmp / "a b", "mlflow")
    client = MlflowClient(f"file://{tmp}/a%20b/mlruns")
    check_artifacts(client, check_mlflow_run(client, "readers & co", "FINISHED"))
    readme = (tmp / "a b" / "mlruns" / "README.txt").read_text()
    assert "mlflow ui" in readme and "MLFLOW_ALLOW_FILE_STORE=true" in readme


def test_mlflow_files_in_an_existing_store(tmp):
    """A store that MLflow made, an experiment of its own in it; a failed run."""
    from mlflow import MlflowClient

    store = f"{tmp}/store"
    client = MlflowClient(store)
    made = client.create_experiment("theirs")
    must_write(tmp / "run", "mlflow", code=-16, MLFLOW_TRACKING_URI=store, MLFLOW_EXPERIMENT_NAME="theirs")
    run = check_mlflow_run(client, "theirs", "FAILED")
    assert run.info.experiment_id == made
    missing = write(tmp / "other", "mlflow", MLFLOW_TRACKING_URI=store, MLFLOW_EXPERIMENT_ID="12345")
    assert missing.returncode == 1 and "no MLflow experiment with the id 12345" in missing.stderr, missing.stderr


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(ready, seconds):
    end = time.monotonic() + seconds
    while True:
        try:
            if ready():
                return
        except (OSError, urllib.error.URLError, json.JSONDecodeError) as e:
            if time.monotonic() > end:
                raise AssertionError(f"not ready in {seconds} s: {e}")
        assert time.monotonic() < end, f"not ready in {seconds} s"
        time.sleep(0.2)


class Guard(http.server.BaseHTTPRequestHandler):
    """A proxy that lets only requests with the right bearer token through, and counts."""

    protocol_version = "HTTP/1.1"
    target, token = "", ""
    passed, refused, fail_next = 0, 0, 0

    def forward(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        cls = type(self)
        if self.headers.get("Authorization") != f"Bearer {cls.token}":
            cls.refused += 1
            return self.answer(401, b'{"error_code":"UNAUTHENTICATED","message":"who are you?"}')
        if cls.fail_next > 0 and "log-batch" in self.path:
            cls.fail_next -= 1
            return self.answer(503, b"busy")
        cls.passed += 1
        request = urllib.request.Request(cls.target + self.path, body, method=self.command)
        request.add_header("Content-Type", self.headers.get("Content-Type", "application/json"))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return self.answer(answer.status, answer.read())
        except urllib.error.HTTPError as e:
            return self.answer(e.code, e.read())

    do_GET = do_POST = do_PUT = forward

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def test_mlflow_server(tmp):
    """A real `mlflow server` on SQLite behind a proxy that wants a token."""
    from mlflow import MlflowClient

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    log = open(tmp / "server.log", "w")
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{tmp}/mlflow.db",
               "--artifacts-destination", str(tmp / "artifacts"), "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # Its job runner, which is not used here, would leave a directory in /dev/shm.
    server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True,
                              env=dict(os.environ, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"))
    Guard.target, Guard.token = address, "s3cret"
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    guarded = f"http://127.0.0.1:{proxy.server_port}/"
    try:
        def healthy():
            assert server.poll() is None, (tmp / "server.log").read_text()
            return urllib.request.urlopen(address + "/health", timeout=5).status == 200

        wait_until(healthy, 120)
        client = MlflowClient(address)
        # SQL stores keep infinity as the largest double and NaN as NaN.
        must_write(tmp / "good", "mlflow", MLFLOW_TRACKING_URI=guarded, MLFLOW_TRACKING_TOKEN="s3cret")
        check_artifacts(client, check_mlflow_run(client, "readers & co", "FINISHED", -sys.float_info.max))
        Guard.fail_next = 2  # a server that is busy twice is asked again
        must_write(tmp / "bad", "mlflow", code=-16, MLFLOW_TRACKING_URI=guarded, MLFLOW_TRACKING_TOKEN="s3cret",
                   MLFLOW_EXPERIMENT_NAME="second one")
        check_mlflow_run(client, "second one", "FAILED", -sys.float_info.max)
        assert Guard.passed > 10 and Guard.refused == 0 and Guard.fail_next == 0
        wrong = write(tmp / "wrong", "mlflow", MLFLOW_TRACKING_URI=guarded, MLFLOW_TRACKING_TOKEN="wr0ng-token")
        assert wrong.returncode == 1 and Guard.refused > 0, wrong
        assert "401" in wrong.stderr and "who are you?" in wrong.stderr and "wr0ng-token" not in wrong.stderr, wrong.stderr
    finally:
        proxy.shutdown()
        os.killpg(server.pid, 15)
        server.wait(30)
        log.close()


def test_mlflow_server_that_is_not_there(tmp):
    done = write(tmp, "mlflow", "csv", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1 and "cannot reach the MLflow server" in done.stderr, done.stderr
    assert len((tmp / "progress.csv").read_text()) > 100  # the others go on


def main():
    tests = {name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    names = sys.argv[2:] or list(tests)
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="unisono-readers-") as directory:
            start = time.monotonic()
            try:
                tests[name](pathlib.Path(directory))
                print(f"ok   {name} ({time.monotonic() - start:.1f} s)", flush=True)
            except Exception:
                import traceback

                traceback.print_exc()
                print(f"FAIL {name}", flush=True)
                failed += 1
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
