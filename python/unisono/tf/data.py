"""tf.data's Dataset for the native engine.

from_tensor_slices(...).shuffle().batch().prefetch() is the engine's own source of batches: no Python runs while fit reads it. Anything else (map, filter,
generators) is Python's iterators, with the same results for loops of one's own and for fit.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from unisono import _engine
from unisono.extend import checks_kinds, strict_class, strict_module
from unisono.keras._tensor import Tensor, as_array, data_seed, shared

__all__ = ["Dataset", "AUTOTUNE", "experimental", "Options"]

AUTOTUNE = -1


class experimental:
    """tf.data.experimental."""

    AUTOTUNE = AUTOTUNE

    class AutoShardPolicy:
        """A strategy cuts every global batch, which is what AUTO and DATA ask for. OFF and FILE would train on other data and are refused."""

        OFF, AUTO, FILE, DATA = -1, 0, 1, 2


class _Settings:
    """Attributes that may be set; any other name is an AttributeError, as in TensorFlow."""

    def __init__(self, **defaults: Any):
        self.__dict__.update(defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise AttributeError("tf.data.Options has no %r here; it has: %s" % (name, ", ".join(sorted(self.__dict__))))
        self.__dict__[name] = value


class Options(_Settings):
    """What Dataset.with_options takes. auto_shard_policy is checked there; the others are about speed and order, which are fixed here."""

    def __init__(self):
        super().__init__(
            deterministic=None, experimental_deterministic=None, experimental_distribute=_Settings(auto_shard_policy=experimental.AutoShardPolicy.AUTO, num_devices=None),
            autotune=_Settings(enabled=None, cpu_budget=None, ram_budget=None), threading=_Settings(max_intra_op_parallelism=None, private_threadpool_size=None))


def _map(function, value):
    """A structure of tuples, lists and dictionaries."""
    if isinstance(value, tuple):
        return tuple(_map(function, each) for each in value)
    if isinstance(value, dict):
        return {key: _map(function, each) for key, each in value.items()}
    return function(value)


def _leaves(value):
    if isinstance(value, tuple):
        return [leaf for each in value for leaf in _leaves(each)]
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    return [value]


def _rebuild(value, leaves):
    leaves = iter(leaves)
    return _map(lambda _: next(leaves), value)


def _tensor(array):
    return Tensor(_engine.Tensor(array if isinstance(array, _engine.Strings) else shared(array)))


def _take(column, rows):
    """Rows by a list (or a slice) of one column."""
    if isinstance(column, _engine.Strings):
        return column.part(rows.start, rows.stop) if isinstance(rows, slice) else column.take([int(row) for row in rows])
    return np.ascontiguousarray(np.asarray(column)[rows])


def _stack(items):
    first = items[0]
    arrays = [np.asarray(item.numpy() if isinstance(item, Tensor) else item) for item in items]
    if arrays[0].dtype.kind in "OSU":
        return Tensor.of(np.array([each if each.ndim == 0 else each for each in (array.tolist() for array in arrays)], object)
                         if first.ndim else np.array([array.item() for array in arrays], object))
    return Tensor.of(np.stack(arrays))


def _check_dataset(what, value):
    if not isinstance(value, Dataset):
        raise TypeError("Dataset.%s takes datasets, not %.40r" % (what, value))


@strict_class()
class Dataset:
    """Elements one after the other; every transformation gives a new Dataset. Iterating begins a new epoch (shuffles draw a new order)."""

    def __init__(self, begin: Any, length: Any = -1, plan: Any = None):
        self._make = begin  # begin(epoch) -> iterator of structures of tensors
        self._length = length
        self._plan = plan  # what the engine can do itself: see _Plan
        self._epochs = 0

    # ---- sources ----

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of arrays: one array, a tuple or a dictionary of them. Their memory is shared."""
        structure = _map(as_array, tensors) if isinstance(tensors, (tuple, dict)) else as_array(tensors)
        columns = _leaves(structure)
        sizes = {column.shape[0] if column.shape else None for column in columns}
        if len(sizes) != 1 or None in sizes:
            raise ValueError("the arrays must have the same number of rows; they have %s" % ", ".join(map(str, sorted(sizes, key=str))))
        return _planned(_Plan(structure, columns, sizes.pop()))

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element."""
        element = _map(lambda each: Tensor.of(each), tensors)
        return Dataset(lambda epoch: iter([element]), 1)

    @staticmethod
    def from_generator(generator: Any, output_types: Any = None, output_shapes: Any = None, args: Any = (),
                       output_signature: Any = None) -> Dataset:
        """What a function's iterator gives; called anew for every epoch. With output_signature (or output_types and output_shapes) every element is
        converted to its type, and one of another structure or shape is an error."""
        if output_signature is not None and (output_types is not None or output_shapes is not None):
            raise TypeError("from_generator takes output_signature or output_types and output_shapes, not both")
        if output_shapes is not None and output_types is None:
            raise TypeError("from_generator(output_shapes=) needs output_types, too")
        types = output_types if output_signature is None else _map(lambda each: each.dtype, output_signature)
        shapes = output_shapes if output_signature is None else _map(lambda each: each.shape, output_signature)

        def begin(epoch):
            for item in generator(*args):
                yield _map(Tensor.of, tuple(item) if isinstance(item, list) else item) if types is None else _as_declared(item, types, shapes)
        return Dataset(begin)

    @staticmethod
    def range(*arguments: Any) -> Dataset:
        """The numbers of a range."""
        numbers = range(*arguments)
        return Dataset(lambda epoch: (Tensor.of(np.int64(each)) for each in numbers), len(numbers))

    @staticmethod
    def zip(*datasets: Any) -> Dataset:
        """Elements of several datasets side by side."""
        parts = datasets[0] if len(datasets) == 1 and isinstance(datasets[0], tuple) else datasets
        for each in parts:
            _check_dataset("zip", each)
        lengths = [each._length for each in parts]
        return Dataset(lambda epoch: zip(*[each._epoch(epoch) for each in parts]), min(lengths) if min(lengths) >= 0 else -1)

    # ---- transformations ----

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True) -> Dataset:
        """Another order in every epoch. Arrays are shuffled as a whole, whatever the buffer's size."""
        if buffer_size < 1:
            raise ValueError("buffer_size must be at least 1, not %r" % (buffer_size,))
        seed = data_seed() if seed is None else int(seed)
        if self._plan is not None and self._plan.batch is None and not self._plan.repeat:
            return _planned(self._plan.but(shuffle=True, seed=seed, fixed=not reshuffle_each_iteration))

        def begin(epoch):
            draw = np.random.default_rng([seed, epoch if reshuffle_each_iteration else 0])
            buffer = []
            for item in self._epoch(epoch):
                buffer.append(item)
                if len(buffer) >= buffer_size:
                    at = int(draw.integers(len(buffer)))
                    buffer[at], buffer[-1] = buffer[-1], buffer[at]
                    yield buffer.pop()
            draw.shuffle(buffer)
            yield from buffer
        return Dataset(begin, self._length)

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Elements together, batch_size at a time."""
        if batch_size < 1:
            raise ValueError("batch_size must be at least 1, not %r" % (batch_size,))
        if self._plan is not None and self._plan.batch is None and not self._plan.repeat:
            return _planned(self._plan.but(batch=int(batch_size), drop=bool(drop_remainder)))
        length = self._length
        if length >= 0:
            length = length // batch_size if drop_remainder else -(-length // batch_size)

        def begin(epoch):
            some = []
            for item in self._epoch(epoch):
                some.append(item)
                if len(some) == batch_size:
                    yield _together(some)
                    some = []
            if some and not drop_remainder:
                yield _together(some)
        return Dataset(begin, length)

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Dataset:
        """Batches are made ahead. Those of arrays are made faster than they are used: nothing to do."""
        return self

    def cache(self, filename: str = "") -> Dataset:
        """Keeps the elements of the first pass in memory: later epochs have the same, in the same order."""
        if filename:
            raise TypeError("cache(filename=%r) is not supported: elements are kept in memory; leave it out" % (filename,))
        if self._plan is not None and not self._plan.repeat:
            return _planned(self._plan.but(fixed=True)) if self._plan.shuffle else self
        kept = []

        def begin(epoch):
            if not kept:
                kept.extend(self._epoch(0))
            return iter(kept)
        return Dataset(begin, self._length)

    def repeat(self, count: int | None = None) -> Dataset:
        """The data again and again; None or -1: without end."""
        endless = count is None or count < 0
        if self._plan is not None and self._plan.batch is not None and endless:
            return _planned(self._plan.but(repeat=True))

        def begin(epoch):
            turn = 0
            while endless or turn < count:
                got = False
                for item in self._epoch(epoch * (1 if endless else count) + turn):
                    got = True
                    yield item
                if not got:
                    return
                turn += 1
        return Dataset(begin, -1 if endless or self._length < 0 else self._length * count)

    def map(self, map_func: Callable[..., Any]) -> Dataset:
        """function of every element; tuples are spread over its arguments."""
        def begin(epoch):
            for item in self._epoch(epoch):
                out = map_func(*item) if isinstance(item, tuple) else map_func(item)
                yield _map(Tensor.of, tuple(out) if isinstance(out, list) else out)
        return Dataset(begin, self._length)

    def filter(self, predicate: Any) -> Dataset:
        """The elements for which the function holds."""
        return Dataset(lambda epoch: (item for item in self._epoch(epoch) if bool(predicate(*item) if isinstance(item, tuple) else predicate(item))))

    def take(self, count: int) -> Dataset:
        """The first so many."""
        import itertools

        length = self._length if count < 0 else min(count, self._length) if self._length >= 0 else -1
        return Dataset(lambda epoch: itertools.islice(self._epoch(epoch), None if count < 0 else count), length)

    def skip(self, count: int) -> Dataset:
        """Without the first so many."""
        import itertools

        return Dataset(lambda epoch: itertools.islice(self._epoch(epoch), count, None), max(0, self._length - count) if self._length >= 0 else -1)

    def concatenate(self, other: Dataset) -> Dataset:
        """Another one behind it."""
        import itertools

        _check_dataset("concatenate", other)
        length = self._length + other._length if min(self._length, other._length) >= 0 else -1
        return Dataset(lambda epoch: itertools.chain(self._epoch(epoch), other._epoch(epoch)), length)

    def enumerate(self, start: int = 0) -> Dataset:
        """(number, element)."""
        return Dataset(lambda epoch: ((Tensor.of(np.int64(index)), item) for index, item in enumerate(self._epoch(epoch), start)), self._length)

    def unbatch(self) -> Dataset:
        """Samples instead of batches."""
        def begin(epoch):
            for item in self._epoch(epoch):
                leaves = _leaves(item)
                if not all(each.shape for each in leaves):
                    raise ValueError("cannot unbatch elements that are single numbers")
                for row in range(leaves[0].shape[0]):
                    yield _map(lambda each, row=row: each[row], item)
        return Dataset(begin)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every num_shards-th element, from index on."""
        import itertools

        if not 0 <= index < num_shards:
            raise ValueError("shard: index must be from 0 to num_shards - 1 (%d), not %d" % (num_shards - 1, index))

        return Dataset(lambda epoch: itertools.islice(self._epoch(epoch), index, None, num_shards))

    def apply(self, transformation: Any) -> Dataset:
        """What the function makes of it."""
        return transformation(self)

    def with_options(self, options: Any) -> Dataset:
        """The same elements; options that would change what a worker reads are refused."""
        policy, names = options.experimental_distribute.auto_shard_policy, experimental.AutoShardPolicy
        if policy not in (None, names.AUTO, names.DATA):
            raise TypeError("auto_shard_policy=%s is not supported: a strategy cuts every global batch, as AutoShardPolicy.DATA does" % (
                {names.OFF: "OFF", names.FILE: "FILE"}.get(policy, policy),))
        return self

    def options(self) -> Options:
        """The options; there is nothing to choose."""
        return Options()

    # ---- reading ----

    def _epoch(self, epoch):
        return self._make(epoch)

    def __iter__(self):
        epoch, self._epochs = self._epochs, self._epochs + 1
        return self._epoch(epoch)

    def as_numpy_iterator(self) -> Any:
        """Its elements as arrays."""
        return (_map(lambda each: each.numpy(), item) for item in self)

    def cardinality(self) -> int:
        """How many elements; -1 for ever, -2 not known."""
        if self._plan is not None and self._plan.repeat:
            return -1
        return self._length if self._length >= 0 else -2

    def __len__(self) -> int:
        if self._length < 0:
            raise TypeError("the length of this dataset is not known")
        return self._length

    @property
    def element_spec(self) -> Any:
        """(dtype, shape) of each part of the first element."""
        return _map(lambda each: (each.dtype, each.shape), next(iter(self._epoch(0))))

    def _native_batches(self):
        """The engine's own source, or None: then Python's iterators are."""
        return None if self._plan is None else self._plan.native()

    def __repr__(self):
        return "<unisono.tf.data.Dataset of %s elements>" % (self._length if self._length >= 0 else "?")


