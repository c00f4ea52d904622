"""ray_train.py - Ray Train on the trainer suite's work: the peer's numbers for ./bench trainer.

JSON lines {"metric", "peer", "peer_name"}:
  fit_ms         2 workers, 3 reports: DataParallelTrainer.fit(), with the Ray cluster already up (its start is not counted), median
  reports_per_s  2 workers that report a small dictionary in a loop; reports of both ranks per second inside the loop (report() waits for
                 the controller, which polls every two seconds by default: hence the small count)
  recovery_ms    from kill -9 of a worker to the train function running again in both, median

The train functions are as small as they can be and use no framework, so what is measured is the trainer.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import ray
from marks import recovery_seconds
from ray import train
from ray.train import FailureConfig, RunConfig, ScalingConfig

try:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # the present trainer
except ImportError:
    from ray.train.data_parallel_trainer import DataParallelTrainer

WORKERS = 2


def emit(metric, value):
    print(json.dumps({"metric": metric, "peer": value, "peer_name": "ray " + ray.__version__}), flush=True)


def fit(function, config, storage, failures=0):
    trainer = DataParallelTrainer(
        function, train_loop_config=config, scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=failures)))
    return trainer.fit()


def three_reports(config):
    for epoch in range(3):
        train.report({"epoch": epoch})


def many_reports(config):
    # The first report pays for what is set up late.
    train.report({"step": -1, "loss": 1.0})
    start = time.monotonic()
    for step in range(config["count"]):
        train.report({"step": step, "loss": 1.0})
    seconds = time.monotonic() - start
    path = os.path.join(config["marks"], "rate_%d" % train.get_context().get_world_rank())
    with open(path, "w", encoding="utf-8") as file:
        file.write(repr(seconds))


def wait_to_be_killed(config):
    """Leaves a mark with pid and time; the first attempt waits, the second returns."""
    rank = train.get_context().get_world_rank()
    first = os.path.join(config["marks"], "first_%d" % rank)
    again = os.path.exists(first)
    path = os.path.join(config["marks"], "%s_%d" % ("second" if again else "first", rank))
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write("%d %r" % (os.getpid(), time.time()))
    os.rename(path + ".part", path)
    if not again:
        time.sleep(120)


def recovery(storage):
    folder = tempfile.mkdtemp(dir=storage)
    return recovery_seconds(folder, WORKERS, lambda: fit(wait_to_be_killed, {"marks": folder}, storage, failures=2), 120)[0] * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick

    # Ray prints on stdout; only our lines go there.
    ours, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as storage:
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        try:
            times = []
            for _ in range(1 if quick else 3):
                start = time.monotonic()
                fit(three_reports, {}, storage)
                times.append((time.monotonic() - start) * 1000)
            marks = tempfile.mkdtemp(dir=storage)
            count = 10 if quick else 16
            fit(many_reports, {"count": count, "marks": marks}, storage)
            seconds = []
            for rank in range(WORKERS):
                with open(os.path.join(marks, "rate_%d" % rank), encoding="utf-8") as file:
                    seconds.append(float(file.read()))
            recoveries = [recovery(storage) for _ in range(1 if quick else 3)]
        finally:
            ray.shutdown()
    sys.stdout = ours
    emit("fit_ms", round(statistics.median(times), 1))
    emit("reports_per_s", round(WORKERS * count / max(seconds), 1))
    emit("recovery_ms", round(statistics.median(recoveries), 1))


if __name__ == "__main__":
    main()
