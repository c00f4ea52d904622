"""resumable: a tf.data pipeline whose place in the epoch is kept with every report's checkpoint.

TensorFlow keeps datasets that wait in a buffer as graphs, and runs them when the iterator is restored: such a state can read and write files. So it
carries a MAC by the user's own key, like a pickle, and without it the epoch begins anew.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import tempfile
import warnings
from typing import Any

from unisono import _key
from unisono._arguments import strict
from unisono.train._resumable import Resumable, check_name


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


def _mac(files):
    return _key.mac(b"unisono.train.tensorflow.resumable\0" + json.dumps(files, sort_keys=True).encode())


def _is_own(state):
    """Whether this user's key made it."""
    import hmac

    return hmac.compare_digest(_mac(state["iterator"]).hex().encode(), str(state.get("mac")).encode("utf-8", "replace"))


class ResumableDataset(Resumable):
    """Iterates over a tf.data.Dataset."""

    def __init__(self, dataset: Any, name: str):
        self._iterator: Any = None  # of the present epoch, or of the one before
        super().__init__(dataset, "tf.data", "dataset", name)

    def _describe(self):
        if self._iterator is None:
            return {}
        files = _save(self._iterator)
        return {"iterator": files, "mac": _mac(files).hex()}

    def _resume(self, state):
        if "iterator" not in state or _is_own(state):
            return state
        warnings.warn("the dataset's place in epoch %d was not kept with your key (%s), and restoring it could run any code: the epoch begins anew" %
                      (state["epoch"], _key._path()), UserWarning, stacklevel=5)
        return {"format": state["format"], "epoch": state["epoch"], "used": 0}

    def _begin(self):
        state, self._going_on = self._going_on, None
        if state is not None and "iterator" in state:
            self._iterator = iter(self._source)
            _restore(self._iterator, state["iterator"])
            if state["used"] > 0:
                return self._iterator
        elif self._used > 0:  # the loop before left its epoch early
            self.epoch += 1
        # After the one that ended, which has advanced the seeds of shuffles.
        self._used, self._iterator = 0, iter(self._source)
        return self._iterator


@strict()
def resumable(dataset: Any, name: str = "train") -> Any:
    """The dataset for loops of one's own, with its place in the epoch (buffers of shuffles included) kept by every train.report that has a checkpoint: a
    restarted or resumed train function goes on with the next element. Give datasets different names. `epoch` says how many epochs are over."""
    import tensorflow as tf

    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError("resumable() needs a tf.data.Dataset, not %s" % type(dataset).__name__)
    check_name(name)
    return ResumableDataset(dataset, name)
