"""Stores what Keras losses compute: losses/CASE.safetensors, one file per case.

Keys: y_true, y_pred, and for each reduction R of none, sum, sum_over_batch_size: loss.R and grad.R (with respect
to y_pred; for none it is the gradient of sum(loss * upstream)). With sample weights: sample_weight, weighted.loss.R,
weighted.grad.R. Metadata: loss (Keras's class name), config (the constructor's arguments), made_by.
class_weight_CASE.safetensors: one train_on_batch with class_weight: x, y, kernel, bias, class_weight (by class), loss,
after.kernel, after.bias (SGD, learning rate 0.1).
"""

import numpy as np

from common import made_by, normal, rng, save

import keras
import tensorflow as tf

REDUCTIONS = ["none", "sum", "sum_over_batch_size"]


def evaluate(cls, config, y_true, y_pred, weight, upstream):
    arrays, prefix = {}, "" if weight is None else "weighted."
    for reduction in REDUCTIONS:
        loss_function = cls(reduction=None if reduction == "none" else reduction, **config)
        prediction = tf.constant(y_pred)
        with tf.GradientTape() as tape:
            tape.watch(prediction)
            loss = loss_function(y_true, prediction, sample_weight=weight)
            target = tf.reduce_sum(loss * upstream) if reduction == "none" else loss
        arrays[f"{prefix}loss.{reduction}"] = loss.numpy()
        arrays[f"{prefix}grad.{reduction}"] = tape.gradient(target, prediction).numpy()
    return arrays


def case(name, cls, config, y_true, y_pred, weight=None):
    y_pred = np.asarray(y_pred, np.float32)
    shape = cls(reduction=None, **config)(y_true, y_pred).shape
    upstream = normal(rng(name + ":upstream"), *shape)
    arrays = {"y_true": y_true, "y_pred": y_pred, "upstream": upstream}
    arrays |= evaluate(cls, config, y_true, y_pred, None, upstream)
    if weight is not None:
        arrays["sample_weight"] = weight
        arrays |= evaluate(cls, config, y_true, y_pred, weight, upstream)
    save(f"losses/{name}.safetensors", arrays, loss=cls.__name__, config=config, made_by=made_by())


def probabilities(random, *shape):
    x = np.exp(normal(random, *shape))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)


def weights(random, *shape):
    """With a zero among them: such a sample counts in the divisor all the same."""
    w = random.uniform(0.1, 3.0, shape).astype(np.float32)
    w.flat[0] = 0
    return w


def regression():
    for name, cls, config in (("mse", keras.losses.MeanSquaredError, {}), ("mae", keras.losses.MeanAbsoluteError, {}),
                              ("huber", keras.losses.Huber, {}), ("huber_delta", keras.losses.Huber, {"delta": 2.5})):
        r = rng("loss " + name)
        case(name, cls, config, normal(r, 6, 3, scale=2), normal(r, 6, 3, scale=2), weights(r, 6))
        case(name + "_column", cls, config, normal(r, 5, 1), normal(r, 5, 1), weights(r, 5))
        case(name + "_batch1", cls, config, normal(r, 1, 4), normal(r, 1, 4))
        case(name + "_images", cls, config, normal(r, 2, 4, 5, 3), normal(r, 2, 4, 5, 3), weights(r, 2, 4, 5))
        case(name + "_batch_h_w", cls, config, normal(r, 3, 4, 5), normal(r, 3, 4, 5), weights(r, 3, 1))
    y = np.array([[1.0, 2.0, 3.0]], np.float32)
    case("mae_exact", keras.losses.MeanAbsoluteError, {}, y, y)  # the gradient at 0 is 0
    case("huber_at_delta", keras.losses.Huber, {}, np.zeros((1, 4), np.float32), [[1.0, -1.0, 1.5, 0.0]])


def binary():
    cls, r = keras.losses.BinaryCrossentropy, rng("binary")
    labels = r.integers(0, 2, (8, 1)).astype(np.float32)
    case("bce_logits", cls, {"from_logits": True}, labels, normal(r, 8, 1, scale=3), weights(r, 8))
    case("bce_probabilities", cls, {}, labels, r.uniform(0.01, 0.99, (8, 1)), weights(r, 8))
    extreme = np.array([[0, 0, 1, 1, 0, 1]], np.float32).T
    case("bce_logits_extreme", cls, {"from_logits": True}, extreme, np.array([[-100, 100, 100, -100, 0, 0]]).T)
    case("bce_probabilities_extreme", cls, {}, extreme, np.array([[0, 1, 1, 0, 0.5, 0.5]]).T)
    many = r.integers(0, 2, (4, 5)).astype(np.float32)
    case("bce_logits_many", cls, {"from_logits": True}, many, normal(r, 4, 5), weights(r, 4))
    case("bce_logits_soft_labels", cls, {"from_logits": True}, r.random((4, 3)).astype(np.float32), normal(r, 4, 3))
    case("bce_logits_batch1", cls, {"from_logits": True}, np.ones((1, 1), np.float32), normal(r, 1, 1))
    mask = r.integers(0, 2, (2, 4, 5, 1)).astype(np.float32)
    case("bce_logits_segmentation", cls, {"from_logits": True}, mask, normal(r, 2, 4, 5, 1), weights(r, 2, 4, 5))


