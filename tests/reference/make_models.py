"""Saves small trained models with real Keras: models/NAME.keras, models/NAME.weights.h5, models/NAME.expected.safetensors.

The weights file holds the same weights and optimizer state as the .keras file. Keys of the expected file: input.N, output.N (model.predict
on them), weight.N (get_weights()), optimizer.N (optimizer.variables, as float32 or int64), y and next.loss, next.weight.N, next.output.N: one more
training step on (input, y) from the saved state, which only agrees when the optimizer's state was read too (dropout-free models, so it
is exact). Metadata: weight_names, optimizer_names, inputs (names), strings (JSON list, the model with text input has no input.0), made_by.

Keras writes the time into the zip and memory addresses ("shared_object_id") into its config; repeat() rewrites each archive with
fixed ones, so that a second run gives the same bytes. mlp_deflated.keras is mlp.keras with compressed members (Keras itself
stores them uncompressed, other tools need not).
"""

import io
import json
import zipfile

import numpy as np

from common import HERE, made_by, normal, rng, save

import keras
from keras import layers as L

FOLDER = HERE / "models"


def mlp():
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu", name="hidden"), L.Dropout(0.0), L.Dense(3, "softmax", name="out")], name="mlp")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    r = rng("mlp")
    return model, [normal(r, 5, 6)], r.integers(0, 3, 5).astype(np.int32)


def cnn():
    model = keras.Sequential([
        L.Input((8, 8, 1)), L.Rescaling(1 / 255), L.Conv2D(4, 3, activation="relu"), L.BatchNormalization(), L.MaxPooling2D(2),
        L.DepthwiseConv2D(2, padding="same"), L.AveragePooling2D(2, padding="same"), L.Flatten(), L.Dense(10)], name="cnn")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    r = rng("cnn")
    return model, [r.integers(0, 256, (4, 8, 8, 1)).astype(np.float32)], r.integers(0, 10, 4).astype(np.int32)


def residual():
    image, extra = L.Input((6, 6, 3), name="image"), L.Input((4,), name="extra")
    x = L.Conv2D(4, 3, padding="same", activation="relu")(image)
    skip = x
    x = L.Conv2D(4, 3, padding="same")(x)
    x = L.BatchNormalization()(x)
    x = L.Add()([x, skip])
    x = L.Activation("relu")(x)
    x = L.GlobalAveragePooling2D()(x)
    y = L.LayerNormalization()(L.Dense(5, "tanh")(extra))
    out = L.Dense(1, name="score")(L.Concatenate()([x, y]))
    model = keras.Model([image, extra], out, name="residual")
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9, staircase=True)
    model.compile(keras.optimizers.RMSprop(schedule, momentum=0.5, centered=True, clipnorm=1.0), "mean_squared_error", metrics=["mae"])
    r = rng("residual")
    return model, [normal(r, 3, 6, 6, 3), normal(r, 3, 4)], normal(r, 3, 1)


def recurrent():
    model = keras.Sequential([
        L.Input((7,), dtype="int32"), L.Embedding(12, 5), L.LSTM(4, return_sequences=True), L.Conv1D(6, 3, padding="same"), L.GRU(3),
        L.Reshape((3, 1)), L.GlobalAveragePooling1D(), L.Dense(1, "sigmoid")], name="recurrent")
    model.compile(keras.optimizers.Adagrad(0.05), keras.losses.BinaryCrossentropy())
    r = rng("recurrent")
    return model, [r.integers(0, 12, (4, 7)).astype(np.int32)], r.integers(0, 2, (4, 1)).astype(np.float32)


