"""Python's half of ./bench data: the CSV of data_bench to batches of 256 for PyTorch and TensorFlow, beside the native iterator. Started by data_bench.

TensorFlow is measured as fit() takes batches, inside of its graph. Each is the median of some epochs, in turn with the native ones."""

import json
import os
import statistics
import sys
import time

from unisono import data

BATCH = 256


def native(dataset):
    return sum(1 for _ in dataset.iter_batches(batch_size=BATCH, batch_format="native"))


def torch_epochs(dataset):
    label, feature = dataset.columns()
    converted = dataset.to_torch(label_column=label, feature_columns=[feature], batch_size=BATCH)
    return lambda: sum(1 for _ in converted)


def tf_epochs(dataset):
    import numpy

    label, feature = dataset.columns()
    converted = dataset.to_tf(feature, label, batch_size=BATCH)
    return lambda: int(converted.reduce(numpy.int64(0), lambda count, *_: count + 1))


def measure(metric, path, prepare, runs):
    dataset = data.read_csv(path)
    dataset = dataset.select_columns(dataset.columns()[:2])
    ours, plain = [], []
    try:
        epoch = prepare(dataset)
    except ImportError as error:
        print("data_python: %s: %s" % (metric, error), file=sys.stderr)
        return
    batches = native(dataset)
    assert epoch() == batches
    for _ in range(runs):
        for times, run in ((plain, lambda: native(dataset)), (ours, epoch)):
            begun = time.perf_counter()
            assert run() == batches
            times.append(time.perf_counter() - begun)
    rates = [batches / statistics.median(times) for times in (ours, plain)]
    print(json.dumps({"bench": "data", "metric": metric, "unit": "batches/s", "unisono": round(rates[0], 1), "peer": round(rates[1], 1),
                      "peer_name": "unisono iter_batches", "ratio": float("%.4g" % (rates[0] / rates[1]))}), flush=True)


def main(path):
    runs = 5
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    measure("to_torch_ratio", path, torch_epochs, runs)
    measure("to_tf_ratio", path, tf_epochs, runs)


if __name__ == "__main__":
    main(sys.argv[1])
