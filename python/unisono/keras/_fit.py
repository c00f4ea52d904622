"""compile, fit, evaluate, predict and their relatives: what a Model does with data. The engine does the work; here its options are made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from unisono import _engine
from unisono.extend import strict, safe_text
from unisono.keras import callbacks as callbacks_module
from unisono.keras import losses as losses_module
from unisono.keras import metrics as metrics_module
from unisono.keras import optimizers as optimizers_module
from unisono.keras._data import Source, columns
from unisono.keras._tensor import as_array

if TYPE_CHECKING:
    from unisono.keras.callbacks import Callback, History
    from unisono.keras.optimizers import Optimizer

__all__ = ["Trains", "as_list"]


def as_list(value: Any) -> list[Any]:
    """A list of one or several."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


class Trains:
    """The part of Model that trains."""

    # ---- compile ----

    @strict(name="unisono.keras.Model.compile")
    def compile(self, optimizer: Optimizer | str = "rmsprop", loss: Any = None, loss_weights: Any = None, metrics: Any = None,
                weighted_metrics: Any = None,
                run_eagerly: bool = False, steps_per_execution: int = 1, jit_compile: Any = None) -> None:
        """What fit minimises, how, and what it measures."""
        if self._is_own and self._raw is None:  # when it is built
            self._compile_later = dict(optimizer=optimizer, loss=loss, loss_weights=loss_weights, metrics=metrics, weighted_metrics=weighted_metrics)
            return
        raw = self._native()
        optimizer = optimizers_module.get(optimizer)
        names = self.output_names
        losses = [loss.get(name) for name in names] if isinstance(loss, dict) else as_list(loss)
        if any(each is None for each in losses):
            raise ValueError("losses are given by output: %s" % ", ".join(map(safe_text, names)))
        weights = [loss_weights[name] for name in names] if isinstance(loss_weights, dict) else as_list(loss_weights) or None
        picked = []
        for given, weighted in ((metrics, False), (weighted_metrics, True)):
            for output, some in enumerate(self._metrics_of(given, names)):
                picked += [(metrics_module.native(each), output, weighted) for each in some]
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
                raise ValueError("metrics are given for %s, but the outputs are: %s" % (", ".join(sorted(unknown)), ", ".join(map(safe_text, names))))
            return [as_list(metrics.get(name)) for name in names]
        metrics = as_list(metrics)
        if any(isinstance(each, (list, tuple)) for each in metrics):
            return [as_list(each) for each in metrics]
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
        given = list(as_list(given))
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

    @strict(name="unisono.keras.Model.fit")
    def fit(self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int = 1, verbose: int | str = "auto",
            callbacks: Callback | Sequence[Callback] | None = None, validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: dict[int, float] | None = None, sample_weight: Any = None, initial_epoch: int = 0, steps_per_epoch: int | None = None,
            validation_steps: int | None = None, validation_batch_size: int | None = None, validation_freq: int = 1, *, replicas: int = 0,
            threads: int = 0, seed: int | None = None) -> History:
        """Trains; returns a History. x and y: arrays (used as they are, without a copy), a unisono.tf.data.Dataset, or an iterator of batches."""
        self._check_steps("fit", "train_step", "test_step", "make_train_function")
        if class_weight is not None and sample_weight is not None:
            raise ValueError("class_weight and sample_weight cannot be given together: multiply them into sample_weight")
        verbose = 1 if verbose == "auto" else int(verbose)
        self._ensure(x)
        options = self._data_options(x, y, sample_weight)
        if validation_data is not None:
            options.update(self._validation_options(validation_data))
        if "batches" in options and batch_size is not None and not hasattr(x, "_native_batches"):
            raise ValueError("batch_size is for arrays: the batches of a dataset or an iterator have their own size")
        if "batches" in options:
            batch_size = None  # the dataset has its own (seed 002 gives both)
        steps_per_epoch, batch_size = _count("steps_per_epoch", steps_per_epoch), _count("batch_size", batch_size)
        if epochs < 0 or initial_epoch < 0:
            raise ValueError("epochs (%r) and initial_epoch (%r) must not be negative" % (epochs, initial_epoch))
        steps = steps_per_epoch or options.get("batches") and options["batches"].length or None
        if steps is None and options.get("x"):
            size = batch_size or 32
            steps = -(-int(options["x"][0].shape[0] * (1 - validation_split)) // size)
        params = {"epochs": epochs, "steps": steps, "verbose": verbose}
        chosen = seed if seed is not None else self._seed
        options.update(batch_size=batch_size, epochs=epochs or _engine.NO_EPOCHS, initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch,
                       validation_split=float(validation_split or 0), shuffle=bool(shuffle), validation_steps=_count("validation_steps", validation_steps),
                       validation_batch_size=_count("validation_batch_size", validation_batch_size), validation_freq=_count("validation_freq", validation_freq),
                       replicas=replicas, threads=threads,
                       seed=0 if chosen is None else int(chosen) or _engine.SEED_ZERO, class_weight=_class_weight(class_weight), verbose=verbose if verbose and _is_own_stdout() else 0)
        self._check_compiled("fit")
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
        self._history_from = None
        history.history = raw.fit(options)
        first = next(iter(history.history.values()), [])
        start = initial_epoch if self._history_from is None else self._history_from  # a callback has resumed an earlier fit
        history.epoch = list(range(start, start + len(first)))
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

    @strict(name="unisono.keras.Model.evaluate")
    def evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: int | str = "auto", sample_weight: Any = None,
                 steps: int | None = None, callbacks: Callback | Sequence[Callback] | None = None, return_dict: bool = False) -> Any:
        """Loss and metrics on data."""
        self._check_steps("evaluate", "test_step", "make_test_function")
        verbose = 0 if verbose == "auto" and not _is_own_stdout() else 1 if verbose == "auto" else int(verbose)
        self._ensure(x)
        self._check_compiled("evaluate")
        options = self._data_options(x, y, sample_weight)
        options.update(batch_size=_count("batch_size", batch_size), steps_per_epoch=_count("steps", steps), verbose=verbose if _is_own_stdout() else 0,
                       callbacks=self._callbacks(callbacks, 0, {}))
        if verbose:
            sys.stdout.flush()
        logs = self._native().evaluate(options)
        self._params["names"] = list(logs)
        if return_dict:
            return logs
        values = list(logs.values())
        return values[0] if len(values) == 1 else values

    @strict(name="unisono.keras.Model.predict")
    def predict(self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", steps: int | None = None,
                callbacks: Callback | Sequence[Callback] | None = None) -> Any:
        """What the model gives, as NumPy arrays."""
        self._check_steps("predict", "predict_step", "make_predict_function")
        self._ensure(x)
        if self._host is not None:
            return self._predict_inside(x, batch_size or 32)
        options = self._data_options(x, None, None)
        options.update(batch_size=_count("batch_size", batch_size), steps_per_epoch=_count("steps", steps), verbose=0, callbacks=self._callbacks(callbacks, 0, {}))
        if not self._native().built and options.get("x"):
            self._build_for(options["x"])
        outputs = [np.asarray(each) for each in self._native().predict(options)]
        return outputs[0] if len(outputs) == 1 else outputs

    def _predict_inside(self, x, size):
        """A model that is part of another one: batch after batch through its own layers."""
        arrays = [np.asarray(each) for each in columns(x, ())]
        parts = [[each[begin:begin + size] for each in arrays] for begin in range(0, len(arrays[0]), size)]
        return np.concatenate([np.asarray(self(part if len(part) > 1 else part[0], training=False)) for part in parts])

    @strict(name="unisono.keras.Model.train_on_batch")
    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: dict[int, float] | None = None, return_dict: bool = False) -> Any:
        """One step; the loss and metrics of this batch."""
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError("class_weight and sample_weight cannot be given together: multiply them into sample_weight")
            sample_weight = _by_class(class_weight, y)
        return self._on_batch("train_on_batch", x, y, sample_weight, return_dict)

    @strict(name="unisono.keras.Model.test_on_batch")
    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Loss and metrics of one batch."""
        return self._on_batch("test_on_batch", x, y, sample_weight, return_dict)

    def _on_batch(self, which, x, y, sample_weight, return_dict):
        self._check_steps(which, "train_step" if which == "train_on_batch" else "test_step")
        self._ensure(x)
        self._check_compiled(which)
        raw = self._native()
        raw.reset_metrics()
        logs = getattr(raw, which)(self._data_options(x, y, sample_weight))
        values = list(logs.values())
        return logs if return_dict else values[0] if len(values) == 1 else values

    def predict_on_batch(self, x: Any) -> Any:
        """What the model gives for one batch."""
        return self.predict(x, batch_size=max(1, len(columns(x, self._names(True))[0].shape) and columns(x, self._names(True))[0].shape[0]))

    def reset_metrics(self) -> None:
        """Begins the metrics anew."""
        self._native().reset_metrics()

    def _check_compiled(self, function: str) -> None:
        if self._optimizer is None:
            raise ValueError("the model must be compiled first: call compile before %s" % function)

    def _check_steps(self, function: str, *steps: str) -> None:
        """What a subclass overrides or has, and Keras's function of this name would use, is not overlooked."""
        for name in steps + (("compute_loss", "compute_metrics") if function != "predict" else ()):
            if hasattr(type(self), name):
                raise NotImplementedError("%s does not call a %s of one's own: write the loop around it (a GradientTape and apply_gradients)" % (function, name))
        for name, value in vars(self).items() if function != "predict" else ():
            if isinstance(value, metrics_module.Metric):
                raise NotImplementedError("%s does not report the metric self.%s that call() may update: give metrics to compile, or write the loop (a GradientTape and "
                                          "apply_gradients)" % (function, name))


def _count(name, value):
    """How many; 0 for the engine is what None is here."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or int(value) != value or value < 1:
        raise ValueError("%s is a whole number of at least 1, or None; got %r" % (name, value))
    return int(value)


def _by_class(weights, y):
    """The weight of each sample, from its class number or one-hot row."""
    y = np.asarray(y)
    numbers = y.argmax(axis=-1) if y.ndim > 1 and y.shape[-1] > 1 else y.reshape(len(y))
    return np.asarray([float(weights.get(int(each), 1.0)) for each in numbers], np.float32)


def _class_weight(value):
    if not value:  # {}: every class weighs 1
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
