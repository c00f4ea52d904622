"""What is not offered says so, with the name and the nearest thing that is."""

from __future__ import annotations

import difflib
import sys
from typing import Any, Iterable

# Ray's names that have no counterpart here, and what to use instead.
INSTEAD = {
    "unisono.remote": "a train function with train.Trainer or DataParallelTrainer: there are no free-standing actors or tasks",
    "unisono.put": "an argument of the train function (its config or a closure): there is no object store",
    "unisono.wait": "Trainer.run_iterator",
    "unisono.serve": "nothing: serving is not what unisono does",
    "unisono.rllib": "nothing: reinforcement learning is not what unisono does",
    "Dataset.sort": "to_pandas().sort_values(...), and data.from_pandas",
    "Dataset.groupby": "to_pandas().groupby(...), and data.from_pandas",
    "Dataset.join": "to_pandas().merge(...), and data.from_pandas",
    "unisono.keras": "a build with the engine: install Debian's libdnnl-dev and build again",
    "unisono.train.tensorflow.TensorflowPredictor": "TensorflowCheckpoint.get_model, and the model's own predict",
    "unisono.train.torch.TorchPredictor": "TorchCheckpoint.get_model, and the model itself",
    "unisono.train.xgboost": "DataParallelTrainer with your own loop",
    "unisono.train.lightgbm": "DataParallelTrainer with your own loop",
    "unisono.train.lightning": "TorchTrainer with your own loop",
    "unisono.train.huggingface": "TorchTrainer with your own loop",
}


def sentence(module: str, name: str, offered: Iterable[str] | None = None) -> str:
    """What to say about a name that is not offered: the name, and what to use instead."""
    full = "%s.%s" % (module, name)
    for known in (full, module):
        if known in INSTEAD:
            return "%s is not offered; use %s" % (full, INSTEAD[known])
    if offered is None:
        offered = list(getattr(sys.modules.get(module), "__all__", []))
    near = difflib.get_close_matches(name, offered, 1, 0.6)
    return "%s is not offered%s" % (full, "; the nearest thing that is: %s.%s" % (module, near[0]) if near else "")


def complain(module: str, name: str, offered: Iterable[str] | None = None) -> Any:
    """For a module's __getattr__. Dunder names are asked for by tools, which expect a plain AttributeError."""
    if name.startswith("__"):
        raise AttributeError("module %r has no attribute %r" % (module, name))
    raise AttributeError(sentence(module, name, offered))
