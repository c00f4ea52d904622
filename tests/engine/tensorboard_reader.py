#!/usr/bin/env python3
"""What the TensorBoard callback writes, read by TensorBoard: tensorboard_reader.py TEXT_FIT (the program engine_text_fit).

The layout must be Keras's: train/ and validation/, tags epoch_loss and so on with one value an epoch from step 0, and the model's graph. 77 (skipped)
where the project's venv has no tensorboard."""
import json
import os
import subprocess
import sys
import tempfile

PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "unisono/venv/bin/python")
EPOCHS = 3

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.graph import keras_util
    from tensorboard.util import tensor_util
except ImportError:
    if os.path.exists(PYTHON) and "AGAIN" not in os.environ:
        os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "AGAIN": "1"})
    print("skipped: no tensorboard (tools/python-env readers installs it)")
    sys.exit(77)


def values(events, tag):
    """(steps, numbers) of a tag, whether it is stored as a tensor (Keras's way) or as a plain scalar."""
    tags = events.Tags()
    if tag in tags["tensors"]:
        found = events.Tensors(tag)
        return [e.step for e in found], [float(tensor_util.make_ndarray(e.tensor_proto)) for e in found]
    found = events.Scalars(tag)
    return [e.step for e in found], [e.value for e in found]


def graph(events):
    """The nodes that TensorBoard's graph page shows for the model: Keras's config in the tag "keras"."""
    assert events.SummaryMetadata("keras").plugin_data.plugin_name == "graph_keras_model"
    config = tensor_util.make_ndarray(events.Tensors("keras")[0].tensor_proto).item()
    return [node.name for node in keras_util.keras_model_to_graph_def(json.loads(config)).node]


def main():
    with tempfile.TemporaryDirectory(prefix="unisono-tensorboard-") as tmp:
        data, logs = os.path.join(tmp, "text.csv"), os.path.join(tmp, "logs")
        with open(data, "w", encoding="utf-8") as file:
            file.write("question_text,target\n")
            for i in range(400):
                file.write(["the sea is calm and blue %d,0\n", "a loud engine runs too hot %d,1\n"][i % 2] % i)
        subprocess.run([sys.argv[1], "--data", data, "--epochs", str(EPOCHS), "--output", logs, "--quiet"], check=False, timeout=100,
                       stdout=subprocess.DEVNULL)
        last = {}
        for part in ("train", "validation"):
            events = EventAccumulator(os.path.join(logs, part))
            events.Reload()
            for tag in ("epoch_loss", "epoch_accuracy"):
                steps, numbers = values(events, tag)
                assert steps == list(range(len(steps))) and 1 <= len(steps) <= EPOCHS, (part, tag, steps)
                last[part, tag] = numbers[-1]
            if part == "train":
                names = graph(events)
                assert any("sentence" in name for name in names) and len(names) >= 4, names
        assert all(0 <= last[part, "epoch_accuracy"] <= 1 and last[part, "epoch_loss"] > 0 for part in ("train", "validation")), last
        print("read by TensorBoard:", last, len(names), "nodes")


main()
