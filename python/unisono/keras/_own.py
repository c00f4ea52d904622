"""Layers and models with a call() of the user's own.

The engine knows such a layer as a class of three questions (python/extension/engine_own.c): build, infer, call. Its children and its output's shape are
found by running call() on a tape of zeros: a layer that is called there for the first time becomes a child and is built for what it was given.
After that call() runs on the engine's own tape, in fit, predict, a GradientTape or a replica alike.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Iterator

import numpy as np

from unisono import _engine
from unisono.extend import Refused, safe_text, strict
from unisono.keras._arguments import check_float32
from unisono.keras._tensor import Tensor, Variable, context, raw_of

__all__ = ["LayerWeight", "Own", "overrides", "snake_case", "spec_of"]

_OURS = {"_model", "_layers", "_nested", "_host", "_inputs", "_outputs", "_pending"}  # attributes that hold layers but are not part of call()
_FREE = {"uniform": "random_uniform", "normal": "random_normal"}


def snake_case(name: str) -> str:
    """MyLayer -> my_layer, as Keras names layers."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()


def overrides(value: Any, base: type, name: str) -> bool:
    """Whether the object's class has a method of its own in the place of base's."""
    return getattr(type(value), name, None) is not getattr(base, name, None)


def spec_of(tensor: Any) -> tuple[str, tuple]:
    """(dtype, shape) of what a layer was called with; the batch is left open."""
    return tensor.dtype if isinstance(tensor, Tensor) else "float32", (None,) + tuple(tensor.shape[1:])


class LayerWeight(Variable):
    """A weight that add_weight made: a Variable once its layer is built."""

    def __init__(self, layer: Any, name: str, shape: tuple, trainable: bool, initial: Any = None):
        self._set(layer, name, shape, trainable, initial)

    def _set(self, layer: Any, name: str, shape: tuple, trainable: bool, initial: Any) -> None:
        self._layer, self._short, self._shape, self._trainable, self._initial = layer, name, tuple(shape), trainable, initial
        self._found: Any = None

    @property
    def _p(self) -> Any:  # type: ignore[override]
        if self._found is None:
            for each in self._layer._engine_layer().parameters():
                if each.name.rpartition("/")[2] == self._short:
                    self._found = each
                    break
            else:
                raise ValueError("the weight %r has no numbers yet: its layer is not built" % self._short)
        return self._found

    @property
    def name(self) -> str:
        """Its short name."""
        return self._short

    @property
    def shape(self) -> tuple:
        """Its shape."""
        return self._shape

    def _on_tape(self) -> Any:
        return np.zeros(self._shape, np.float32) if context().tracing else super()._on_tape()

    def view(self) -> np.ndarray:
        """Its numbers without a copy. While call() runs on zeros a layer may not be built yet: zeros of its own, so that assign() changes nothing."""
        return np.zeros(self._shape, np.float32) if context().tracing else super().view()

    def assign(self, value: Any) -> Any:
        """Sets its numbers; before its layer is built, those that it begins with."""
        if self._found is None and not context().tracing and not self._layer._engine_layer().built:
            value = np.array(value, np.float32)
            if value.shape != self._shape:
                raise ValueError("the shape %s cannot be assigned to %s of shape %s" % (value.shape, safe_text(self._short), self._shape))
            self._initial = value
            return self
        return super().assign(value)

    def _begin(self) -> None:
        """Built (anew): the first values that the engine could not draw are written once."""
        self._found = None
        if self._initial is not None:
            value, self._initial = self._initial, None
            self.assign(value(self._shape) if callable(value) else value)


def _adopt(layer: Any, name: str, variable: Variable) -> LayerWeight:
    """A Variable that was made by hand becomes the layer's weight."""
    initial, trainable = variable.numpy(), variable.trainable
    del variable.__dict__["_p"]
    variable.__class__ = LayerWeight
    adopted: Any = variable
    adopted._set(layer, name, initial.shape, trainable, initial)
    return adopted


