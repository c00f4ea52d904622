#!/usr/bin/env python3
"""hosts_bench.py [--quick] - collectives between hosts that are network namespaces of this machine (root only; see tests/hosts/network.py).

Three placements, all ways measured in turn in the same processes:
  2 hosts x 1 rank   our transport over MPI beside plain MPI_Allreduce (allreduce_*_us_between_hosts, peer openmpi)
  2 hosts x 2 ranks  the session's communicator (shared memory inside a host, MPI between hosts) beside MPI over all ranks: MPI_Allreduce (allreduce_*_us_2x2,
                     peer openmpi) and our own transport over MPI (peer flat_mpi). The two hosts share this machine's cores; if there are fewer than ranks, both sides are told:
                     ours by the option `cores`, Open MPI by mpi_yield_when_idle, without which it is many times slower.
  1 host x 2 ranks   our transport over MPI beside MPI_Allreduce where both go through MPI's shared memory (allreduce_*_us_mpi_one_host); a session would not use MPI there
Also the time from the death of a rank to all hosts connected again.
"""

import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UNISONO_BUILD", os.path.join(ROOT, "build-release"))
os.environ["UNISONO_TEST_COMMAND"] = os.path.join(BUILD, "src", "cli", "unisono")
os.environ["UNISONO_TEST_WORKER"] = os.path.join(BUILD, "benchmarks", "hosts_bench_worker")
os.environ["UNISONO_TEST_CONTRACT"] = ""
os.environ["UNISONO_PLUGINS"] = os.path.join(BUILD, "src", "comm")
sys.path.insert(0, os.path.join(ROOT, "tests", "hosts"))

from network import WORKER, Network, Run, why_not  # noqa: E402  (the variables come first)


def line(metric, unit, ours, peer, peer_name, ratio):
    print(json.dumps({"bench": "hosts", "metric": metric, "unit": unit, "unisono": ours, "peer": peer, "peer_name": peer_name, "ratio": ratio}),
          flush=True)


def measure(net, name, hosts, rounds, largest, crowded=False):
    """[(size, plain, flat, session, plain/flat, plain/session, flat/session)]"""
    rank = os.path.join(BUILD, "benchmarks", "hosts_rank")
    cores = max(1, len(os.sched_getaffinity(0)) // 2) if crowded else 0
    env = {"OMPI_MCA_mpi_yield_when_idle": "1"} if crowded else {}
    code, out = net.unisono(name, "--hosts", hosts, "-f", "0", "-q", "--", rank, str(rounds), str(cores), largest, timeout=170, env=env)
    if code:
        sys.exit("hosts_bench: " + out)
    found = re.findall(r"(\w+)((?: [\d.]+){6})\n", Run(net.storage, name).log(0))
    return [(size, *map(float, numbers.split())) for size, numbers in found]


def collectives(net, rounds):
    for size, plain, flat, _, ratio, _, _ in measure(net, "pair", "a:1,b:1", rounds, "11mb"):
        line("allreduce_%s_us_between_hosts" % size, "us", flat, plain, "openmpi", ratio)
    crowded = len(os.sched_getaffinity(0)) < 4
    for size, plain, flat, session, _, to_plain, to_flat in measure(net, "square", "a:2,b:2", rounds, "11mb", crowded):
        line("allreduce_%s_us_2x2" % size, "us", session, plain, "openmpi", to_plain)
        line("allreduce_%s_us_2x2" % size, "us", session, flat, "flat_mpi", to_flat)
    for size, plain, flat, _, ratio, _, _ in measure(net, "one", "a:2", rounds, "100mb"):
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
    finally:
        net.close()


if __name__ == "__main__":
    main()
