"""What engine_keras.py and engine_torch.py share: the work, the clock, the printed lines.

The work is the same for every peer and for the engine's own bench (batch 64 unless told otherwise, all cores, float32, random data
that is in memory before the clock starts, 32 batches used in turn, every step a full training step: forward, loss, gradients, update).
"samples" are rows of the batch; for the transformer a row is one sequence of 64 characters.

nnlm_head         128 floats; dense 256 relu, dense 64 relu, dense 1; binary cross-entropy from logits; Adam 1e-4.
mlp_512           784 floats; dense 512 relu, dense 512 relu, dense 10; sparse cross-entropy from logits; SGD 0.01, no momentum.
mnist_cnn         28x28x1; conv 32 3x3 valid relu, flatten (21632), dense 128 relu, dense 10; sparse cross-entropy from logits; SGD 0.001.
svhn_cnn          32x32x3; conv 32 3x3 same relu, twice; max-pool 2x2; conv 64 3x3 same relu, twice; max-pool 2x2; flatten (4096);
                  dense 512 relu; dense 10; sparse cross-entropy from logits; Adam 1e-3.
char_transformer  64 ids below 64 (vocabulary 64, context 64), the targets are 64 ids too. Token embedding 64x128 plus a learned position embedding
                  64x128; 2 blocks, each: x += attention(norm(x)), x += ffn(norm(x)) (pre-LN); attention has 4 heads of 32, causal, with biases on
                  query, key, value and output projections; ffn is dense 512 gelu (exact, by erf), dense 128; layer norm epsilon 1e-5 with gain and
                  bias; a last layer norm; dense 64 with bias, not tied to the embedding. No dropout. Sparse cross-entropy from logits, the mean
                  over all 64x64 positions; Adam 1e-3. 421,440 parameters.

A measurement: steps are grouped into windows of a fixed number of steps; the first windows are warm-up, the median of the others is
the number, and their spread (largest minus smallest, over the median) is printed with it. With --against PROGRAM (engine_bench) the peer's
windows and the engine's come in turn, PAIRS of each, and the ratio is the median of the pairs': what else the machine does hits both.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

MODELS = ["nnlm_head", "mlp_512", "mnist_cnn", "svhn_cnn", "char_transformer"]
BATCHES = 32
WINDOWS = 7
PAIRS = 11
PAIR_SECONDS = 0.3
PAIR_STEPS = 10  # at least: the first ones after the other side's window find its data in the caches


def since_process_start():
    """Seconds since the kernel started this process (a hundredth of a second exact): the interpreter and imports count."""
    with open("/proc/self/stat") as stat:
        started = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def peak_rss_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def data(model, batch):
    """(x, y) with a leading axis of BATCHES batches; images are (height, width, channels)."""
    random = np.random.default_rng(1)

    def floats(*shape):
        return random.standard_normal((BATCHES, batch, *shape), dtype=np.float32)

    def ids(high, *shape):
        return random.integers(0, high, (BATCHES, batch, *shape)).astype(np.int32)

    if model == "nnlm_head":
        return floats(128), ids(2, 1).astype(np.float32)
    if model == "char_transformer":
        return ids(64, 64), ids(64, 64)
    shape = {"mlp_512": (784,), "mnist_cnn": (28, 28, 1), "svhn_cnn": (32, 32, 3)}[model]
    return floats(*shape), ids(10)


def loop(step, finish):
    """windows(steps, count) -> seconds of each window, for a peer whose step is a call. finish() waits for the last step's result."""
    def windows(steps, count):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            for number in range(steps):
                step(number % BATCHES)
            finish()
            seconds.append(time.perf_counter() - start)
        return seconds

    return windows


