#!/usr/bin/env python3
"""hosts_bench.py [--quick] - collectives between hosts that are network namespaces of this machine (root only; see tests/hosts/network.py).

Two placements: 2 hosts with 1 rank each, where our transport over MPI stands beside plain MPI_Allreduce (allreduce_*_us_between_hosts), and 2 hosts with 2 ranks each,
where the session's communicator (shared memory inside a host) stands beside MPI over all ranks (allreduce_*_us_2x2). Also the time from the death of a
rank to a group that trains again.
"""

import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UNISONO_BUILD", os.path.join(ROOT, "build-release"))
os.environ["UNISONO_TEST_COMMAND"] = os.path.join(BUILD, "src", "cli", "unisono")
os.environ["UNISONO_TEST_WORKER"] = os.path.join(BUILD, "tests", "hosts", "hosts_worker")
os.environ["UNISONO_TEST_CONTRACT"] = ""
os.environ["UNISONO_PLUGINS"] = os.path.join(BUILD, "src", "comm")
sys.path.insert(0, os.path.join(ROOT, "tests", "hosts"))

from network import WORKER, Network, Run, why_not  # noqa: E402  (the variables come first)


def line(metric, unit, ours, peer, peer_name, ratio):
    print(json.dumps({"bench": "hosts", "metric": metric, "unit": unit, "unisono": ours, "peer": peer, "peer_name": peer_name, "ratio": ratio}),
          flush=True)


def collectives(net, rounds):
    for hosts, suffix in (("a:1,b:1", "between_hosts"), ("a:2,b:2", "2x2")):
        rank = os.path.join(BUILD, "benchmarks", "hosts_rank")
        code, out = net.unisono(suffix, "--hosts", hosts, "-f", "0", "-q", "--", rank, str(rounds), timeout=170)
        if code:
            sys.exit("hosts_bench: " + out)
        for name, plain, flat, session, to_plain, to_flat in re.findall(r"(\w+) ([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)\n",
                                                                       Run(net.storage, suffix).log(0)):
            metric = "allreduce_%s_us_%s" % (name, suffix)
            if suffix == "2x2":
                line(metric, "us", float(session), float(flat), "flat_mpi", float(to_flat))
            else:
                line(metric, "us", float(flat), float(plain), "openmpi", float(to_plain))


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
        sys.exit("hosts_bench: " + reason)
    quick = "--quick" in sys.argv
    net = Network(("a", "b"))
    try:
        collectives(net, 3 if quick else 15)
        recovery(net, 1 if quick else 5)
    finally:
        net.close()


if __name__ == "__main__":
    main()
