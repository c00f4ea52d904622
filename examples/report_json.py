#!/usr/bin/env python3
"""report_json.py - a worker without any library: one JSON line a report on the descriptor that UNISONO_REPORT_FD names.

    unisono run -n 2 -- python3 examples/report_json.py [EPOCHS]

By itself it runs as well and its reports go nowhere.
"""

import json
import os
import sys


def report(**metrics):
    descriptor = os.environ.get("UNISONO_REPORT_FD")
    if descriptor:
        os.write(int(descriptor), json.dumps({"metrics": metrics}).encode() + b"\n")


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rank = int(os.environ.get("UNISONO_RANK", "0"))
    print("rank %d of %s" % (rank, os.environ.get("UNISONO_WORLD_SIZE", "1")))
    for epoch in range(1, epochs + 1):
        report(epoch=epoch, loss=(1 + rank) / epoch)


if __name__ == "__main__":
    main()
