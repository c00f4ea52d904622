"""Batches for TensorFlow. Nothing here imports it before it is asked for tensors.

A call from TensorFlow's runtime into Python costs some 0.3 ms, whatever it returns. So many batches go over in one call, as one array a column, and tf.data cuts them
again in C++, without a copy: TensorFlow takes arrays that begin at multiples of 64 bytes as they are (others it copies into fresh memory, at 1 ms a MB). What a worker has
used is counted behind everything that reads ahead.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Iterator

import numpy

from unisono._arguments import Refused, strict
from unisono._unisono import Table
from unisono.data import _convert
from unisono.data._cursor import Cursor
from unisono.data._iterating import Batches
from unisono.data._options import check_columns, names_of, whole

_TYPES = "types follow from the columns: cast() them, or give output_signature"

_CHUNK_BYTES = 4 << 20  # in one call from TensorFlow
_CHUNK_BATCHES = 256


class TensorflowBatches:
    """What Dataset and DatasetPipeline have for TensorFlow."""

    _cursor: Cursor  # of its owner
    _passes: Callable[..., Iterator[Any]]

    def iter_tf_batches(self, *, batch_size: int | None = 256, dtypes: Any = None, drop_last: bool = False, prefetch_batches: int | None = None,
                        prefetch_blocks: int | None = None, local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None) -> Batches:
        """An epoch of dictionaries of tensors each time that it is iterated. dtypes: one for all, or {column: dtype}."""
        import tensorflow as tf

        if isinstance(dtypes, dict):
            check_columns(self.schema().names, list(dtypes))

        def epoch() -> Iterator[Any]:
            for made in self._passes(batch_size=batch_size, drop_last=drop_last, prefetch=prefetch_batches, buffer=local_shuffle_buffer_size,
                                     seed=local_shuffle_seed):
                try:
                    if self._cursor.tracked:  # Keras may take batches long before it trains on them
                        self._cursor.read_ahead(_used(lambda made=made: made.taken))
                    while (table := made.next()) is not None:
                        if self._cursor.tracked:
                            self._cursor.note()
                        _convert.refuse_objects(table.schema())
                        yield {name: _column(tf, name, column, dtypes.get(name) if isinstance(dtypes, dict) else dtypes)
                               for name, column in _convert.to_numpy(table).items()}
                finally:
                    self._last_stats = made.finish()

        return Batches(epoch)

    @strict({"feature_type_spec": Refused(None, _TYPES), "label_type_spec": Refused(None, _TYPES)}, name="unisono.data.Dataset.to_tf")
    def to_tf(self, feature_columns: Any = None, label_columns: Any = None, *, label_column: Any = None, output_signature: Any = None,
              batch_size: int = 1, prefetch_batches: int | None = None, prefetch_blocks: int | None = None, drop_last: bool = False,
              local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None, feature_type_spec: Any = None,
              label_type_spec: Any = None, additional_columns: Any = None) -> Any:
        """A tf.data.Dataset of (features, labels); each iteration is an epoch. A name gives a tensor, a list of names a dictionary of tensors; without labels the
        features alone, and without arguments all columns as a dictionary."""
        import tensorflow as tf

        schema = self.schema()
        labels = label_columns if label_columns is not None else label_column
        if feature_columns is None:
            taken = set(names_of(labels, "label_columns")) if labels is not None else set()
            feature_columns = [name for name in schema.names if name not in taken]
        columns = [each for each in (feature_columns, labels, additional_columns) if each is not None]
        check_columns(schema.names, [name for each in columns for name in names_of(each, "feature_columns and label_columns")])
        options: dict[str, Any] = dict(buffer=local_shuffle_buffer_size, seed=local_shuffle_seed, prefetch=prefetch_batches)
        if output_signature is not None:
            columns, schema, options["joins"] = _joined(tf, columns, schema, output_signature)
        feed = _Feed(self, schema, columns, whole("batch_size", batch_size, 1), bool(drop_last), options)
        return feed.dataset(tf, output_signature)


def _joined(tf: Any, columns: list, schema: Any, signature: Any) -> tuple[list, Any, list]:
    """Where the signature has one tensor for a list of columns (Ray 1.x), these are put side by side: columns, schema, and what is joined."""
    specs = signature if isinstance(signature, (list, tuple)) else [signature]
    out, fields, joins = list(columns), list(schema.fields), []
    for index, (given, spec) in enumerate(zip(columns, specs)):
        if isinstance(given, str) or not isinstance(spec, tf.TypeSpec):
            continue
        known = {field[0]: field for field in fields}
        twice = [name for name in given if name not in known or any(name in names_of(other) for other in columns if other is not given)]
        if twice:
            raise ValueError("column %r is in two tensors of output_signature: leave it out of one" % twice[0])
        wrong = [name for name in given if known[name][1] != "number"]
        if wrong:
            raise TypeError("column %r is not numeric and cannot be part of one tensor; leave it out (feature_columns)" % wrong[0])
        dtype = spec.dtype.name if spec.dtype.is_floating or spec.dtype.is_integer else "float32"
        width = sum(int(numpy.prod(known[name][3], dtype=numpy.int64)) for name in given)
        name = "joined %d" % index
        joins.append((list(given), name, dtype))
        fields = [field for field in fields if field[0] not in given] + [(name, "number", dtype, (width,))]
        out[index] = name
    return out, type(schema)(fields), joins


def _used(taken: Any) -> Any:
    """How many batches of a pass that begins now were used: those that were taken, or, while Keras trains with a callback of ours, those that it was through with."""
    from unisono import _session

    here = _session.current()
    if here is None:
        return taken
    before = here.steps
    return lambda: min(int(taken()), here.steps - before) if here.fitting else int(taken())


def _column(tf: Any, name: str, column: numpy.ndarray, dtype: Any = None) -> Any:
    if dtype is not None and column.dtype == object and not tf.as_dtype(dtype) == tf.string and not any(isinstance(value, numpy.ndarray) for value in column[:1]):
        raise TypeError("column %r is text, which cannot become %s: leave it out (select_columns), or give dtypes as {column: dtype}"
                        % (name, tf.as_dtype(dtype).name))
    if column.dtype == object:
        if len(column) and isinstance(column[0], numpy.ndarray):
            tensor = tf.ragged.constant([list(row) for row in column])
        else:
            tensor = tf.constant([b"" if value is None else value for value in column], dtype=tf.string)
    else:
        tensor = tf.convert_to_tensor(column)
    return tensor if dtype is None else tf.cast(tensor, dtype)


def _spec(tf: Any, field: tuple) -> Any:
    name, kind, dtype, shape = field
    _convert.refuse_objects([field])
    if kind == "number":
        return tf.TensorSpec(shape=(None,) + tuple(shape), dtype=tf.as_dtype(dtype))
    if kind == "list":
        raise TypeError("column %r has rows of different lengths; leave it out (feature_columns) or use iter_tf_batches" % name)
    return tf.TensorSpec(shape=(None,), dtype=tf.string)


def _value(column: numpy.ndarray) -> numpy.ndarray:
    if column.dtype != object:
        return column
    return numpy.array([b"" if value is None else value.encode() if isinstance(value, str) else value for value in column], dtype=object)


def _row_bytes(schema: Any) -> int:
    return sum(int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize if kind == "number" else 64
               for _, kind, dtype, shape in schema.fields) or 1


class _Feed:
    """A dataset's way into tf.data. Whole batches go over many at a time; the last one of an epoch, which may have any size, comes behind them by itself."""

    def __init__(self, owner: Any, schema: Any, columns: list, batch_size: int, drop_last: bool, options: dict) -> None:
        self.owner, self.columns, self.batch_size, self.drop_last, self.options = owner, columns, batch_size, drop_last, options
        self.fields = {field[0]: field for field in schema.fields}
        self.names = list(dict.fromkeys(name for each in columns for name in names_of(each)))
        joined = {new: given for given, new, _ in options.get("joins", ())}
        self.needed = list(dict.fromkeys(each for name in self.names for each in joined.get(name, [name])))
        bytes_ = _row_bytes(type(schema)([self.fields[name] for name in self.names])) * batch_size
        # The last batch of an epoch comes behind all whole ones: several epochs in one iteration (a pipeline) go over batch by batch.
        several = not hasattr(owner, "iter_epochs")
        self.batches = max(1, min(_CHUNK_BYTES // bytes_, _CHUNK_BATCHES)) if several else 1
        self.tracked = owner._cursor.tracked
        self.last: Any = collections.deque()  # the batches that come behind the whole ones
        self.counter: Any = None

    # ---- from the library ----

    def _pick(self, of: Any) -> Any:
        picked = tuple(of(each) if isinstance(each, str) else {name: of(name) for name in each} for each in self.columns)
        return picked[0] if len(picked) == 1 else picked

    def _values(self, made: Any, tables: list[Table]) -> Any:
        batch = _convert.to_numpy(made.concat(tables))
        return self._pick(lambda name: _value(self._without_gaps(name, batch[name])))

    def _without_gaps(self, name: str, column: numpy.ndarray) -> numpy.ndarray:
        """Missing values are NaN, or None, which the element type that TensorFlow was told may not have."""
        _, kind, dtype, _ = self.fields[name]
        if kind == "number" and column.dtype.kind in "fO" and numpy.dtype(dtype).kind in "iub":
            raise TypeError("column %r has missing values, which %s cannot hold: make floats of it (cast), or fill them (preprocessors.SimpleImputer)"
                            % (name, dtype))
        return column

    def _rows(self) -> int | None:
        """Rows of the library's own batches: those of the user, or (where rounds are neither shared nor counted) many of them."""
        alone = self.owner._shard is None and not self.tracked
        return self.batch_size * self.batches if alone else self.batch_size

    def _begin(self, before: int) -> None:
        """before: batches of earlier passes of this iteration."""
        if self.tracked and before == 0:
            self.counter.assign(0)
        if self.tracked:
            self.owner._cursor.read_ahead(_used(lambda: max(0, int(self.counter.numpy()) - before)))

    def whole(self) -> Iterator[Any]:
        """Whole batches, as many as go into one call; the rest is left for `rest`."""
        size, rows, held, before, most = self.batch_size, self._rows(), [], 0, 1  # the first ones come soon
        self.last.clear()
        for made in self.owner._passes(batch_size=rows, drop_last=self.drop_last and rows == size, columns=self.needed, **self.options):
            try:
                self._begin(before)
                while (table := made.next()) is not None:
                    if self.tracked:
                        self.owner._cursor.note()
                    if rows == size and self.batches > 1 and table.num_rows == size:
                        held.append(table)
                        if len(held) == most:
                            yield self._values(made, held)
                            held, most = [], min(2 * most, self.batches)
                        continue
                    if held:  # the last one
                        yield self._values(made, held)
                        held = []
                    yield from self._cut(made, table)
                if held:
                    yield self._values(made, held)
                    held = []
            finally:
                self.owner._last_stats = made.finish()
                before += made.taken

    def _cut(self, made: Any, table: Table) -> Iterator[Any]:
        if self.batches == 1:
            yield self._values(made, [table])
            return
        size = self.batch_size
        one_more = table.num_rows == size + 1 and self._rows() == size  # what was left for fewer workers than there are
        whole = 0 if one_more else table.num_rows // size * size
        if whole:
            yield self._values(made, [table if whole == table.num_rows else table.slice(0, whole)])
        if whole < table.num_rows and not (self.drop_last and table.num_rows - whole < size):
            self.last.append(self._values(made, [table.slice(whole, table.num_rows)]))

    def rest(self) -> Iterator[Any]:
        """What whole() left."""
        while self.last:
            yield self.last.popleft()

    # ---- to tf.data ----

    def dataset(self, tf: Any, signature: Any) -> Any:
        """The tf.data.Dataset."""
        specs = self._pick(lambda name: _spec(tf, self.fields[name]))
        # What is made ahead are whole calls, not batches: a hand-over between threads costs more than to cut a batch.
        out = tf.data.Dataset.from_generator(self.whole, output_signature=specs).prefetch(2)
        if self.batches > 1:
            out = out.rebatch(self.batch_size)
            out = out.concatenate(tf.data.Dataset.from_generator(self.rest, output_signature=specs))
        if signature is not None:
            out = out.map(lambda *value: tf.nest.map_structure(lambda spec, tensor: tf.cast(tensor, spec.dtype), signature,
                                                               value if len(value) > 1 else value[0]))
        settings = tf.data.Options()
        if self.owner._shard is not None:  # the strategy must not share it out a second time
            settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return self._counted(tf, out, settings) if self.tracked else out.with_options(settings)

    def _counted(self, tf: Any, out: Any, settings: Any) -> Any:
        """Batches are counted when they leave the pipeline, so that nothing may read ahead behind that."""
        made: list = []  # in a thread of its own: no strategy's scope reaches there
        maker = threading.Thread(target=lambda: made.append(tf.Variable(0, dtype=tf.int64, trainable=False)))
        maker.start()
        maker.join()
        self.counter = counter = made[0]

        def count(*value: Any) -> Any:
            with tf.control_dependencies([counter.assign_add(1)]):
                return tf.nest.map_structure(tf.identity, value if len(value) > 1 else value[0])

        settings.experimental_optimization.inject_prefetch = False
        return _map_inline(out, count).with_options(settings)


def _map_inline(dataset: Any, function: Any) -> Any:
    """dataset.map(function) without a thread between: 8 microseconds a batch and not 46, but TensorFlow has no public name for it."""
    try:
        from tensorflow.python.data.ops import map_op

        return map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)
    except (ImportError, AttributeError, TypeError):
        return dataset.map(function)
