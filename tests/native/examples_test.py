"""examples_test.py - every example of the engine under every strategy, by the flag alone, one epoch each.

    examples_test.py [--larger]

What is asserted: it ends well, the first line is the number of devices, the last lines are the example's own, and the examples whose batch is the same whatever
the strategy reach the same numbers under all that update once a batch. --larger: the examples that take longer, for ./test --all.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "user"))
import support
from support import SOURCE, Skip, program, run

# strategy: what starts the program, and how many devices it says
STRATEGIES = {
    "none": ([], 1),
    "mirrored:2": ([], 2),
    "multi_worker": (["run", "-n", "2"], 2),
    "parameter_server": (["run", "-n", "2", "--servers", "1"], 1),
    "parameter_server:sync": (["run", "-n", "2", "--servers", "2"], 2),
}
# example: the data it needs, what it prints last, the number that is the same under every synchronous strategy (or None)
SMALL = {
    "digits_mlp": (None, r"test loss: (\d\.\d+), test accuracy: \d+\.\d\d %", True),
    "digits_cnn": (None, r"test loss: (\d\.\d+), test accuracy: \d+\.\d\d %", True),
    "csv_fit": (None, r"val_loss: (\d\.\d+), val_accuracy: \d\.\d+, waited for data \d+\.\d+ % of the time", True),
    "linear": (None, r"dLoss: -(\d\.\d+), dMSE: -\S+\n.*success!", True),
    "text_fit": ("fortunes", r"Time for \d+\.\d+ ms\n.*1 epochs, validation loss: (\d\.\d+)", False),
    "text_loop": ("fortunes", r"Elapsed time in \(ms\): \d+\.\d+\n.*The model accuracy : (\d+\.\d+)%", False),
    "which_is_faster": ("fortunes", r"one_device, 1 device: Time for (\d+)\.\d+ ms.*\n.* is faster, \d+\.\d+ times", False),
}
LARGER = {
    "mnist_cnn": ("mnist", r"test loss: (\d\.\d+)", True),
    "mnist_mlp": ("mnist", r"test loss: (\d\.\d+)", True),
    "autoencoder": ("mnist", r"test loss: (\d\.\d+)", True),
    "residual_cnn": ("street", r"test loss: (\d\.\d+)", True),
    "transformer": (None, r"held-out loss: (\d\.\d+)", True),
    "svhn_loop": (None, r"Valid Accuracy: (\d+\.\d{4})\n.*Elapsed time in \(ms\): \d+\.\d+", False),
}


def command(name, strategy, storage, *options):
    start = STRATEGIES[strategy][0]
    start = [program("unisono"), *start, "--storage", storage, "--"] if start else []
    return start + [os.path.join(support.BUILD, "examples", "engine", "engine_" + name), "--epochs", "1", "--strategy", strategy, *options]


def need(data):
    if data is None:
        return
    done = subprocess.run([os.path.join(SOURCE, "examples/engine/get-data"), data], stderr=subprocess.PIPE, text=True, check=False,
                          stdout=subprocess.DEVNULL)
    if done.returncode == 77:
        raise Skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def under_every_strategy(name, what, storage):
    data, last, same = what
    need(data)
    numbers = {}
    for strategy, (_, devices) in STRATEGIES.items():
        out, _ = run(command(name, strategy, storage), storage, timeout=200, cwd=storage)  # any directory is good
        lines = [re.sub(r"^\S+:\d+ \| ?", "", line) for line in out.splitlines()]
        assert "Number of devices: %d" % devices in lines[:4], (strategy, lines[:5])
        found = re.findall(last, "\n".join(lines))
        assert found, "%s under %s has not printed what it should:\n%s" % (name, strategy, out[-1500:])
        numbers[strategy] = float(found[-1])
        servers = [line for line in lines if re.fullmatch(r"\d+ updates; staleness 0: \d+.*", line)]
        assert (len(servers) == 1) == strategy.startswith("parameter_server"), (strategy, lines[-3:])
    for strategy in ("mirrored:2", "multi_worker", "parameter_server:sync") if same else ():
        assert abs(numbers[strategy] - numbers["none"]) < 2e-3 * max(1, numbers["none"]), numbers


def make(name, what):
    def test(storage):
        under_every_strategy(name, what, storage)
    return test


LARGE = "--larger" in sys.argv
sys.argv = [word for word in sys.argv if word != "--larger"]
for example, about in (LARGER if LARGE else SMALL).items():
    globals()["test_" + example] = make(example, about)


def typo_ends_the_run_at_once(storage):
    for start in (["-n", "2"], ["-n", "1", "--servers", "1"]):
        done = subprocess.run([program("unisono"), "run", *start, "--storage", storage, "--",
                               os.path.join(support.BUILD, "examples", "engine", "engine_linear"), "--strategy", "multi_wroker"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, cwd=SOURCE, check=False)
        assert done.returncode == 64, done
        assert "restart" not in done.stdout and "started again:" not in done.stdout, done.stdout
        assert 'strategy "multi_wroker" is not known' in done.stdout, done.stdout


def help_is_help(storage):
    for name in [*SMALL, *LARGER, "parameter_server"]:
        out, err = run([os.path.join(support.BUILD, "examples", "engine", "engine_" + name), "--help"], storage, cwd=storage)
        assert "usage: " in out and err == "", (name, out, err)


if not LARGE:
    test_a_typo_ends_the_run_at_once = typo_ends_the_run_at_once
    test_help_is_help = help_is_help

if __name__ == "__main__":
    support.main()
