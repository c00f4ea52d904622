"""Batches for PyTorch and TensorFlow. Nothing here imports them before it is asked for tensors.

PyTorch's tensors share the library's memory. TensorFlow takes one copy: many batches go to its runtime in one call and are cut there, because a call into Python
costs more than a batch of small rows.
"""

import numpy

from unisono.data import _convert

_CHUNK_BYTES = 4 << 20


# ---- which columns ----


def _names(columns):
    return [columns] if isinstance(columns, str) else list(columns)


def _check(have, asked):
    missing = [name for name in asked if name not in have]
    if missing:
        raise KeyError("the dataset has no column %s; it has %s" % (", ".join(map(repr, missing)), ", ".join(have)))


def _numbers(name, column):
    if column.dtype == object:
        raise TypeError("column %r is text or of varying length and cannot become a tensor; leave it out (feature_columns) or encode it" % name)
    return column


# ---- PyTorch ----


def _torch_column(torch, name, column, dtype=None):
    column = _numbers(name, column)
    if not column.flags.writeable:
        column = column.copy()
    if column.dtype.kind == "u" and column.dtype.itemsize > 1:  # older versions have no such types
        column = column.astype(numpy.int64)
    tensor = torch.from_numpy(column)
    return tensor if dtype is None else tensor.to(dtype)


def _torch_features(torch, batch, columns, dtype, unsqueeze):
    """Columns side by side, as Ray has them: (rows, columns), or (rows, 1, ...) of each before they are joined."""
    tensors = []
    for index, name in enumerate(columns):
        wanted = dtype[index] if isinstance(dtype, (list, tuple)) else dtype
        tensor = _torch_column(torch, name, batch[name], wanted)
        tensors.append(tensor.unsqueeze(1) if unsqueeze and tensor.dim() == 1 else tensor)
    if len(tensors) == 1:
        return tensors[0]
    kind = tensors[0].dtype
    for tensor in tensors[1:]:
        kind = torch.promote_types(kind, tensor.dtype)
    return torch.cat([tensor.to(kind) for tensor in tensors], dim=1)


def _group(torch, batch, columns, dtypes, unsqueeze):
    if isinstance(columns, dict):
        return {key: _torch_features(torch, batch, _names(names), (dtypes or {}).get(key) if isinstance(dtypes, dict) else dtypes, unsqueeze)
                for key, names in columns.items()}
    if columns and isinstance(columns[0], (list, tuple)):
        return [_torch_features(torch, batch, names, dtypes[i] if isinstance(dtypes, (list, tuple)) else dtypes, unsqueeze)
                for i, names in enumerate(columns)]
    return _torch_features(torch, batch, columns, dtypes, unsqueeze)


def _flat(columns):
    if isinstance(columns, dict):
        return [name for names in columns.values() for name in _names(names)]
    return [name for each in columns for name in (each if isinstance(each, (list, tuple)) else [each])]


def _torch_dataset(torch):
    class TorchIterable(torch.utils.data.IterableDataset):
        """Each iteration is an epoch."""

        def __init__(self, make):
            super().__init__()
            self._make = make

        def __iter__(self):
            return self._make()

    return TorchIterable


class FrameworkMethods:
    """What Dataset and DatasetPipeline share."""

    # ---- PyTorch ----

    def iter_torch_batches(self, *, batch_size=256, dtypes=None, device=None, collate_fn=None, drop_last=False, prefetch_batches=None,
                           prefetch_blocks=None, local_shuffle_buffer_size=None, local_shuffle_seed=None):
        """Dictionaries of tensors."""
        import torch

        for batch in self.iter_batches(batch_size=batch_size, drop_last=drop_last, prefetch_batches=prefetch_batches,
                                       local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed):
            if collate_fn is not None:
                yield collate_fn(batch)
                continue
            out = {}
            for name, column in batch.items():
                tensor = _torch_column(torch, name, column, dtypes.get(name) if isinstance(dtypes, dict) else dtypes)
                out[name] = tensor if device in (None, "auto") else tensor.to(device)
            yield out

    def to_torch(self, *, label_column=None, feature_columns=None, label_column_dtype=None, feature_column_dtypes=None, batch_size=1,
                 prefetch_batches=None, prefetch_blocks=None, drop_last=False, local_shuffle_buffer_size=None, local_shuffle_seed=None,
                 unsqueeze_label_tensor=True, unsqueeze_feature_tensors=True):
        """A PyTorch IterableDataset of (features, label); each iteration is an epoch. Features are the columns side by side, (rows, columns); a list of lists
        or a dictionary of lists gives several tensors."""
        import torch

        have = self.columns()
        _check(have, ([label_column] if label_column else []) + _flat(feature_columns or []))
        features = feature_columns or [name for name in have if name != label_column]

        def epoch():
            for batch in self.iter_batches(batch_size=batch_size, drop_last=drop_last, prefetch_batches=prefetch_batches,
                                           local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed):
                label = None
                if label_column is not None:
                    label = _torch_column(torch, label_column, batch[label_column], label_column_dtype)
                    if unsqueeze_label_tensor and label.dim() == 1:
                        label = label.unsqueeze(1)
                yield _group(torch, batch, features, feature_column_dtypes, unsqueeze_feature_tensors), label

        return _torch_dataset(torch)(epoch)

    # ---- TensorFlow ----

    def iter_tf_batches(self, *, batch_size=256, dtypes=None, drop_last=False, prefetch_batches=None, prefetch_blocks=None,
                        local_shuffle_buffer_size=None, local_shuffle_seed=None):
        """Dictionaries of tensors."""
        import tensorflow as tf

        for batch in self.iter_batches(batch_size=batch_size, drop_last=drop_last, prefetch_batches=prefetch_batches,
                                       local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed):
            yield {name: _tf_column(tf, column, dtypes.get(name) if isinstance(dtypes, dict) else dtypes) for name, column in batch.items()}

    def to_tf(self, feature_columns=None, label_columns=None, *, label_column=None, output_signature=None, batch_size=1, prefetch_batches=None,
              prefetch_blocks=None, drop_last=False, local_shuffle_buffer_size=None, local_shuffle_seed=None, feature_type_spec=None,
              label_type_spec=None, additional_columns=None):
        """A tf.data.Dataset of (features, labels); each iteration is an epoch. A name gives a tensor, a list of names a dictionary of tensors; without labels the
        features alone, and without arguments all columns as a dictionary."""
        import tensorflow as tf

        schema = self.schema()
        labels = label_columns if label_columns is not None else label_column
        if feature_columns is None:
            taken = set(_names(labels)) if labels is not None else set()
            feature_columns = [name for name in schema.names if name not in taken]
        asked = _names(feature_columns) + (_names(labels) if labels is not None else [])
        _check(schema.names, asked)
        return _tf_dataset(tf, self, schema, feature_columns, labels, batch_size, drop_last, output_signature,
                           dict(local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed,
                                prefetch_batches=prefetch_batches))


