"""tf.distribute for the native engine: MirroredStrategy (replica threads), MultiWorkerMirroredStrategy (the worker processes of a run).

Models and optimizers that are made inside of `with strategy.scope()` belong to the strategy: Model.fit trains them under it, and a loop of one's own runs
its step with strategy.run, once for each replica with its part of the global batch.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from typing import Any

import numpy as np

from unisono import Error, _engine
from unisono.extend import Refused, current_session, strict_class, tf_config_place, strict_module
from unisono.keras import _tensor
from unisono.keras._tensor import Tensor

__all__ = ["Strategy", "MirroredStrategy", "OneDeviceStrategy", "MultiWorkerMirroredStrategy", "ReduceOp", "PerReplica", "get_strategy", "has_strategy",
           "get_replica_context", "experimental", "in_cross_replica_context"]


_NO_OPTIONS = Refused(None, "every replica gets its part of the global batch")


class ReduceOp:
    """What strategy.reduce does."""

    SUM = "SUM"
    MEAN = "MEAN"


_scopes = threading.local()


def _scope():
    return getattr(_scopes, "stack", None) or []


def in_scope(thing: Any) -> Any:
    """The strategy whose scope this thread is in, which remembers the model or optimizer; None outside."""
    stack = _scope()
    if not stack:
        return None
    stack[-1]._remember(thing)
    return stack[-1]


def metric_values(native: Any) -> list:
    """A metric's results; over all processes under a strategy that has more than one."""
    stack = _scope()
    strategy = stack[-1] if stack else _loops[-1]() if _loops else None
    if strategy is None or strategy._workers() == 1 or _tensor.context().replica is not None:
        return native.values()
    total = native.copy()
    total.set_state(strategy._engine_strategy().reduce(native.state(), False))
    return total.values()


_loops = []  # the strategies of several processes whose loops run here, newest last


class PerReplica:
    """One value a replica of this process."""

    def __init__(self, values: Any):
        self.values = tuple(values)

    def __repr__(self):
        return "PerReplica(%s)" % ", ".join(map(repr, self.values))


class _Distributed:
    """A global batch, or this process' part of it: cut for the replicas by strategy.run."""

    def __init__(self, value, size, first, total):
        self.value, self.size, self.first, self.total = value, size, first, total

    def part(self, begin, count):
        from unisono.tf.data import _map

        return _map(lambda each: _rows(each, begin, count), self.value)


def _rows(tensor, begin, count):
    if not tensor.shape:
        return tensor
    array = tensor._t.array()
    if isinstance(array, _engine.Strings):
        return Tensor(_engine.Tensor(array.part(begin, begin + count)))
    return Tensor(_engine.Tensor(_tensor.shared(np.asarray(array)[begin:begin + count])))


class DistributedDataset:
    """What experimental_distribute_dataset gives: an iterable of global batches."""

    def __init__(self, strategy: Any, dataset: Any):
        self._strategy, self._dataset = strategy, dataset

    def __iter__(self):
        for item in self._dataset:
            yield self._strategy._distributed(item)

    def __len__(self):
        return len(self._dataset)

    def cardinality(self) -> Any:
        """How many global batches."""
        return self._dataset.cardinality()

    @property
    def element_spec(self) -> Any:
        """Not known before the first batch."""
        return self._dataset.element_spec


class ReplicaContext:
    """What tf.distribute.get_replica_context() gives inside of strategy.run."""

    def __init__(self, strategy: Any, number: Any):
        self.strategy, self.replica_id_in_sync_group = strategy, number
        self.num_replicas_in_sync = strategy.num_replicas_in_sync


