"""Layer: Keras's config and, once it is needed, the engine's layer made of it; or a call() of the user's own, which the engine calls.

The model that is made of layers takes them; a layer belongs to one model.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

from unisono import _engine
from unisono.extend import Refused, as_kind, check, safe_text, strict
from unisono.keras._arguments import check_float32
from unisono.keras._graph import Input, KerasTensor
from unisono.keras._own import Own, overrides, snake_case, spec_of
from unisono.keras._tensor import Tensor, Variable, as_numbers, context, raw_of, tape_for

__all__ = ["Layer"]


def _plain(value):
    """An argument as Keras's config has it."""
    if hasattr(value, "_object"):
        return value._object()
    if callable(value):
        name = getattr(value, "__name__", None)
        if name is None or name == "<lambda>":
            raise ValueError("functions of one's own cannot be a layer's argument; give a name: %r" % (value,))
        return name
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and not isinstance(value, (list, dict, str)):
        return value.item()
    return value


def _is_several(value: Any) -> bool:
    """A list of tensors or arrays, rather than numbers or text in lists."""
    return isinstance(value, (list, tuple)) and all(hasattr(each, "shape") for each in value)


class Host:
    """For the tape: a call of a layer, or of a model inside of another one, is a step of the engine's model that has it."""

    def __init__(self, model: Any, seed: Any):
        self._model, self._seed = model, seed

    def _for_tape(self):
        return self._model


_COMMON = {"activity_regularizer": Refused(None, "use ActivityRegularization after the layer"),
           "autocast": Refused(True, "inputs are converted to float32"), "mask": Refused(None, "there are no masks")}