def measure(windows, seconds, batch):
    """Samples per second: (median, spread). Growing windows first: they warm up and say how many steps fill a window."""
    steps, took = 1, 0.0
    while True:
        took = windows(steps, 1)[0]
        if took > seconds / WINDOWS / 4:
            break
        steps *= 4
    steps = max(1, int(steps * seconds / WINDOWS / took))
    rates = sorted(steps * batch / took for took in windows(steps, WINDOWS))
    return rates[WINDOWS // 2], (rates[-1] - rates[0]) / rates[WINDOWS // 2]


def in_turn(windows, model, batch, program, least=PAIR_STEPS, num_pairs=PAIRS, more=()):
    """(the peer's rate, the engine's, the median ratio, lowest, highest): windows of both, one after the other."""
    steps, took = 1, 0.0
    while took < PAIR_SECONDS / 4:
        steps *= 2
        took = windows(steps, 1)[0]
    seconds = max(PAIR_SECONDS, least * took / steps)
    steps = max(1, int(steps * seconds / took))
    with subprocess.Popen([program, "--serve", "--model", model, "--batch", str(batch), "--seconds", str(seconds), *more],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        if engine.stdout.readline() != "ready\n":
            raise SystemExit(f"{program} --serve did not become ready")
        pairs = []
        for _ in range(num_pairs):
            engine.stdin.write("window\n")
            engine.stdin.flush()
            ours = float(engine.stdout.readline())
            pairs.append((steps * batch / windows(steps, 1)[0], ours))
        engine.stdin.close()
    ratios = sorted(ours / theirs for theirs, ours in pairs)
    middle = num_pairs // 2
    return sorted(theirs for theirs, _ in pairs)[middle], sorted(ours for _, ours in pairs)[middle], ratios[middle], ratios[0], ratios[-1]


def pair_line(bench, metric, windows, model, batch, options, peer, /, least=PAIR_STEPS, stop=(), **more):
    """Samples per second of a peer and of options.against, in turn. stop: pids of the peer that are to stand still while the other is measured."""
    num_pairs = 3 if options.quick else PAIRS
    theirs, ours, ratio, low, high = in_turn(windows, model, batch, options.against, least, num_pairs, ["--stop", ",".join(map(str, stop))] if stop else ())
    line(bench, metric, "samples/s", theirs, peer, unisono=float("%.5g" % ours), ratio=float("%.4g" % ratio), low=float("%.4g" % low), high=float("%.4g" % high),
         pairs=num_pairs, **more)


def serve(windows, options):
    """One window of about options.seconds for every line on stdin, as engine_bench --serve does; prints its rate. For ./bench busy."""
    rate = measure(windows, options.seconds * WINDOWS, options.batch)[0]
    steps = max(1, int(options.seconds * rate / options.batch))
    print("ready", flush=True)
    for _ in sys.stdin:
        print("%.6g" % (steps * options.batch / windows(steps, 1)[0]), flush=True)


def rate_line(model, windows, seconds, options, peer, **more):
    """Samples per second of the peer's best way; with --against beside the engine's, in turn."""
    if options.serve:
        serve(windows, options)
        raise SystemExit(0)
    if not options.against:
        rate, spread = measure(windows, seconds, options.batch)
        line(model, f"{model}_samples_per_s", "samples/s", rate, peer, batch=options.batch, spread=round(spread, 3), **more)
        return
    pair_line(model, f"{model}_samples_per_s", windows, model, options.batch, options, peer, batch=options.batch, **more)


def line(model, metric, unit, value, peer, **more):
    """load is the machine's load average when the line was printed: above the number of cores somebody else was running too."""
    record = {"bench": model, "metric": metric, "unit": unit, "peer": float("%.5g" % value), "peer_name": peer}
    print(json.dumps(record | more | {"load": round(os.getloadavg()[0], 1)}), flush=True)


def main(peer, run_model):
    """Runs one model here, or every model in a process of its own (first step and memory belong to one model)."""
    parser = argparse.ArgumentParser(description="samples per second, first step and memory of " + peer)
    parser.add_argument("--model", choices=MODELS, help="one of %(choices)s; all, one after the other, when absent")
    parser.add_argument("--seconds", type=float, default=7.0, help="of measuring for each model (default %(default)s)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="a smoke run: 0.7 seconds, one way to train")
    parser.add_argument("--serve", action="store_true", help="measure a window for every line on stdin; --seconds is the length of one")
    parser.add_argument("--against", help="the program engine_bench, to be measured in turn with this")
    options = parser.parse_args()
    seconds = 0.7 if options.quick else 4.0 if options.serve else options.seconds
    if options.model:
        run_model(options.model, seconds, options)
        return 0
    worst = 0
    for model in MODELS:
        command = [sys.executable, sys.argv[0], "--model", model, "--seconds", str(seconds), "--batch", str(options.batch)]
        command += ["--quick"] if options.quick else []
        command += ["--against", options.against] if options.against else []
        worst = max(worst, abs(subprocess.run(command, check=False).returncode))
    return worst
