"""Models: Sequential, the functional Model, compile, fit, evaluate, predict, weights and files. The engine does all of it."""

import os
import sys

import numpy as np

from unisono import _engine
from unisono.keras import callbacks as callbacks_module
from unisono.keras import losses as losses_module
from unisono.keras import metrics as metrics_module
from unisono.keras import optimizers as optimizers_module
from unisono.keras._data import Source, columns
from unisono.keras._graph import KerasTensor, entry_of, walk
from unisono.keras._tensor import Tensor, Variable, as_array, next_seed, raw_of, shared, tape_for
from unisono.keras.layers import InputLayer, Layer, _parameters

__all__ = ["Model", "Sequential", "load_model", "clone_model"]


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


class Model:
    """Model(inputs, outputs): a graph of layers, from Input to what they give."""

    def __new__(cls, *arguments, **keywords):
        if cls is Model and not arguments and not keywords:
            raise NotImplementedError("Model() needs inputs and outputs: Model(inputs, outputs), or use Sequential")
        return super().__new__(cls)

    def __init__(self, inputs=None, outputs=None, name: str = None):
        self._set_up(name)
        if inputs is None or outputs is None:
            raise NotImplementedError("models with a call() of one's own are not offered from Python: write Model(inputs, outputs) with the functional "
                                      "API, or a loop of one's own with a GradientTape")
        if isinstance(inputs, dict):
            inputs = list(inputs.values())
        self._inputs, self._outputs = _as_list(inputs), _as_list(outputs)
        for each in self._inputs + self._outputs:
            if not isinstance(each, KerasTensor):
                raise TypeError("a model is made from Input(...) to what layers give; got %r" % (each,))
        self._make_graph()

    def _set_up(self, name):
        from unisono.tf import distribute

        self._name, self._raw, self._layers = name, None, []
        self._seed = next_seed()
        self._optimizer = self._loss = self._metrics = None
        self._stop = False
        self._inner = {}  # Python layers by the engine's name, of models inside of this one
        self._strategy = distribute.in_scope(self)
        self._params = {}

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
        if self._seed is not None:
            self._raw.set_seed(self._seed)

    def _native(self):
        return self._raw

    @classmethod
    def _of(cls, raw):
        """A model that the engine made, from a file or a config."""
        sequential = not any(layer.class_name == "InputLayer" for layer in raw.layers())
        out = object.__new__(Sequential if sequential else Model)
        out._set_up(raw.name)
        out._raw, out._seed = raw, None
        out._layers = [Layer._of(each) for each in raw.layers()]
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

    def build(self, input_shape=None) -> None:
        """Makes the weights for inputs of this shape (with the batch)."""
        raw = self._native()
        if raw.built or input_shape is None:
            return
        raw.build([("float32", (None,) + tuple(input_shape[1:]))])
        self._made()

    def _build_for(self, arrays):
        raw = self._native()
        if not raw.built:
            specs = []
            for array in arrays:
                text = isinstance(array, _engine.Strings)
                specs.append(("string" if text else "float32", (None,) + tuple(array.shape[1:])))
            raw.build(specs)
            self._made()
        return raw

    # ---- what it is ----

    @property
    def name(self) -> str:
        return self._native().name

    @property
    def layers(self) -> list:
        self._native()
        return list(self._layers)

    def get_layer(self, name: str = None, index: int = None) -> Layer:
        """A layer by its name or place."""
        if index is not None:
            return self.layers[index]
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise ValueError("there is no layer %r; there are: %s" % (name, ", ".join(layer.name for layer in self.layers)))

    @property
    def built(self) -> bool:
        return self._native().built

    @property
    def weights(self) -> list:
        """All variables, in Keras's order."""
        out, seen = [], set()
        for layer in self._native().layers():
            for each in _parameters(layer):
                if each.handle not in seen:
                    seen.add(each.handle)
                    out.append(Variable(parameter=each))
        return out

    variables = weights

    @property
    def trainable_weights(self) -> list:
        return [each for each in self.weights if each.trainable]

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self) -> list:
        return [each for each in self.weights if not each.trainable]

    non_trainable_variables = non_trainable_weights

    @property
    def trainable(self) -> bool:
        return any(layer.trainable for layer in self.layers)

    @trainable.setter
    def trainable(self, value):
        for layer in self.layers:
            layer.trainable = value

    @property
    def input_shape(self):
        specs = [shape for _, shape in self._built().inputs]
        return specs[0] if len(specs) == 1 else specs

    @property
    def output_shape(self):
        specs = [shape for _, shape in self._built().outputs]
        return specs[0] if len(specs) == 1 else specs

    @property
    def input_names(self) -> list:
        found = [layer.name for layer in self._native().layers() if layer.class_name == "InputLayer"]
        return found or ["input_layer"]

    @property
    def output_names(self) -> list:
        outputs = getattr(self, "_outputs", None)
        if outputs:
            return [each._layer.name if each._layer is not None else each.name for each in outputs]
        layers = self._native().layers()
        return [layers[-1].name] if layers else []

    @property
    def optimizer(self):
        return self._optimizer

    @property
    def metrics_names(self) -> list:
        return list(self._params.get("names", ["loss"]))

    @property
    def stop_training(self) -> bool:
        return self._native().is_stopping()

    @stop_training.setter
    def stop_training(self, value):
        if value:
            self._native().stop_training()

    def count_params(self) -> int:
        return sum(int(np.prod(each.shape)) for each in self.weights)

    def summary(self, print_fn=None, **ignored) -> None:
        """Prints Keras's table."""
        text = self._native().summary()
        (print_fn or print)(text.rstrip("\n"))

    def get_config(self) -> dict:
        """Keras's config (as model.to_json has it)."""
        return self._native().get_config()

    @classmethod
    def from_config(cls, config):
        return Model._of(_engine.Model.from_config(config))

    def to_json(self) -> str:
        import json

        return json.dumps(self.get_config())

    # ---- calling ----

    def __call__(self, inputs, training=None, **ignored):
        """Forward: tensors for tensors; on a GradientTape when one is open."""
        flat = _as_list(inputs) if not isinstance(inputs, dict) else [inputs[name] for name in self.input_names]
        if any(isinstance(each, KerasTensor) for each in flat):
            raise NotImplementedError("a model inside of another one is not offered from Python: call its layers")
        raws = [raw_of(each) for each in flat] if len(flat) > 1 and not isinstance(inputs, np.ndarray) and self._many() else [raw_of(inputs)]
        if not self._native().built:
            self._build_for([Tensor.of(each) if isinstance(each, (int, float)) else each for each in raws])
        tape = tape_for(self, training)
        outputs = [Tensor(each) for each in self._raw.call(tape, raws)]
        return outputs[0] if len(outputs) == 1 else outputs

    call = __call__

    def _many(self):
        raw = self._native()
        return raw.built and len(raw.inputs) > 1

    @property
    def losses(self) -> list:
        """The regularisers' part of the loss, on the tape of the step."""
        return [Tensor(self._built().regularization(tape_for(self)))]

    # ---- compile ----

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, weighted_metrics=None, run_eagerly=False, steps_per_execution=1,
                jit_compile=None, **ignored) -> None:
        """What fit minimises, how, and what it measures."""
        raw = self._native()
        optimizer = optimizers_module.get(optimizer)
        names = self.output_names
        losses = [loss.get(name) for name in names] if isinstance(loss, dict) else _as_list(loss)
        if any(each is None for each in losses):
            raise ValueError("losses are given by output: %s" % ", ".join(names))
        weights = [loss_weights[name] for name in names] if isinstance(loss_weights, dict) else _as_list(loss_weights) or None
        picked = []
        for output, some in enumerate(self._metrics_of(metrics, names)):
            picked += [(metrics_module.native(each), output) for each in some]
        natives = [losses_module.native(each) for each in losses]
        raw.compile(optimizer._for_model(), natives, None if weights is None else [float(each) for each in weights], picked, optimizer._steps)
        self._optimizer, self._loss, self._metrics = optimizer, loss, metrics

    @staticmethod
    def _metrics_of(metrics, names):
        if metrics is None:
            return []
        if isinstance(metrics, dict):
            unknown = set(metrics) - set(names)
            if unknown:
                raise ValueError("metrics are given for %s, but the outputs are: %s" % (", ".join(sorted(unknown)), ", ".join(names)))
            return [_as_list(metrics.get(name)) for name in names]
        metrics = _as_list(metrics)
        if any(isinstance(each, (list, tuple)) for each in metrics):
            return [_as_list(each) for each in metrics]
        return [metrics]

    # ---- fit ----

    def _data_options(self, x, y, sample_weight, prefix=""):
        """Columns or a source, as the engine's options; what keeps them alive is in the options too."""
        if prefix == "" and x is None:
            raise ValueError("there is no data: give x (and y)")
        if Source.accepts(x):
            if y is not None:
                raise ValueError("y is part of the batches when x is a dataset or an iterator")
            source = Source(x, self._names(True), self._names(False))
            return {prefix + "batches": source.native}
        out = {prefix + "x": columns(x, self._names(True)), prefix + "y": columns(y, self._names(False)),
               (prefix + "weight" if prefix else "sample_weight"): None if sample_weight is None else as_array(sample_weight)}
        return out

    def _names(self, inputs):
        return self.input_names if inputs else self.output_names

    def _callbacks(self, given, verbose, params):
        """(the engine's list, the Python callbacks)"""
        given = [each for each in _as_list(given)]
        out = []
        for each in given:
            if hasattr(each, "set_model"):
                each.set_model(self)
            if hasattr(each, "set_params"):
                each.set_params(params)
            out.append(callbacks_module.engine_form(each))
        if verbose and not _is_own_stdout():
            bar = callbacks_module.ProgbarLogger(verbose)
            bar.set_params(params)
            out.append(bar._engine_form())
        return out

    def fit(self, x=None, y=None, batch_size=None, epochs: int = 1, verbose="auto", callbacks=None, validation_split: float = 0.0, validation_data=None,
            shuffle: bool = True, class_weight=None, sample_weight=None, initial_epoch: int = 0, steps_per_epoch=None, validation_steps=None,
            validation_batch_size=None, validation_freq: int = 1, *, replicas: int = 0, threads: int = 0, seed=None, **ignored):
        """Trains; returns a History. x and y: arrays (used as they are, without a copy), a unisono.tf.data.Dataset, or an iterator of batches."""
        verbose = 1 if verbose == "auto" else int(verbose)
        options = self._data_options(x, y, sample_weight)
        if validation_data is not None:
            options.update(self._validation_options(validation_data))
        if "batches" in options and batch_size is not None and hasattr(x, "_native_batches"):
            batch_size = None  # the dataset has its own (seed 002 gives both)
        steps = steps_per_epoch or options.get("batches") and options["batches"].length or None
        if steps is None and options.get("x"):
            size = batch_size or 32
            steps = -(-int(options["x"][0].shape[0] * (1 - validation_split)) // size)
        params = {"epochs": epochs, "steps": steps, "verbose": verbose}
        chosen = seed if seed is not None else self._seed
        options.update(batch_size=batch_size or 0, epochs=epochs, initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch or 0,
                       validation_split=float(validation_split or 0), shuffle=bool(shuffle), validation_steps=validation_steps or 0,
                       validation_batch_size=validation_batch_size or 0, validation_freq=validation_freq, replicas=replicas, threads=threads,
                       seed=chosen or 0, class_weight=_class_weight(class_weight), verbose=verbose if verbose and _is_own_stdout() else 0)
        history = callbacks_module.History()
        history.set_params(params)
        history.set_model(self)
        options["callbacks"] = self._callbacks(callbacks, verbose, params)
        raw = self._native()
        if options["verbose"]:
            sys.stdout.flush()
        if self._strategy is not None:
            self._place(options)
            options["strategy"] = self._strategy._engine_strategy()
        history.history = raw.fit(options)
        first = next(iter(history.history.values()), [])
        history.epoch = list(range(initial_epoch, initial_epoch + len(first)))
        return history

    def _place(self, options):
        """Under the strategy: weights must be there, and the same everywhere."""
        raw = self._native()
        if not raw.built:
            if not options.get("x"):
                raise ValueError("under a strategy a model that is trained from a dataset needs an input shape: begin it with keras.Input")
            self._build_for(options["x"])
        if self._optimizer is None:
            raise ValueError("the model must be compiled first")
        self._strategy._engine_strategy().place(raw)

    def _validation_options(self, data):
        if isinstance(data, (tuple, list)):
            x, y, weight = (tuple(data) + (None, None))[:3]
            return self._data_options(x, y, weight, "validation_")
        return self._data_options(data, None, None, "validation_")

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None, return_dict: bool = False, **ignored):
        """Loss and metrics on data."""
        verbose = 0 if verbose == "auto" and not _is_own_stdout() else 1 if verbose == "auto" else int(verbose)
        options = self._data_options(x, y, sample_weight)
        options.update(batch_size=batch_size or 0, steps_per_epoch=steps or 0, verbose=verbose if _is_own_stdout() else 0,
                       callbacks=self._callbacks(callbacks, 0, {}))
        if verbose:
            sys.stdout.flush()
        logs = self._native().evaluate(options)
        self._params["names"] = list(logs)
        if return_dict:
            return logs
        values = list(logs.values())
        return values[0] if len(values) == 1 else values

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """What the model gives, as NumPy arrays."""
        options = self._data_options(x, None, None)
        options.update(batch_size=batch_size or 0, steps_per_epoch=steps or 0, verbose=0, callbacks=self._callbacks(callbacks, 0, {}))
        if not self._native().built and options.get("x"):
            self._build_for(options["x"])
        outputs = [np.asarray(each) for each in self._native().predict(options)]
        return outputs[0] if len(outputs) == 1 else outputs

    def train_on_batch(self, x, y=None, sample_weight=None, return_dict: bool = False, reset_metrics: bool = False):
        """One step."""
        return self._on_batch("train_on_batch", x, y, sample_weight, return_dict, reset_metrics)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict: bool = False, reset_metrics: bool = False):
        """Loss and metrics of one batch."""
        return self._on_batch("test_on_batch", x, y, sample_weight, return_dict, reset_metrics)

    def _on_batch(self, which, x, y, sample_weight, return_dict, reset):
        raw = self._native()
        if reset:
            raw.reset_metrics()
        logs = getattr(raw, which)(self._data_options(x, y, sample_weight))
        values = list(logs.values())
        return logs if return_dict else values[0] if len(values) == 1 else values

    def predict_on_batch(self, x):
        return self.predict(x, batch_size=max(1, len(columns(x, self._names(True))[0].shape) and columns(x, self._names(True))[0].shape[0]))

    def reset_metrics(self) -> None:
        self._native().reset_metrics()

    # ---- weights and files ----

    def get_weights(self) -> list:
        """NumPy arrays in Keras's order (copies)."""
        return [np.asarray(each) for each in self._native().get_weights()]

    def set_weights(self, weights) -> None:
        """From NumPy arrays in Keras's order."""
        self._built().set_weights([shared(np.ascontiguousarray(np.asarray(each), np.float32)) for each in weights])

    def get_state(self) -> dict:
        """Weights, optimizer state and iterations, for a checkpoint dictionary."""
        return _arrays(self._native().get_state(), np.asarray)

    def set_state(self, state: dict) -> None:
        self._built().set_state(_arrays(state, shared))

    def save(self, filepath, overwrite: bool = True, **ignored) -> None:
        """.keras: all; .weights.h5 and .safetensors: weights."""
        path = os.fspath(filepath)
        if not overwrite and os.path.exists(path):
            raise FileExistsError("%s is there already" % path)
        self._native().save(path)

    def save_weights(self, filepath, overwrite: bool = True) -> None:
        path = os.fspath(filepath)
        if not path.endswith((".weights.h5", ".safetensors")):
            raise ValueError("the file of weights must end in .weights.h5 (or .safetensors), got %s" % path)
        self.save(path, overwrite)

    def load_weights(self, filepath) -> None:
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


