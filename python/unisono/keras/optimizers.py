"""Optimizers and learning-rate schedules, with Keras's defaults and formulas, run by the engine."""

from __future__ import annotations

import inspect
from typing import Any

from unisono import _engine
from unisono.extend import Refused, as_kind, check, checks_kinds, strict_class, strict_module
from unisono.keras._arguments import Configured
from unisono.keras._tape import LazyGradient
from unisono.keras._tensor import Tensor, Variable, context, shared

import numpy as np

__all__ = ["Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "schedules", "get"]


class LearningRateSchedule(Configured):
    """A learning rate by step. One of one's own overrides __call__(step)."""

    _class = None

    def __init__(self, **config: Any):
        self._config = config

    def __call__(self, step):
        raise NotImplementedError

    def get_config(self) -> dict:
        """Its arguments."""
        return dict(self._config)

    def _object(self):
        return {"module": "keras.optimizers.schedules", "class_name": self._class, "config": self.get_config(), "registered_name": None}


class _Known(LearningRateSchedule):
    """A schedule that the engine has: asked there, by an optimizer with it."""

    def __call__(self, step):
        optimizer = _engine.Optimizer("SGD", {"learning_rate": self._object()})
        optimizer.iterations = int(step)
        return optimizer.learning_rate


class ExponentialDecay(_Known):
    """initial_learning_rate * decay_rate ^ (step / decay_steps)."""

    _class = "ExponentialDecay"

    def __init__(self, initial_learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False, name: str = "ExponentialDecay"):
        super().__init__(initial_learning_rate=initial_learning_rate, decay_steps=decay_steps, decay_rate=decay_rate, staircase=staircase, name=name)


class CosineDecay(_Known):
    """From initial_learning_rate to alpha of it along a cosine, after a warm-up."""

    _class = "CosineDecay"

    def __init__(self, initial_learning_rate: float, decay_steps: int, alpha: float = 0.0, name: str = "CosineDecay",
                 warmup_target: float | None = None, warmup_steps: int = 0):
        super().__init__(initial_learning_rate=initial_learning_rate, decay_steps=decay_steps, alpha=alpha, name=name, warmup_target=warmup_target,
                         warmup_steps=warmup_steps)


class PiecewiseConstantDecay(_Known):
    """values[i] until boundaries[i]."""

    _class = "PiecewiseConstantDecay"

    def __init__(self, boundaries: Any, values: Any, name: str = "PiecewiseConstant"):
        super().__init__(boundaries=[int(each) for each in boundaries], values=[float(each) for each in values], name=name)


class schedules:
    """keras.optimizers.schedules."""

    LearningRateSchedule, ExponentialDecay, CosineDecay = LearningRateSchedule, ExponentialDecay, CosineDecay
    PiecewiseConstantDecay = PiecewiseConstantDecay


def _by_step(rate: Any) -> Any:
    """A rate of the user's own as the engine asks for it, with the step. A LearningRateSchedule gets the step; any other function is called without
    arguments, as Keras does, unless it needs one: then that is the step."""
    if isinstance(rate, LearningRateSchedule):
        return rate
    try:
        inspect.signature(rate).bind()
    except TypeError:
        return rate
    except ValueError:  # a function in C that does not tell
        pass
    return lambda step: rate()


def _clip_together(pairs: Any, limit: float) -> list:
    """Variables of no model are apart for the engine, but their norm is one."""
    arrays = [np.asarray(gradient, np.float32) for gradient, _ in pairs]
    norm = float(np.sqrt(sum(np.sum(np.square(each, dtype=np.float64)) for each in arrays)))
    scale = np.float32(limit / norm if norm > limit else 1.0)
    return [(array * scale, variable) for array, (_, variable) in zip(arrays, pairs)]


_OWN_WHY = "use SGD, Adam, AdamW, RMSprop or Adagrad, or change the variables in a loop of your own with assign_sub"
_OWN = {name: Refused(inspect.Parameter.empty, _OWN_WHY) for name in (
    "learning_rate", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency", "loss_scale_factor",
    "gradient_accumulation_steps", "name")}


class _Rate(float):
    """The learning rate of an optimizer."""

    def __new__(cls, optimizer: Any, value: float) -> _Rate:
        made = super().__new__(cls, value)
        made._optimizer = optimizer
        return made

    def assign(self, value: Any) -> _Rate:
        """Sets the optimizer's rate."""
        self._optimizer.learning_rate = value
        return self._optimizer.learning_rate

    def numpy(self) -> Any:
        """The number itself."""
        return np.float32(self)

    def __reduce__(self) -> Any:
        return float, (float(self),)


class Optimizer(Configured):
    """Base of the optimizers: given to compile, or used in a loop of one's own by apply_gradients."""

    _class = None

    def __init__(self, *arguments: Any, **config: Any):
        if self._class is None:
            check("unisono.keras.Optimizer", config, (), _OWN)
            raise NotImplementedError("an optimizer of one's own is not supported: %s" % _OWN_WHY)
        (self._rate,) = arguments
        name = config.pop("name", None)
        self._config = {key: value for key, value in config.items() if value is not None}
        if name:
            self._config["name"] = name
        self._steps = config.get("gradient_accumulation_steps") or 0
        if config.get("gradient_accumulation_steps") is not None and self._steps < 2:
            raise ValueError("gradient_accumulation_steps must be an integer of at least 2 (or None), got %r" % config["gradient_accumulation_steps"])
        self._waiting: dict = {}  # sums of gradients of apply_gradients that wait for their update, by variable
        self._waits = 0
        self._others = {}  # of variables that no model has: by store
        self._native = self._make()
        from unisono.tf import distribute

        distribute.in_scope(self)

    def _make(self):
        config = dict(self._config)
        if isinstance(self._rate, _Known):
            return _engine.Optimizer(self._class, dict(config, learning_rate=self._rate._object()))
        if callable(self._rate):
            return _engine.Optimizer(self._class, config, _by_step(self._rate))
        return _engine.Optimizer(self._class, dict(config, learning_rate=float(as_kind(self._class, "learning_rate", self._rate, "float"))))

    def _for_model(self):
        """The engine's optimizer that compile gives away; a second model gets one of its own with the same settings."""
        if self._native.taken:
            self._native = self._make()
        return self._native

    @property
    def name(self) -> str:
        """Its name."""
        return self._config.get("name") or self._native.name

    @property
    def iterations(self) -> int:
        """How many updates it has made."""
        return self._native.iterations

    @property
    def learning_rate(self) -> float:
        """Of the next step: a number, with the assign() and numpy() of Keras's variable."""
        return _Rate(self, self._native.learning_rate)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        rate = float(value)
        self._native.learning_rate = rate
        self._rate = rate
        for other in self._others.values():
            other.learning_rate = rate

    lr = learning_rate

    def apply_gradients(self, grads_and_vars: Any) -> None:
        """One update of the variables with their gradients; a gradient that is None is left out."""
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        if not pairs:
            raise ValueError("no gradients were given for any variable: the loss does not depend on them")
        if any(isinstance(gradient, LazyGradient) for gradient, _ in pairs):
            return self._apply_in_replica(pairs)
        if self._steps:
            pairs = self._accumulate(pairs)
        if self._config.get("global_clipnorm") and len({variable._p.store for _, variable in pairs}) > 1:
            pairs = _clip_together(pairs, self._config["global_clipnorm"])
        stores = {}
        for gradient, variable in pairs:
            if not isinstance(variable, Variable):
                raise TypeError("apply_gradients takes pairs of a gradient and a Variable, not %s" % type(variable).__name__)
            if not isinstance(gradient, Tensor) or gradient.dtype != "float32":
                gradient = Tensor(_engine.Tensor(shared(np.ascontiguousarray(np.asarray(gradient), np.float32))))
            stores.setdefault(variable._p.store, []).append((gradient._t, variable._p))
        threads = context().threads
        for store, some in stores.items():
            self._of(store).apply(some, threads)
        if self._steps and stores:
            for native in self._others.values():
                native.set_accumulation(self._steps, 0)
        return None

    def _accumulate(self, pairs):
        """The mean of the last gradient_accumulation_steps gradients; nothing while they are fewer."""
        for gradient, variable in pairs:
            key = variable._p.handle
            before = self._waiting[key][0] if key in self._waiting else 0
            self._waiting[key] = (before + np.asarray(gradient, np.float32), variable)
        self._waits += 1
        for native in {id(each): each for each in [self._native, *self._others.values()]}.values():
            native.set_accumulation(self._steps, self._waits % self._steps or self._steps - 1)
        if self._waits < self._steps:
            return []
        self._waits, waiting = 0, list(self._waiting.values())
        self._waiting = {}
        return [(total / np.float32(self._steps), variable) for total, variable in waiting]

    def _of(self, store):
        """One of the engine's optimizers a store of variables, because its state has the store's layout."""
        if not self._others:
            self._others[store] = self._native
        if store not in self._others:
            self._others[store] = self._make()
            if self._steps:
                self._others[store].set_accumulation(self._steps, self._steps - 1)
        return self._others[store]

    def _apply_in_replica(self, pairs):
        if self._steps:
            raise NotImplementedError("gradient_accumulation_steps inside of strategy.run is not supported: use fit, or add the losses up")
        replica, losses = context().replica, {id(gradient.loss) for gradient, _ in pairs if isinstance(gradient, LazyGradient)}
        if replica is None or len(losses) != 1 or not all(isinstance(gradient, LazyGradient) for gradient, _ in pairs):
            raise ValueError("inside of strategy.run apply_gradients takes the gradients of one loss, as tape.gradient gave them")
        replica.apply(pairs[0][0].loss._t, self._native)

    def get_config(self) -> dict:
        """Its arguments."""
        rate = self._rate
        return dict(self._config, learning_rate=rate if isinstance(rate, LearningRateSchedule) or callable(rate) else float(rate))


class SGD(Optimizer):
    """Gradient descent, with momentum."""

    _class = "SGD"

    def __init__(self, learning_rate: float | LearningRateSchedule = 0.01, momentum: float = 0.0, nesterov: bool = False,
                 weight_decay: float | None = None, clipnorm: float | None = None, clipvalue: float | None = None,
                 global_clipnorm: float | None = None, gradient_accumulation_steps: int | None = None, name: str | None = None):
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, clipnorm=clipnorm, clipvalue=clipvalue,
                         global_clipnorm=global_clipnorm, gradient_accumulation_steps=gradient_accumulation_steps, name=name)