class Strategy:
    """One replica; base of the others."""

    _kind = "none"

    def __init__(self):
        self._native = None
        self._models, self._optimizers = [], []
        self._contexts = {}

    # ---- the engine's ----

    def _make(self):
        return _engine.Strategy(self._kind, 0, None)

    def _engine_strategy(self):
        if self._native is None:
            self._native = self._make()
        return self._native

    def _workers(self):
        return 1

    def _rank(self):
        return 0

    def _local_replicas(self):
        return self.num_replicas_in_sync // self._workers()

    def _remember(self, thing):
        (self._models if hasattr(thing, "_for_tape") else self._optimizers).append([weakref.ref(thing), False])

    def _place_all(self):
        """Models and optimizers of the scope come under the strategy before the first step that may use them."""
        for entry in self._models:
            model = entry[0]()
            if model is not None and not entry[1] and model._native().built:
                self._engine_strategy().place(model._native())
                entry[1] = True
        for entry in self._optimizers:
            optimizer = entry[0]()
            if optimizer is not None and entry[1] is not optimizer._native:
                self._engine_strategy().place_optimizer(optimizer._native)
                entry[1] = optimizer._native

    # ---- what users see ----

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas train together."""
        return self._engine_strategy().num_replicas_in_sync

    @contextlib.contextmanager
    def scope(self) -> Any:
        """Models and optimizers made inside belong to the strategy."""
        if not hasattr(_scopes, "stack"):
            _scopes.stack = []
        _scopes.stack.append(self)
        try:
            yield self
        finally:
            _scopes.stack.pop()

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> DistributedDataset:
        """Batches of the dataset are global batches; every replica gets its part."""
        return DistributedDataset(self, dataset)

    def distribute_datasets_from_function(self, dataset_fn: Any, options: Any = None) -> DistributedDataset:
        """A dataset of a function of the InputContext."""
        return DistributedDataset(self, dataset_fn(InputContext(self)))

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def _distributed(self, item):
        from unisono.tf.data import _leaves

        sized = [leaf.shape[0] for leaf in _leaves(item) if leaf.shape]
        total = sized[0] if sized else 0
        rank, workers = self._rank(), self._workers()
        begin, end = total * rank // workers, total * (rank + 1) // workers
        whole = _Distributed(item, total, 0, total)
        return whole if workers == 1 else _Distributed(whole.part(begin, end - begin), end - begin, begin, total)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """fn(*args, **kwargs) once for each replica, with its part of what experimental_distribute_dataset gave; what they return, as PerReplica (or as it
        is, when there is one replica)."""
        kwargs = kwargs or {}
        given = [each for each in list(args) + list(kwargs.values()) if isinstance(each, _Distributed)]
        size = given[0].size if given else 0
        first, total = (given[0].first, given[0].total) if given else (0, 0)
        if _tensor.context().replica is not None:
            raise RuntimeError("strategy.run inside of strategy.run")
        self._place_all()
        count = self._local_replicas()
        values = [None] * count

        def turn(replica):
            number = replica.id - self._rank() * count
            here = self._contexts.get(number)
            if here is None:
                here = self._contexts[number] = _tensor.Context(_threads(count))
            here.replica, here.strategy = replica, self
            outer = getattr(_tensor._local, "context", None)
            _tensor.set_context(here)
            try:
                def mine(value):
                    if isinstance(value, _Distributed):
                        begin = value.size * number // count
                        return value.part(begin, value.size * (number + 1) // count - begin)
                    return value.values[number] if isinstance(value, PerReplica) else value
                values[number] = fn(*[mine(each) for each in args], **{key: mine(each) for key, each in kwargs.items()})
            finally:
                here.replica = here.recording = None
                if here.tape is not None:
                    here.tape.release()
                _tensor.set_context(outer if outer is not None else _tensor.Context())
        if self._workers() > 1 and not any(each() is self for each in _loops):
            _loops.append(weakref.ref(self))
        self._engine_strategy().run(turn, size, first, total)
        return values[0] if count == 1 else PerReplica(values)

    experimental_run_v2 = run

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Tensor:
        """The replicas' values as one: SUM or MEAN; axis 0 reduces the rows too."""
        values = [np.asarray(each, np.float64) for each in self.experimental_local_results(value)]
        if str(getattr(reduce_op, "name", reduce_op)).upper() not in ("SUM", "MEAN"):
            raise ValueError("reduce_op is SUM or MEAN, not %r" % (reduce_op,))
        mean = str(getattr(reduce_op, "name", reduce_op)).upper() == "MEAN"
        count = float(len(values))
        if axis is not None:
            count = float(sum(each.shape[axis] for each in values))
            values = [each.sum(axis=axis) for each in values]
        total = np.sum(values, axis=0)
        if self._workers() > 1:
            flat = self._engine_strategy().reduce(list(np.atleast_1d(total).reshape(-1)) + [count], False)
            total, count = np.asarray(flat[:-1]).reshape(np.shape(total)), flat[-1]
        return Tensor.of(np.asarray(total / count if mean else total, np.float32))

    def experimental_local_results(self, value: Any) -> tuple:
        """One value a replica of this process."""
        return value.values if isinstance(value, PerReplica) else (value,)

    def gather(self, value: Any, axis: Any = 0) -> Tensor:
        """The replicas' values one behind the other."""
        if self._workers() > 1:
            raise NotImplementedError("gather over several processes")
        return Tensor.of(np.concatenate([np.asarray(each) for each in self.experimental_local_results(value)], axis=axis))

    @property
    def cluster_resolver(self) -> None:
        """None: the trainer knows the workers."""
        return None

    @property
    def extended(self) -> Any:
        """Itself."""
        return self

    def __reduce__(self):
        raise TypeError("a strategy belongs to its process: make it inside of the train function")


