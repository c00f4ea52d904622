"""What the native examples share: their command line, and the texts in the place of the course's Quora questions (examples/engine/get-data fortunes)."""

import argparse
import csv
import os
import types

import numpy as np


def arguments(description, epochs):
    """--data FILE.csv with question_text,target; --epochs, --seed, --replicas, --output DIR."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default=os.path.join(cache, "unisono", "data", "fortunes.csv"))
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=None, help="devices of the MirroredStrategy; all cores when left out")
    parser.add_argument("--vectors", default=None, help="a file of word vectors for the embedding layer")
    parser.add_argument("--output", default=None)
    return parser.parse_args()


class Frame(types.SimpleNamespace):
    """As much of a pandas.DataFrame as the course's program uses."""

    @property
    def size(self):
        return 2 * len(self.target.values)


def load(path):
    """(train_df, valid_df): every fifth text is held out."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def frame(some):
        return Frame(question_text=types.SimpleNamespace(values=np.array([row["question_text"] for row in some], object)),
                     target=types.SimpleNamespace(values=np.array([float(row["target"]) for row in some], np.float32)))
    return frame([row for index, row in enumerate(rows) if index % 5 != 4]), frame(rows[4::5])
