"""Stores what Keras layers compute: layers/CASE.safetensors, one file per case.

Keys: input.N, weight.N (in the order and layout of layer.get_weights()), output.N, upstream.N (an arbitrary
gradient for each float output), grad.input.N (float inputs only), grad.weight.N (trainable weights only; N is the
place in get_weights()), after.weight.N (weights that the forward pass changed: moving statistics).
Metadata: layer (class name), config (the constructor's arguments), weight_names, trainable, training ("0" or
"1"), call (keyword arguments of the call), made_by. An Embedding's gradient is stored dense.
"""

import numpy as np

from common import made_by, normal, rng, save

import keras  # after common: it sets the backend and silences TensorFlow's log
import tensorflow as tf

L = keras.layers
ACTIVATIONS = ["linear", "relu", "leaky_relu", "elu", "gelu", "sigmoid", "tanh", "softplus", "silu", "softmax", "log_softmax"]


def fill_weights(layer, random):
    """Random values instead of the initialisers': a bias of zeros would hide a forgotten bias."""
    values = []
    for weight in layer.weights:
        if not np.issubdtype(np.dtype(weight.dtype), np.floating):
            values.append(weight.numpy())
        elif weight.name in ("moving_variance", "variance"):
            values.append(random.uniform(0.5, 2.0, weight.shape).astype(np.float32))
        elif weight.name == "gamma":
            values.append(random.uniform(0.5, 1.5, weight.shape).astype(np.float32))
        else:
            values.append(normal(random, *weight.shape, scale=0.5))
    layer.set_weights(values)


def run(name, layer, config, inputs, training, call, random, keep_weights):
    """One forward and one backward pass; returns the arrays and the metadata of the file."""
    tensors = [tf.constant(x) for x in inputs]
    floats = [i for i, x in enumerate(tensors) if x.dtype.is_floating]
    extra = {k: v for k, v in call.items() if not k.startswith("_")}
    join = call.get("_inputs", "list" if len(tensors) > 1 else "one")

    def forward():
        if join == "list":
            return layer(tensors, training=training, **extra)
        if join == "self":
            return layer(tensors[0], tensors[0], training=training, **extra)
        if join == "state":
            return layer(tensors[0], initial_state=tensors[1:], training=training)
        return layer(*tensors, training=training, **extra)

    forward()  # builds
    if not keep_weights:
        fill_weights(layer, random)
    arrays = {f"input.{i}": x for i, x in enumerate(inputs)}
    weights = list(layer.weights)
    before = [w.numpy() for w in weights]
    trainable = [any(w is t for t in layer.trainable_weights) for w in weights]
    with tf.GradientTape(persistent=True) as tape:
        for i in floats:
            tape.watch(tensors[i])
        outputs = tf.nest.flatten(forward())
        upstream = [normal(random, *y.shape) if y.dtype.is_floating else None for y in outputs]
        target = tf.add_n([tf.reduce_sum(y * u) for y, u in zip(outputs, upstream) if u is not None])
    for i, (value, weight) in enumerate(zip(before, weights)):
        if np.issubdtype(value.dtype, np.integer):
            value = value.astype(np.int64)
        arrays[f"weight.{i}"] = value
        if trainable[i]:
            gradient = tape.gradient(target, weight.value)
            arrays[f"grad.weight.{i}"] = tf.convert_to_tensor(gradient).numpy()
        elif not np.array_equal(value, weight.numpy()):
            arrays[f"after.weight.{i}"] = weight.numpy()
    for i, (y, u) in enumerate(zip(outputs, upstream)):
        arrays[f"output.{i}"] = y.numpy()
        if u is not None:
            arrays[f"upstream.{i}"] = u
    for i in floats:
        arrays[f"grad.input.{i}"] = tape.gradient(target, tensors[i], unconnected_gradients="zero").numpy()
    metadata = {
        "layer": type(layer).__name__,
        "config": config,
        "weight_names": [w.path.split("/", 1)[-1] for w in weights],
        "trainable": trainable,
        "training": "1" if training else "0",
        "call": {"inputs": join} | {k: v for k, v in extra.items() if not hasattr(v, "shape")},
        "made_by": made_by(),
    }
    return arrays, metadata


