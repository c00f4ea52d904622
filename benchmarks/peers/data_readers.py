#!/usr/bin/env python3
"""data_readers.py - pandas, pyarrow, tf.data and Ray Data on the CSV that data_bench made: MB/s to batches, or to one table where that is what they do."""

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--only", default="")
arguments, _ = parser.parse_known_args()
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
path = os.path.join(cache, "unisono", "bench_data" + ("_quick" if arguments.quick else ""), "floats.csv")


def measure(name, read, runs):
    """The median of some runs; a library that is not there is said to be missing."""
    if arguments.only and arguments.only != name:
        return
    try:
        read()
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            read()
            times.append(time.perf_counter() - begin)
    except Exception as error:  # any failure of a peer is its own
        print("data peers: %s: %s" % (name, str(error).splitlines()[:1]), file=sys.stderr)
        return
    rate = os.path.getsize(path) / sorted(times)[len(times) // 2] / 1e6
    print(json.dumps({"bench": "data", "metric": "csv_mb_per_s", "unit": "MB/s", "peer": rate, "peer_name": name}), flush=True)


def pandas():
    import pandas
    return pandas.read_csv(path, engine="c")


def pyarrow():
    from pyarrow import csv
    return csv.read_csv(path)


def tf_data():
    import tensorflow as tf
    dataset = tf.data.experimental.make_csv_dataset(path, 256, num_epochs=1, shuffle=False, num_parallel_reads=2)
    # 5 MB/s: as many batches as make a few seconds, scaled to the whole file.
    begin, rows = time.perf_counter(), 0
    for batch in dataset:
        rows += int(next(iter(batch.values())).shape[0])
        if time.perf_counter() - begin > 5:
            break
    return rows, time.perf_counter() - begin


def ray_data():
    import ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    for _ in ray.data.read_csv(path).iter_batches(batch_size=256):
        pass


measure("pandas", pandas, 3)
measure("pyarrow", pyarrow, 3)
if not arguments.only or arguments.only == "tf.data":
    try:
        done, took = tf_data()
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda f=open(path, "rb"): f.read(1 << 24), b"")) - 1
        rate = os.path.getsize(path) * (done / lines) / took / 1e6
        print(json.dumps({"bench": "data", "metric": "csv_mb_per_s", "unit": "MB/s", "peer": rate, "peer_name": "tf.data"}), flush=True)
    except Exception as error:
        print("data peers: tf.data: %s" % str(error).splitlines()[:1], file=sys.stderr)
if not arguments.quick or arguments.only == "ray_data":
    measure("ray_data", ray_data, 1)
