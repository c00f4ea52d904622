"""Optuna, the work of ./bench tune: its TPE against its random sampler on the same functions, and trials a second with its journal on disk."""

import json
import math
import os
import sys
import tempfile
import time

import optuna


def branin(u, v):
    x, y = 15 * u - 5, 15 * v
    return (y - 5.1 / (4 * math.pi ** 2) * x * x + 5 / math.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def rosenbrock(u, v):
    x, y = 4 * u - 2, 4 * v - 1
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def hartmann3(u, v, w):
    a = ((3, 10, 30), (0.1, 10, 35), (3, 10, 30), (0.1, 10, 35))
    p = ((0.3689, 0.1170, 0.2673), (0.4699, 0.4387, 0.7470), (0.1091, 0.8732, 0.5547), (0.0381, 0.5743, 0.8828))
    return -sum(c * math.exp(-sum(a[i][j] * (x - p[i][j]) ** 2 for j, x in enumerate((u, v, w)))) for i, c in enumerate((1, 1.2, 3, 3.2)))


def best(function, names, sampler):
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: function(*(trial.suggest_float(name, 0, 1) for name in names)), n_trials=100)
    return study.best_value


def say(metric, unit, value):
    print(json.dumps({"bench": "tune", "metric": metric, "unit": unit, "peer": value, "peer_name": "optuna %s" % optuna.__version__}), flush=True)


def main():
    quick = "--quick" in sys.argv
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds, wins, tried = (2 if quick else 20), 0, 0
    for function, names in ((branin, "uv"), (rosenbrock, "uv"), (hartmann3, "uvw")):
        found = []
        for seed in range(1, seeds + 1):
            found.append(best(function, names, optuna.samplers.TPESampler(seed=seed)))
            wins += found[-1] < best(function, names, optuna.samplers.RandomSampler(seed=seed))
            tried += 1
        say("tpe_best_%s" % function.__name__, "loss", sum(found) / seeds)
    say("tpe_vs_random", "share", wins / tried)
    count = 50 if quick else 500
    with tempfile.TemporaryDirectory() as place:
        from optuna.storages.journal import JournalFileBackend

        storage = optuna.storages.JournalStorage(JournalFileBackend(os.path.join(place, "journal")))
        study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=1))

        def twice(trial):
            x = trial.suggest_float("x", -1, 1)
            for step in range(2):
                trial.report(x * x / (step + 1), step)
            return x * x / 2

        begun = time.perf_counter()
        study.optimize(twice, n_trials=count)
        say("py_trials_per_s", "1/s", count / (time.perf_counter() - begun))


if __name__ == "__main__":
    main()
