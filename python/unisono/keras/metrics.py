"""Metrics, with Keras's names and formulas, computed by the engine. Inside of strategy.run each replica counts for itself and the counts are added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono import _engine
from unisono.extend import Refused, check, safe_text, strict_module
from unisono.keras._arguments import Configured, check_float32, named_arguments
from unisono.keras._tensor import Tensor, as_numbers, as_one_sample, context, raw_of, tape_for

__all__ = ["Metric", "Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy", "TopKCategoricalAccuracy",
           "SparseTopKCategoricalAccuracy", "Precision", "Recall", "F1Score", "FBetaScore", "AUC", "MeanSquaredError", "MeanAbsoluteError",
           "RootMeanSquaredError", "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy", "KLDivergence", "Hinge",
           "Mean", "Sum"]


_counts: dict = {}  # of the names that Keras counts


def _counted(name):
    """precision, precision_1 ... as Keras names metrics that have no name of their own."""
    _counts[name] = _counts.get(name, -1) + 1
    return "%s_%d" % (name, _counts[name]) if _counts[name] else name


def clear_names() -> None:
    """Begins to count the names anew."""
    _counts.clear()


# Metrics that look at all classes of a sample. Of the others, predictions of shape (n,) are n samples as well as one.
_OF_CLASSES = ("KLDivergence", "CategoricalCrossentropy", "CategoricalAccuracy", "SparseCategoricalCrossentropy", "SparseCategoricalAccuracy")
_OF_TWO_AXES = ("TopKCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "F1Score", "FBetaScore")


class Metric(Configured):
    """Base of the metrics: update_state, result, reset_state."""

    _class = None

    def __init__(self, name: str | None = None, dtype: Any = None, **config: Any):
        check_float32(type(self).__name__, dtype)
        if self._class is None:
            check("unisono.keras.Metric", config, ["name", "dtype"])
        if name is None and self._class in ("Precision", "Recall", "AUC"):
            name = _counted(self._class.lower())
        self._config = {key: value for key, value in config.items() if value is not None}
        if name is not None:
            self._config["name"] = name
        self._arguments = config
        if self._class is None:
            raise NotImplementedError("a metric of one's own is a function(y_true, y_pred) with one value a sample, given to compile")
        self._native = self._make()
        self.name = name or self._native.name

    def _make(self):
        return _engine.Metric(self._class, self._config)

    def update_state(self, y_true: Any, y_pred: Any = None, sample_weight: Any = None) -> None:
        """Counts a batch."""
        if context().tracing:
            return  # zeros that a call() is tried with
        y_true, y_pred = as_numbers(y_true), as_numbers(y_pred)
        if self._class in _OF_TWO_AXES and len(y_pred.shape) == 1:
            raise ValueError("%s needs predictions of shape (batch, classes), not %s" % (self._class, tuple(y_pred.shape)))
        one = as_one_sample(y_true, y_pred) if self._class in _OF_CLASSES else None
        if one is not None and np.size(1 if sample_weight is None else sample_weight) > 1:
            raise ValueError("%s: predictions of shape %s are one sample and have one weight, not %d" % (self._class, tuple(y_pred.shape), np.size(sample_weight)))
        target, prediction = (raw_of(each) for each in one or (y_true, y_pred))
        weights = None if sample_weight is None else raw_of(as_numbers(sample_weight))
        replica = context().replica
        tape = tape_for()
        if replica is not None:
            replica.update_metric(self._native, tape, target, prediction, weights)
        else:
            self._native.update(tape, target, prediction, weights)

    def result(self) -> Tensor:
        """What was counted so far."""
        from unisono.tf import distribute

        values = distribute.metric_values(self._native)
        return Tensor.of(np.asarray(values, np.float32) if self._is_vector() else np.float32(values[0]))

    def _is_vector(self):
        """Whether Keras gives one result a class or a threshold."""
        if self._class in ("F1Score", "FBetaScore"):
            return self._config.get("average") is None
        return self._class in ("Precision", "Recall") and isinstance(self._config.get("thresholds"), (list, tuple)) and len(self._config["thresholds"]) > 1

    def reset_state(self) -> None:
        """Begins anew."""
        self._native.reset()

    reset_states = reset_state

    def __call__(self, *arguments, **keywords) -> Tensor:
        self.update_state(*arguments, **keywords)
        return self.result()

    @property
    def variables(self) -> list:
        """None: its numbers are the engine's."""
        return [np.asarray(self._native.state())]

    def merge_state(self, metrics: Any) -> None:
        """Adds the numbers of other metrics of this kind."""
        for metric in metrics:
            self._native.merge(metric._native)

    def get_config(self) -> dict:
        """Its arguments."""
        return dict(self._arguments, name=self.name)

    def __repr__(self):
        return "<%s name=%s>" % (type(self).__name__, safe_text(self.name))

    def __reduce__(self):
        return (_rebuild, (type(self), self.get_config(), self._native.state()))


def _rebuild(cls, config, state):
    metric = cls(**config)
    if state:
        metric._native.set_state(state)
    return metric


def _make(name, doc, refused=None, **defaults):
    def __init__(self, *arguments, **given):
        given = named_arguments("unisono.keras.metrics." + name, defaults, arguments, given, (), refused)
        Metric.__init__(self, given.get("name"), **{key: given.get(key, default) for key, default in defaults.items()})
    return type(name, (Metric,), {"__init__": __init__, "__doc__": doc, "_class": name, "__module__": __name__})


