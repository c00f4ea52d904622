#!/usr/bin/env python3
"""data_readers.py - pandas, pyarrow, tf.data and Ray Data on the CSV of data_bench: MB/s to batches, or to one table where that is what they do.

With --against PROGRAM (data_bench) each reads the file in turn with unisono, and lines have the ratio: medians of 5 pairs for pandas and pyarrow, one run for those that
take minutes (tf.data is stopped after some seconds)."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--only", default="")
parser.add_argument("--against", default="")
arguments, _ = parser.parse_known_args()
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
path = os.path.join(cache, "unisono", "bench_data" + ("_quick" if arguments.quick else ""), "floats.csv")


def pandas():
    import pandas
    begin = time.perf_counter()
    pandas.read_csv(path, engine="c")
    return time.perf_counter() - begin


def pyarrow():
    from pyarrow import csv
    begin = time.perf_counter()
    csv.read_csv(path)
    return time.perf_counter() - begin


def tf_data():
    """As many batches as make a few seconds, scaled to the whole file."""
    import tensorflow as tf
    dataset = tf.data.experimental.make_csv_dataset(path, 256, num_epochs=1, shuffle=False, num_parallel_reads=2)
    with open(path, "rb") as file:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 24), b"")) - 1
    begin, rows = time.perf_counter(), 0
    for batch in dataset:
        rows += int(next(iter(batch.values())).shape[0])
        if time.perf_counter() - begin > (1 if arguments.quick else 5):
            break
    return (time.perf_counter() - begin) * lines / rows


def ray_data():
    import ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    begin = time.perf_counter()
    for _ in ray.data.read_csv(path).iter_batches(batch_size=256):
        pass
    return time.perf_counter() - begin


def ours():
    done = subprocess.run([arguments.against, "--read", path], text=True, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def measure(name, read, runs):
    """A library that is not there is said to be missing; one that is there and fails has failed."""
    megabytes = os.path.getsize(path) / 1e6
    try:
        if runs > 1:
            read()
        pairs = [(megabytes / read(), ours() if arguments.against else None) for _ in range(runs)]
    except ImportError as error:
        print("data peers: %s: missing (%s)" % (name, error), file=sys.stderr)
        return
    except Exception as error:  # any failure of a peer is its own
        print(json.dumps({"failed_peer": name, "why": "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])}), flush=True)
        return
    line = {"bench": "data", "metric": "csv_mb_per_s", "unit": "MB/s", "peer": statistics.median(pair[0] for pair in pairs), "peer_name": name}
    if arguments.against:
        line.update(unisono=statistics.median(pair[1] for pair in pairs), ratio=float("%.4g" % statistics.median(own / peer for peer, own in pairs)))
    print(json.dumps(line), flush=True)


if arguments.against and not os.path.exists(path):  # data_bench makes the file
    subprocess.run([arguments.against, "--only", "csv"] + (["--quick"] if arguments.quick else []), stdout=subprocess.DEVNULL, check=True)
for peer, function, repeated in (("pandas", pandas, 5), ("pyarrow", pyarrow, 5), ("tf.data", tf_data, 1), ("ray_data", ray_data, 1)):
    if arguments.only in ("", peer):
        measure(peer, function, 1 if arguments.quick else repeated)