def _tf_column(tf, column, dtype=None):
    if column.dtype == object:
        if len(column) and isinstance(column[0], numpy.ndarray):
            tensor = tf.ragged.constant([list(row) for row in column])
        else:
            tensor = tf.constant([b"" if value is None else value for value in column], dtype=tf.string)
    else:
        tensor = tf.convert_to_tensor(column)
    return tensor if dtype is None else tf.cast(tensor, dtype)


def _tf_spec(tf, field):
    name, kind, dtype, shape = field
    if kind == "number":
        return tf.TensorSpec(shape=(None,) + tuple(shape), dtype=tf.as_dtype(dtype), name=name)
    if kind == "list":
        raise TypeError("column %r has rows of different lengths; leave it out (feature_columns) or use iter_tf_batches" % name)
    return tf.TensorSpec(shape=(None,), dtype=tf.string, name=name)


def _tf_value(column):
    if column.dtype != object:
        return column
    return numpy.array([b"" if value is None else value.encode() if isinstance(value, str) else value for value in column], dtype=object)


def _chunk(schema, batch_size):
    """How many rows go to TensorFlow in one call: whole batches, about 4 MiB."""
    row = sum(int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize if kind == "number" else 64
              for _, kind, dtype, shape in schema.fields) or 1
    return max(1, min(_CHUNK_BYTES // (row * batch_size), 1024)) * batch_size


def _tf_dataset(tf, dataset, schema, features, labels, batch_size, drop_last, signature, options):
    fields = {field[0]: field for field in schema.fields}

    def pick(columns, of):
        return of(columns) if isinstance(columns, str) else {name: of(name) for name in columns}

    specs = pick(features, lambda name: _tf_spec(tf, fields[name]))
    if labels is not None:
        specs = (specs, pick(labels, lambda name: _tf_spec(tf, fields[name])))
    names = _names(features) + (_names(labels) if labels is not None else [])
    source = dataset.select_columns(list(dict.fromkeys(names)))
    # A shard's batches are its part of every round: they must be cut here, not from larger ones.
    sharded = getattr(dataset, "_shard", None) is not None
    rows = batch_size if sharded or not hasattr(tf.data.Dataset, "rebatch") else _chunk(schema, batch_size)

    def epoch():
        source._epoch, source._fixed_epoch, source._state = 0, dataset._next_epoch(), dataset._state
        dataset._state = None
        for batch in source.iter_batches(batch_size=rows, drop_last=drop_last and rows == batch_size, **options):
            value = pick(features, lambda name: _tf_value(batch[name]))
            yield value if labels is None else (value, pick(labels, lambda name: _tf_value(batch[name])))

    out = tf.data.Dataset.from_generator(epoch, output_signature=specs)
    if rows != batch_size:
        out = out.rebatch(batch_size, drop_remainder=drop_last)
    if signature is not None:
        out = out.map(lambda *value: tf.nest.map_structure(lambda spec, tensor: tf.cast(tensor, spec.dtype), signature,
                                                           value if len(value) > 1 else value[0]))
    if sharded:  # the strategy must not share it out a second time
        settings = tf.data.Options()
        settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        out = out.with_options(settings)
    return out.prefetch(tf.data.AUTOTUNE)
