"""hvd.elastic for Keras 3, tf_keras and TensorFlow variables. The classes are made for the Keras that is asked for, as those of _keras_callbacks.py."""

from __future__ import annotations

import functools
import types
from typing import Any

from unisono.horovod import _core, _elastic
from unisono.horovod._elastic import ObjectState


def _value(variable: Any) -> Any:
    """A copy, as an array."""
    import numpy

    return numpy.array(variable.numpy() if hasattr(variable, "numpy") else variable)


def _all(holder: Any) -> list[Any]:
    variables = getattr(holder, "variables", [])
    return list(variables() if callable(variables) else variables)


class _Variables:
    """Variables that are saved, restored and synchronized. Which those are is asked each time: an optimizer gets some at its first step."""

    def __init__(self, give: Any, shared: Any = None):
        self.give, self.shared = give, shared if shared is not None else give
        self.save()

    def save(self) -> None:
        """Keeps what restore() brings back."""
        self.saved = [(variable, _value(variable)) for variable in self.give()]

    def restore(self) -> None:
        """Goes back to what was saved last."""
        for variable, value in self.saved:
            variable.assign(value)

    def sync(self) -> None:
        """The first rank's. All of them travel as one object: a rank whose variables are others says so."""
        mine = [_value(variable) for variable in self.shared()]
        first = _core.broadcast_object(mine if _core.rank() == 0 else None, 0)
        if [(value.shape, value.dtype) for value in mine] != [(value.shape, value.dtype) for value in first]:
            raise ValueError("the state of rank 0 has %d variables and that of this rank %d, or their shapes differ: build model and optimizer in the same way on "
                             "all ranks, before the state is made" % (len(first), len(mine)))
        if _core.rank() != 0:
            for variable, value in zip(self.shared(), first):
                variable.assign(value)


def _build(optimizer: Any, model: Any) -> None:
    """A new process must have the variables that the optimizers of the others have got in their first step."""
    if hasattr(optimizer, "build"):
        if not getattr(optimizer, "built", False):
            optimizer.build(model.trainable_variables)
    elif hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(model.trainable_variables)


class _HoldingState(ObjectState):
    """Variables of TensorFlow (`_held`) beside the objects."""

    _held: _Variables

    def save(self) -> None:
        """Keeps what restore() brings back."""
        self._held.save()
        super().save()

    def restore(self) -> None:
        """Goes back to what was saved last."""
        self._held.restore()
        super().restore()

    def sync(self) -> None:
        """Makes the state of all ranks that of rank 0, and saves it."""
        self._held.sync()
        super().sync()


class TensorFlowKerasState(_HoldingState):
    """A Keras model with its optimizer, and other objects, which become attributes."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any):
        if not getattr(model, "built", True):
            raise ValueError("the model has no weights yet: build it first, by model.build(input_shape)")
        self.model, self.optimizer = model, optimizer if optimizer is not None else getattr(model, "optimizer", None)
        _build(self.optimizer, model)
        self._held = _Variables(lambda: _all(self.model) + _all(self.optimizer), lambda: list(self.model.weights) + _all(self.optimizer))
        super().__init__(bcast_object=_core.broadcast_object, get_rank=_core.rank, **kwargs)


class TensorFlowState(_HoldingState):
    """TensorFlow variables, and other objects, which become attributes."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any):
        if session is not None:
            raise NotImplementedError("TensorFlowState without eager execution (session=) is not supported: unisono.horovod works with TensorFlow 2")
        if not variables:
            raise ValueError("TensorFlowState needs its variables: TensorFlow 2 has no list of all variables of a program")
        self.variables = list(variables)
        self._held = _Variables(lambda: self.variables)
        super().__init__(bcast_object=_core.broadcast_object, get_rank=_core.rank, **kwargs)


class _KerasState(TensorFlowKerasState):
    """A Keras model with its optimizer, and other objects, which become attributes."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any):
        super().__init__(model, optimizer=optimizer, **kwargs)


class _Commit:
    """Commits the state every batches_per_commit batches, and at the end of an epoch, where the last batch is not committed by itself."""

    def __init__(self, state: Any, batches_per_commit: int = 1):
        super().__init__()
        if batches_per_commit < 0:
            raise ValueError("batches_per_commit must not be negative, not %r" % (batches_per_commit,))
        self.state, self.batches_per_commit, self._left = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self._left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps = (self.params or {}).get("steps")  # type: ignore[attr-defined]
        is_last = self.model.stop_training or (steps is not None and batch + 1 >= steps)  # type: ignore[attr-defined]
        self._left -= 1
        if self._left == 0:
            self._left = self.batches_per_commit
            if not is_last:
                self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class _UpdateBatch:
    """state.batch is the number of the batch, also in an epoch that is continued, which has only the batches that are left when steps_per_epoch is known.

    Put it before CommitStateCallback."""

    def __init__(self, state: Any):
        super().__init__()
        self.state = state
        self._first, self._steps = 0, None

    def on_train_begin(self, logs: Any = None) -> None:
        self._steps = (self.params or {}).get("steps")  # type: ignore[attr-defined]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._first + batch + 1
        if self._first and self._steps and self.state.batch >= self._steps:
            self.model.stop_training = True  # type: ignore[attr-defined]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._first and self._steps and self.state.batch >= self._steps:
            self.model.stop_training = False  # type: ignore[attr-defined]
        self.state.batch = 0


class _UpdateEpoch:
    """state.epoch is the number of epochs that are done, over all calls of fit. Put it before CommitStateCallback."""

    def __init__(self, state: Any):
        super().__init__()
        self.state, self._first = state, state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self._first + epoch + 1


@functools.cache
def elastic_for(keras: types.ModuleType, module_name: str) -> types.ModuleType:
    """A module `elastic` whose callbacks extend those of `keras`."""
    module = types.ModuleType(module_name, "Horovod's elastic for Keras.")
    for name, mixin in (("CommitStateCallback", _Commit), ("UpdateBatchStateCallback", _UpdateBatch), ("UpdateEpochStateCallback", _UpdateEpoch)):
        made = type(name, (mixin, keras.callbacks.Callback), {"__module__": module_name, "__doc__": mixin.__doc__, "__init__": mixin.__init__})
        setattr(module, name, made)
    module.KerasState = type("KerasState", (_KerasState,), {"__module__": module_name, "__doc__": _KerasState.__doc__})  # type: ignore[attr-defined]
    for name in _elastic.__all__:
        setattr(module, name, getattr(_elastic, name))
    module.__all__ = sorted(_elastic.__all__ + ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback"])  # type: ignore[attr-defined]
    return module
