"""Opens files with real Keras and says as JSON what they predict: the other half of the round-trip tests.

    check_keras_opens.py FILE.keras ... [--inputs IN.safetensors] [--expected EXP.safetensors] [--tolerance 1e-5]
    check_keras_opens.py FILE.weights.h5 --into MODEL.keras ...         weights into a model's architecture

IN has input.0, input.1, ... or metadata "strings" (a JSON list). EXP may be the same file and may further have output.N, weight.N
(get_weights() order), optimizer.N (optimizer.variables order), and y with next.loss, next.output.N and next.weight.N: one
more training step from the loaded state. Whatever it has is compared: |a - b| <= tolerance * max(1, |b|). models/NAME.expected.safetensors has
all of it. A .keras file is loaded with safe_mode, as users do.

One JSON line per file on stdout: {"file", "ok", "parameters", "outputs": [{"shape", "values"}], "compared": [keys], "error"}; the exit code is 0
when all files are ok, 1 otherwise. Run it with the interpreter that tools/python-env keras prints.
"""

import argparse
import json
import sys

import numpy as np

from common import load


def compare(key, ours, theirs, tolerance):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(f"{key}: Keras has shape {ours.shape}, expected {theirs.shape}")
    excess = np.abs(ours - theirs) - tolerance * np.maximum(1, np.abs(theirs))
    if ours.size and not np.max(excess) <= 0:  # not: a NaN fails too
        at = np.unravel_index(np.argmax(excess), ours.shape)
        raise ValueError(f"{key}{list(map(int, at))}: Keras has {ours[at]:.9g}, expected {theirs[at]:.9g}")


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check(path, into, feed, expected, tolerance):
    import keras

    model = keras.models.load_model(into or path)
    if into:  # from zeros, so that nothing of the model's own file can pass for what was loaded
        for variable in model.weights + (model.optimizer.variables if model.optimizer is not None else []):
            variable.assign(np.zeros(variable.shape, variable.dtype))
        model.load_weights(path)
    result, compared = {"parameters": int(model.count_params())}, []

    def all_of(prefix, values):
        for i, value in enumerate(values):
            if f"{prefix}.{i}" in expected:
                compare(f"{prefix}.{i}", value, expected[f"{prefix}.{i}"], tolerance)
                compared.append(f"{prefix}.{i}")
        missing = [k for k in expected if k.startswith(prefix + ".") and k not in compared]
        if missing:
            raise ValueError(f"expected {missing}, but Keras has {len(values)} of {prefix}")

    all_of("weight", list(model.get_weights()))
    if model.optimizer is not None:
        all_of("optimizer", [v.numpy() for v in model.optimizer.variables])
        result["iterations"] = int(model.optimizer.iterations.numpy())
    elif any(k.startswith("optimizer.") for k in expected):
        raise ValueError("an optimizer was expected, but Keras's model has none")
    if feed is not None:
        outputs = [np.asarray(y) for y in as_list(model.predict(feed, verbose=0))]
        result["outputs"] = [{"shape": list(y.shape), "values": y.ravel().tolist()} for y in outputs]
        all_of("output", outputs)
        if "y" in expected:
            result["next_loss"] = float(model.train_on_batch(feed, expected["y"], return_dict=True)["loss"])
            all_of("next.weight", list(model.get_weights()))
            all_of("next.output", as_list(model.predict(feed, verbose=0)))
            if "next.loss" in expected:
                compare("next.loss", result["next_loss"], expected["next.loss"], tolerance)
                compared.append("next.loss")
    return result | {"compared": compared}


def inputs_of(arrays, metadata):
    if "strings" in metadata:
        import tensorflow as tf

        return tf.constant(json.loads(metadata["strings"]))
    values = [arrays[f"input.{i}"] for i in range(sum(k.startswith("input.") for k in arrays))]
    return None if not values else values if len(values) > 1 else values[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--into")
    parser.add_argument("--inputs")
    parser.add_argument("--expected")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    expected, metadata = load(options.expected) if options.expected else ({}, {})
    feed = inputs_of(*(load(options.inputs) if options.inputs else (expected, metadata)))
    failed = False
    for path in options.files:
        try:
            result = {"file": path, "ok": True} | check(path, options.into, feed, expected, options.tolerance)
        except Exception as error:  # whatever Keras raises is the test's answer, not a crash
            failed = True
            result = {"file": path, "ok": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
