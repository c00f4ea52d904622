"""resumable: a tf.data pipeline whose place in the epoch is kept with every report's checkpoint."""

from __future__ import annotations

import base64
import glob
import json
import os
import tempfile
from typing import Any

from unisono import _session
from unisono._arguments import strict

_FORMAT = 1


def _save(iterator):
    """TensorFlow's checkpoint of an iterator, as {name of a file: its bytes}."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory(prefix="unisono-iterator-") as folder:
        tf.train.Checkpoint(iterator=iterator).write(os.path.join(folder, "state"))
        files = {}
        for path in sorted(glob.glob(os.path.join(folder, "state*"))):
            with open(path, "rb") as file:
                files[os.path.basename(path)] = base64.b64encode(file.read()).decode("ascii")
        return files


def _restore(iterator, files):
    import tensorflow as tf

    with tempfile.TemporaryDirectory(prefix="unisono-iterator-") as folder:
        for name, text in files.items():
            with open(os.path.join(folder, os.path.basename(name)), "wb") as file:
                file.write(base64.b64decode(text))
        tf.train.Checkpoint(iterator=iterator).read(os.path.join(folder, "state")).assert_existing_objects_matched()


class ResumableDataset:
    """Iterates over a tf.data.Dataset. `epoch`: how many epochs are over, so that a resumed loop is `for epoch in range(data.epoch, epochs)`."""

    def __init__(self, dataset: Any, name: str):
        self._dataset, self._key = dataset, "tf.data/" + name
        self.epoch, self._used = 0, 0
        self._iterator: Any = None  # of the present epoch, or of the one before
        self._going_on: Any = None  # the state that the next iteration goes on from
        here = _session.current()
        if here is None:
            return
        if self._key in here.at_report:
            raise ValueError("two resumable datasets are called %r: give one of them another name=" % name)
        here.at_report[self._key] = self._note
        state = here.session.state(self._key)
        if state is None:
            return
        self._going_on = json.loads(state)
        if self._going_on.get("format") != _FORMAT:
            raise ValueError("the state of the dataset has format %r, this version reads %d" % (self._going_on.get("format"), _FORMAT))
        self.epoch, self._used = self._going_on["epoch"], self._going_on["used"]

    def _note(self):
        """At a report: what the elements that were handed out need to be gone on from."""
        if self._going_on is not None:  # not begun yet
            return json.dumps(self._going_on).encode()
        state = {"format": _FORMAT, "epoch": self.epoch, "used": self._used}
        if self._iterator is not None:
            state["iterator"] = _save(self._iterator)
        return json.dumps(state).encode()

    def _begin(self):
        state, self._going_on = self._going_on, None
        if state is not None and "iterator" in state:
            self._iterator = iter(self._dataset)
            _restore(self._iterator, state["iterator"])
            if state["used"] > 0:
                return self._iterator
        elif self._used > 0:  # the loop before left its epoch early
            self.epoch += 1
        # After the one that ended, which has advanced the seeds of shuffles.
        self._used, self._iterator = 0, iter(self._dataset)
        return self._iterator

    def __iter__(self):
        for element in self._begin():
            self._used += 1
            yield element
        self.epoch, self._used = self.epoch + 1, 0

    def __len__(self):
        return len(self._dataset)

    def __getattr__(self, name):
        return getattr(self._dataset, name)


@strict()
def resumable(dataset: Any, name: str = "train") -> Any:
    """The dataset for loops of one's own, with its place in the epoch (buffers of shuffles included) kept by every train.report that has a checkpoint: a
    restarted or resumed train function goes on with the next element. Give datasets different names. `epoch` says how many epochs are over."""
    import tensorflow as tf

    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError("resumable() needs a tf.data.Dataset, not %s" % type(dataset).__name__)
    if not isinstance(name, str) or not name:
        raise TypeError("resumable(name=%r): give a name that is not empty" % (name,))
    return ResumableDataset(dataset, name)
