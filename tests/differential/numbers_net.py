"""numbers_net.py [--count N] [--seed S] [--kind NAME] [--jobs N] [--case JSON] - random configurations on real Keras and on unisono.keras.

A case is a dictionary that a generator draws from a seeded random. run(keras, case) computes with the names of the module it is given, so both sides run the
same program; the results must agree to rounding. What Keras accepts, unisono may refuse, but by name (TypeError, ValueError, NotImplementedError); what
Keras refuses with an exception of its own, unisono must refuse, too; where Keras fails in its backend there is nothing to compare. A case that fails is shrunk: arguments are left out as long as it still fails. The last line has the counts.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")

import numpy as np

import numbers_arguments
import numbers_fit
import numbers_layers
import numbers_objects
import numbers_own
import numbers_tf

KINDS = {**numbers_layers.KINDS, **numbers_objects.KINDS, **numbers_fit.KINDS, **numbers_arguments.KINDS, **numbers_tf.KINDS, **numbers_own.KINDS}
REFUSALS = (TypeError, ValueError, NotImplementedError)
# What Python or NumPy says by itself when our code stumbles: not a refusal.
ACCIDENTS = re.compile(r"_engine|object is not|object has no|object cannot be|unsupported operand|positional argument|unexpected keyword|inhomogeneous|setting an array|not supported between")


class Outcome:
    """What a side made of a case: numbers by name, or an exception."""

    def __init__(self, keras, case):
        self.values, self.error = None, None
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                keras.utils.clear_session()
                keras.utils.set_random_seed(case["seed"])
                self.values = KINDS[case["kind"]][2](keras, case)
        except Exception as error:
            self.error = error

    def __str__(self):
        return "%s: %s" % (type(self.error).__name__, str(self.error).strip()[:300]) if self.error else "numbers"


def flat(value, name=""):
    """(name, array) of everything in lists and dictionaries."""
    if isinstance(value, dict):
        for key in value:
            yield from flat(value[key], "%s.%s" % (name, key))
    elif isinstance(value, (list, tuple)) and not all(isinstance(each, (int, float)) for each in value):
        for index, each in enumerate(value):
            yield from flat(each, "%s[%d]" % (name, index))
    else:
        yield name, np.asarray(value)


def difference(theirs, ours, tolerance):
    """The first that differs, in words; None when all agree."""
    left, right = dict(flat(theirs)), dict(flat(ours))
    if left.keys() != right.keys():
        return "Keras has %s, unisono has %s" % (sorted(left.keys() - right.keys()) or "nothing else", sorted(right.keys() - left.keys()) or "nothing else")
    for name, a in left.items():
        b = right[name]
        if a.shape != b.shape:
            return "%s: shape %s in Keras, %s in unisono" % (name, a.shape, b.shape)
        if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
            if a.tolist() != b.tolist():
                return "%s: %s in Keras, %s in unisono" % (name, a.tolist(), b.tolist())
        elif not np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance / 10, equal_nan=True):
            where = np.unravel_index(np.nanargmax(np.abs(a.astype(np.float64) - b.astype(np.float64))), a.shape) if a.shape and np.isfinite(a - b).any() else ()
            return "%s%s: %s in Keras, %s in unisono" % (name, list(map(int, where)) or "", a[where], b[where])
    return None


class Sides:
    """Both modules, loaded once."""

    def __init__(self):
        import keras
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.run_functions_eagerly(True)  # a graph a case costs more than it computes
        tf.get_logger().setLevel("ERROR")
        keras.utils.disable_interactive_logging()
        from unisono import keras as ours

        import unisono

        self.keras, self.ours, self.refusals = keras, ours, REFUSALS + (unisono.Error,)

    def verdict(self, case):
        """("same" | "refused" | "both refuse" | "keras fails", None) or ("differs", why)."""
        theirs, ours = Outcome(self.keras, case), Outcome(self.ours, case)
        if theirs.error and ours.error:
            accident = not isinstance(theirs.error, REFUSALS)
            return ("both refuse", None) if accident or isinstance(ours.error, self.refusals) else ("differs", "Keras: %s\n    unisono: %s" % (theirs, ours))
        if theirs.error and not isinstance(theirs.error, REFUSALS):
            return "keras fails", None
        if theirs.error:
            return "differs", "Keras refuses (%s), unisono does not" % theirs
        if ours.error:
            if isinstance(ours.error, self.refusals) and not ACCIDENTS.search(str(ours.error)):
                return "refused", str(ours)
            return "differs", "Keras gives numbers; unisono: %s" % ours
        why = difference(theirs.values, ours.values, KINDS[case["kind"]][0])
        return ("same", None) if why is None else ("differs", why)


def smaller(case):
    """Cases with something left out."""
    for key, value in case.items():
        if key in ("kind", "seed", "needs") or key in case.get("needs", ()):
            continue
        if isinstance(value, dict):
            for inner in value:
                yield dict(case, **{key: {name: each for name, each in value.items() if name != inner}})
        elif isinstance(value, list) and len(value) > 1 and key not in ("shape",):
            for index in range(len(value)):
                yield dict(case, **{key: value[:index] + value[index + 1:]})
        if value not in (None, False):
            yield dict(case, **{key: None})


def shrink(sides, case, why, seconds=4):
    """The smallest case that still differs."""
    deadline, progress = time.monotonic() + seconds, True
    while progress and time.monotonic() < deadline:
        progress = False
        for candidate in smaller(case):
            kind, reason = sides.verdict(candidate)
            if kind == "differs" and "unisono: KeyError" not in reason and "Keras refuses" not in reason.replace(why, ""):
                case, why, progress = candidate, reason, True
                break
            if time.monotonic() > deadline:
                break
    return case, why


def draw(seed, index, only=None):
    """The case with this number; the kinds take turns by their weights."""
    chooser = random.Random("%d/%d" % (seed, index))
    names = [only] if only else list(KINDS)
    kind = chooser.choices(names, [KINDS[name][3] for name in names])[0]
    case = KINDS[kind][1](chooser)
    case.update(kind=kind, seed=chooser.randrange(1, 10**6))
    return case


def run_part(options, part):
    """Cases part, part + jobs, ...; JSON lines to standard output."""
    sides = Sides()
    for index in range(part, options.count, options.jobs):
        case = draw(options.seed, index, options.kind)
        kind, why = sides.verdict(case)
        line = {"verdict": kind, "kind": case["kind"]}
        if kind == "differs":
            small, small_why = shrink(sides, case, why)
            line.update(index=index, case=small, why=small_why)
        elif kind == "refused":
            line.update(why=why, case=case if options.verbose else None)
        print(json.dumps(line, default=str), flush=True)


def run_all(options):
    """All parts, each a process; prints what differs and the counts. Returns the exit code."""
    begun = time.monotonic()
    command = [sys.executable, os.path.abspath(__file__), "--count", str(options.count), "--seed", str(options.seed), "--jobs", str(options.jobs)]
    command += ["--kind", options.kind] if options.kind else []
    command += ["--verbose"] if options.verbose else []
    parts = [subprocess.Popen(command + ["--part", str(part)], stdout=subprocess.PIPE, text=True) for part in range(options.jobs)]
    counts, by_kind, reasons, done = {}, {}, {}, 0
    for part in parts:
        for text in part.stdout:
            line = json.loads(text)
            done += 1
            counts[line["verdict"]] = counts.get(line["verdict"], 0) + 1
            by_kind[line["kind"]] = by_kind.get(line["kind"], 0) + 1
            if line["verdict"] == "differs":
                print("[  FAILED  ] case %d of seed %d: %s\n    %s" % (line["index"], options.seed, line["why"], json.dumps(line["case"])), flush=True)
            elif line["verdict"] == "refused":
                reasons.setdefault(line["why"][:160], []).append(line["case"])
        part.wait()
    for reason, cases in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print("refused %d times: %s%s" % (len(cases), reason, " " + json.dumps(cases[0]) if options.verbose else ""))
    failed = counts.get("differs", 0) + (options.count - done)
    if done < options.count:
        print("%d configurations were not run: a process ended early" % (options.count - done))
    if counts.get("refused", 0) * 5 > options.count:
        failed += 1
        print("more than a fifth of the configurations is refused: that is no comparison")
    print("%s; %.0f s" % (", ".join("%s %d" % item for item in sorted(by_kind.items())), time.monotonic() - begun))
    print("%d configurations: %d same, %d refused by both, %d refused by name, %d where Keras fails, %d differ" % (
        done, counts.get("same", 0), counts.get("both refuse", 0), counts.get("refused", 0), counts.get("keras fails", 0), failed))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", type=int)
    parser.add_argument("--case", help="one case as JSON, as a failure prints it")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.case:
        sides, case = Sides(), json.loads(options.case)
        theirs, ours = Outcome(sides.keras, case), Outcome(sides.ours, case)
        print("Keras:", theirs, theirs.values, "\nunisono:", ours, ours.values)
        print(*sides.verdict(case))
        return 0
    if options.part is not None:
        return run_part(options, options.part)
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