def _initializer(value: Any, ndim: int) -> tuple[str, tuple, int, Any]:
    """(the engine's name, its numbers, seed, what Python must write itself)."""
    numbers = dict(value=0.0, mean=0.0, stddev=0.0, minval=0.0, maxval=0.0, gain=0.0)
    if value is None:
        value = "glorot_uniform" if ndim > 1 else "zeros"
    if hasattr(value, "_object"):
        config = value.get_config()
        numbers.update({key: float(config[key]) for key in numbers if config.get(key) is not None})
        return snake_case(type(value).__name__), tuple(numbers.values()), int(config.get("seed") or 0), None
    if isinstance(value, str):
        return _FREE.get(value, value), tuple(numbers.values()), 0, None
    return "zeros", tuple(numbers.values()), 0, value  # a function of the shape, or an array


def _regularizer(value: Any) -> tuple[float, float]:
    if value is None:
        return 0.0, 0.0
    if isinstance(value, str):
        return (0.01 if "l1" in value.lower() else 0.0), (0.01 if "l2" in value.lower() else 0.0)
    config = value.get_config()
    return float(config.get("l1", 0.0)), float(config.get("l2", 0.0))


class Own:
    """What the engine asks, for Layer and Model. A subclass has call()."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """build() of a user's class makes weights only while the engine asks for them; called by the user, it has the engine ask."""
        super().__init_subclass__(**keywords)
        written = vars(cls).get("build")
        if written is None or cls.__module__.startswith("unisono.keras"):
            return

        @functools.wraps(written)
        def build(self, *shapes, **options):
            if context().building is self:
                return written(self, *shapes, **options)
            return self._build_from_outside(*shapes, **options)
        cls.build = build

    def _build_from_outside(self, input_shape: Any) -> None:
        raise NotImplementedError

    def _own_set_up(self) -> None:
        self._declared: list = []  # (weight, how) of __init__
        self._in_build: list = []  # the same of build()
        self._was_built = False
        self._style: Any = None

    def _engine_layer(self) -> Any:
        raise NotImplementedError

    # ---- what a subclass writes or calls ----

    def build(self, input_shape: Any) -> None:
        """Makes the weights; called once, before the first call()."""

    def call(self, *inputs: Any, **options: Any) -> Any:
        """Computes; a subclass overrides it."""
        raise NotImplementedError("%s has no call()" % type(self).__name__)

    @strict({"constraint": Refused(None, "weights have no constraints here; use a regularizer, or change the weights in a callback"),
             "autocast": Refused(True, "weights are float32"), "aggregation": Refused("none", "replicas have one set of weights", (None, "mean")),
             "overwrite_with_gradient": Refused(False, "the optimizer updates weights")}, name="unisono.keras.Layer.add_weight")
    def add_weight(self, shape: Any = None, initializer: Any = None, dtype: Any = None, trainable: bool = True, regularizer: Any = None,
                   name: str | None = None) -> Variable:
        """A weight of this layer, in __init__ (with its shape) or in build()."""
        check_float32("add_weight", dtype)
        if isinstance(shape, str):  # Keras 2: add_weight(name, shape)
            shape, name = initializer, shape
            initializer = None
        shape = () if shape is None else (int(shape),) if isinstance(shape, int) else tuple(int(each) for each in shape)
        taken = [weight.name for weight, _ in self._declared + self._in_build]
        stem = name = name or "variable"
        while name in taken:
            name = "%s_%d" % (stem, len([each for each in taken if each.startswith(stem)]))
        word, numbers, seed, initial = _initializer(initializer, len(shape))
        weight = LayerWeight(self, name, shape, bool(trainable), initial)
        how = (name, shape, bool(trainable), word, numbers, seed, _regularizer(regularizer))
        (self._in_build if context().building is self else self._declared).append((weight, how))
        return weight

    def add_loss(self, *losses: Any) -> None:
        """Keras's; not offered."""
        raise NotImplementedError("%s.add_loss is not supported: give add_weight a regularizer, use ActivityRegularization, or add the term in a loop of your own "
                                  "(a GradientTape and apply_gradients)" % type(self).__name__)

    # ---- parts ----

    def _parts(self) -> Iterator[Any]:
        """Layers (and models, as layers) that are attributes, in the order in which they were set."""
        seen = set()

        def walk(value: Any) -> Iterator[Any]:
            if isinstance(value, Own):
                part = value._as_part()
                if id(part) not in seen:
                    seen.add(id(part))
                    yield part
            elif isinstance(value, (list, tuple)):
                for each in value:
                    yield from walk(each)
            elif isinstance(value, dict):
                yield from walk(list(value.values()))

        for name, value in list(vars(self).items()):
            if name not in _OURS and value is not self:
                yield from walk(value)

    def _as_part(self) -> Any:
        return self

    def _own_weights(self) -> list:
        """Those of add_weight, then those of its parts, as Keras orders them."""
        return [weight for weight, _ in self._added()] + [weight for part in self._parts() for weight in part.weights]

    def _added(self) -> list:
        """(weight, how) of all that add_weight made, as Keras orders them: those that training changes, then the others."""
        return sorted(self._declared + self._in_build, key=lambda each: not each[0]._trainable)

    def _begin_weights(self) -> None:
        for weight, _ in self._added():
            weight._begin()

    # ---- the engine's questions ----

    def _engine_build(self, specs: list) -> None:
        here = context()
        if self._was_built:  # again, inside of another model: the engine has dropped its children
            for part in self._parts():
                part._forget()
        self._was_built, self._in_build = True, []
        before, here.building = here.building, self
        try:
            for name, value in list(vars(self).items()):
                if type(value) is Variable:
                    adopted = _adopt(self, name, value)
                    self._declared.append((adopted, (name, adopted.shape, adopted._trainable, "zeros", (0.0,) * 6, 0, (0.0, 0.0))))
            shapes = [shape for _, shape in specs]
            self.build(shapes[0] if len(shapes) == 1 else shapes)
            for _, how in self._added():
                self._engine_layer().add_weight(*how)
            for training in (True, False):  # a layer may be called in one of the two only
                self._trace(specs, 2, training)
        finally:
            here.building = before

    def _engine_infer(self, specs: list) -> tuple[str, tuple]:
        (dtype, first), (_, second) = self._trace(specs, 2), self._trace(specs, 3)
        if len(first) != len(second):
            raise ValueError("%s: the number of dimensions depends on the batch" % type(self).__name__)
        return dtype, tuple(a if a == b else None for a, b in zip(first, second))

    def _engine_call(self, tape: Any, *raw: Any) -> Any:
        here = context()
        before, here.forced = here.forced, tape
        try:
            return raw_of(self._call([Tensor(each) for each in raw], tape.training))
        finally:
            here.forced = before

    def _trace(self, specs: list, batch: int, training: bool = False) -> tuple[str, tuple]:
        """call() on zeros: (dtype, shape) of what it gives."""
        here = context()
        tape = _engine.Tape(1)
        tape.begin(training, False, None, 0, 0, True)  # zeros are not data: moving averages stay as they are
        inputs = []
        for dtype, shape in specs:
            sizes = tuple((batch if axis == 0 else batch + 3) if size is None else size for axis, size in enumerate(shape))
            if dtype == "string":
                inputs.append(Tensor(_engine.Tensor(_engine.Strings([""] * int(np.prod(sizes)), sizes))))
            else:
                inputs.append(Tensor.of(np.zeros(sizes, dtype)))
        before = here.forced, here.tracing
        here.forced, here.tracing = tape, True
        try:
            out = self._call(inputs, training)
            return out.dtype, tuple(out.shape)
        finally:
            here.forced, here.tracing = before

    def _call(self, inputs: list, training: bool) -> Any:
        """call() as the user wrote it: one tensor, a list of them, or one an argument."""
        if self._style is None:
            self._style = _style_of(self.call)
        takes_training, takes_many = self._style
        options = {"training": training} if takes_training else {}
        if len(inputs) == 1 or not takes_many:
            out = self.call(inputs[0] if len(inputs) == 1 else inputs, **options)
        else:
            out = self.call(*inputs, **options)
        if isinstance(out, (list, tuple, dict)):
            raise NotImplementedError("%s.call gives %d tensors: a layer or model of one's own has one output" % (type(self).__name__, len(out)))
        return out if isinstance(out, (Tensor, Variable)) else Tensor.of(out)


def _style_of(call: Any) -> tuple[bool, bool]:
    """Whether call() asks for `training`, and whether it takes several inputs as arguments."""
    parameters = inspect.signature(call).parameters
    places = [each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty]
    return "training" in parameters, len(places) > 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