def _as_declared(item, types, shapes):
    """An element of from_generator, converted and checked."""
    if isinstance(types, (tuple, dict)) and (not isinstance(item, (list, tuple, dict)) or isinstance(item, dict) != isinstance(types, dict) or len(item) != len(types)):
        raise TypeError("from_generator: an element %.60r does not have the declared structure %r" % (item, types))
    if isinstance(types, tuple):
        return tuple(_as_declared(each, kind, None if shapes is None else shapes[index]) for index, (each, kind) in enumerate(zip(item, types)))
    if isinstance(types, dict):
        return {key: _as_declared(item[key], kind, None if shapes is None else shapes[key]) for key, kind in types.items()}
    tensor = Tensor.of(np.asarray(item) if types == "string" else np.asarray(item).astype(types), None if types == "string" else types)
    wanted = None if shapes is None else tuple(shapes)
    if wanted is not None and (len(wanted) != len(tensor.shape) or any(size not in (None, have) for size, have in zip(wanted, tensor.shape))):
        raise ValueError("from_generator: an element has the shape %s, declared is %s" % (tensor.shape, wanted))
    return tensor


def _together(items):
    first = items[0]
    return _rebuild(first, [_stack(list(each)) for each in zip(*[_leaves(item) for item in items])])


class _Plan:
    """Rows of arrays, maybe shuffled, maybe in batches: what uni_batches_columns does."""

    def __init__(self, structure, columns, size, shuffle=False, seed=0, fixed=False, batch=None, drop=False, repeat=False):
        self.structure, self.columns, self.size = structure, columns, size
        self.shuffle, self.seed, self.fixed, self.batch, self.drop, self.repeat = shuffle, seed, fixed, batch, drop, repeat

    def but(self, **changes):
        values = {name: getattr(self, name) for name in ("shuffle", "seed", "fixed", "batch", "drop", "repeat")}
        return _Plan(self.structure, self.columns, self.size, **dict(values, **changes))

    def length(self):
        if self.repeat:
            return -1
        if self.batch is None:
            return self.size
        return self.size // self.batch if self.drop else -(-self.size // self.batch)

    def native(self):
        """x, (x, y) or (x, y, weights) in batches; anything else is for Python."""
        parts = self.structure if isinstance(self.structure, tuple) else (self.structure,)
        if self.batch is None or self.fixed or not 1 <= len(parts) <= 3:
            return None
        if any(isinstance(part, dict) for part in parts):
            return None
        x, y, weights = [_leaves(part) for part in parts] + [[]] * (3 - len(parts))
        if len(weights) > 1:
            return None
        return _engine.Batches.columns(x, y, weights[0] if weights else None, self.batch, self.shuffle, self.drop, self.repeat, self.seed, 0)

    def begin(self, epoch):
        if self.batch is None or self.fixed or self.repeat:
            return self._rows(0 if self.fixed else epoch)
        return self._batches(epoch)

    def _batches(self, epoch):
        """The engine's batches, in the order that fit sees them."""
        source = _engine.Batches.columns(self.columns[:_engine.MAX_INPUTS], [], None, self.batch, self.shuffle, self.drop, False, self.seed, 0)
        source.reset(epoch)
        while True:
            got = source.next()
            if got is None:
                return
            yield _rebuild(self.structure, [Tensor(_engine.Tensor(each)) for each in got[0]])

    def _rows(self, epoch):
        while True:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.size) if self.shuffle else np.arange(self.size)
            if self.batch is None:
                for row in order:
                    yield _rebuild(self.structure, [_tensor(_take(column, [row]))[0] for column in self.columns])
            else:
                for begin in range(0, self.size - (self.batch - 1 if self.drop else 0), self.batch):
                    yield _rebuild(self.structure, [_tensor(_take(column, order[begin:begin + self.batch])) for column in self.columns])
            if not self.repeat:
                return
            epoch += 1


def _planned(plan):
    return Dataset(plan.begin, plan.length(), plan)


checks_kinds(Dataset, methods=("shuffle", "batch", "repeat", "prefetch", "take", "skip", "enumerate", "shard"))


strict_module(globals())
