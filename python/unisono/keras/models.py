"""Models: Sequential, the functional Model, models with a call() of one's own, models inside of models; weights and files. What they do with data
is in _fit.py. The engine does all of it.

A model inside of another one is the engine's layer from then on: its weights are that model's, and it can still be called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np

from unisono import _engine
from unisono.extend import Refused, strict, safe_text
from unisono.keras import optimizers as optimizers_module
from unisono.keras._fit import Trains, as_list
from unisono.keras._graph import KerasTensor, entry_of, walk
from unisono.keras._layer import Host, Layer, _parameters
from unisono.keras._nested import Inside
from unisono.keras._own import overrides
from unisono.keras._tensor import Tensor, Variable, context, next_seed, raw_of, shared, tape_for
from unisono.keras.layers import InputLayer

if TYPE_CHECKING:
    from unisono.keras.optimizers import Optimizer

__all__ = ["Model", "Sequential", "load_model", "clone_model"]


class Model(Inside, Trains):
    """Model(inputs, outputs): a graph of layers, from Input to what they give. A subclass with call() is a model of one's own."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Model:
        if cls is Model and not arguments and not keywords:
            raise NotImplementedError("Model() needs inputs and outputs: Model(inputs, outputs); or use Sequential, or a subclass with call()")
        return super().__new__(cls)

    @strict({"dtype": Refused(None, "the engine computes in float32", ("float32",)), "autocast": Refused(True, "inputs are converted to float32"),
             "activity_regularizer": Refused(None, "give it to a layer")}, name="unisono.keras.Model")
    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None, trainable: bool = True):
        self._set_up(name)
        self._freezes = not trainable
        if inputs is None or outputs is None:
            if not overrides(self, Model, "call"):
                raise NotImplementedError("a model without inputs and outputs needs a call() method: %s has none" % type(self).__name__)
            self._is_own = True
            return
        if isinstance(inputs, dict):
            inputs = list(inputs.values())
        self._inputs, self._outputs = as_list(inputs), as_list(outputs)
        for each in self._inputs + self._outputs:
            if not isinstance(each, KerasTensor):
                raise TypeError("a model is made from Input(...) to what layers give; got %r" % (each,))
        self._make_graph()
        if not trainable:
            self.trainable = False

    def _set_up(self, name):
        from unisono.tf import distribute

        self._inside_set_up()
        self._name, self._raw, self._layers = name, None, []
        self._compile_later: Any = None
        self._seed = next_seed()
        self._optimizer = self._loss = self._metrics = None
        self._stop = False
        self._strategy = distribute.in_scope(self)
        self._params = {}
        self._freezes = False

    # ---- making ----

    def _make_graph(self):
        order = walk(self._outputs)
        for each in self._inputs:
            if each not in order:
                order.insert(0, each)
        stray = [node for node in order if node._layer is None and node not in self._inputs]
        if stray:
            raise ValueError("the outputs depend on an Input that is not among the model's inputs: %r" % stray[0])
        named = 0
        for node in self._inputs:
            if node.name is None:
                node.name = "input_layer" if named == 0 else "input_layer_%d" % named
                named += 1
        seen = []
        for node in order:
            if node._layer is not None and node._layer not in seen:
                node._layer._check_free()
                seen.append(node._layer)
        nodes = [entry_of(node, order, lambda layer: layer._native()) for node in order]
        try:
            self._raw = _engine.Model.graph(self._name, nodes, [order.index(each) for each in self._inputs], [order.index(each) for each in self._outputs])
        except Exception:
            for layer in seen:
                layer._forget()
            raise
        by_name = {layer.name: layer for layer in seen}
        self._layers = [by_name.get(raw.name) or Layer._of(raw) for raw in self._raw.layers()]
        self._made()

    def _made(self):
        """The engine's model is there (and when its input is known, its weights)."""
        if self._seed is not None:
            self._raw.set_seed(self._seed)
        if self._raw.built:
            for layer in self._layers:
                layer._settle(self._raw, False)

    def _native(self):
        if self._raw is None:
            if self._host is not None:
                raise ValueError("the model %r is part of another one now: it can be called and has its weights, but it is that model that is "
                                 "trained and saved" % self._name)
            if self._is_own:
                raise ValueError("the model %r is not built yet: call it with data, fit it, or call build(input_shape)" % (self._name or type(self).__name__))
            self._make_graph()
        return self._raw

    @classmethod
    def _of(cls, raw):
        """A model that the engine made, from a file or a config."""
        sequential = not any(layer.class_name == "InputLayer" for layer in raw.layers())
        out = object.__new__(Sequential if sequential else Model)
        out._set_up(raw.name)
        out._raw, out._seed = raw, None
        out._layers = [Layer._of(each) for each in raw.layers()]
        for layer in out._layers:
            layer._settle(raw, False)
        out._pending = []
        native = raw.optimizer()
        if native is not None:
            out._optimizer = optimizers_module.of_native(native)
        return out

    def _built(self):
        """The engine's model, with weights."""
        raw = self._native()
        if not raw.built:
            raise ValueError("the model %r has no weights yet: give its first layer an input shape (keras.Input), call build(), or train it" % self.name)
        return raw

    def _for_tape(self):
        return self._built()

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights for inputs of this shape (with the batch)."""
        if input_shape is None or context().building is self:
            return
        if self._is_own:
            if self._raw is None:
                shapes = [input_shape] if not input_shape or not isinstance(input_shape[0], (list, tuple)) else input_shape
                self._make_own([("float32", (None,) + tuple(each[1:])) for each in shapes])
            return
        raw = self._native()
        if not raw.built:
            raw.build([("float32", (None,) + tuple(input_shape[1:]))])
            self._made()

    def _build_from_outside(self, input_shape):
        Model.build(self, input_shape)

    def _build_for(self, arrays):
        specs = [("string" if isinstance(array, _engine.Strings) else "float32", (None,) + tuple(array.shape[1:])) for array in arrays]
        if self._is_own and self._raw is None:
            self._make_own(specs)
        raw = self._native()
        if not raw.built:
            raw.build(specs)
            self._made()
        return raw

    # ---- what it is ----

    @property
    def name(self) -> str:
        """Its name."""
        return self._raw.name if self._raw is not None else self._name or (type(self).__name__ if self._is_own else self._native().name)

    @property
    def layers(self) -> list:
        """Its layers, in Keras's order."""
        if self._is_own:
            return [layer._shown() for layer in self._parts()]
        if self._host is None:
            self._native()
        return [layer._shown() for layer in self._layers]

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """A layer by its name or place."""
        if index is not None:
            return self.layers[index]
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise ValueError("there is no layer %r; there are: %s" % (name, ", ".join(safe_text(layer.name) for layer in self.layers)))

    @property
    def built(self) -> bool:
        """Whether it has its weights."""
        return self._host is not None or (self._raw is not None if self._is_own else self._native().built)

    @built.setter
    def built(self, value: bool) -> None:
        """Keras's models set it at the end of build(); here the engine knows."""

    @property
    def weights(self) -> list:
        """All variables, in Keras's order."""
        if self._is_own:
            return self._own_weights()
        out, seen = [], set()
        if self._host is not None:
            for weight in [weight for layer in self._layers for weight in layer.weights]:
                if weight._p.handle not in seen:
                    seen.add(weight._p.handle)
                    out.append(weight)
            return out
        for layer in self._native().layers():
            for each in _parameters(layer):
                if each.handle not in seen:
                    seen.add(each.handle)
                    out.append(Variable(parameter=each))
        return out

    variables = weights

    @property
    def trainable_weights(self) -> list:
        """The variables that training changes."""
        return [each for each in self.weights if each.trainable]

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self) -> list:
        """The variables that it does not change."""
        return [each for each in self.weights if not each.trainable]

    non_trainable_variables = non_trainable_weights

    @property
    def trainable(self) -> bool:
        """Whether any layer is trained; setting it sets all."""
        return any(layer.trainable for layer in self.layers)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self.layers:
            layer.trainable = value

    @property
    def input_shape(self) -> Any:
        """With None for the batch; a list when there are several."""
        specs = [shape for _, shape in self._built().inputs]
        return specs[0] if len(specs) == 1 else specs

    @property
    def output_shape(self) -> Any:
        """With None for the batch; a list when there are several."""
        specs = [shape for _, shape in self._built().outputs]
        return specs[0] if len(specs) == 1 else specs

    @property
    def input_names(self) -> list:
        """The names of the inputs."""
        found = [layer.name for layer in self._native().layers() if layer.class_name == "InputLayer"]
        return found or ["input_layer"]

    @property
    def output_names(self) -> list:
        """The names of the outputs."""
        outputs = getattr(self, "_outputs", None)
        if outputs:
            return [each._layer.name if each._layer is not None else each.name for each in outputs]
        layers = self._native().layers()
        return [layers[-1].name] if layers else []

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer of compile; None before it."""
        return self._optimizer

    @property
    def metrics_names(self) -> list:
        """The names of what evaluate gives."""
        return list(self._params.get("names", ["loss"]))

    @property
    def stop_training(self) -> bool:
        """Whether fit ends after this batch; a callback sets it."""
        return self._native().is_stopping()

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        if value:
            self._native().stop_training()

    def count_params(self) -> int:
        """How many numbers its weights have."""
        return sum(int(np.prod(each.shape)) for each in self.weights)

    @strict({"expand_nested": Refused(False, "a model inside is one line"), "show_trainable": Refused(False, "see layer.trainable"),
             "layer_range": Refused(None, "all layers are shown")}, name="unisono.keras.Model.summary")
    def summary(self, print_fn: Callable[[str], Any] | None = None) -> None:
        """Prints Keras's table."""
        text = self._native().summary()
        (print_fn or print)(safe_text(text.rstrip("\n")))

    def get_config(self) -> dict:
        """Keras's config (as model.to_json has it)."""
        return self._native().get_config()

    @classmethod
    def from_config(cls, config: dict[str, Any] | None) -> Any:
        """A model of what get_config gave."""
        return Model._of(_engine.Model.from_config(config))

    def to_json(self) -> str:
        """get_config as JSON."""
        import json

        return json.dumps(self.get_config())

    # ---- calling ----

    def __call__(self, inputs, training=None):
        """Forward: tensors for tensors; on a GradientTape when one is open."""
        flat = as_list(inputs) if not isinstance(inputs, dict) else [inputs[name] for name in self.input_names]
        if any(isinstance(each, KerasTensor) for each in flat):
            return KerasTensor(self._as_part(), flat, training=training)
        here = context()
        if here.building is not None or (here.forced is not None and self._nested is not None):
            return self._as_part()._inside(here, flat, training)
        if self._host is not None:
            return Tensor(tape_for(Host(self._host, self._seed), training).call_layer(self._nested._native(), [raw_of(each) for each in flat], bool(training)))
        if here.replica is not None and here.recording is not None and ((self._is_own and self._raw is None) or not self._native().built):
            raise ValueError("model %s has no weights yet, and a strategy needs them before its first run: give the first layer input_shape=, or call "
                             "model.build((None, ...)) before strategy.run" % safe_text(self.name))
        if self._is_own and self._raw is None:
            self._build_for([Tensor.of(each) for each in flat])
        raws = [raw_of(each) for each in flat] if len(flat) > 1 and not isinstance(inputs, np.ndarray) and self._many() else [raw_of(inputs)]
        if not self._native().built:
            self._build_for([Tensor.of(each) if isinstance(each, (int, float)) else each for each in raws])
        tape = tape_for(self, training)
        outputs = [Tensor(each) for each in self._raw.call(tape, raws, bool(training))]
        return outputs[0] if len(outputs) == 1 else outputs

    def _many(self):
        raw = self._native()
        return raw.built and len(raw.inputs) > 1

    @property
    def losses(self) -> list:
        """The regularisers' part of the loss, on the tape of the step."""
        return [Tensor(self._built().regularization(tape_for(self)))]

    # ---- weights and files ----

    def get_weights(self) -> list:
        """NumPy arrays in Keras's order (copies)."""
        if self._is_own or self._host is not None:
            return [each.numpy() for each in self.weights]
        return [np.asarray(each) for each in self._native().get_weights()]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """From NumPy arrays in Keras's order."""
        if self._is_own or self._host is not None:
            mine = self.weights
            if len(mine) != len(weights):
                raise ValueError("the model %s has %d weights, got %d" % (safe_text(self.name), len(mine), len(weights)))
            for each, value in zip(mine, weights):
                each.assign(value)
            return
        self._built().set_weights([shared(np.ascontiguousarray(np.asarray(each), np.float32)) for each in weights])

    def get_state(self) -> dict:
        """Weights, optimizer state and iterations, for a checkpoint dictionary."""
        return _arrays(self._native().get_state(), np.asarray)

    def set_state(self, state: dict) -> None:
        """What get_state gave, into the model."""
        self._built().set_state(_arrays(state, shared))

    @strict({"zipped": Refused(None, "a .keras file is a zip archive", (True,)), "include_optimizer": Refused(True, "save_weights writes the weights alone")},
            name="unisono.keras.Model.save")
    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """.keras: all; .weights.h5 and .safetensors: weights."""
        path = os.fspath(filepath)
        if not overwrite and os.path.exists(path):
            raise FileExistsError("%s is there already" % path)
        self._native().save(path)

    @strict({"max_shard_size": Refused(None, "weights are one file")}, name="unisono.keras.Model.save_weights")
    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Writes .weights.h5 or .safetensors."""
        path = os.fspath(filepath)
        if not path.endswith((".weights.h5", ".safetensors")):
            raise ValueError("the file of weights must end in .weights.h5 (or .safetensors), got %s" % path)
        self.save(path, overwrite)

    @strict({"skip_mismatch": Refused(False, "all weights must fit"), "by_name": Refused(False, "weights are matched by their place in the file"),
             "objects_to_skip": Refused(None, "all weights are loaded")}, name="unisono.keras.Model.load_weights")
    def load_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Reads weights of such a file, or of a .keras file."""
        self._built().load_weights(os.fspath(filepath))

    def __reduce__(self):
        self._built()
        return (_revive, (self.get_config(), self.get_state()))


