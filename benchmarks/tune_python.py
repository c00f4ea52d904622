"""Python's half of ./bench tune: functions that report twice, two at a time, in warm workers. Started by tune_bench."""

import json
import sys
import tempfile
import time

from unisono import tune


def twice(config):
    for step in range(2):
        tune.report(loss=config["x"] ** 2 / (step + 1))


def main():
    count = 100 if "--quick" in sys.argv else 1000
    with tempfile.TemporaryDirectory() as place:
        tuner = tune.Tuner(twice, param_space={"x": tune.uniform(-1, 1)}, run_config=tune.RunConfig(storage_path=place),
                           tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count, max_concurrent_trials=2))
        begun = time.perf_counter()
        grid = tuner.fit()
        took = time.perf_counter() - begun
        assert grid.num_terminated == count, grid
    print(json.dumps({"bench": "tune", "metric": "py_trials_per_s", "unit": "1/s", "unisono": count / took}), flush=True)


if __name__ == "__main__":
    main()
