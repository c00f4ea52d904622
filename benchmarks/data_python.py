"""Python's half of ./bench data: a CSV of floats to batches of 256 for PyTorch and TensorFlow, beside the native iterator over the same file. Started by data_bench.

Rows of 16, 128 and 784 floats and a label: what a batch costs in the frameworks does not depend on its size, what it costs to read does. TensorFlow is measured as fit()
takes batches, inside of its graph; what its empty pipeline costs (a constant batch, repeated) is printed beside. Pairs in turn, the median of their ratios."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable

import numpy

from unisono import data

BATCH = 256
WIDTHS = (16, 128, 784)
PAIRS = 5
FILE_BYTES = 80 << 20


def write_csv(folder: str, width: int) -> str:
    """Rows of a label and `width` floats; made once."""
    path = os.path.join(folder, "python_%d.csv" % width)
    if os.path.exists(path):
        return path
    block = numpy.random.default_rng(1).random((2048, width + 1))
    text = "".join(",".join("%.6f" % value for value in row) + "\n" for row in block)
    with open(path + ".part", "w") as file:
        file.write(",".join(["y"] + ["x%d" % i for i in range(width)]) + "\n")
        for _ in range(max(1, FILE_BYTES // len(text))):
            file.write(text)
    os.rename(path + ".part", path)
    return path


def open_csv(path: str, width: int) -> data.Dataset:
    return data.read_csv(path, float_dtype="float32").concat_columns(["x%d" % i for i in range(width)], "x")


def native(dataset: data.Dataset) -> int:
    return sum(1 for _ in dataset.iter_batches(batch_size=BATCH, batch_format="native"))


def torch_epochs(dataset: data.Dataset) -> Callable[[], int]:
    converted = dataset.to_torch(label_column="y", feature_columns=["x"], batch_size=BATCH)
    return lambda: sum(1 for _ in converted)


def in_graph(converted: Any) -> Callable[[], int]:
    """Counts batches inside of TensorFlow's graph."""
    return lambda: int(converted.reduce(numpy.int64(0), lambda count, *_: count + 1))


def tf_epochs(dataset: data.Dataset) -> Callable[[], int]:
    return in_graph(dataset.to_tf("x", "y", batch_size=BATCH))


def timed(run: Callable[[], int], batches: int) -> float:
    begun = time.perf_counter()
    count = run()
    took = time.perf_counter() - begun
    assert count == batches, (count, batches)
    return took


def measure(metric: str, path: str, width: int, prepare: Callable[[data.Dataset], Callable[[], int]], more: dict) -> None:
    dataset = open_csv(path, width)
    epoch = prepare(dataset)
    batches = native(dataset)
    timed(epoch, batches)
    pairs = [(timed(lambda: native(dataset), batches), timed(epoch, batches)) for _ in range(PAIRS)]
    plain, ours = (statistics.median(each) for each in zip(*pairs))
    ratio = statistics.median(native_s / our_s for native_s, our_s in pairs)
    print(json.dumps({"bench": "data", "metric": metric, "unit": "batches/s", "unisono": round(batches / ours, 1), "peer": round(batches / plain, 1),
                      "peer_name": "unisono iter_batches", "ratio": float("%.4g" % ratio), "floats_per_row": width,
                      "us_per_batch": round(1e6 * ours / batches, 1), **more}), flush=True)


def empty_pipeline(width: int) -> float:
    """Microseconds that tf.data alone takes for a batch: the same tensors, again and again."""
    import tensorflow as tf

    constant = tf.data.Dataset.from_tensors((numpy.zeros((BATCH, width), numpy.float32), numpy.zeros((BATCH,), numpy.float32))).repeat(4000)
    run = in_graph(constant.prefetch(tf.data.AUTOTUNE))
    timed(run, 4000)
    return round(1e6 * min(timed(run, 4000) for _ in range(3)) / 4000, 1)


def main(path: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    paths = {width: write_csv(os.path.dirname(path), width) for width in WIDTHS}
    for metric, prepare in (("to_torch_ratio", torch_epochs), ("to_tf_ratio", tf_epochs)):
        for width in WIDTHS:
            try:
                more = {"empty_tf_pipeline_us": empty_pipeline(width)} if metric == "to_tf_ratio" else {}
                measure(metric, paths[width], width, prepare, more)
            except ImportError as error:
                print("data_python: %s: %s" % (metric, error), file=sys.stderr)
                break


if __name__ == "__main__":
    main(sys.argv[1])