def _revive(config, state):
    model = Model._of(_engine.Model.from_config(config))
    model.set_state(state)
    return model


def _arrays(tree, convert):
    if isinstance(tree, dict):
        return {key: _arrays(value, convert) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_arrays(value, convert) for value in tree]
    return convert(tree) if hasattr(tree, "shape") else tree


class Sequential(Model):
    """A list of layers, each given what the one before gives."""

    @strict(name="unisono.keras.Sequential")
    def __init__(self, layers: Any = None, name: str | None = None, trainable: bool = True):
        self._set_up(name)
        self._freezes = not trainable
        self._pending = []
        for layer in layers or []:
            self.add(layer)

    def add(self, layer: Any) -> None:
        """Appends a layer."""
        if self._raw is not None:
            raise ValueError("the model is in use already: add layers before compile, fit or summary")
        if isinstance(layer, KerasTensor):
            if layer._layer is not None:
                raise ValueError("Sequential takes layers, not what they give")
            dtype, shape = layer._spec
            layer = InputLayer(shape[1:], dtype, layer.name)
        if isinstance(layer, Model):
            layer = layer._as_part()
        if not isinstance(layer, Layer):
            raise TypeError("Sequential takes layers, not %s" % type(layer).__name__)
        layer._check_free()
        if layer in self._pending:
            raise ValueError("the layer %r is in the model already" % layer.name)
        self._pending.append(layer)
        if self._freezes:
            layer.trainable = False

    def pop(self) -> None:
        """Removes the last layer."""
        if self._raw is not None or not self._pending:
            raise ValueError("there is no layer to remove, or the model is in use already")
        self._pending.pop()

    def _with_input(self):
        layers = list(self._pending)
        if layers and not isinstance(layers[0], InputLayer) and layers[0]._input_shape is not None:
            shape = layers[0]._input_shape
            dtype = layers[0]._input_dtype or ("string" if layers[0]._class in ("TextVectorization", "SentenceEmbedding") else "float32")
            layers.insert(0, InputLayer((shape,) if isinstance(shape, int) else shape, dtype))
        return layers

    def _native(self):
        if self._raw is None:
            if self._host is not None:
                return super()._native()
            layers = self._with_input()
            try:
                self._raw = _engine.Model.sequential(self._name or "sequential", [layer._native() for layer in layers])
            except Exception:
                for layer in layers:
                    layer._forget()
                raise
            self._layers = [layer for layer in layers if not isinstance(layer, InputLayer)]
            self._made()
        return self._raw

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """A layer by its name or place."""
        if name is not None and self._raw is None and self._host is None and isinstance((self._with_input() or [None])[0], InputLayer):
            self._native()  # numbers the layers
        return super().get_layer(name, index)

    @property
    def layers(self) -> list:
        """Its layers, without the input."""
        layers = self._layers if self._raw is not None or self._host is not None else self._pending
        return [layer._shown() for layer in layers if not isinstance(layer, InputLayer)]


@strict({"custom_objects": Refused(None, "the engine knows its own layers only: build the model and call load_weights", ({},))}, name="unisono.keras.models.load_model")
def load_model(filepath: str | os.PathLike[str], compile: bool = True) -> Model:
    """A model from a .keras file, of unisono or of Keras. compile=False: as if it had not been compiled."""
    path = os.fspath(filepath)
    if not os.path.exists(path):
        raise FileNotFoundError("there is no file %s" % path)
    model = Model._of(_engine.Model.load(path))
    if not compile:
        model._optimizer = None
    return model


@strict({"input_tensors": Refused(None, "the clone has inputs of its own"), "clone_function": Refused(None, "layers are made from their configs"),
         "call_function": Refused(None, "layers are made from their configs"), "recursive": Refused(False, "models inside are cloned as they are")},
        name="unisono.keras.models.clone_model")
def clone_model(model: Model) -> Model:
    """The same layers with new weights."""
    config = model.get_config()
    return Model._of(_engine.Model.from_config(config))