def case(name, cls, config, *inputs, training=False, call=None, keep_weights=False, prepare=None, more=None):
    random = rng(name)
    inputs = [normal(random, *x) if isinstance(x, tuple) else x for x in inputs]
    keras.utils.set_random_seed(1)
    layer = cls(**config)
    if prepare:
        prepare(layer)
    arrays, metadata = run(name, layer, config, inputs, training, call or {}, random, keep_weights)
    save(f"layers/{name}.safetensors", arrays | (more or {}), **metadata)


def ints(name, high, *shape):
    return rng(name + ":ints").integers(0, high, shape).astype(np.int32)


def dense():
    for activation in ACTIVATIONS:
        case(f"dense_{activation}", L.Dense, {"units": 5, "activation": activation}, (7, 6))
    case("dense_batch1", L.Dense, {"units": 3}, (1, 4))
    case("dense_one_unit", L.Dense, {"units": 1}, (5, 1))
    case("dense_no_bias", L.Dense, {"units": 4, "use_bias": False}, (3, 5))
    case("dense_rank3", L.Dense, {"units": 4, "activation": "relu"}, (2, 3, 5))
    case("dense_wide", L.Dense, {"units": 67, "activation": "tanh"}, (33, 45))


def convolution():
    c1, c2, dw = L.Conv1D, L.Conv2D, L.DepthwiseConv2D
    case("conv1d_valid", c1, {"filters": 5, "kernel_size": 3}, (2, 9, 4))
    case("conv1d_same_stride2", c1, {"filters": 4, "kernel_size": 4, "strides": 2, "padding": "same"}, (3, 11, 3))
    case("conv1d_dilation2", c1, {"filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "same"}, (2, 10, 2))
    case("conv1d_causal", c1, {"filters": 3, "kernel_size": 3, "padding": "causal", "dilation_rate": 2}, (2, 8, 2))
    case("conv1d_groups2", c1, {"filters": 6, "kernel_size": 3, "groups": 2}, (2, 8, 4))
    case("conv1d_batch1_length1", c1, {"filters": 2, "kernel_size": 1, "activation": "relu"}, (1, 1, 3))
    case("conv2d_valid_relu", c2, {"filters": 8, "kernel_size": 3, "activation": "relu"}, (2, 8, 8, 1))
    case("conv2d_same", c2, {"filters": 4, "kernel_size": 3, "padding": "same"}, (2, 7, 5, 3))
    case("conv2d_same_even_kernel", c2, {"filters": 4, "kernel_size": [2, 4], "padding": "same"}, (2, 6, 7, 2))
    case("conv2d_valid_stride2", c2, {"filters": 5, "kernel_size": 3, "strides": 2}, (2, 9, 8, 3))
    case("conv2d_same_stride2", c2, {"filters": 5, "kernel_size": 3, "strides": 2, "padding": "same"}, (2, 8, 9, 3))
    case("conv2d_stride_2_1", c2, {"filters": 3, "kernel_size": [3, 2], "strides": [2, 1], "padding": "same"}, (2, 7, 6, 2))
    case("conv2d_kernel_below_stride", c2, {"filters": 3, "kernel_size": 1, "strides": 2, "padding": "same"}, (2, 5, 6, 4))
    case("conv2d_dilation2", c2, {"filters": 4, "kernel_size": 3, "dilation_rate": 2}, (2, 9, 8, 2))
    case("conv2d_dilation_3_2_same", c2, {"filters": 4, "kernel_size": 3, "dilation_rate": [3, 2], "padding": "same"}, (2, 9, 8, 2))
    case("conv2d_groups2", c2, {"filters": 6, "kernel_size": 3, "groups": 2, "padding": "same"}, (2, 6, 5, 4))
    case("conv2d_groups3_stride2", c2, {"filters": 6, "kernel_size": 3, "groups": 3, "strides": 2}, (2, 7, 7, 3))
    case("conv2d_1x1_image", c2, {"filters": 4, "kernel_size": 3, "padding": "same"}, (2, 1, 1, 3))
    case("conv2d_batch1_1x1", c2, {"filters": 5, "kernel_size": 1, "use_bias": False}, (1, 1, 1, 3))
    case("conv2d_16_channels", c2, {"filters": 16, "kernel_size": 3, "padding": "same", "activation": "relu"}, (3, 5, 6, 16))
    case("conv2d_uneven_channels", c2, {"filters": 19, "kernel_size": 3, "activation": "tanh"}, (1, 5, 4, 17))
    case("depthwise_valid", dw, {"kernel_size": 3}, (2, 7, 6, 3))
    case("depthwise_same_stride2", dw, {"kernel_size": 3, "strides": 2, "padding": "same"}, (2, 8, 7, 4))
    case("depthwise_multiplier2", dw, {"kernel_size": 3, "depth_multiplier": 2, "activation": "relu"}, (2, 6, 5, 3))
    case("depthwise_dilation2", dw, {"kernel_size": 3, "dilation_rate": 2, "padding": "same"}, (2, 7, 7, 2))
    case("depthwise_1x1_image", dw, {"kernel_size": 3, "padding": "same", "use_bias": False}, (1, 1, 1, 3))


def pooling_and_shape():
    for kind, cls in (("max", L.MaxPooling2D), ("average", L.AveragePooling2D)):
        case(f"{kind}_pooling_2x2", cls, {"pool_size": 2}, (2, 6, 8, 3))
        case(f"{kind}_pooling_uneven_valid", cls, {"pool_size": 2}, (2, 7, 5, 3))
        case(f"{kind}_pooling_uneven_same", cls, {"pool_size": 2, "padding": "same"}, (2, 7, 5, 3))
        case(f"{kind}_pooling_3x3_stride2_same", cls, {"pool_size": 3, "strides": 2, "padding": "same"}, (2, 8, 7, 4))
        case(f"{kind}_pooling_3x2_stride1", cls, {"pool_size": [3, 2], "strides": 1}, (1, 6, 5, 2))
        case(f"{kind}_pooling_1x1_image_same", cls, {"pool_size": 2, "padding": "same"}, (1, 1, 1, 3))
    case("max_pooling_negative_same", L.MaxPooling2D, {"pool_size": 3, "strides": 2, "padding": "same"},
         -np.abs(normal(rng("negative"), 2, 5, 5, 2)) - 1)  # padding must not win with its zeros
    case("global_average_pooling1d", L.GlobalAveragePooling1D, {}, (3, 7, 4))
    case("global_average_pooling1d_length1", L.GlobalAveragePooling1D, {}, (1, 1, 4))
    case("global_average_pooling2d", L.GlobalAveragePooling2D, {}, (3, 5, 4, 6))
    case("global_average_pooling2d_keepdims", L.GlobalAveragePooling2D, {"keepdims": True}, (2, 3, 5, 4))
    case("global_average_pooling2d_1x1", L.GlobalAveragePooling2D, {}, (1, 1, 1, 3))
    case("flatten", L.Flatten, {}, (2, 3, 4, 5))
    case("flatten_scalars", L.Flatten, {}, (5,))
    case("reshape", L.Reshape, {"target_shape": [6, 2]}, (3, 3, 4))
    case("reshape_infer", L.Reshape, {"target_shape": [2, -1, 3]}, (2, 4, 6))
    case("rescaling", L.Rescaling, {"scale": 1 / 127.5, "offset": -1.0}, (2, 3, 4))
    pixels = rng("pixels").integers(0, 256, (2, 4, 4, 1)).astype(np.uint8)
    case("rescaling_uint8", L.Rescaling, {"scale": 1 / 255}, pixels)
    case("dropout_inference", L.Dropout, {"rate": 0.5}, (4, 6))
    case("dropout_zero_training", L.Dropout, {"rate": 0.0}, (4, 6), training=True)
    case("activation_relu", L.Activation, {"activation": "relu"}, (4, 6))
    case("add", L.Add, {}, (2, 3, 4), (2, 3, 4))
    case("add_three", L.Add, {}, (2, 5), (2, 5), (2, 5))
    case("add_broadcast", L.Add, {}, (2, 3, 4), (2, 1, 4))
    case("concatenate", L.Concatenate, {}, (2, 3, 4), (2, 3, 2), (2, 3, 1))
    case("concatenate_axis1", L.Concatenate, {"axis": 1}, (2, 3, 4), (2, 5, 4))
    random = rng("embedding ids")
    case("embedding", L.Embedding, {"input_dim": 11, "output_dim": 5}, ints("embedding", 11, 3, 6))
    case("embedding_repeated_id", L.Embedding, {"input_dim": 7, "output_dim": 3}, np.full((2, 4), 6, np.int32))
    case("embedding_rank1", L.Embedding, {"input_dim": 9, "output_dim": 4}, random.integers(0, 9, 5).astype(np.int64))


def normalization():
    bn, ln = L.BatchNormalization, L.LayerNormalization
    for training in (False, True):
        mode = "training" if training else "inference"
        case(f"batch_normalization_2d_{mode}", bn, {}, (6, 5), training=training)
        case(f"batch_normalization_4d_{mode}", bn, {}, (3, 4, 5, 6), training=training)
        case(f"batch_normalization_3d_{mode}", bn, {"momentum": 0.9, "epsilon": 1e-5}, (3, 4, 5), training=training)
        case(f"batch_normalization_plain_{mode}", bn, {"center": False, "scale": False}, (4, 3, 3, 2), training=training)
        case(f"batch_normalization_one_{mode}", bn, {}, (1, 1, 1, 4), training=training)
    case("batch_normalization_offset_training", bn, {}, normal(rng("bn offset"), 8, 4) + 100, training=True)
    case("layer_normalization_2d", ln, {}, (5, 7))
    case("layer_normalization_3d", ln, {"epsilon": 1e-6}, (2, 5, 16))
    case("layer_normalization_plain", ln, {"center": False, "scale": False}, (3, 6))
    case("layer_normalization_width1", ln, {}, (3, 1))
    data = normal(rng("adapt"), 40, 4) * np.array([1, 10, 0.1, 5], np.float32) + np.array([0, -3, 7, 100], np.float32)
    case("normalization_adapt", L.Normalization, {}, data[:6], prepare=lambda x: x.adapt(data), keep_weights=True,
         more={"adapt": data})
    images = normal(rng("adapt images"), 8, 3, 4, 2) * 3 + 1
    case("normalization_adapt_images", L.Normalization, {}, images[:2], prepare=lambda x: x.adapt(images),
         keep_weights=True, more={"adapt": images})
    constant = np.stack([np.full(10, 2.0), np.arange(10.0)], 1).astype(np.float32)  # variance 0 in one column
    case("normalization_adapt_constant", L.Normalization, {}, constant[:3], prepare=lambda x: x.adapt(constant),
         keep_weights=True, more={"adapt": constant})


def recurrent():
    for kind, cls in (("lstm", L.LSTM), ("gru", L.GRU)):
        case(f"{kind}_last", cls, {"units": 5}, (3, 6, 4))
        case(f"{kind}_sequences", cls, {"units": 4, "return_sequences": True}, (2, 5, 3))
        case(f"{kind}_state", cls, {"units": 4, "return_sequences": True, "return_state": True}, (2, 5, 3))
        case(f"{kind}_batch1_length1", cls, {"units": 3}, (1, 1, 2))
        case(f"{kind}_no_bias", cls, {"units": 3, "use_bias": False}, (2, 4, 3))
        case(f"{kind}_backwards", cls, {"units": 3, "go_backwards": True, "return_sequences": True}, (2, 4, 3))
    case("lstm_initial_state", L.LSTM, {"units": 4}, (2, 5, 3), (2, 4), (2, 4), call={"_inputs": "state"})
    case("gru_initial_state", L.GRU, {"units": 4}, (2, 5, 3), (2, 4), call={"_inputs": "state"})
    case("gru_reset_before", L.GRU, {"units": 3, "reset_after": False}, (2, 4, 3))


def attention():
    mha = L.MultiHeadAttention
    case("attention_self", mha, {"num_heads": 2, "key_dim": 4}, (2, 5, 8), call={"_inputs": "self"})
    case("attention_causal", mha, {"num_heads": 4, "key_dim": 2}, (2, 6, 8), call={"_inputs": "self", "use_causal_mask": True})
    case("attention_cross", mha, {"num_heads": 2, "key_dim": 3}, (2, 4, 6), (2, 7, 5), call={"_inputs": "separate"})
    case("attention_value_dim", mha, {"num_heads": 2, "key_dim": 3, "value_dim": 5, "output_shape": 7}, (2, 4, 6), (2, 4, 6),
         (2, 4, 6), call={"_inputs": "separate"})
    case("attention_no_bias", mha, {"num_heads": 2, "key_dim": 4, "use_bias": False}, (1, 3, 8), call={"_inputs": "self"})
    case("attention_batch1_length1", mha, {"num_heads": 1, "key_dim": 2}, (1, 1, 2), call={"_inputs": "self"})
    mask = rng("attention mask").random((2, 5, 5)) < 0.6
    mask |= np.eye(5, dtype=bool)
    case("attention_mask", mha, {"num_heads": 2, "key_dim": 4}, (2, 5, 8), call={"_inputs": "self", "attention_mask": mask},
         more={"attention_mask": mask})


def regularizers():
    """A layer's penalty: key loss, with the gradients of penalty + sum(output * upstream)."""
    options = {
        "l1": {"kernel_regularizer": keras.regularizers.L1(0.02)},
        "l2": {"kernel_regularizer": keras.regularizers.L2(0.03)},
        "l1_l2_bias": {"kernel_regularizer": keras.regularizers.L1L2(0.01, 0.02), "bias_regularizer": keras.regularizers.L2(0.05)},
        "activity_l2": {"activity_regularizer": keras.regularizers.L2(0.04)},
        "activity_l1": {"activity_regularizer": keras.regularizers.L1(0.04)},
    }
    for name, config in options.items():
        random = rng("regularizer_" + name)
        x = tf.constant(normal(random, 4, 6))
        layer = L.Dense(3, **config)
        layer(x)
        fill_weights(layer, random)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = layer(x)
            upstream = normal(random, *y.shape)
            penalty = tf.add_n(layer.losses)
            target = penalty + tf.reduce_sum(y * upstream)
        arrays = {"input.0": x.numpy(), "output.0": y.numpy(), "upstream.0": upstream, "loss": penalty.numpy()}
        arrays["grad.input.0"] = tape.gradient(target, x).numpy()
        for i, weight in enumerate(layer.weights):
            arrays[f"weight.{i}"] = weight.numpy()
            arrays[f"grad.weight.{i}"] = tape.gradient(target, weight.value).numpy()
        described = {k: {"class": type(v).__name__, "config": v.get_config()} for k, v in config.items()}
        save(f"layers/regularizer_{name}.safetensors", arrays, layer="Dense", config={"units": 3} | described,
             weight_names=["kernel", "bias"], trainable=[True, True], training="0", call={"inputs": "one"}, made_by=made_by())


def activations():
    """Each function alone, at points with the awkward ones among them: activations/NAME.safetensors."""
    points = np.array([0.0, -0.0, 1e-6, -1e-6, 0.5, -0.5, 1, -1, 3, -3, 10, -10, 20, -20, 50, -50, 88, -88, 104, -104], np.float32)
    for name in ACTIVATIONS + ["gelu_approximate"]:
        random = rng("activation " + name)
        x = np.concatenate([points, normal(random, 44, scale=3)]).reshape(8, 8)
        if "softmax" in name:
            x = np.concatenate([normal(random, 6, 8, scale=4), np.full((1, 8), 3.0, np.float32),
                                np.array([[500, -500, 499, 0, 1, 2, 3, 4]], np.float32)])
        tensor = tf.constant(x)
        function = getattr(keras.activations, name.replace("_approximate", ""))
        options = {"approximate": True} if name == "gelu_approximate" else {}
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            y = function(tensor, **options)
            upstream = normal(random, *y.shape)
            target = tf.reduce_sum(y * upstream)
        save(f"activations/{name}.safetensors", {"input": x, "output": y.numpy(), "upstream": upstream,
             "grad.input": tape.gradient(target, tensor).numpy()}, activation=name, made_by=made_by())


if __name__ == "__main__":
    for group in (dense, convolution, pooling_and_shape, normalization, recurrent, attention, regularizers, activations):
        group()
        print(group.__name__)