BinaryAccuracy = _make("BinaryAccuracy", "How often y_pred > threshold is y_true.", threshold=0.5)
CategoricalAccuracy = _make("CategoricalAccuracy", "How often the largest column is that of the one-hot target.")
SparseCategoricalAccuracy = _make("SparseCategoricalAccuracy", "How often the largest column is the target's class number.")
TopKCategoricalAccuracy = _make("TopKCategoricalAccuracy", "How often the target is among the k largest.", k=5)
SparseTopKCategoricalAccuracy = _make("SparseTopKCategoricalAccuracy", "The same for class numbers.", k=5)
Precision = _make("Precision", "True positives of all that were called positive.", thresholds=None, top_k=None, class_id=None)
Recall = _make("Recall", "True positives of all that are positive.", thresholds=None, top_k=None, class_id=None)
F1Score = _make("F1Score", "The harmonic mean of precision and recall.", average=None, threshold=None)
FBetaScore = _make("FBetaScore", "Precision and recall, weighted by beta.", average=None, beta=1.0, threshold=None)
AUC = _make("AUC", "The area under the ROC (or PR) curve.", {
    "thresholds": Refused(None, "give num_thresholds"), "multi_label": Refused(False, "make one AUC a label"), "num_labels": Refused(None, "make one AUC a label"),
    "label_weights": Refused(None, "make one AUC a label")}, num_thresholds=200, curve="ROC", summation_method="interpolation", from_logits=False)
MeanSquaredError = _make("MeanSquaredError", "The mean of the squared errors.")
MeanAbsoluteError = _make("MeanAbsoluteError", "The mean of the absolute errors.")
RootMeanSquaredError = _make("RootMeanSquaredError", "The root of the mean of the squared errors.")
_AXIS = {"axis": Refused(-1, "classes are on the last axis")}
BinaryCrossentropy = _make("BinaryCrossentropy", "The mean cross-entropy of two classes.", from_logits=False, label_smoothing=0.0)
CategoricalCrossentropy = _make("CategoricalCrossentropy", "The mean cross-entropy, one-hot targets.", _AXIS, from_logits=False, label_smoothing=0.0)
SparseCategoricalCrossentropy = _make("SparseCategoricalCrossentropy", "The mean cross-entropy, class numbers.", {
    "ignore_class": Refused(None, "give those samples the weight 0"), **_AXIS}, from_logits=False)
KLDivergence = _make("KLDivergence", "The mean divergence.")
Hinge = _make("Hinge", "The mean hinge loss.")


Accuracy = _make("Accuracy", "How often predictions equal targets. The name \"accuracy\" in compile is binary, categorical or sparse by the shapes.")


class Mean(Metric):
    """The weighted mean of the numbers it is given."""

    _class = "mean"

    def __init__(self, name: str = "mean", dtype: Any = None):
        super().__init__(name, dtype)

    def _make(self):
        return _engine.Metric(self._class)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Adds values, each with its weight."""
        if context().tracing:
            return  # zeros that a call() is tried with
        values = np.asarray(values, np.float64)
        weights = np.ones(values.shape[:1]) if sample_weight is None else np.asarray(sample_weight, np.float64)
        axes = tuple(range(weights.ndim, values.ndim))  # a weight stands for all that it is the weight of, as in Keras
        if axes:
            values = values.mean(axis=axes) if type(self) is Mean else values.sum(axis=axes)
        values, weights = values.reshape(-1), np.broadcast_to(weights, values.shape).reshape(-1)
        if type(self) is Mean and weights.sum() > 0:
            self._native.update_value(float(np.average(values, weights=weights)), float(weights.sum()))
        elif type(self) is not Mean:
            self._native.update_value(float((values * weights).sum()), 1.0)


class Sum(Mean):
    """The weighted sum of the numbers it is given."""

    _class = "sum"

    def __init__(self, name: str = "sum", dtype: Any = None):
        super().__init__(name, dtype)


def native(value: Any) -> Any:
    """An engine's metric for compile from a name, a Metric or a function(y_true, y_pred)."""
    if isinstance(value, str):
        if value in ("accuracy", "acc"):
            return _engine.Metric(value)
        return _engine.Metric(_engine.Metric(value).name, {"name": value})  # called as it was asked for, as Keras does
    if isinstance(value, Metric):
        if value._is_vector():
            raise NotImplementedError("%s has one result a class or threshold, and the logs of fit have one number a metric: give average= (or one threshold), "
                                      "or update it outside of compile" % safe_text(value.name))
        return value._make()
    if callable(value):
        def count(y_true, y_pred, weights):
            each = np.asarray(value(Tensor(y_true), Tensor(y_pred)), np.float64).reshape(-1)
            if weights is None:
                return float(each.sum()), float(each.size)
            share = np.asarray(Tensor(weights).numpy(), np.float64).reshape(-1)
            return float((each * share).sum()), float(share.sum())
        return _engine.Metric(getattr(value, "__name__", "metric"), count)
    raise TypeError("a metric is a name, a Metric or a function, not %s" % type(value).__name__)


strict_module(globals())
