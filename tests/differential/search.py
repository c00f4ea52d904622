"""search.py [SEARCH_ASK] - the net of the search: densities and schedulers' decisions beside Optuna's and Ray's own code, and TPE's results beside Optuna's.

Densities: the logarithm of the Parzen estimator beside Optuna's for random parameters, trials and points. Schedulers: ASHA and the median rule see the same reports as
Ray's classes and must say the same. Results: the best of 60 trials over 30 seeds on functions that chose no constant (search_functions.py); TPE must not be worse than Optuna's TPESampler
(one-sided Mann-Whitney, p above 0.05). All seeded: the same numbers on every machine with the same versions.
"""

import json
import math
import os
import random
import sys

from search_functions import CONDITIONAL, FUNCTIONS
from search_peers import Pipe, search, search_optuna

SEEDS, TRIALS = 30, 60
LEAST_P = 0.05
failures = []


def check(condition, *what):
    if not condition:
        failures.append(" ".join(str(each) for each in what))
        print("FAILED: " + failures[-1], flush=True)


# ---- densities ----


def _random_axis(dice):
    """(our mark, Optuna's distribution, a value of it, from that to the units of our kernels)"""
    from optuna import distributions as kinds

    kind = dice.choice(["uniform", "loguniform", "randint", "lograndint", "quniform", "choice"])
    low = dice.uniform(-5, 5)
    high = low + dice.uniform(0.1, 10)
    if kind == "uniform":
        return {"$uniform": [low, high]}, kinds.FloatDistribution(low, high), lambda: dice.uniform(low, high), float
    if kind == "loguniform":
        low, high = math.exp(low), math.exp(high)
        return {"$loguniform": [low, high]}, kinds.FloatDistribution(low, high, log=True), lambda: math.exp(dice.uniform(math.log(low), math.log(high))), math.log
    if kind == "randint":
        first, last = int(low), int(low) + dice.randint(2, 40)
        return {"$randint": [first, last + 1]}, kinds.IntDistribution(first, last), lambda: dice.randint(first, last), float
    if kind == "lograndint":
        last = dice.randint(4, 300)
        return {"$lograndint": [1, last + 1]}, kinds.IntDistribution(1, last, log=True), lambda: dice.randint(1, last), math.log
    if kind == "quniform":
        steps = dice.randint(2, 20)
        return {"$quniform": [0, steps * 0.25, 0.25]}, kinds.FloatDistribution(0, steps * 0.25, step=0.25), lambda: 0.25 * dice.randint(0, steps), float
    count = dice.randint(2, 6)
    return {"$choice": list(range(count))}, kinds.CategoricalDistribution(list(range(count))), lambda: dice.randrange(count), float


def _without_ties(axes, rows):
    """Of equal numbers Optuna's sort says at random which kernel gets which neighbour."""
    kept, seen = [], [set() for _ in axes]
    for row in rows:
        numbers = [(value, known) for axis, value, known in zip(axes, row, seen) if "$choice" not in axis[0]]
        if all(value not in known for value, known in numbers):
            kept.append(row)
            for value, known in numbers:
                known.add(value)
    return kept


def compare_densities(program, cases=200, points=5):
    import numpy
    from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
    from optuna.samplers._tpe.sampler import default_weights

    compared = 0
    for case in range(cases):
        dice = random.Random(case)
        axes = [_random_axis(dice) for _ in range(dice.randint(1, 4))]
        draw = [[axis[2]() for axis in axes] for _ in range(dice.choice([0, 1, 2, 5, 24, 26, 60]) + points)]
        rows, asked = _without_ties(axes, draw[points:]), draw[:points]
        parameters = _ParzenEstimatorParameters(1.0, True, False, default_weights, True)
        names = ["p%d" % i for i in range(len(axes))]
        space = {name: axis[1] for name, axis in zip(names, axes)}
        peer = _ParzenEstimator({name: numpy.array([row[i] for row in rows], float) for i, name in enumerate(names)}, space, parameters)
        theirs = peer.log_pdf({name: numpy.array([point[i] for point in asked], float) for i, name in enumerate(names)})
        # Optuna's density of a logarithm is over the number itself, ours over its logarithm.
        pipe = Pipe(program, {"axes": [axis[0] for axis in axes], "rows": [[axis[3](value) for axis, value in zip(axes, row)] for row in rows]})
        for point, value in zip(asked, theirs):
            mine = pipe.ask(json.dumps([axis[3](each) for axis, each in zip(axes, point)]))
            jacobian = sum(math.log(each) for axis, each in zip(axes, point) if "$loguniform" in axis[0])
            check(abs(mine - jacobian - value) < 1e-6 * max(1, abs(value)) or abs(mine - value) < 1e-6 * max(1, abs(value)),
                  "density", case, [axis[0] for axis in axes], point, mine, value)
            compared += 1
        pipe.close()
    return compared


