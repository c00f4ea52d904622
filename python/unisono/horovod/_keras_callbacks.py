"""Horovod's callbacks for Keras. The classes are made for the Keras that is asked for: Keras 3 and tf_keras have different base classes."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

from unisono.horovod import _core, _numpy


def variables_of(model: Any) -> list[Any]:
    """The model's weights and its optimizer's state."""
    optimizer = getattr(model, "optimizer", None)
    state = getattr(optimizer, "variables", []) if optimizer is not None else []
    return list(model.weights) + list(state() if callable(state) else state)


def broadcast_variables(variables: Any, root_rank: int) -> None:
    """The root's values on all ranks, of Keras or TensorFlow variables."""
    import numpy

    for variable in variables:
        value = variable.numpy() if hasattr(variable, "numpy") else numpy.asarray(variable)
        value = numpy.asarray(value)
        if value.dtype.kind in "OSU":
            continue
        got = _numpy.broadcast(value, root_rank)
        if _core.rank() != root_rank:
            variable.assign(got)


class _Broadcast:
    """The root's weights and optimizer state on all ranks, at the end of the first batch (before it there is no optimizer state)."""

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None):
        super().__init__()
        self.root_rank, self.broadcast_done = root_rank, False
        self.local = {id(variable) for variable in local_variables or ()}  # of this rank alone
        self.local_variables = local_variables  # which keeps them, and so their ids

    def _shared(self, variables: Any) -> list[Any]:
        return [variable for variable in variables if id(variable) not in self.local]

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.broadcast_done and self.model.weights:
            broadcast_variables(self._shared(self.model.weights), self.root_rank)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            broadcast_variables(self._shared(variables_of(self.model)), self.root_rank)
            self.broadcast_done = True


class _MetricAverage:
    """Metrics at the end of an epoch are averages over the ranks; put it before callbacks that use them."""

    def __init__(self, device: str = ""):
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs:
            import numpy

            names = sorted(name for name, value in logs.items() if isinstance(value, (int, float)) or hasattr(value, "dtype"))
            values = _numpy.reduce_array(numpy.array([float(logs[name]) for name in names], numpy.float64), _core.Average)
            logs.update(zip(names, values.tolist()))


class _Schedule:
    """The learning rate is initial_lr times multiplier(epoch), from start_epoch to end_epoch; without staircase at every batch."""

    def __init__(self, initial_lr: float, multiplier: Any, start_epoch: int = 0, end_epoch: int | None = None, staircase: bool = True,
                 momentum_correction: bool = True, steps_per_epoch: int | None = None):
        super().__init__()
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase if callable(multiplier) else True
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.current_epoch, self.restore_momentum = 0, None
        if initial_lr is None:
            raise ValueError("LearningRateScheduleCallback needs initial_lr")

    def _rate(self) -> float:
        return float(_read(self.model.optimizer, "learning_rate"))

    def _set(self, epoch: float) -> None:
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        _write(self.model.optimizer, "learning_rate", new)
        momentum = getattr(self.model.optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, float) and old:
            # Momentum has the old rate in it: scaled for one batch (Goyal et al. 2017).
            self.restore_momentum = momentum
            self.model.optimizer.momentum = momentum * new / old

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = self.steps_per_epoch or (self.params or {}).get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("the number of steps of an epoch is not known: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.current_epoch < self.start_epoch or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if self.staircase:
            if batch == 0:
                self._set(self.current_epoch)
        else:
            self._set(self.current_epoch + float(batch) / self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.restore_momentum is not None:
            self.model.optimizer.momentum, self.restore_momentum = self.restore_momentum, None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()


class _Warmup:
    """From initial_lr / size to initial_lr in warmup_epochs: large batches begin gently."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: int | None = None, verbose: int = 0):
        def multiplier(epoch: float) -> float:
            # Rounded up by one batch, so that the last batch of the warm-up has the whole rate.
            epoch += 1.0 / self.steps_per_epoch
            return 1.0 / _core.size() * (epoch * (_core.size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, start_epoch=0, end_epoch=warmup_epochs, staircase=False, momentum_correction=momentum_correction,
                         steps_per_epoch=steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)  # type: ignore[misc]
        if epoch == self.end_epoch - 1 and self.verbose > 0 and _core.rank() == 0:
            print("\nEpoch %d: finished gradual learning rate warmup to %g." % (epoch + 1, self._rate()))


def _read(optimizer: Any, name: str) -> Any:
    value = getattr(optimizer, name)
    return value.numpy() if hasattr(value, "numpy") else value


def _write(optimizer: Any, name: str, value: float) -> None:
    variable = getattr(optimizer, name)
    if hasattr(variable, "assign") and not isinstance(variable, (int, float)):
        variable.assign(value)
    else:
        setattr(optimizer, name, value)


@functools.cache
def callbacks_for(keras: types.ModuleType, module_name: str) -> types.ModuleType:
    """A module `callbacks` whose classes extend those of `keras`."""
    base = keras.callbacks.Callback
    module = types.ModuleType(module_name, "Horovod's callbacks for Keras.")
    schedule = None
    for name, mixin in (("BroadcastGlobalVariablesCallback", _Broadcast), ("MetricAverageCallback", _MetricAverage),
                        ("LearningRateScheduleCallback", _Schedule), ("LearningRateWarmupCallback", _Warmup)):
        bases = (mixin, schedule) if mixin is _Warmup else (mixin, base)
        made = type(name, bases, {"__module__": module_name, "__doc__": mixin.__doc__})
        schedule = made if mixin is _Schedule else schedule
        setattr(module, name, made)
    return module
