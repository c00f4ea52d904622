"""Losses, with Keras's names and formulas, computed by the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono import _engine
from unisono.extend import Refused, check, strict_module
from unisono.keras._arguments import Configured, check_float32, named_arguments
from unisono.keras._tensor import Tensor, as_array, as_numbers, as_one_sample, context, on_engine_tape, raw_of, reshaped, tape_for

__all__ = ["Loss", "Reduction", "MeanSquaredError", "MeanAbsoluteError", "Huber", "BinaryCrossentropy", "CategoricalCrossentropy",
           "SparseCategoricalCrossentropy", "Hinge", "SquaredHinge", "KLDivergence", "get"]


class Reduction:
    """How a loss is reduced over the samples of a batch."""

    AUTO = "auto"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"


_NUMBERS = {"auto": 0, None: 1, "none": 1, "sum": 2, "sum_over_batch_size": 3, "mean": 3}


def _reduction(value):
    if value not in _NUMBERS:
        raise ValueError("there is no reduction %r; there are none, sum, sum_over_batch_size and auto" % (value,))
    return value


class Loss(Configured):
    """Base of the losses. A loss of one's own overrides call(y_true, y_pred), which gives one value a sample from operations on tensors."""

    _class = None

    def __init__(self, name: str | None = None, reduction: str = "sum_over_batch_size", dtype: Any = None, **config: Any):
        check_float32(type(self).__name__, dtype)
        if self._class is None:
            check("unisono.keras.Loss", config, ["name", "reduction", "dtype"])
        self.reduction = _reduction(reduction)
        self._config = config
        self.name = name
        self._native = None
        if self._class is None and type(self).call is Loss.call:
            raise NotImplementedError("a loss of one's own overrides call(y_true, y_pred)")
        self.name = name or self._raw().name

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Losses of the samples; a subclass overrides it."""
        raise NotImplementedError

    def _make(self):
        """A new one for a model to take."""
        if self._class is None:
            return _engine.Loss(self.name or type(self).__name__.lower(), on_engine_tape(self.call), _NUMBERS[self.reduction])
        reduction = {"auto": "sum_over_batch_size", None: "none", "mean": "sum_over_batch_size"}.get(self.reduction, self.reduction)
        config = dict(self._config, reduction=reduction)
        if self.name:
            config["name"] = self.name
        return _engine.Loss(self._class, config)

    def _raw(self):
        if self._native is None:
            self._native = self._make()
        return self._native

    def __call__(self, y_true, y_pred, sample_weight=None) -> Tensor:
        reduced = self.reduction not in (None, "none")
        if reduced and self.reduction != "sum" and context().replica is not None:
            raise ValueError("the reduction %s divides by the replica's own number of samples and is not allowed inside of a strategy: use "
                             "reduction=Reduction.NONE with nn.compute_average_loss, or SUM" % self.reduction)
        y_true, y_pred = as_numbers(y_true), as_numbers(y_pred)
        one = None if self._class is None else as_one_sample(y_true, y_pred)
        if one is not None:
            return self._of_one(*one, sample_weight)
        target, prediction = raw_of(y_true), raw_of(y_pred)
        weights = None if sample_weight is None else raw_of(as_numbers(sample_weight))
        return Tensor(self._raw().call(tape_for(), target, prediction, weights, reduced))

    def _of_one(self, y_true, y_pred, sample_weight) -> Tensor:
        """One sample, but as many weights as there are given: Keras multiplies the one loss by each and reduces the products."""
        target, prediction = raw_of(y_true), raw_of(y_pred)
        loss = reshaped(Tensor(self._raw().call(tape_for(), target, prediction, None, False)), [])
        if sample_weight is None:
            return loss
        weights = np.asarray(as_array(sample_weight), np.float32)
        if self.reduction in (None, "none"):
            return loss * (weights.reshape(weights.shape[:-1]) if weights.shape[-1:] == (1,) else weights)
        return loss * float(weights.sum() if self.reduction == "sum" else weights.mean())

    def get_config(self) -> dict:
        """Its arguments."""
        return dict(self._config, name=self.name, reduction=self.reduction)


def _make(name, doc, refused=None, **defaults):
    def __init__(self, *arguments, **given):
        given = named_arguments("unisono.keras.losses." + name, defaults, arguments, given, ("reduction",), refused)
        config = {key: given[key] for key in defaults}
        Loss.__init__(self, given.get("name"), given.get("reduction", "sum_over_batch_size"), **config)
    return type(name, (Loss,), {"__init__": __init__, "__doc__": doc, "_class": name, "__module__": __name__})


MeanSquaredError = _make("MeanSquaredError", "(y_true - y_pred) squared, averaged over the last axis.")
MeanAbsoluteError = _make("MeanAbsoluteError", "|y_true - y_pred|, averaged over the last axis.")
Huber = _make("Huber", "Squared near zero, linear beyond delta.", delta=1.0)
_AXIS = {"axis": Refused(-1, "classes are on the last axis")}
BinaryCrossentropy = _make("BinaryCrossentropy", "For probabilities, or logits with from_logits=True, of two classes.", _AXIS, from_logits=False,
                           label_smoothing=0.0)
CategoricalCrossentropy = _make("CategoricalCrossentropy", "Targets are one-hot.", _AXIS, from_logits=False, label_smoothing=0.0)
_IGNORE = {"ignore_class": Refused(None, "give those samples the weight 0"), **_AXIS}
SparseCategoricalCrossentropy = _make("SparseCategoricalCrossentropy", "Targets are class numbers.", _IGNORE, from_logits=False)
Hinge = _make("Hinge", "max(1 - y_true * y_pred, 0); targets -1 or 1.")
SquaredHinge = _make("SquaredHinge", "The square of Hinge.")
KLDivergence = _make("KLDivergence", "y_true * log(y_true / y_pred).")


def _function(cls, **config):
    def function(y_true, y_pred, **more):
        return cls(reduction="none", **dict(config, **more))(y_true, y_pred)
    function.__doc__ = "One value a sample of %s." % cls.__name__
    return function


mean_squared_error = mse = _function(MeanSquaredError)
mean_absolute_error = mae = _function(MeanAbsoluteError)
huber = _function(Huber)
binary_crossentropy = _function(BinaryCrossentropy)
categorical_crossentropy = _function(CategoricalCrossentropy)
sparse_categorical_crossentropy = _function(SparseCategoricalCrossentropy)
hinge, kl_divergence = _function(Hinge), _function(KLDivergence)


def native(value: Any) -> Any:
    """An engine's loss for compile from a name, a Loss or a function(y_true, y_pred)."""
    if isinstance(value, str):
        return _engine.Loss(value)
    if isinstance(value, Loss):
        return value._make()
    if callable(value):
        return _engine.Loss(getattr(value, "__name__", "loss"), on_engine_tape(value), 0)
    raise TypeError("a loss is a name, a Loss or a function, not %s" % type(value).__name__)


def get(identifier: Any) -> Any:
    """A Loss by its name."""
    if identifier is None or isinstance(identifier, Loss) or callable(identifier):
        return identifier
    plain = str(identifier).replace("_", "").lower()
    for name in __all__:
        if name.lower() == {"mse": "meansquarederror", "mae": "meanabsoluteerror"}.get(plain, plain):
            return globals()[name]()
    _engine.Loss(identifier)  # says what is near
    raise ValueError("there is no loss %r" % identifier)


strict_module(globals())
