#!/usr/bin/env python3
"""python_bench.py - the Python package on the trainer's work: the suite python of ./bench. Its peer is Ray Train (peers/ray_train.py).

  import_ms               `import unisono` in a new interpreter; median
  fit_ms                  2 workers, 3 reports, no framework: DataParallelTrainer.fit(), median
  reports_per_s           2 workers that report a small dictionary in a loop; reports of both ranks per second inside the loop
  lockstep_reports_per_s  the same with v1's Trainer, whose report waits for the driver
  recovery_ms             from kill -9 of a worker to the train function running again in both, median

With real frameworks (python_workloads.py, in the interpreters that have them; in pairs with the same started by hand):
  torch_speed_ratio, torch_first_step_s   DDP under unisono beside torchrun
  hvd_torch_samples_per_s                 unisono.horovod.torch beside DDP
  tf_speed_ratio, tf_first_step_s         MultiWorkerMirroredStrategy under unisono beside TF_CONFIG by hand
  hvd_keras3_samples_per_s                unisono.horovod.keras on Keras 3 beside MultiWorkerMirroredStrategy with tf_keras
  tf_recovery_ms                          from kill -9 of a TensorFlow worker to both training again, beside the group's first start
  tf_next_fit_s, torch_next_fit_s         a fit that is not the script's first, beside one whose workers are new processes (UNISONO_TEMPLATE=0)
First steps are those of a script's first fit: the template of workers is ended before each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.environ.get("UNISONO_PYTHON_PACKAGE", os.path.join(ROOT, "build-release/python"))
sys.path[:0] = [PACKAGE, os.path.join(ROOT, "benchmarks")]

from marks import recovery_seconds
from unisono import train
from unisono.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, Trainer

WORKERS = 2


def emit(metric, unit, value):
    print(json.dumps({"metric": metric, "unit": unit, "unisono": float("%.4g" % value)}), flush=True)


def import_ms(rounds):
    code = "import time; begin = time.perf_counter(); import unisono; print((time.perf_counter() - begin) * 1000)"
    return statistics.median(float(subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=PACKAGE), text=True,
                                                  stdout=subprocess.PIPE, check=True).stdout) for _ in range(rounds))


def fit(function, config=None, failures=0):
    return DataParallelTrainer(function, train_loop_config=config, scaling_config=ScalingConfig(num_workers=WORKERS),
                               run_config=RunConfig(verbose=0, failure_config=FailureConfig(max_failures=failures))).fit()


def three_reports():
    for epoch in range(3):
        train.report({"epoch": epoch})


def fit_ms(rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        fit(three_reports)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def many_reports(config):
    train.report({"step": -1, "loss": 1.0})
    begin = time.perf_counter()
    for step in range(config["count"]):
        train.report({"step": step, "loss": 1.0})
    seconds = time.perf_counter() - begin
    with open(os.path.join(config["marks"], "rate_%d" % train.world_rank()), "w", encoding="utf-8") as file:
        file.write(repr(seconds))
    return seconds


def reports_per_s(count):
    with tempfile.TemporaryDirectory() as marks:
        fit(many_reports, {"count": count, "marks": marks})
        seconds = [float(open(os.path.join(marks, "rate_%d" % rank), encoding="utf-8").read()) for rank in range(WORKERS)]
    return WORKERS * count / max(seconds)


def lockstep_reports_per_s(count):
    trainer = Trainer("none", WORKERS)
    trainer.start()
    with tempfile.TemporaryDirectory() as marks:
        seconds = trainer.run(many_reports, config={"count": count, "marks": marks})
    trainer.shutdown()
    return WORKERS * count / max(seconds)


def wait_to_be_killed(config):
    rank = train.world_rank()
    again = os.path.exists(os.path.join(config["marks"], "first_%d" % rank))
    path = os.path.join(config["marks"], "%s_%d" % ("second" if again else "first", rank))
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write("%d %r" % (os.getpid(), time.time()))
    os.rename(path + ".part", path)
    if not again:
        time.sleep(120)


def recovery_ms():
    with tempfile.TemporaryDirectory() as marks:
        return recovery_seconds(marks, WORKERS, lambda: fit(wait_to_be_killed, {"marks": marks}, failures=2))[0] * 1000


FRAMEWORKS = {"torch": ("torch", ["torch_speed_ratio", "torch_first_step_s", "hvd_torch_samples_per_s", "torch_next_fit_s"]),
              "tensorflow": ("keras", ["tf_speed_ratio", "tf_first_step_s", "hvd_keras3_samples_per_s", "tf_recovery_ms", "tf_next_fit_s"])}


def frameworks(quick):
    """The lines of python_workloads.py; when an interpreter or a number is missing, a line that says so."""
    for part, (group, metrics) in FRAMEWORKS.items():
        done = subprocess.run([os.path.join(ROOT, "tools/python-env"), "--path" if group != "torch" else group], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
        python, seen, found = done.stdout.strip(), set(), False
        code = "import sys; from importlib.util import find_spec as find; sys.exit(not (find('cloudpickle') and find(%r)))" % part
        if python and os.access(python, os.X_OK) and subprocess.run([python, "-c", code], check=False).returncode == 0:
            found = True
            with subprocess.Popen([python, os.path.join(ROOT, "benchmarks/python_workloads.py"), "--compare", part] + ["--quick"] * quick, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ran:
                for line in ran.stdout:
                    if line.startswith('{"bench"'):
                        print(line, end="", flush=True)
                        seen.add(json.loads(line)["metric"])
        unseen = [metric for metric in metrics if metric not in seen]
        for metric in unseen:
            print(json.dumps({"metric": metric, "unit": "", "unisono": None, "peer": None, "peer_name": "missing: " + (
                "it failed" if found else "no interpreter here has %s and cloudpickle" % part), "ratio": None}), flush=True)
        if found and unseen:
            print(json.dumps({"failed_peer": part, "why": "python_workloads.py --compare %s printed no %s" % (part, ", ".join(unseen))}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peers", action="store_true", help="without the frameworks")
    arguments = parser.parse_args()
    quick = arguments.quick
    with tempfile.TemporaryDirectory() as results:
        os.environ["UNISONO_RESULTS"] = results
        emit("import_ms", "ms", import_ms(3 if quick else 15))
        emit("fit_ms", "ms", fit_ms(3 if quick else 15))
        emit("reports_per_s", "1/s", reports_per_s(2000 if quick else 200000))
        emit("lockstep_reports_per_s", "1/s", lockstep_reports_per_s(500 if quick else 10000))
        emit("recovery_ms", "ms", statistics.median(recovery_ms() for _ in range(1 if quick else 7)))
        if not arguments.no_peers:
            frameworks(quick)


if __name__ == "__main__":
    main()
