"""Runs the cases that PyTorch made (torch/*.safetensors) through Keras: the two sources must agree before anything is compared with them.

    check_sources_agree.py        prints the largest difference of each case; exit code 1 when one is above 2e-5 (relative to max(1, |value|))
"""

import glob
import json
import os
import sys

import numpy as np

from common import HERE, load

import keras
import tensorflow as tf


def difference(ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        return float("inf")
    return float(np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs)))) if ours.size else 0.0


def layer(arrays, meta):
    instance, call = getattr(keras.layers, meta["layer"])(**json.loads(meta["config"])), json.loads(meta["call"])
    x = tf.constant(arrays["input.0"])
    repeated = [x] * (2 if call.pop("inputs") == "self" else 1)
    instance(*repeated)
    instance.set_weights([arrays[f"weight.{i}"] for i in range(len(instance.weights))])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = instance(*[x] * len(repeated), training=meta["training"] == "1", **call)
        target = tf.reduce_sum(y * arrays["upstream.0"])
    found = {"output.0": y}
    if "grad.input.0" in arrays:
        found["grad.input.0"] = tape.gradient(target, x)
    for i, weight in enumerate(instance.weights):
        found[f"after.weight.{i}"] = weight.numpy()
        if f"grad.weight.{i}" in arrays:
            found[f"grad.weight.{i}"] = tf.convert_to_tensor(tape.gradient(target, weight.value))
    return found


def loss(arrays, meta):
    found = {}
    for reduction in ("none", "sum", "sum_over_batch_size"):
        function = getattr(keras.losses, meta["loss"])(reduction=None if reduction == "none" else reduction, **json.loads(meta["config"]))
        prediction = tf.constant(arrays["y_pred"])
        with tf.GradientTape() as tape:
            tape.watch(prediction)
            value = function(arrays["y_true"], prediction)
            target = tf.reduce_sum(value * arrays["upstream"]) if reduction == "none" else value
        found |= {f"loss.{reduction}": value, f"grad.{reduction}": tape.gradient(target, prediction)}
    return found


def optimizer(arrays, meta):
    instance, found = getattr(keras.optimizers, meta["optimizer"])(**json.loads(meta["config"])), {}
    variables = [keras.Variable(arrays[f"var.{i}"]) for i in range(sum(k.startswith("var.") for k in arrays))]
    for step in range(int(meta["steps"])):
        instance.apply([tf.constant(arrays[f"grad.{step}.{i}"]) for i in range(len(variables))], variables)
        found |= {f"after.{step}.{i}": v.numpy() for i, v in enumerate(variables)}
    return found


def main():
    failed = False
    for path in sorted(glob.glob(str(HERE / "torch" / "*.safetensors"))):
        name = os.path.basename(path).split(".")[0]
        arrays, meta = load(path)
        found = {"layer": layer, "loss": loss, "optimizer": optimizer}[name.split("_")[0]](arrays, meta)
        worst, key = max((difference(found[key], arrays[key]), key) for key in found if key in arrays)
        failed |= not worst < 2e-5
        print(f"{name:40} {worst:.1e} {key}{'   DIFFERENT' if not worst < 2e-5 else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
