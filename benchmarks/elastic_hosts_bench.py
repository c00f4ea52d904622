#!/usr/bin/env python3
"""elastic_hosts_bench.py [--quick] - ./bench elastic_hosts: a worker that is killed, and a host that loses its link, while the others train (root only).

Two hosts that are network namespaces of this machine, two workers each, over ssh's launcher (a script in its place) and UCX; MNIST CNN with Adam. The group may shrink to two, so
that the others go on at once. Rank 0 tells when its steps end; medians, until the end of the second step after the event, because the first may have been under way.

  hosts_kill_to_step_ms  from kill -9 of one of four workers
  hosts_cut_to_step_ms   from the moment in which a host's link drops all packets, without a FIN
  hosts_join_ms          from the lost worker's end until four workers train again
"""

import json
import os
import random
import re
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UNISONO_BUILD", os.path.join(ROOT, "build-release"))
os.environ["UNISONO_TEST_COMMAND"] = os.path.join(BUILD, "src", "cli", "unisono")
os.environ["UNISONO_TEST_WORKER"] = os.path.join(BUILD, "benchmarks", "hosts_elastic")
os.environ["UNISONO_TEST_CONTRACT"] = ""
os.environ["UNISONO_PLUGINS"] = os.path.join(BUILD, "src", "comm")
sys.path.insert(0, os.path.join(ROOT, "tests", "hosts"))

from network import COMMAND, WORKER, Network, Run, finish, why_not

HANG_S = 60


def line(metric, times):
    times = sorted(times)
    print(json.dumps({"bench": "elastic_hosts", "metric": metric, "unit": "ms", "unisono": times[len(times) // 2], "least": times[0], "most": times[-1],
                      "count": len(times), "peer": None, "peer_name": "none: the peers start all workers again", "ratio": None}), flush=True)


def wait_for(condition):
    end = time.time() + HANG_S
    while time.time() < end:
        try:
            value = condition()
        except (OSError, ValueError, KeyError):
            value = None
        if value:
            return value
        time.sleep(0.002)
    sys.exit("elastic_hosts_bench: it did not come to that within %d s" % HANG_S)


class Training:
    def __init__(self, net):
        self.net = net
        self.path = os.path.join(net.base, "steps")
        self.run = Run(net.storage, "elastic")
        self.process = net.start(COMMAND, "run", "--name", "elastic", "--hosts", "a:2,b:2", "--workers", "2:4", "--max-failures", "1000", "-q", "--",
                                 WORKER, self.path, env={"UNISONO_TRANSPORT": "ucx"})

    def steps(self):
        with open(self.path, encoding="utf-8") as file:
            return [float(word) for word in re.findall(r"(?m)^[\d.]+$", file.read())]

    def whole(self):
        """All four train: two steps ago, too."""
        wait_for(lambda: self.run.about()["members"] == 4 and all(worker["pid"] for worker in self.run.about()["workers"]))
        count = len(wait_for(self.steps))
        wait_for(lambda: len(self.steps()) > count + 2)

    def second_step(self, begun):
        return (wait_for(lambda: [step for step in self.steps() if step > begun][1:2])[0] - begun) * 1000

    def kill(self):
        self.whole()
        time.sleep(random.random() * 0.1)
        pids = {worker["rank"]: worker["pid"] for worker in self.run.about()["workers"]}
        begun = time.time()
        os.kill(pids[random.choice((1, 2, 3))], signal.SIGKILL)
        step = self.second_step(begun)
        self.whole()
        joined = [entry["time"] for entry in self.run.events("resized") if entry["what"] == "joined" and entry["time"] > begun]
        return step, (joined[0] - begun) * 1000

    def cut(self):
        self.whole()
        begun = time.time()
        self.net.link_down("b")
        step = self.second_step(begun)
        self.net.link_up("b")
        return step

    def end(self):
        self.whole()
        with open(self.path + ".stop", "w", encoding="utf-8"):
            pass
        code, out = finish(self.process, HANG_S)
        if code or self.run.about()["attempt"] != 1:
            sys.exit("elastic_hosts_bench: the group did not keep training: " + out)


def main():
    reason = why_not() or (None if os.path.exists(os.path.join(BUILD, "src", "comm", "libunisono-ucx.so")) else "UCX (libucx-dev) is needed")
    if reason:
        print("elastic_hosts_bench: " + reason, file=sys.stderr)
        sys.exit(77)
    quick = "--quick" in sys.argv
    random.seed(1)
    net = Network(("a", "b"))
    try:
        training = Training(net)
        kills = [training.kill() for _ in range(1 if quick else 15)]
        cuts = [training.cut() for _ in range(1 if quick else 3)]
        training.end()
        line("hosts_kill_to_step_ms", [step for step, _ in kills])
        line("hosts_join_ms", [joined for _, joined in kills])
        line("hosts_cut_to_step_ms", cuts)
    finally:
        net.close()


if __name__ == "__main__":
    main()
