"""Stores what Keras metrics give over several batches: metrics/CASE.safetensors, one file per case.

Keys, N from 0: y_true.N, y_pred.N (Mean: values.N), sample_weight.N where the case has weights, result.N (the metric's
result after batch N, everything since the reset), state.N.I (its variables then). Metadata: metric (Keras's class
name), config (the constructor's arguments), batches, made_by. confusion_matrix comes from tf.math.confusion_matrix,
summed over the batches. The last batch is smaller than the others.
"""

import numpy as np

from common import made_by, normal, rng, save

import keras
import tensorflow as tf

M = keras.metrics
SIZES = (16, 16, 9)


def case(name, cls, config, truth, prediction, weighted=False):
    random, arrays, metric = rng("metric 2 " + name), {}, cls(**config)
    for n, size in enumerate(SIZES):
        weight = random.uniform(0, 2, size).astype(np.float32) if weighted else None
        y_pred = prediction(random, size)
        if truth is None:
            metric.update_state(y_pred, sample_weight=weight)
            arrays[f"values.{n}"] = y_pred
        else:
            y_true = truth(random, size)
            metric.update_state(y_true, y_pred, sample_weight=weight)
            arrays |= {f"y_true.{n}": y_true, f"y_pred.{n}": y_pred}
        if weighted:
            arrays[f"sample_weight.{n}"] = weight
        arrays[f"result.{n}"] = np.asarray(metric.result(), np.float32)
        arrays |= {f"state.{n}.{i}": v.numpy().astype(np.float32) for i, v in enumerate(metric.variables)}
    save(f"metrics/{name}.safetensors", arrays, metric=cls.__name__, config=config, batches=str(len(SIZES)), made_by=made_by())


def binary_labels(random, size):
    return random.integers(0, 2, (size, 1)).astype(np.float32)


def binary_scores(random, size):
    """A coarse grid, so that scores tie with each other and with the threshold 0.5."""
    return (random.integers(0, 21, (size, 1)) / 20).astype(np.float32)


def class_ids(random, size):
    return random.integers(0, 4, size).astype(np.int32)


def class_columns(random, size):
    return random.integers(0, 4, (size, 1)).astype(np.int32)


def class_scores(random, size):
    return normal(random, size, 4)


def one_hot(random, size):
    return np.eye(4, dtype=np.float32)[random.integers(0, 4, size)]


def many_labels(random, size):
    return random.integers(0, 2, (size, 4)).astype(np.float32)


def many_scores(random, size):
    return random.random((size, 4)).astype(np.float32)


def class_probabilities(random, size):
    x = np.exp(normal(random, size, 4))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)


def real(random, size):
    return normal(random, size, 3)


def both(name, *arguments):
    case(name, *arguments)
    case(name + "_weighted", *arguments, weighted=True)


def confusion_matrix():
    random, total, arrays = rng("confusion"), np.zeros((4, 4), np.float32), {}
    for n, size in enumerate(SIZES):
        y_true, y_pred = class_ids(random, size), class_ids(random, size)
        total = total + tf.math.confusion_matrix(y_true, y_pred, num_classes=4, dtype=tf.float32).numpy()
        arrays |= {f"y_true.{n}": y_true, f"y_pred.{n}": y_pred, f"result.{n}": total}
    save("metrics/confusion_matrix.safetensors", arrays, metric="confusion_matrix", config={"num_classes": 4},
         batches=str(len(SIZES)), made_by=made_by())


if __name__ == "__main__":
    both("mean", M.Mean, {}, None, lambda random, size: normal(random, size))
    both("binary_accuracy", M.BinaryAccuracy, {}, binary_labels, binary_scores)
    both("binary_accuracy_many", M.BinaryAccuracy, {}, many_labels, many_scores)
    case("binary_accuracy_threshold", M.BinaryAccuracy, {"threshold": 0.3}, binary_labels, binary_scores)
    both("categorical_accuracy", M.CategoricalAccuracy, {}, one_hot, class_scores)
    both("sparse_categorical_accuracy", M.SparseCategoricalAccuracy, {}, class_ids, class_scores)
    case("sparse_categorical_accuracy_column", M.SparseCategoricalAccuracy, {}, class_columns, class_scores)
    both("top_k_categorical_accuracy", M.TopKCategoricalAccuracy, {"k": 2}, one_hot, class_scores)
    both("sparse_top_k_categorical_accuracy", M.SparseTopKCategoricalAccuracy, {"k": 2}, class_ids, class_scores)
    both("precision", M.Precision, {}, binary_labels, binary_scores)
    both("recall", M.Recall, {}, binary_labels, binary_scores)
    case("precision_thresholds", M.Precision, {"thresholds": [0.2, 0.5, 0.8]}, binary_labels, binary_scores)
    case("recall_class_id", M.Recall, {"class_id": 2, "thresholds": 0.25}, one_hot, class_probabilities)
    case("precision_top_k", M.Precision, {"top_k": 2}, one_hot, class_probabilities)
    for average in (None, "micro", "macro", "weighted"):
        case(f"fbeta_{average or 'per_class'}", M.FBetaScore, {"average": average, "beta": 2.0, "threshold": 0.5}, many_labels, many_scores)
    case("fbeta_argmax", M.FBetaScore, {"average": "macro", "beta": 0.5}, one_hot, class_probabilities)
    case("fbeta_weighted_samples", M.FBetaScore, {"average": "micro", "beta": 1.0, "threshold": 0.5}, many_labels, many_scores, weighted=True)
    both("auc", M.AUC, {}, binary_labels, binary_scores)
    case("auc_pr", M.AUC, {"curve": "PR"}, binary_labels, binary_scores)
    case("auc_logits", M.AUC, {"from_logits": True}, binary_labels, lambda random, size: normal(random, size, 1, scale=2))
    case("auc_majoring", M.AUC, {"summation_method": "majoring"}, binary_labels, binary_scores)
    case("auc_few_thresholds", M.AUC, {"num_thresholds": 5}, binary_labels, binary_scores)
    both("mse", M.MeanSquaredError, {}, real, real)
    both("mae", M.MeanAbsoluteError, {}, real, real)
    case("binary_crossentropy_metric", M.BinaryCrossentropy, {"from_logits": True}, binary_labels,
         lambda random, size: normal(random, size, 1))
    case("sparse_categorical_crossentropy_metric", M.SparseCategoricalCrossentropy, {"from_logits": True}, class_ids, class_scores)
    confusion_matrix()