class Layer(Own):
    """Base of the layers. A layer of one's own has call(), and maybe build() with add_weight()."""

    _class: str | None = None
    _raw: Any = None  # the engine's layer, once it is needed
    _owner: Any = None  # the engine's model that has it
    _kept: Any = None  # weights on their way into a model
    _has_symbols = False  # it was called in the functional API

    @strict(_COMMON, name="unisono.keras.layers.Layer")
    def __init__(self, *, name: str | None = None, trainable: bool = True, dtype: Any = None, input_shape: Any = None):
        if self._class is None and not overrides(self, Layer, "call"):
            raise NotImplementedError("a layer of one's own needs a call() method: %s has none" % type(self).__name__)
        if self._class is None:
            check_float32(type(self).__name__, dtype)
        self._own_set_up()
        self._input_shape, self._input_dtype = input_shape, getattr(dtype, "name", dtype)
        self._config = {key: value for key, value in (("name", name), ("trainable", None if trainable else False)) if value is not None}
        self._raw = None

    # ---- the engine's layer ----

    def _native(self) -> Any:
        if self._raw is None:
            self._check_set_up()
            self._raw = self._make()
        return self._raw

    def _check_set_up(self) -> None:
        if "_config" not in vars(self):
            raise RuntimeError("%s.__init__ must call super().__init__() first" % type(self).__name__)

    def _make(self) -> Any:
        raw = _engine.Layer.own(type(self).__name__, self._config.get("name"), self)
        raw.trainable = self._config.get("trainable", True)
        return raw

    def _engine_layer(self) -> Any:
        return self._native()

    def _copy(self, keep: list) -> Any:
        """A layer of the engine like this one, for a graph that only asks for shapes; `keep` holds what it needs meanwhile."""
        twin = copy.deepcopy(self)
        keep.append(twin)
        return twin._native()

    def __deepcopy__(self, memo: dict) -> Layer:
        twin = memo[id(self)] = type(self).__new__(type(self))
        for key, value in vars(self).items():
            if key not in ("_raw", "_model", "_owner"):
                vars(twin)[key] = copy.deepcopy(value, memo)
        twin._raw = None
        return twin

    def _forget(self) -> None:
        """The engine dropped its layer together with a model that could not be made."""
        self._raw = self._owner = None
        if self._class is None:
            for part in self._parts():
                part._forget()

    def _check_free(self) -> None:
        if "_model" in vars(self):  # it was built or called on its own: its weights go with it
            self._kept = self.get_weights()
            del self._model
            self._forget()
            self._was_built = False
        if self._native().taken:
            raise ValueError("the layer %r belongs to a model already; make a new one (and set_weights, if it shall begin with the same weights)" % self.name)

    def _settle(self, model: Any, moved: bool) -> None:
        """The engine's model that has this layer is there; moved: it was another one's before."""
        self._owner = model
        if moved and self._raw is not None:
            self._raw.move(model)
        if self._class is None:
            self._begin_weights()
            for part in self._parts():
                part._settle(model, moved)
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self.set_weights(kept)

    def _shown(self) -> Any:
        return self

    @staticmethod
    def _of(raw: Any) -> Layer:
        """A layer of a model that came from a file."""
        from unisono.keras import layers

        kind = getattr(layers, raw.class_name, EngineLayer)
        out = object.__new__(kind if isinstance(kind, type) and issubclass(kind, EngineLayer) else EngineLayer)
        out._own_set_up()
        out._raw, out._input_shape, out._input_dtype = raw, None, None
        out._config = {}
        return out

    # ---- what users see ----

    def __call__(self, *inputs: Any, training: bool | None = None, **options: Any) -> Any:
        """Symbols for symbols (the functional API), tensors for tensors. training: of this call; None: what the model around it runs with, else False."""
        training = None if training is None else bool(training)
        flat: list = []
        for each in inputs:
            flat.extend(each if _is_several(each) else [each])
        flat += [options.pop(key) for key in ("value", "key") if options.get(key) is not None]
        if self._class == "MultiHeadAttention":
            self._be_causal(bool(options.pop("use_causal_mask", False)))
        if options:
            raise TypeError("%s cannot be called with %s" % (type(self).__name__, ", ".join(sorted(options))))
        if any(isinstance(each, KerasTensor) for each in flat):
            self._has_symbols = True
            return KerasTensor(self, flat, training=training)
        here = context()
        return self._alone(flat, training) if here.forced is None else self._inside(here, flat, training)

    def _be_causal(self, causal: bool) -> None:
        """use_causal_mask is a setting of the engine's layer: it is the same in all calls of one."""
        if causal == bool(self._config.get("use_causal_mask")):
            return
        if self._has_symbols and "_model" not in vars(self):
            raise NotImplementedError("%s was called with use_causal_mask=%s before; make one layer for each of the two" % (safe_text(self.name), not causal))
        self._check_free()
        self._config["use_causal_mask"] = causal
        self._forget()

    def _inside(self, here: Any, inputs: list, training: bool | None) -> Tensor:
        """Called by the call() of another layer: on its tape, and the first time as its child."""
        if here.building is not None:
            self._become_child(here.building, [spec_of(each) for each in inputs])
        raw = self._native()
        if not raw.built:
            raise ValueError("the layer %r was not called when the layer around it was built: call() must call the same layers every time" % self.name)
        return Tensor(here.forced.call_layer(raw, [raw_of(each) for each in inputs], training))

    def _become_child(self, around: Any, specs: list) -> None:
        """Part of the layer that is being built, unless it is already. Weights that it has from a life of its own go with it."""
        if self._owner is not None:
            self._check_free()
        if not self._native().built:
            around._engine_layer().add_child(self._native(), specs)

    def _alone(self, inputs: list, training: bool | None) -> Any:
        """Called with numbers, of any shape that fits its weights."""
        arrays = [as_numbers(each) for each in inputs]
        if self._owner is None:
            self._build_alone([("string" if isinstance(each, _engine.Strings) else "float32", (None,) + tuple(each.shape[1:])) for each in arrays])
        tape = tape_for(Host(self._owner, None), training)
        return Tensor(tape.call_layer(self._native(), [raw_of(each) for each in arrays], bool(training)))

    def _build_from_outside(self, input_shape: Any) -> None:
        if self._owner is None:
            several = bool(input_shape) and isinstance(input_shape[0], (list, tuple))
            dtype = "string" if self._class in ("TextVectorization", "SentenceEmbedding") else "float32"
            specs = [(dtype, (None,) + tuple(shape[1:])) for shape in (input_shape if several else [input_shape])]
            around = context().building
            if around is None:
                self._build_alone(specs)
            else:  # in the build() of the layer around it
                self._become_child(around, specs)

    def _build_alone(self, specs: list) -> None:
        """A model of this layer only, which keeps its weights until another model takes it."""
        from unisono.keras.models import Model

        symbols = [Input(shape[1:], dtype=dtype) for dtype, shape in specs]
        self._model = Model(symbols, self(symbols))

    @property
    def name(self) -> str:
        """Its name in the model."""
        raw = self._native()
        if raw.built or raw.taken or "name" in self._config:
            return raw.name
        return snake_case(self._class or type(self).__name__)  # until a model numbers it

    @property
    def trainable(self) -> bool:
        """Whether training changes its weights."""
        return self._native().trainable

    @trainable.setter
    def trainable(self, value: Any) -> None:
        self._native().trainable = bool(value)
        self._config["trainable"] = bool(value)

    @property
    def built(self) -> bool:
        """Whether it has its weights."""
        return self._native().built

    @built.setter
    def built(self, value: bool) -> None:
        """Keras's layers set it at the end of build(); here the engine knows."""

    @property
    def weights(self) -> list:
        """Its variables, in Keras's order."""
        return self._own_weights() if self._class is None else [Variable(parameter=each) for each in _parameters(self._native())]

    @property
    def trainable_weights(self) -> list:
        """The variables that training changes."""
        return [each for each in self.weights if each.trainable]

    trainable_variables = trainable_weights
    variables = weights

    @property
    def non_trainable_weights(self) -> list:
        """The variables that it does not change."""
        return [each for each in self.weights if not each.trainable]

    @property
    def output_shape(self) -> Any:
        """With None for the batch; None before it is built."""
        spec = self._native().output
        return None if spec is None else spec[1]

    def count_params(self) -> int:
        """How many numbers its weights have."""
        import math

        return sum(math.prod(each.shape) for each in self.weights)

    def get_weights(self) -> list:
        """Copies, in Keras's order."""
        return [each.numpy() for each in self.weights]

    def set_weights(self, weights: Any) -> None:
        """From arrays in Keras's order."""
        mine = self.weights
        if len(weights) != len(mine):
            raise ValueError("the layer %s has %d weights, got %d" % (safe_text(self.name), len(mine), len(weights)))
        for each, value in zip(mine, weights):
            each.assign(value)

    def get_config(self) -> dict:
        """Keras's config; a layer of one's own adds its arguments to it."""
        if self._class is None:
            return {"name": self.name, "trainable": self.trainable}
        return self._native().get_config()

    @classmethod
    def from_config(cls, config: dict[str, Any] | None) -> Any:
        """A layer of what get_config gave."""
        config = dict(config)
        return cls(**config)

    def __repr__(self):
        return "<%s name=%s, built=%s>" % (type(self).__name__, safe_text(self.name), self.built)


