"""Ray Tune, the work of ./bench tune: functions that report twice, two at a time."""

import json
import os
import sys
import tempfile
import time


def twice(config):
    from ray import tune

    for step in range(2):
        tune.report({"loss": config["x"] ** 2 / (step + 1)})


def main():
    count = 8 if "--quick" in sys.argv else 30
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    import ray
    from ray import tune

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with tempfile.TemporaryDirectory() as place:
        tuner = tune.Tuner(twice, param_space={"x": tune.uniform(-1, 1)}, run_config=tune.RunConfig(storage_path=place, verbose=0),
                           tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count, max_concurrent_trials=2))
        begun = time.perf_counter()
        grid = tuner.fit()
        took = time.perf_counter() - begun
        assert len(grid) == count
    ray.shutdown()
    for metric in ("trials_per_s", "py_trials_per_s"):
        print(json.dumps({"bench": "tune", "metric": metric, "unit": "1/s", "peer": count / took, "peer_name": "ray %s" % ray.__version__}), flush=True)


if __name__ == "__main__":
    main()