class Adam(Optimizer):
    """Adam."""

    _class = "Adam"

    def __init__(self, learning_rate: float | LearningRateSchedule = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
                 amsgrad: bool = False, weight_decay: float | None = None, clipnorm: float | None = None, clipvalue: float | None = None,
                 global_clipnorm: float | None = None, gradient_accumulation_steps: int | None = None, name: str | None = None):
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=amsgrad, weight_decay=weight_decay, clipnorm=clipnorm,
                         clipvalue=clipvalue, global_clipnorm=global_clipnorm, gradient_accumulation_steps=gradient_accumulation_steps, name=name)


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    _class = "AdamW"

    def __init__(self, learning_rate: float | LearningRateSchedule = 0.001, weight_decay: float = 0.004, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, amsgrad: bool = False, clipnorm: float | None = None, clipvalue: float | None = None,
                 global_clipnorm: float | None = None, gradient_accumulation_steps: int | None = None, name: str | None = None):
        if weight_decay is None:
            raise ValueError("AdamW needs a weight_decay; without one, use Adam")
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay, clipnorm, clipvalue, global_clipnorm, gradient_accumulation_steps,
                         name)


class RMSprop(Optimizer):
    """RMSprop."""

    _class = "RMSprop"

    def __init__(self, learning_rate: float | LearningRateSchedule = 0.001, rho: float = 0.9, momentum: float = 0.0, epsilon: float = 1e-7,
                 centered: bool = False, weight_decay: float | None = None, clipnorm: float | None = None, clipvalue: float | None = None,
                 global_clipnorm: float | None = None, gradient_accumulation_steps: int | None = None, name: str | None = None):
        super().__init__(learning_rate, rho=rho, momentum=momentum, epsilon=epsilon, centered=centered, weight_decay=weight_decay, clipnorm=clipnorm,
                         clipvalue=clipvalue, global_clipnorm=global_clipnorm, gradient_accumulation_steps=gradient_accumulation_steps, name=name)


