#!/usr/bin/env python3
"""busy_bench.py [--quick] [--no-peers] - training beside other processes that want the same cores.

Each program under test is a server (engine_bench --serve, strategies_bench --serve, peers/engine_keras.py --serve, peers/engine_torch.py --serve): it trains one window
of a fixed number of steps for every line on its standard input and prints the rate. The servers of a model take turns, and this program puts B processes beside them
that only burn CPU, B = 0, 2, 6 and 14. A number is the median of the rounds.

The fair share of a program with T threads on C cores beside B burners is what a scheduler gives to T + B threads that always want to run: C / (T + B) of a core for each
of the T, at most one. Alone it is min(T, C) cores, so

    fair(B) = T min(1, C / (T + B)) / min(T, C)      T = C for one process, T = N for N workers of one thread

    busy_B_share           rate(B) / (rate(0) fair(B)). The scheduler is not bound to it: threads that sleep in between can get a little more than their share
    busy_B_samples_per_s   the rate beside B burners, and the peer's beside the same burners
    workers_N_vs_2         rate of N workers (one thread each, 64 samples each) over that of 2, without burners: more workers than cores

busy_B_share is a program's share of its own quiet rate: a peer with a slow quiet rate has a good one easily. Hence both metrics.
The burners are children of this program. Each ends by itself within a few milliseconds once this program is gone, however that came about.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UNISONO_BUILD", os.path.join(ROOT, "build-release"))
MODELS = ["nnlm_head", "mlp_512", "mnist_cnn", "svhn_cnn", "char_transformer"]
TOGETHER = ["nnlm_head", "mnist_cnn"]  # trained by 2 and 4 workers
BURNERS = [0, 2, 6, 14]
CORES = len(os.sched_getaffinity(0))
BATCH = 64


def burn(count):
    """Starts burners; their pids."""
    pids, parent = [], os.getpid()
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            while os.getppid() == parent:
                for _ in range(100000):
                    pass
            os._exit(0)
        pids.append(pid)
    return pids


def put_out(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


class Server:
    """A program that trains a window for every line."""

    def __init__(self, name, threads, command):
        self.name, self.threads = name, threads
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for line in self.process.stdout:
            if line == "ready\n":
                return
        raise SystemExit("busy_bench: %s ended with %d before it was ready" % (" ".join(command), self.process.wait()))

    def window(self):
        self.process.stdin.write("window\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def engine(model, seconds):
    program = os.path.join(BUILD, "benchmarks", "engine_bench")
    return Server("unisono", CORES, [program, "--serve", "--model", model, "--batch", str(BATCH), "--seconds", str(seconds)])


def workers(model, count, seconds):
    program = os.path.join(BUILD, "benchmarks", "strategies_bench")
    return Server("workers", count, [program, "--serve", "--model", model, "--workers", str(count), "--seconds", str(seconds)])


def interpreter(group):
    """The python that has the peer, when it was installed before; else None."""
    tool = os.path.join(ROOT, "tools/python-env")
    if group == "torch":
        done = subprocess.run([tool, group], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return done.stdout.strip() if done.returncode == 0 else None
    path = subprocess.run([tool, "--path"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    stamp = os.path.join(os.path.dirname(os.path.dirname(path)), ".group-" + group)
    return path if os.path.exists(stamp) and os.path.exists(path) else None


def peer(name, model, seconds):
    """A peer's server, or None when the peer is not installed."""
    python = interpreter(name)
    if not python:
        return None
    script = os.path.join(ROOT, "benchmarks", "peers", "engine_%s.py" % name)
    return Server(name, CORES, [python, script, "--serve", "--model", model, "--batch", str(BATCH), "--seconds", str(seconds)])


def median(values):
    return sorted(values)[len(values) // 2]


def fair(threads, burners):
    return threads * min(1, CORES / (threads + burners)) / min(threads, CORES)


def say(bench, metric, unit, ours, theirs, name, **more):
    ratio = float("%.4g" % (ours / theirs)) if theirs else None
    record = {"bench": bench, "metric": metric, "unit": unit, "unisono": float("%.5g" % ours), "peer": theirs and float("%.5g" % theirs), "peer_name": name, "ratio": ratio}
    print(json.dumps(record | more), flush=True)


def under_load(servers, burners, rounds):
    """{server: rate}, the servers in turn beside so many burners."""
    pids = burn(burners)
    try:
        rates = {server: [] for server in servers}
        time.sleep(0.02)
        for _ in range(rounds):
            for server in servers:
                rates[server].append(server.window())
    finally:
        put_out(pids)
    return {server: median(rates[server]) for server in servers}


def measure(bench, servers, options, missing=()):
    """The lines of one model: shares of the first server, and rates beside those of the others."""
    ours, quiet = servers[0], {}
    for burners in BURNERS:
        rates = under_load(servers, burners, options.rounds)
        quiet = quiet or rates
        if burners > 0:
            shares = {server.name: rates[server] / (quiet[server] * fair(server.threads, burners)) for server in servers}
            say(bench, "busy_%d_share" % burners, "ratio", shares[ours.name], None, "none: a share of the own quiet rate", rounds=options.rounds,
                quiet_samples_per_s=round(quiet[ours]), samples_per_s=round(rates[ours]), fair=round(fair(ours.threads, burners), 4),
                peers={name: round(share, 3) for name, share in shares.items() if name != ours.name})
        for server in servers[1:]:
            say(bench, "busy_%d_samples_per_s" % burners, "samples/s", rates[ours], rates[server], server.name)
        for name in missing:
            say(bench, "busy_%d_samples_per_s" % burners, "samples/s", rates[ours], None, name + ": missing")
    return quiet[ours]


def bench_alone(options):
    for model in options.models:
        servers, missing = [engine(model, options.seconds)], []
        for name in options.peers:
            found = peer(name, model, options.seconds)
            servers += [found] if found else []
            missing += [] if found else [name]
        measure(model, servers, options, missing)
        for server in servers:
            server.close()


def bench_workers(options):
    for model in options.together:
        two = 0
        for count in (2, 4, 8):
            server = workers(model, count, options.seconds)
            bench = "%s_%dw" % (model, count)
            if count <= 4:
                rate = measure(bench, [server], options)
            else:
                rate = under_load([server], 0, options.rounds)[server]
            two = two or rate
            if count > 2:
                say(model, "workers_%d_vs_2" % count, "ratio", rate / two, None, "none: 2 workers of the same run", samples_per_s=round(rate), two=round(two))
            server.close()


def main():
    parser = argparse.ArgumentParser(description="training beside processes that burn CPU")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one model, short windows, no peers")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--model", choices=MODELS, help="only this one")
    options = parser.parse_args()
    options.rounds, options.seconds = (1, 0.1) if options.quick else (5, 0.4)
    options.models = [options.model] if options.model else MODELS[:1] if options.quick else MODELS
    options.together = [model for model in options.models if model in TOGETHER]
    options.peers = [] if options.quick or options.no_peers else ["keras", "torch"]
    bench_alone(options)
    bench_workers(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
