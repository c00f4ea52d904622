"""resumable: a DataLoader whose place in the epoch is kept with every report's checkpoint."""

from __future__ import annotations

import array
import base64
import collections
import itertools
import random
import sys
import warnings
from typing import Any

from unisono import _session
from unisono._arguments import strict
from unisono.train._resumable import Resumable, check_name


def _encode(data):
    return base64.b64encode(data).decode("ascii")


class _Generators:
    """The random generators that decide the order of batches: torch's own, those of the loader and its sampler, Python's, NumPy's."""

    def __init__(self, loader):
        owners = {"loader": loader, "sampler": getattr(loader, "sampler", None), "batch_sampler": getattr(loader, "batch_sampler", None)}
        found = {name: getattr(owner, "generator", None) for name, owner in owners.items()}
        self._own = {name: one for name, one in found.items() if hasattr(one, "get_state") and hasattr(one, "set_state")}

    def get(self) -> dict[str, Any]:
        import torch

        version, words, gauss = random.getstate()
        state: dict[str, Any] = {"torch": _encode(torch.get_rng_state().numpy().tobytes()), "python": [version, _encode(array.array("I", words).tobytes()), gauss]}
        for name, one in self._own.items():
            state[name] = _encode(one.get_state().numpy().tobytes())
        if "numpy" in sys.modules:
            kind, keys, place, has_gauss, cached = sys.modules["numpy"].random.get_state()
            state["numpy"] = [kind, _encode(keys.tobytes()), int(place), int(has_gauss), float(cached)]
        return state

    def set(self, state: dict[str, Any]) -> None:
        """Of a checkpoint, which may be anybody's."""
        try:
            self._set(state)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError("the random generators that the checkpoint keeps for the loader are damaged: %s" % error) from error

    def _set(self, state: dict[str, Any]) -> None:
        import torch

        def tensor(text):
            return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        torch.set_rng_state(tensor(state["torch"]))
        version, words, gauss = state["python"]
        random.setstate((version, tuple(array.array("I", base64.b64decode(words))), gauss))
        for name, one in self._own.items():
            if name in state:
                one.set_state(tensor(state[name]))
        if "numpy" in state and "numpy" in sys.modules:
            kind, keys, place, has_gauss, cached = state["numpy"]
            keys = sys.modules["numpy"].frombuffer(base64.b64decode(keys), dtype="uint32")
            # NumPy does not check it, and reads elsewhere in memory.
            if type(place) is not int or not 0 <= place <= len(keys):
                raise ValueError("NumPy's place %.40r" % (place,))
            sys.modules["numpy"].random.set_state((kind, keys, place, has_gauss, cached))


def _skip(items, count):
    """Ends with the items, however many a checkpoint says."""
    collections.deque(itertools.islice(items, count), maxlen=0)


class _Rest:
    """A sampler without its first items, which are drawn but not loaded. `then` is called between the two."""

    def __init__(self, sampler, skip, then):
        self._sampler, self._skip, self._then = sampler, skip, then

    def __iter__(self):
        items = iter(self._sampler)
        _skip(items, self._skip)
        self._then()
        yield from items

    def __len__(self):
        return max(0, len(self._sampler) - self._skip)


def _without_first(loader, skip, then):
    """The loader's batches without the first ones. Samplers are advanced; a stream of data, or a loader of another class, is read."""
    from torch.utils.data import DataLoader, IterableDataset

    if type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset):
        batches = iter(loader)
        _skip(batches, skip)
        then()
        return batches
    options = {name: getattr(loader, name) for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator")}
    if loader.num_workers:
        options["prefetch_factor"] = loader.prefetch_factor
        options["multiprocessing_context"] = loader.multiprocessing_context
    if loader.batch_sampler is None:
        return iter(DataLoader(loader.dataset, batch_size=None, sampler=_Rest(loader.sampler, skip, then), **options))
    return iter(DataLoader(loader.dataset, batch_sampler=_Rest(loader.batch_sampler, skip, then), **options))


class ResumableLoader(Resumable):
    """Iterates over a DataLoader."""

    def __init__(self, loader: Any, name: str):
        self._generators, self._start = _Generators(loader), None
        super().__init__(loader, "torch loader", "loader", name)

    def _data(self):
        try:
            length = len(self._source)
        except TypeError:  # a stream
            length = None
        return {"length": length, "world_size": _session.world_size()}

    def _resume(self, state):
        mine = self._data()
        if type(state.get("world_size")) is not int or type(state.get("now")) is not dict or (state["used"] > 0 and type(state.get("start")) is not dict):
            raise ValueError("the state of the loader in the checkpoint is damaged: it does not say how the epoch began, and by how many workers")
        if state["world_size"] != mine["world_size"]:
            warnings.warn("the loader's place in epoch %d was kept by %d workers, and now there are %d: the epoch begins anew" %
                          (state["epoch"], state["world_size"], mine["world_size"]), UserWarning, stacklevel=5)
            whole = state["used"] > 0 and state["used"] == state.get("length")  # nothing is left of it
            start = state["now"] if whole else state.get("start", state["now"])
            return dict(state, epoch=state["epoch"] + whole, used=0, now=start, **mine)
        if state.get("length") != mine["length"]:
            raise ValueError("the loader has %s batches, and the one whose place was kept had %.40s: give it the same data and batch_size" %
                             (mine["length"], state.get("length")))
        return state

    def _sampler(self):
        return next((one for one in (getattr(self._source, "sampler", None), getattr(self._source, "batch_sampler", None))
                     if hasattr(one, "set_epoch")), None)

    def _describe(self):
        state = dict(self._data(), now=self._generators.get())
        if self._used > 0:
            state["start"], state["sampler_epoch"] = self._start
        return state

    def _begin(self):
        """The batches of the next epoch, or the rest of one that was interrupted."""
        state, self._going_on = self._going_on, None
        sampler = self._sampler()
        if state is not None and state["used"] > 0:
            self._generators.set(state["start"])
            if sampler is not None and state.get("sampler_epoch") is not None:
                sampler.set_epoch(state["sampler_epoch"])
            self._start = state["start"], state.get("sampler_epoch")
            return _without_first(self._source, state["used"], lambda: self._generators.set(state["now"]))
        if state is not None:
            self._generators.set(state["now"])
        elif self._used > 0:  # the loop before left its epoch early
            self.epoch += 1
        self._used, self._start = 0, (self._generators.get(), getattr(sampler, "epoch", None))
        return iter(self._source)


@strict()
def resumable(data_loader: Any, name: str = "train") -> Any:
    """The loader, with its place in the epoch kept by every train.report that has a checkpoint: a restarted or resumed train function goes on with the
    next batch, in the same order. Any sampler and any number of loader workers; give loaders different names. `epoch` says how many epochs are over."""
    from unisono.train.torch._helpers import _DeviceLoader

    if not hasattr(data_loader, "__iter__"):
        raise TypeError("resumable() needs a DataLoader, not %r" % (data_loader,))
    check_name(name)
    if isinstance(data_loader, ResumableLoader):
        raise TypeError("the loader is resumable already")
    if isinstance(data_loader, _DeviceLoader):
        return _DeviceLoader(ResumableLoader(data_loader._loader, name), data_loader._device)
    return ResumableLoader(data_loader, name)
