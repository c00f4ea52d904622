#!/usr/bin/env python3
"""hosts_bench.py [--quick] - collectives between hosts that are network namespaces of this machine (root only; see tests/hosts/network.py).

Three placements, all ways measured in turn in the same processes:
  2 hosts x 1 rank   our transport over MPI beside plain MPI_Allreduce (allreduce_*_us_between_hosts, peer openmpi), and ours over UCX (ucx_allreduce_*_vs_mpi)
  2 hosts x 2 ranks  the session's communicator (shared memory inside a host, MPI between hosts) beside MPI over all ranks: MPI_Allreduce (allreduce_*_us_2x2,
                     peer openmpi) and our own transport over MPI (peer flat_mpi). The two hosts share this machine's cores; if there are fewer than ranks, both sides are told:
                     ours by the option `cores`, Open MPI by mpi_yield_when_idle, without which it is many times slower.
  1 host x 2 ranks   our transport over MPI beside MPI_Allreduce where both go through MPI's shared memory (allreduce_*_us_mpi_one_host); a session would not use MPI there
What security costs a training step on 2 hosts (hosts_step.c: products, a gradient of 1 MB over MPI, a report), as a share of it, medians of pairs of runs in turn:
  sealed_overhead     the controller's connections are sealed: what controller and agents need more CPU time for each step than with --no-seal, over the time of a step. Their CPU time
                      and not the step's length is compared, because that is many times less noisy; they have cores of their own in earnest, so it is an upper bound
  encrypted_overhead  gradients are sealed too (--encrypt): how much longer a step is
Also the time from the death of a rank to all hosts connected again.
"""

import json
import os
import re
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UNISONO_BUILD", os.path.join(ROOT, "build-release"))
os.environ["UNISONO_TEST_COMMAND"] = os.path.join(BUILD, "src", "cli", "unisono")
os.environ["UNISONO_TEST_WORKER"] = os.path.join(BUILD, "benchmarks", "hosts_bench_worker")
os.environ["UNISONO_TEST_CONTRACT"] = ""
os.environ["UNISONO_PLUGINS"] = os.path.join(BUILD, "src", "comm")
sys.path.insert(0, os.path.join(ROOT, "tests", "hosts"))

from network import COMMAND, WORKER, Network, Run, finish, why_not


def line(metric, unit, ours, peer, peer_name, ratio):
    print(json.dumps({"bench": "hosts", "metric": metric, "unit": unit, "unisono": ours, "peer": peer, "peer_name": peer_name, "ratio": ratio}),
          flush=True)