# ---- schedulers ----


class _Trial:
    def __init__(self, number):
        self.trial_id = self.experiment_tag = "%05d" % number
        self.status, self.last_result = "RUNNING", {}


class _Controller:
    def get_live_trials(self):
        return set()


def _ray(kind, options):
    from ray.tune import schedulers

    made = {"asha": schedulers.AsyncHyperBandScheduler, "median": schedulers.MedianStoppingRule}[kind](
        time_attr="training_iteration", metric="loss", mode="min", **options)
    return made


def compare_schedulers(program, cases=60):
    from ray.tune.schedulers import TrialScheduler

    compared = 0
    for case in range(cases):
        dice = random.Random(1000 + case)
        kind = ("asha", "median")[case % 2]
        options = ({"max_t": dice.choice([9, 16, 27, 40]), "grace_period": dice.randint(1, 3), "reduction_factor": dice.choice([2, 3, 4])} if kind == "asha" else
                   {"grace_period": dice.randint(1, 4), "min_samples_required": dice.randint(1, 4)})
        theirs, ours = _ray(kind, options), Pipe(program, {"scheduler": dict(options, type=kind), "mode": "min"})
        trials, iterations = [_Trial(number) for number in range(12)], [0] * 12
        for trial in trials:
            theirs.on_trial_add(_Controller(), trial)
        alive = list(range(12))
        while alive:
            number = dice.choice(alive)
            iterations[number] += 1
            loss = number % 5 + dice.uniform(0, 4) / iterations[number]
            result = {"training_iteration": iterations[number], "loss": loss}
            action = theirs.on_trial_result(_Controller(), trials[number], result)
            verdict = ours.ask("report %d %d %r" % (number, iterations[number], loss))
            compared += 1
            check((action == TrialScheduler.STOP) == (verdict == 1), kind, options, "case", case, "trial", number, "iteration", iterations[number], action, verdict)
            trials[number].last_result = result
            if action == TrialScheduler.STOP or verdict == 1 or iterations[number] == 45:
                theirs.on_trial_complete(_Controller(), trials[number], result)
                alive.remove(number)
        ours.close()
    return compared


# ---- results ----


def compare_results(program):
    from scipy.stats import mannwhitneyu

    lowest = 1.0
    for name, (function, space) in FUNCTIONS.items():
        ours = [min(value for value, _ in search(program, function, space, seed, TRIALS)) for seed in range(SEEDS)]
        theirs = [min(value for value, _ in search_optuna(function, space, seed, TRIALS)) for seed in range(SEEDS)]
        p = float(mannwhitneyu(ours, theirs, alternative="greater").pvalue)
        lowest = min(lowest, p)
        print("%-12s%s unisono %.4f, Optuna %.4f (medians of %d): p %.3f" % (
            name, " (conditional)" if name in CONDITIONAL else "", sorted(ours)[SEEDS // 2], sorted(theirs)[SEEDS // 2], SEEDS, p), flush=True)
        check(p > LEAST_P, name, "TPE is worse than Optuna's, p", p)
    return lowest


def main(program):
    densities, decisions = compare_densities(program), compare_schedulers(program)
    lowest = compare_results(program)
    print("search: %d densities, %d decisions, %d functions (%d conditional) of %d seeds, lowest p %.3f, %d differences" % (
        densities, decisions, len(FUNCTIONS), len(CONDITIONAL), SEEDS, lowest, len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.environ["UNISONO_SEARCH_ASK"]))
