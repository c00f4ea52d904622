"""Python's half of ./bench data: a CSV of floats to batches of 256 for PyTorch and TensorFlow, beside the native iterator over the same files. Started by data_bench.

Rows of 16, 128 and 784 floats and a label: what a batch costs in the frameworks does not depend on its size, what it costs to read does. A rate is that of one epoch from its first
batch to its end; native and converted epochs in turn, the median of the pairs' ratios.

Nobody does anything with the batches, on either side: the native loop and the torch loop only count them, and TensorFlow's are made and dropped inside of tf.data, which hands every
64th to Python (Dataset.shard). Any other way to take a batch out of tf.data costs more than to make one here: for a constant batch that is repeated, TensorFlow's own reduce in a graph
takes what is printed as tf_graph_us, and the same over to_tf what is printed as to_tf_graph_us."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable, Iterator

import numpy

from unisono import data

BATCH = 256
WIDTHS = (16, 128, 784)
PAIRS = 5
FILE_BYTES = 80 << 20
FILES = 4  # the same one, again and again
EVERY = 64  # batches that are counted inside of tf.data


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


def open_csv(path: str, width: int, together: bool = True) -> data.Dataset:
    """together: the floats are one column, (width) a row."""
    columns = data.read_csv([path] * FILES, float_dtype="float32")
    return columns.concat_columns(["x%d" % i for i in range(width)], "x") if together else columns


def native(dataset: data.Dataset) -> Iterator[Any]:
    return iter(dataset.iter_batches(batch_size=BATCH, batch_format="native"))


def labels(dataset: data.Dataset) -> list[float]:
    """The first label of each batch: what the converted ones must have."""
    return [float(batch["y"][0]) for batch in dataset.iter_batches(batch_size=BATCH)]


def timed(begin: Callable[[], Iterator[Any]], expected: int) -> float:
    """Seconds from the first to the last one."""
    made = begin()
    next(made)
    begun, count = time.perf_counter(), 1
    for _ in made:
        count += 1
    took = time.perf_counter() - begun
    assert count == expected, (count, expected)
    return took


class Torch:
    """to_torch's batches."""

    metric, every, widths, together = "to_torch_ratio", 1, WIDTHS, True

    def __init__(self, dataset: data.Dataset) -> None:
        self.converted = dataset.to_torch(label_column="y", batch_size=BATCH)

    def begin(self) -> Iterator[Any]:
        return iter(self.converted)

    def more(self, batches: int) -> dict:
        return {}


class Wide(Torch):
    """The same of a table of hundreds of columns, on both sides."""

    metric, widths, together = "to_torch_wide_ratio", (784,), False


class Tensorflow:
    """to_tf's batches; every 64th comes to Python."""

    metric, every, widths, together = "to_tf_ratio", EVERY, WIDTHS, True

    def __init__(self, dataset: data.Dataset) -> None:
        self.converted = dataset.to_tf("x", "y", batch_size=BATCH)
        self.some = self.converted.shard(EVERY, 0)

    def begin(self) -> Iterator[Any]:
        return iter(self.some)

    @staticmethod
    def in_graph(converted: Any, batches: int) -> float:
        """Microseconds a batch when TensorFlow counts them in a graph."""
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            assert int(converted.reduce(numpy.int64(0), lambda count, *_: count + 1)) == batches
            times.append(time.perf_counter() - begun)
        return round(1e6 * min(times) / batches, 1)

    def more(self, batches: int) -> dict:
        import tensorflow as tf

        constant = (numpy.zeros((BATCH, 16), numpy.float32), numpy.zeros((BATCH,), numpy.float32))
        return {"to_tf_graph_us": self.in_graph(self.converted, batches),
                "tf_graph_us": self.in_graph(tf.data.Dataset.from_tensors(constant).repeat(4000).prefetch(tf.data.AUTOTUNE), 4000)}


def measure(kind: Any, path: str, width: int) -> None:
    dataset = open_csv(path, width, kind.together)
    right = labels(dataset)
    converted = kind(dataset)
    batches, expected = len(right), (len(right) + kind.every - 1) // kind.every
    found = [float(numpy.ravel(label)[0]) for _, label in converted.begin()]
    assert found == right[::kind.every], "other batches than those of the native iterator"
    pairs = [(timed(lambda: native(dataset), batches), timed(converted.begin, expected)) for _ in range(PAIRS)]
    plain, ours = (statistics.median(each) for each in zip(*pairs))
    ratio = statistics.median(native_s / our_s for native_s, our_s in pairs)
    print(json.dumps({"bench": "data", "metric": kind.metric, "unit": "batches/s", "unisono": round(batches / ours, 1), "peer": round(batches / plain, 1),
                      "peer_name": "unisono iter_batches", "ratio": float("%.4g" % ratio), "floats_per_row": width,
                      "us_per_batch": round(1e6 * ours / batches, 1), **converted.more(batches)}), flush=True)


def main(path: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for kind in (Torch, Wide, Tensorflow):
        for width in kind.widths:
            try:
                measure(kind, write_csv(os.path.dirname(path), width), width)
            except ImportError as error:
                print("data_python: %s: %s" % (kind.metric, error), file=sys.stderr)
                break


if __name__ == "__main__":
    main(sys.argv[1])