class Adagrad(Optimizer):
    """Adagrad."""

    _class = "Adagrad"

    def __init__(self, learning_rate: float | LearningRateSchedule = 0.001, initial_accumulator_value: float = 0.1, epsilon: float = 1e-7,
                 weight_decay: float | None = None, clipnorm: float | None = None, clipvalue: float | None = None,
                 global_clipnorm: float | None = None, gradient_accumulation_steps: int | None = None, name: str | None = None):
        super().__init__(learning_rate, initial_accumulator_value=initial_accumulator_value, epsilon=epsilon, weight_decay=weight_decay,
                         clipnorm=clipnorm, clipvalue=clipvalue, global_clipnorm=global_clipnorm,
                         gradient_accumulation_steps=gradient_accumulation_steps, name=name)


_REFUSED = {"use_ema": Refused(False, "average the weights in a callback"), "ema_momentum": Refused(0.99, "there is no use_ema"),
            "ema_overwrite_frequency": Refused(None, "there is no use_ema"), "loss_scale_factor": Refused(None, "float32 needs no loss scaling")}
for _cls in (SGD, Adam, AdamW, RMSprop, Adagrad):
    strict_class(_REFUSED)(_cls)
for _cls in (ExponentialDecay, CosineDecay, PiecewiseConstantDecay):
    strict_class()(_cls)
checks_kinds(SGD, Adam, AdamW, RMSprop, Adagrad, ExponentialDecay, CosineDecay, PiecewiseConstantDecay)
_NAMES = {cls.__name__.lower(): cls for cls in (SGD, Adam, AdamW, RMSprop, Adagrad)}


def get(identifier: Any) -> Optimizer:
    """An optimizer by its name, or as it is."""
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, str):
        found = _NAMES.get(identifier.lower())
        if found is None:
            _engine.Optimizer(identifier, {})  # says what is near
            raise ValueError("there is no optimizer %r; there are %s" % (identifier, ", ".join(sorted(_NAMES))))
        return found()
    raise TypeError("an optimizer is a name or an Optimizer, not %s" % type(identifier).__name__)


def of_native(native: Any) -> Optimizer:
    """What a file brought along."""
    config = native.get_config()
    cls = next((cls for cls in (AdamW, Adam, SGD, RMSprop, Adagrad) if config.get("name", "").lower().startswith(cls.__name__.lower())), Optimizer)
    out = cls.__new__(cls)
    rate = config.pop("learning_rate", None)
    out._rate = rate if isinstance(rate, (int, float)) else native.learning_rate
    out._config, out._others, out._native = {key: value for key, value in config.items() if value is not None}, {}, native
    out._steps, out._waiting, out._waits = config.get("gradient_accumulation_steps") or 0, {}, 0
    return out


strict_module(globals())
