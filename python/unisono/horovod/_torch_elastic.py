"""hvd.elastic for PyTorch: the state of models, optimizers and samplers."""

from __future__ import annotations

import copy
import math
import random
from typing import Any, Iterator

import torch
import torch.utils.data

from unisono.extend import strict_module
from unisono.horovod import _core
from unisono.horovod._elastic import HorovodInternalError, HostsUpdatedInterrupt, HostUpdateResult, ObjectState, State, run


class ElasticSampler(torch.utils.data.Sampler):
    """Each rank's part of the samples that this epoch has left, in an order that depends on seed and epoch alone. When ranks have come or gone, what is left is
    divided among those that are there.

    Give it to a TorchState, call record_batch after each batch, and set_epoch at the end of each epoch."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """The next epoch, with all samples. Called at the end of an epoch: at the beginning it would take back what a restored state has done."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has used a batch of that many samples."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """The place: epoch, and samples used in it."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to that place."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left among the ranks that are there."""
        self.num_replicas, self.rank = _core.size(), _core.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        # All ranks have as many: the first ones are used twice to fill up the last round.
        return iter([left[place % len(left)] for place in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples


class _Handler:
    """How one object of a TorchState is saved, restored and synchronized."""

    def __init__(self, value: Any):
        self.value = value
        self.save()

    def save(self) -> None:
        """Keeps what restore() brings back."""
        self.saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Goes back to what was saved last."""
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self) -> None:
        """The first rank's."""
        state = _core.broadcast_object(self.value.state_dict() if _core.rank() == 0 else None, 0)
        if _core.rank() != 0:
            self.value.load_state_dict(state)

    def reset(self) -> None:
        """Ranks have come or gone."""


def _copied(old: Any, new: Any) -> Any:
    """A copy of `new` in the memory of `old`, where that fits."""
    if torch.is_tensor(new):
        fits = torch.is_tensor(old) and old.shape == new.shape and old.dtype == new.dtype and old.device == new.device and not new.is_sparse
        return old.copy_(new.detach()) if fits else new.detach().clone()
    return copy.deepcopy(new)


class _Model(_Handler):
    saved: Any = None

    def save(self) -> None:
        """Keeps what restore() brings back."""
        old = self.saved or {}
        self.saved = {name: _copied(old.get(name), value) for name, value in self.value.state_dict().items()}

    def restore(self) -> None:
        """Goes back to what was saved last."""
        self.value.load_state_dict(self.saved)

    def sync(self) -> None:
        """Makes the state of all ranks that of rank 0, and saves it."""
        from unisono.horovod.torch import broadcast_parameters

        broadcast_parameters(self.value.state_dict(), root_rank=0)


class _Sampler(_Handler):
    def reset(self) -> None:
        """Fits the state to a group of another size."""
        self.value.reset()


_HANDLERS = ((torch.nn.Module, _Model), (torch.optim.Optimizer, _Handler), (ElasticSampler, _Sampler))


def _handler_of(value: Any) -> _Handler | None:
    return next((handler(value) for kind, handler in _HANDLERS if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """Models, optimizers and ElasticSamplers by their state, anything else as an object; all of them become attributes."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any):
        given = dict(kwargs, model=model, optimizer=optimizer)
        self._handlers: dict[str, _Handler] = {}
        handlers = {name: handler for name, handler in ((name, _handler_of(value)) for name, value in given.items()) if handler is not None}
        for name, handler in handlers.items():
            setattr(self, name, handler.value)
        self._handlers = handlers
        super().__init__(bcast_object=_core.broadcast_object, get_rank=_core.rank, **{name: value for name, value in given.items() if name not in handlers})

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_handlers" and name in self._handlers:
            self._handlers[name] = _handler_of(value) or _refuse(name, value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Keeps what restore() brings back."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Goes back to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Makes the state of all ranks that of rank 0, and saves it."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Fits the state to a group of another size."""
        for handler in self._handlers.values():
            handler.reset()


def _refuse(name: str, value: Any) -> _Handler:
    raise TypeError("state.%s was a model, an optimizer or a sampler, and cannot become %s" % (name, type(value).__name__))


__all__ = ["ElasticSampler", "HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState", "run"]
strict_module(globals())