def categorical():
    many, sparse, r = keras.losses.CategoricalCrossentropy, keras.losses.SparseCategoricalCrossentropy, rng("categorical")
    ids = r.integers(0, 5, 7).astype(np.int32)
    hot, logits, p = np.eye(5, dtype=np.float32)[ids], normal(r, 7, 5, scale=2), probabilities(r, 7, 5)
    w = weights(r, 7)
    case("cce_logits", many, {"from_logits": True}, hot, logits, w)
    case("cce_probabilities", many, {}, hot, p, w)
    case("cce_soft_labels_logits", many, {"from_logits": True}, probabilities(r, 7, 5), logits, w)
    case("cce_not_normalised", many, {}, hot, p * 3, w)  # Keras divides by the sum
    case("sparse_logits", sparse, {"from_logits": True}, ids, logits, w)
    case("sparse_probabilities", sparse, {}, ids, p, w)
    case("sparse_logits_column", sparse, {"from_logits": True}, ids[:, None], logits, w)
    case("sparse_logits_int64", sparse, {"from_logits": True}, ids.astype(np.int64), logits)
    case("sparse_logits_batch1", sparse, {"from_logits": True}, ids[:1], logits[:1])
    case("sparse_logits_one_class", sparse, {"from_logits": True}, np.zeros(3, np.int32), normal(r, 3, 1))
    big = np.array([[100, -100, 0], [100, -100, 0], [0, 0, 0]], np.float32)
    case("sparse_logits_extreme", sparse, {"from_logits": True}, np.array([0, 1, 2], np.int32), big)
    edge = np.array([[1, 0, 0], [1, 0, 0], [0.2, 0.3, 0.5]], np.float32)
    case("sparse_probabilities_extreme", sparse, {}, np.array([0, 1, 2], np.int32), edge)
    case("cce_probabilities_extreme", many, {}, np.eye(3, dtype=np.float32), edge)
    pixels = r.integers(0, 3, (2, 4, 5)).astype(np.int32)
    case("sparse_logits_segmentation", sparse, {"from_logits": True}, pixels, normal(r, 2, 4, 5, 3), weights(r, 2, 4, 5))
    case("sparse_logits_segmentation_per_image", sparse, {"from_logits": True}, pixels, normal(r, 2, 4, 5, 3),
         weights(r, 2, 1, 1))
    hot_pixels = np.eye(3, dtype=np.float32)[pixels]
    case("cce_logits_segmentation", many, {"from_logits": True}, hot_pixels, normal(r, 2, 4, 5, 3), weights(r, 2, 4, 5))


def others():
    r = rng("others")
    sign = r.choice([-1.0, 1.0], (6, 2)).astype(np.float32)
    case("hinge", keras.losses.Hinge, {}, sign, normal(r, 6, 2, scale=2), weights(r, 6))
    case("hinge_zero_one", keras.losses.Hinge, {}, (sign + 1) / 2, normal(r, 6, 2, scale=2), weights(r, 6))
    case("kl", keras.losses.KLDivergence, {}, probabilities(r, 6, 4), probabilities(r, 6, 4), weights(r, 6))
    edge = np.array([[0, 1, 0], [0.5, 0.5, 0]], np.float32)
    case("kl_zeros", keras.losses.KLDivergence, {}, edge, np.array([[0.2, 0.8, 0], [0, 1, 0]], np.float32))


def class_weights():
    r = rng("class weights")
    x = normal(r, 8, 4)
    for name, units, loss, y, classes in (
        ("sparse", 3, keras.losses.SparseCategoricalCrossentropy(from_logits=True), r.integers(0, 3, 8).astype(np.int32), 3),
        ("cce", 3, keras.losses.CategoricalCrossentropy(from_logits=True), np.eye(3, dtype=np.float32)[r.integers(0, 3, 8)], 3),
        ("bce", 1, keras.losses.BinaryCrossentropy(from_logits=True), r.integers(0, 2, (8, 1)).astype(np.float32), 2),
    ):
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(units)])
        model.set_weights([normal(r, 4, units), normal(r, units)])
        kernel, bias = model.get_weights()
        model.compile(keras.optimizers.SGD(0.1), loss)
        table = np.array([0.5, 2.0, 3.0][:classes], np.float32)
        value = model.train_on_batch(x, y, class_weight=dict(enumerate(table.tolist())))
        after = model.get_weights()
        save(f"losses/class_weight_{name}.safetensors", {"x": x, "y": y, "kernel": kernel, "bias": bias, "class_weight": table,
             "loss": np.float32(value), "after.kernel": after[0], "after.bias": after[1]}, loss=type(loss).__name__,
             config={"from_logits": True}, made_by=made_by())


if __name__ == "__main__":
    for group in (regression, binary, categorical, others, class_weights):
        group()
        print(group.__name__)