def _parameters(raw):
    own = raw.parameters()
    for child in raw.children():
        seen = {each.handle for each in own}
        own += [each for each in _parameters(child) if each.handle not in seen]
    return own


class EngineLayer(Layer):
    """A layer that the engine makes of Keras's class name and config."""

    _class = "Layer"
    _refused: dict = {}
    _none_counts: tuple = ()  # arguments whose None is not the default's other name

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        made: Any = vars(cls).get("__init__")
        if made is not None:
            made.__refused__ = cls._refused  # as @strict does, for the list of arguments

    def __init__(self, config: dict | None = None, common: dict | None = None):
        common = dict(common or {})
        shape = common.pop("input_shape", None)
        if common.get("batch_input_shape") is not None:
            shape = common.pop("batch_input_shape")[1:]
        if common.get("input_dim") is not None and self._class != "Embedding":
            shape = (common.pop("input_dim"),)
        self._check_names(config or {}, common)
        if self._class not in ("InputLayer", "TextVectorization") and not (self._class == "SentenceEmbedding" and common.get("dtype") == "string"):
            check_float32(type(self).__name__, common.get("dtype"))
        trainable = as_kind(type(self).__name__, "trainable", common.get("trainable", True), "bool")
        super().__init__(name=common.get("name"), trainable=trainable, dtype=common.get("dtype"), input_shape=shape)
        for key, value in (config or {}).items():
            if key.endswith("_initializer") and value is None and self._default_of(key) != "glorot_uniform":
                raise TypeError("%s(%s=None) is not supported: in Keras it is not the default, but GlorotUniform; name the one that is meant"
                                % (type(self).__name__, key))
        self._config = dict({key: _plain(value) for key, value in (config or {}).items() if value is not None or self._none_means(key)}, **self._config)
        self._native()  # wrong arguments are errors here

    def _check_names(self, config: dict, common: dict) -> None:
        """Unknown and refused arguments are a TypeError that names them."""
        declared = {key: value for key, value in config.items() if key in self._refused}
        check("unisono.keras.layers." + type(self).__name__, dict(common, **declared), [*config, "name", "trainable", "dtype", "input_shape"],
              dict(_COMMON, **self._refused))

    def _none_means(self, key: str) -> bool:
        """Whether None says something: it does where it is not the default. The engine then acts on it, or refuses it."""
        return self._default_of(key) is not None or key in self._none_counts

    def _default_of(self, key: str) -> Any:
        for kind in type(self).__mro__:
            found = inspect.signature(vars(kind)["__init__"]).parameters.get(key) if "__init__" in vars(kind) else None
            if found is not None:
                return found.default
        return None

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs of this shape (with the batch); a list of shapes for several inputs."""
        self._build_from_outside(input_shape)

    def _make(self) -> Any:
        return _engine.Layer(self._class, self._config)

    def _copy(self, keep: list) -> Any:
        return self._make()

    @property
    def kernel(self) -> Variable:
        """Its kernel, where it has one."""
        return self._named("kernel")

    @property
    def bias(self) -> Variable:
        """Its bias, where it has one."""
        return self._named("bias")

    def _named(self, name: str) -> Variable:
        for each in self.weights:
            if each.name == name:
                return each
        raise AttributeError("the layer %s has no %s" % (safe_text(self.name), name))