def measure(net, name, hosts, rounds, largest, crowded=False):
    """[(size, plain, flat, session, ucx, plain/flat, plain/session, flat/session, plain/ucx, session/ucx)]; without UCX its numbers mean nothing"""
    rank = os.path.join(BUILD, "benchmarks", "hosts_rank")
    cores = max(1, len(os.sched_getaffinity(0)) // 2) if crowded else 0
    env = {"OMPI_MCA_mpi_yield_when_idle": "1"} if crowded else {}
    code, out = net.unisono(name, "--hosts", hosts, "-f", "0", "-q", "--", rank, str(rounds), str(cores), largest, timeout=170, env=env)
    if code:
        sys.exit("hosts_bench: " + out)
    found = re.findall(r"(\w+)((?: [\d.]+){9})\n", Run(net.storage, name).log(0))
    return [(size, *map(float, numbers.split())) for size, numbers in found]


def collectives(net, rounds):
    has_ucx = os.path.exists(os.path.join(BUILD, "src", "comm", "libunisono-ucx.so"))
    for size, plain, flat, _, ucx, ratio, _, _, to_plain, _ in measure(net, "pair", "a:1,b:1", rounds, "11mb"):
        line("allreduce_%s_us_between_hosts" % size, "us", flat, plain, "openmpi", ratio)
        if has_ucx:
            line("ucx_allreduce_%s_vs_mpi" % size, "us", ucx, plain, "openmpi", to_plain)
    crowded = len(os.sched_getaffinity(0)) < 4
    for size, plain, flat, session, ucx, _, to_plain, to_flat, ucx_to_plain, ucx_to_session in measure(net, "square", "a:2,b:2", rounds, "11mb", crowded):
        line("allreduce_%s_us_2x2" % size, "us", session, plain, "openmpi", to_plain)
        line("allreduce_%s_us_2x2" % size, "us", session, flat, "flat_mpi", to_flat)
        if has_ucx:
            line("ucx_allreduce_%s_us_2x2" % size, "us", ucx, plain, "openmpi", ucx_to_plain)
            line("ucx_allreduce_%s_us_2x2" % size, "us", ucx, session, "unisono over mpi", ucx_to_session)
    for size, plain, flat, _, _, ratio, *_ in measure(net, "one", "a:2", rounds, "100mb"):
        line("allreduce_%s_us_mpi_one_host" % size, "us", flat, plain, "openmpi", ratio)


def recovery(net, tries):
    times = []
    for i in range(tries):
        code, out = net.unisono("killed", "--hosts", "a:1,b:1", "--", WORKER, "die=1", "pause=5")
        if code:
            sys.exit("hosts_bench: " + out)
        run = Run(net.storage, "killed", i + 1)
        reports = [entry["metrics"]["_timestamp"] for entry in run.lines("results.jsonl") if entry.get("attempt") == 2]
        assert reports
        times.append((run.events("placed")[1]["time"] - run.events("cause")[0]["time"]) * 1000)
    line("restart_over_hosts_ms", "ms", sorted(times)[len(times) // 2], None, "none: mpirun alone ends the job", None)


FLOATS, FIRST = 1 << 18, 40


def cpu_ns(net):
    """CPU time of the controller and of the hosts' agents so far: what seals, and little else."""
    total = 0
    for pid in net.pids():
        try:
            with open("/proc/%d/comm" % pid, encoding="utf-8") as file:
                if file.read().strip() not in ("unisono", "unisono-host"):
                    continue
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/schedstat" % (pid, task), encoding="utf-8") as file:
                    total += int(file.read().split()[0])
        except OSError:
            pass
    return total


def steps_done(run):
    try:
        with open(os.path.join(run.dir, "results.jsonl"), "rb") as file:
            return file.read().count(b"\n") // 2  # two ranks
    except OSError:
        return 0


def one_run(net, options, steps):
    """(median step, CPU time of controller and agents a step), both in microseconds."""
    one_run.count = getattr(one_run, "count", 0) + 1
    name = "step%d" % one_run.count
    process = net.start(COMMAND, "run", "--launcher", "mpi", "--name", name, "--hosts", "a:1,b:1", "-f", "0", "-q", "--cpus", "1", *options, "--",
                        os.path.join(BUILD, "benchmarks", "hosts_step"), str(steps), str(FLOATS))
    run, seen = Run(net.storage, name), []
    while process.poll() is None:
        done, used = steps_done(run), cpu_ns(net)
        if FIRST <= done < steps - 1 and (not seen or done > seen[-1][0]):
            seen.append((done, used))
        time.sleep(0.02)
    code, out = finish(process)
    if code or len(seen) < 2:
        sys.exit("hosts_bench: %s: %s" % (name, out or "too short to be looked at twice"))
    (first, before), (last, after) = seen[0], seen[-1]
    return float(re.findall(r"^step ([\d.]+)$", run.log(0), re.M)[0]), (after - before) / (last - first) * 1e-3


def overheads(net, pairs, steps):
    ways = {"sealed": (), "readable": ("--no-seal",), "all": ("--encrypt",)}
    sealed, gradients = [], []
    for i in range(pairs):
        order = list(ways) if i % 2 == 0 else list(ways)[::-1]
        took = {way: one_run(net, ways[way], steps) for way in order}
        sealed.append((took["sealed"][1] - took["readable"][1]) / took["readable"][0])
        gradients.append(took["all"][0] / took["readable"][0] - 1)
    for metric, values in (("sealed_overhead", sealed), ("encrypted_overhead", gradients)):
        line(metric, "share", round(statistics.median(values), 4), None, "none: the same run with --no-seal", None)


def main():
    reason = why_not()
    if reason:
        print("hosts_bench: " + reason, file=sys.stderr)
        sys.exit(77)
    quick = "--quick" in sys.argv
    net = Network(("a", "b"))
    try:
        collectives(net, 3 if quick else 15)
        recovery(net, 1 if quick else 5)
        overheads(net, 1 if quick else 15, 120 if quick else 320)
    finally:
        net.close()


if __name__ == "__main__":
    main()