def _class_weight(value):
    if value is None:
        return None
    out = [1.0] * (max(int(key) for key in value) + 1)
    for key, weight in value.items():
        out[int(key)] = float(weight)
    return out


def _is_own_stdout():
    """Whether what the engine writes to descriptor 1 is where sys.stdout goes."""
    try:
        return sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


class Sequential(Model):
    """A list of layers, each given what the one before gives."""

    def __init__(self, layers=None, name: str = None, trainable: bool = True):
        self._set_up(name)
        self._pending = []
        for layer in layers or []:
            self.add(layer)

    def add(self, layer) -> None:
        """Appends a layer."""
        if self._raw is not None:
            raise ValueError("the model is in use already: add layers before compile, fit or summary")
        if isinstance(layer, KerasTensor):
            if layer._layer is not None:
                raise ValueError("Sequential takes layers, not what they give")
            dtype, shape = layer._spec
            layer = InputLayer(shape[1:], dtype, layer.name)
        if not isinstance(layer, Layer):
            raise TypeError("Sequential takes layers, not %s" % type(layer).__name__)
        layer._check_free()
        if layer in self._pending:
            raise ValueError("the layer %r is in the model already" % layer.name)
        self._pending.append(layer)

    def pop(self) -> None:
        """Removes the last layer."""
        if self._raw is not None or not self._pending:
            raise ValueError("there is no layer to remove, or the model is in use already")
        self._pending.pop()

    def _native(self):
        if self._raw is None:
            layers = list(self._pending)
            if layers and not isinstance(layers[0], InputLayer) and layers[0]._input_shape is not None:
                shape = layers[0]._input_shape
                dtype = layers[0]._input_dtype or ("string" if layers[0]._class in ("TextVectorization", "SentenceEmbedding") else "float32")
                layers.insert(0, InputLayer((shape,) if isinstance(shape, int) else shape, dtype))
            try:
                self._raw = _engine.Model.sequential(self._name or "sequential", [layer._native() for layer in layers])
            except Exception:
                for layer in layers:
                    layer._forget()
                raise
            self._layers = [layer for layer in layers if not isinstance(layer, InputLayer)]
            self._made()
        return self._raw

    @property
    def layers(self) -> list:
        return [layer for layer in self._pending if not isinstance(layer, InputLayer)] if self._raw is None else list(self._layers)


def load_model(filepath, compile: bool = True, **ignored) -> Model:
    """A model from a .keras file, of unisono or of Keras."""
    path = os.fspath(filepath)
    if not os.path.exists(path):
        raise FileNotFoundError("there is no file %s" % path)
    return Model._of(_engine.Model.load(path))


def clone_model(model) -> Model:
    """The same layers with new weights."""
    config = model.get_config()
    return Model._of(_engine.Model.from_config(config))