def transformer():
    tokens = L.Input((6,), dtype="int32", name="tokens")
    x = L.Embedding(9, 8, name="embed")(tokens)
    y = L.LayerNormalization(name="norm1")(x)
    y = L.MultiHeadAttention(2, 4, name="attention")(y, y, use_causal_mask=True)
    x = L.Add(name="add1")([x, y])
    y = L.Dense(8, name="ffn2")(L.Dense(16, "gelu", name="ffn1")(L.LayerNormalization(name="norm2")(x)))
    x = L.Add(name="add2")([x, y])
    model = keras.Model(tokens, L.Dense(9, name="logits")(x), name="transformer")
    model.compile(keras.optimizers.AdamW(0.01, global_clipnorm=1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    r = rng("transformer")
    return model, [r.integers(0, 9, (3, 6)).astype(np.int32)], r.integers(0, 9, (3, 6)).astype(np.int32)


def regularized():
    norm = L.Normalization(name="norm")
    r = rng("regularized")
    norm.adapt(normal(r, 50, 3) * 4 + 2)
    model = keras.Sequential([
        L.Input((3,)), norm, L.Dense(4, "elu", kernel_regularizer=keras.regularizers.L2(0.01)), L.Activation("swish"),
        L.Dense(2, "leaky_relu", use_bias=False, kernel_regularizer="l1", activity_regularizer=keras.regularizers.L1L2(0.01, 0.02))],
        name="regularized")
    model.compile(keras.optimizers.SGD(0.05), keras.losses.Huber(delta=0.7))
    return model, [normal(r, 4, 3) * 4 + 2], normal(r, 4, 2)


def nested():
    inner = keras.Sequential([L.Input((4,)), L.Dense(4, "relu"), L.Dense(4)], name="inner")
    x = L.Input((4,))
    shared = L.Dense(4, name="shared")
    y = L.Add()([shared(inner(x)), shared(x)])  # a model as a layer, and a layer used twice
    model = keras.Model(x, L.Dense(1)(y), name="nested")
    model.compile("adam", "mse")
    r = rng("nested")
    return model, [normal(r, 5, 4)], normal(r, 5, 1)


def renumber(node, seen):
    """Replaces each shared_object_id (an address) by the order of its first appearance."""
    if isinstance(node, dict):
        if "shared_object_id" in node:
            node["shared_object_id"] = seen.setdefault(node["shared_object_id"], len(seen) + 1)
        node = node.values()
    for child in node if not isinstance(node, str) else ():
        if isinstance(child, (dict, list)):
            renumber(child, seen)


def repeat(path, target=None, compression=zipfile.ZIP_STORED):
    """Rewrites a .keras archive: fixed dates and fixed object numbers."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "metadata.json":
                data = json.dumps(json.loads(data) | {"date_saved": "2026-01-01@00:00:00"}).encode()
            elif name == "config.json":
                config = json.loads(data)
                renumber(config, {})
                data = json.dumps(config).encode()
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = compression
            new.writestr(entry, data)
    (target or path).write_bytes(buffer.getvalue())


def store(make):
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    model, inputs, y = make()
    feed = inputs if len(inputs) > 1 else inputs[0]
    r = rng(make.__name__ + " weights")
    model.set_weights([w + normal(r, *w.shape, scale=0.05) if w.dtype.kind == "f" and v.trainable else w
                       for v, w in zip(model.weights, model.get_weights())])
    for _ in range(3):
        model.train_on_batch(feed, y)
    FOLDER.mkdir(exist_ok=True)
    keras_file = FOLDER / f"{model.name}.keras"
    model.save(keras_file)
    repeat(keras_file)
    model.save_weights(FOLDER / f"{model.name}.weights.h5")
    arrays = {f"input.{i}": x for i, x in enumerate(inputs)} | {"y": y, "output.0": model.predict(feed, verbose=0)}
    arrays |= {f"weight.{i}": w.astype(np.int64) if w.dtype.kind == "i" else w for i, w in enumerate(model.get_weights())}
    for i, variable in enumerate(model.optimizer.variables):
        arrays[f"optimizer.{i}"] = variable.numpy().astype(np.int64 if "int" in variable.dtype else np.float32)
    metadata = {"weight_names": [w.path for w in model.weights], "optimizer_names": [v.path for v in model.optimizer.variables],
                "inputs": [x.name for x in model.inputs], "made_by": made_by()}
    again = keras.models.load_model(keras_file)  # the reset of the metrics included: the loss is this step's alone
    arrays["next.loss"] = np.float32(again.train_on_batch(feed, y, return_dict=True)["loss"])
    arrays["next.output.0"] = again.predict(feed, verbose=0)
    arrays |= {f"next.weight.{i}": w for i, w in enumerate(again.get_weights()) if w.dtype.kind == "f"}
    save(f"models/{model.name}.expected.safetensors", arrays, **metadata)
    print(model.name, keras_file.stat().st_size)


def text():
    """Strings in, a score out: the vocabulary is an asset in the archive."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    strings = ["the cat sat", "a dog barks at the cat", "", "nothing known here", "Cat! DOG?"]
    vector = L.TextVectorization(max_tokens=20, output_sequence_length=5, name="vectorize")
    vector.adapt(["the cat sat on the mat", "a dog and a cat", "the dog barks"])
    model = keras.Sequential([L.Input((), dtype="string"), vector, L.Embedding(20, 4), L.GlobalAveragePooling1D(), L.Dense(1, "sigmoid")], name="text")
    model.compile("adam", "binary_crossentropy")
    import tensorflow as tf

    output = np.asarray(model(tf.constant(strings)))
    model.save(FOLDER / "text.keras")
    repeat(FOLDER / "text.keras")
    arrays = {"output.0": output}
    arrays |= {f"weight.{i}": w.numpy() for i, w in enumerate(model.weights) if "float" in w.dtype}
    save("models/text.expected.safetensors", arrays, strings=strings, vocabulary=[str(w) for w in vector.get_vocabulary()],
         weight_names=[w.path for w in model.weights], made_by=made_by())
    print("text", (FOLDER / "text.keras").stat().st_size)


if __name__ == "__main__":
    for make in (mlp, cnn, residual, recurrent, transformer, regularized, nested):
        store(make)
    repeat(FOLDER / "mlp.keras", FOLDER / "mlp_deflated.keras", zipfile.ZIP_DEFLATED)
    text()
