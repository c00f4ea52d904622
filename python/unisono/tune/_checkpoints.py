"""The checkpoints that a trial left, each with the metrics that were reported with it."""

from __future__ import annotations

import math
import os
from typing import Any

from unisono import _safe, _unisono
from unisono.train._checkpoint import Checkpoint
from unisono.train._result import renamed


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one: {"a/b": 1}."""
    out = {}
    for key, value in (tree or {}).items():
        if isinstance(value, dict):
            out.update(flat(value, prefix + str(key) + "/"))
        else:
            out[prefix + str(key)] = value
    return out


def _names(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def checkpoints_of(directory: str) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """(Checkpoint, its metrics) of every complete checkpoint of a trial, oldest first. The newest one is aside in .recovery when the policy did not keep it; trials of
    several workers have them in their runs."""
    runs = [os.path.join(directory, name) for name in _names(directory) if name.startswith("run_")]
    found = []
    for place in [directory, *runs]:
        paths = [os.path.join(place, folder, name) for folder in ("checkpoints", ".recovery") for name in _names(os.path.join(place, folder))]
        for path in sorted(paths, key=os.path.basename):
            try:
                info = _unisono.checkpoint_info(path)
            except _unisono.Error:  # damaged, or something else
                continue
            found.append((Checkpoint(path), renamed(info["metrics"])))
    return found


def best_of(found: list[tuple[Checkpoint, dict[str, Any]]], metric: str, mode: str) -> Checkpoint:
    """The checkpoint that was reported with the best value; NaN is never the best. Of equal ones the newest."""
    if mode not in ("min", "max"):
        raise ValueError('mode must be "min" or "max", not %r' % (mode,))
    sign = 1 if mode == "max" else -1
    scored = [(sign * value, number) for number, (_, metrics) in enumerate(found)
              if isinstance(value := flat(metrics).get(metric), (int, float)) and not math.isnan(value)]
    if not scored:
        known = sorted({key for _, metrics in found for key in flat(metrics)})
        raise RuntimeError("no checkpoint was reported with the metric %r; there are: %s" % (metric, ", ".join(map(_safe.text, known))))
    return found[max(scored)[1]][0]
