"""Models that are layers: with a call() of the user's own, or inside of another model.

A model of one's own is, for the engine, a model of one layer that calls call(). A model inside of another one becomes the engine's layer: the weights are
that model's then, and the inner one finds them through it.
"""

from __future__ import annotations

import copy
from typing import Any

from unisono import _engine
from unisono.keras._data import Source, columns
from unisono.keras._graph import copier, entry_of, walk
from unisono.keras._layer import Layer
from unisono.keras._own import Own

__all__ = ["Inside", "Nested"]


class Nested(Layer):
    """A model as a layer of another one."""

    _class = "Model"

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def _make(self) -> Any:
        return self.model._give_away()

    def _copy(self, keep: list) -> Any:
        return self.model._twin(keep)

    def _forget(self) -> None:
        self._raw = None
        self.model._come_back()

    def _settle(self, model: Any, moved: bool) -> None:
        self._owner = model
        self._raw.move(model)
        self.model._settle_inside(model)

    def _shown(self) -> Any:
        return self.model

    @property
    def name(self) -> str:
        """The model's."""
        return self.model._name or self._native().name

    @property
    def weights(self) -> list:
        """The model's."""
        return self.model.weights


class Inside(Own):
    """The part of Model that makes it a layer."""

    def _inside_set_up(self):
        self._own_set_up()
        self._is_own = False  # a call() of the user's own
        self._own_raw: Any = None  # then: the engine's layer that calls it
        self._nested: Any = None  # this model as a layer
        self._host: Any = None  # the engine's model that has it as a layer
        self._kept: Any = None  # weights on their way into that model

    # ---- a call() of one's own ----

    def _engine_layer(self):
        if self._own_raw is None:
            self._own_raw = _engine.Layer.own(type(self).__name__, self._name, self)
        return self._own_raw

    def _make_own(self, specs):
        """The engine's model: its inputs, and one layer that calls call()."""
        nodes = [("input_layer" if index == 0 else "input_layer_%d" % index, (dtype, tuple(shape[1:]))) for index, (dtype, shape) in enumerate(specs)]
        nodes.append((self._engine_layer(), tuple(range(len(specs)))))
        try:
            self._raw = _engine.Model.graph(self._name or type(self).__name__, nodes, list(range(len(specs))), [len(specs)])
        except Exception:
            self._come_back()
            raise
        if self._seed is not None:
            self._raw.set_seed(self._seed)
        self._begin_weights()
        self._own_settle(self._raw, False)
        if self._compile_later is not None:
            self.compile(**self._compile_later)

    def _own_settle(self, model, moved):
        self._layers = list(self._parts())
        for layer in self._layers:
            layer._settle(model, moved)

    def _ensure(self, x):
        """A model of one's own is built for the first data it sees."""
        if not self._is_own or self._raw is not None or self._host is not None:
            return
        if Source.accepts(x):
            if hasattr(x, "__next__") or not hasattr(x, "__iter__"):
                raise ValueError("the model %r is not built yet: call build(input_shape) before it is trained from a generator" % self._name)
            first = next(iter(x))
            x = first[0] if isinstance(first, tuple) else first
        self._build_for(columns(x, sorted(x) if isinstance(x, dict) else ()))

    # ---- inside of another model ----

    def _as_part(self):
        if self._nested is None:
            self._nested = Nested(self)
        return self._nested

    def _give_away(self):
        """The engine's layer that this model becomes."""
        if self._is_own and self._raw is None:
            return self._engine_layer()
        raw = self._native()
        if raw.built:
            self._kept = self.get_weights()
        self._name, self._raw = raw.name, None
        self._optimizer = None  # it was the engine's model's
        return raw.as_layer()

    def _settle_inside(self, model):
        """It is a layer of this model of the engine now."""
        self._host = model
        if self._is_own:
            self._begin_weights()
            self._own_settle(model, True)
        else:
            for layer in self._layers:
                layer._settle(model, True)
        if self._kept is not None:  # the seed of the model around it is for new weights
            self.set_weights(self._kept)
            self._kept = None

    def _come_back(self):
        """The model around it could not be made: it has no weights again."""
        self._raw = self._own_raw = self._host = None
        for layer in list(self._parts()) if self._is_own else self._layers:
            layer._forget()

    def _twin(self, keep):
        """A layer of the engine like this model, for a graph that only asks for shapes."""
        if self._is_own:
            twin = copy.deepcopy(self)
            keep.append(twin)
            return twin._engine_layer()
        if hasattr(self, "_with_input"):
            raw = _engine.Model.sequential(self._name or "sequential", [layer._copy(keep) for layer in self._with_input()])
        else:
            order, copy_of = walk(self._outputs), copier(keep)
            raw = _engine.Model.graph(self._name, [entry_of(node, order, copy_of) for node in order], [order.index(each) for each in self._inputs],
                                      [order.index(each) for each in self._outputs])
        return raw.as_layer()

    def __deepcopy__(self, memo):
        from unisono.keras.models import clone_model

        if not self._is_own:
            memo[id(self)] = twin = clone_model(self)
            return twin
        twin = memo[id(self)] = object.__new__(type(self))
        for key, value in vars(self).items():
            vars(twin)[key] = None if key in ("_raw", "_own_raw", "_nested", "_host", "_optimizer", "_strategy") else copy.deepcopy(value, memo)
        return twin
