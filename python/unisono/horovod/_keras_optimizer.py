"""DistributedOptimizer for Keras: Keras 3 on TensorFlow or PyTorch, and tf_keras."""

from __future__ import annotations

from typing import Any

from unisono.horovod import _core, _tensorflow
from unisono.horovod._core import Average, ReduceOp, Sum, check_process_set, choose_op


def is_keras_3(optimizer: Any) -> bool:
    """Whether the object is Keras 3's rather than tf_keras's."""
    return hasattr(optimizer, "apply") and hasattr(optimizer, "stateless_apply")


def _backend() -> str:
    import keras

    return keras.backend.backend()


class _Settings:
    """What a DistributedOptimizer was told, and its memory."""

    def __init__(self, op: ReduceOp, factor: float, compression: Any, passes: int, average_passes: bool):
        self.op, self.prescale, self.postscale = _tensorflow.predivision(op, factor)
        self.compression = compression
        self.passes, self.average_passes = passes, average_passes
        self.reducer = _tensorflow.Reducer()

    def reduce(self, gradients: list[Any]) -> list[Any]:
        if _core.stays_alone():
            return gradients
        if _is_torch(gradients):
            return self._reduce_torch(gradients)
        return _tensorflow.reduce_tensors(gradients, self.op, self.reducer, False, self.prescale, self.postscale, self.compression)

    def _reduce_torch(self, gradients: list[Any]) -> list[Any]:
        import torch

        places = [index for index, gradient in enumerate(gradients) if gradient is not None]
        arrays = [gradients[index].detach().cpu().contiguous().numpy() for index in places]
        out = list(gradients)
        for index, array in zip(places, self.reducer(arrays, self.op, copy=False)):
            tensor = torch.from_numpy(array)
            out[index] = (tensor * (self.prescale * self.postscale) if self.prescale != 1.0 else tensor).to(gradients[index].device)
        return out


def _is_torch(gradients: list[Any]) -> bool:
    return any(type(gradient).__module__.startswith("torch") for gradient in gradients if gradient is not None)


class _Keras3:
    """Mixed into an optimizer of Keras 3: everything it applies goes through apply."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply(self._unisono.reduce(list(grads)), trainable_variables)  # type: ignore[misc]


class _Keras2:
    """Mixed into an optimizer of tf_keras."""

    def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **keywords: Any) -> Any:
        pairs = list(grads_and_vars)
        reduced = self._unisono.reduce([gradient for gradient, _ in pairs])
        return super().apply_gradients(list(zip(reduced, [variable for _, variable in pairs])), *arguments, **keywords)  # type: ignore[misc]


def custom(optimizers: Any, objects: Any) -> Any:
    """What load_model finds by name: the classes of the user's own optimizers, and other objects."""
    return dict({kind.__name__: kind for kind in optimizers or ()}, **(objects or {})) or None


def distribute(optimizer: Any, name: str | None = None, compression: Any = None, op: ReduceOp = Average, gradient_predivide_factor: float = 1.0,
               backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False, process_set: Any = None) -> Any:
    """A copy of the optimizer whose updates take the gradients of all ranks. Its class keeps its name, so that saved models load anywhere."""
    check_process_set(process_set)
    op = choose_op(None, op)
    if op not in (Average, Sum):
        raise ValueError("gradients are reduced with hvd.Average or hvd.Sum, not with %r" % (op,))
    new = is_keras_3(optimizer)
    if not new and not hasattr(optimizer, "apply_gradients"):
        raise TypeError("DistributedOptimizer wraps an optimizer of Keras, not %s" % type(optimizer).__name__)
    if new and _backend() not in ("tensorflow", "torch"):
        raise NotImplementedError("unisono.horovod.keras works with Keras on tensorflow and torch, not on %s" % _backend())
    if isinstance(optimizer, (_Keras3, _Keras2)):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    kind, config = type(optimizer), optimizer.get_config()
    if name is not None:
        config["name"] = name
    if backward_passes_per_step > 1:
        if not new:
            raise NotImplementedError("backward_passes_per_step of tf_keras optimizers is not offered; with Keras 3 it is")
        config["gradient_accumulation_steps"] = backward_passes_per_step
    made = type(kind.__name__, (_Keras3 if new else _Keras2, kind), {"__module__": kind.__module__})
    out = made.from_config(config)
    compression = None if getattr(compression, "__name__", "_NoCompression") == "_NoCompression" else compression
    out._unisono = _Settings(op, gradient_predivide_factor, compression, backward_passes_per_step, average_aggregated_gradients)
    return out