class InputContext:
    """What dataset_fn is given: this process, of how many."""

    def __init__(self, strategy: Any):
        self.num_input_pipelines, self.input_pipeline_id = 1, 0
        self.num_replicas_in_sync = strategy.num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The global batch divided by the replicas."""
        return global_batch_size // self.num_replicas_in_sync


def _threads(replicas):
    return max(1, len(os.sched_getaffinity(0)) // replicas)


_DEVICE = re.compile(r"(/job:[^/]+/replica:\d+/task:\d+)?/?((device|physical_device):)?(?P<kind>[a-z]+)(:(?P<number>\d+))?", re.I)


def _device(device):
    """The number of a CPU, by any of TensorFlow's names for it ("/cpu:0", "CPU:1", "/device:CPU:0") or a device that has such a name."""
    name, where = getattr(device, "name", device), "tf.config.list_physical_devices() lists what is here"
    found = _DEVICE.fullmatch(name) if isinstance(name, str) else None
    kind = found.group("kind").upper() if found else ""
    if kind in ("GPU", "TPU"):
        raise ValueError("there is no device %r: the native engine computes on CPUs only ('/cpu:0'; %s)" % (name, where))
    if kind != "CPU":
        raise ValueError("%r is not the name of a device: '/cpu:0', 'CPU:1' and '/device:CPU:0' are (%s)" % (name, where))
    return int(found.group("number") or 0)


class MirroredStrategy(Strategy):
    """Replica threads of this process, one for each core: devices is how many, or a list of CPUs ("/cpu:0", "/cpu:1"), one replica each."""

    _kind = "mirrored"

    def __init__(self, devices: Any = None, cross_device_ops: Any = None):
        super().__init__()
        if isinstance(devices, (list, tuple)):
            if len({_device(each) for each in devices}) < len(devices):
                raise ValueError("devices names one twice: %r. Each has one replica" % (devices,))
            devices = len(devices)
        if devices is not None and (not isinstance(devices, int) or devices < 1):
            raise ValueError("devices is a number of replicas or a list of devices, not %r" % (devices,))
        self._devices = devices or 0

    def _make(self):
        return _engine.Strategy("mirrored", self._devices, None)


class OneDeviceStrategy(Strategy):
    """One replica, on the CPU."""

    def __init__(self, device: Any = None):
        super().__init__()
        if device is not None:
            _device(device)


class MultiWorkerMirroredStrategy(Strategy):
    """The worker processes of a run (unisono.train's trainers), or those that TF_CONFIG names, one replica each; alone in a process without either."""

    def __init__(self, communication_options: Any = None):
        super().__init__()
        here = current_session()
        grows = here is not None and here.session.is_elastic
        self._session = here.session if here is not None and (here.session.world_size > 1 or grows) else None
        self._place, self._size = (self._session.world_rank, self._session.world_size) if self._session is not None else _tf_config()
        self._kind = "multi_worker" if self._size > 1 or grows else "none"

    def _make(self):
        return _engine.Strategy(self._kind, 0, self._session)

    # Workers come and go in fit, so the engine is asked, once it is there.
    def _workers(self):
        return self._size if self._native is None else self._native.num_workers

    def _rank(self):
        return self._place if self._native is None else self._native.worker_index


def _tf_config():
    """(rank, number of workers) of TF_CONFIG; (0, 1) without it. The engine connects to the others."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return 0, 1
    try:
        return tf_config_place(text)
    except Error as error:
        raise ValueError(str(error)) from error


class experimental:
    """tf.distribute.experimental."""

    MultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy


strict_class({}, methods={"run": {"options": _NO_OPTIONS}, "experimental_distribute_dataset": {"options": _NO_OPTIONS},
                          "distribute_datasets_from_function": {"options": _NO_OPTIONS}})(Strategy)
strict_class()(MirroredStrategy)
strict_class()(OneDeviceStrategy)
strict_class({"cluster_resolver": Refused(None, "the run or TF_CONFIG says which workers there are")})(MultiWorkerMirroredStrategy)
_default = Strategy()


def get_strategy() -> Strategy:
    """That of the scope, or the one with a single replica."""
    here = _tensor.context()
    if here.replica is not None:
        return here.strategy
    stack = _scope()
    return stack[-1] if stack else _default


def has_strategy() -> bool:
    """Whether this is inside of a scope."""
    return get_strategy() is not _default


def get_replica_context() -> Any:
    """The replica inside of run; None outside."""
    here = _tensor.context()
    return None if here.replica is None else ReplicaContext(here.strategy, here.replica.id)


def in_cross_replica_context() -> bool:
    """Whether this is outside of run."""
    return _tensor.context().replica is None and has_strategy()


strict_module(globals())
