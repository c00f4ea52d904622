"""Batches for PyTorch, whose tensors share the library's memory. Nothing here imports torch before it is asked for tensors."""

from __future__ import annotations

import collections
import itertools
from typing import Any, Callable, Iterator

import numpy

from unisono.data import _convert
from unisono.data._cursor import Cursor
from unisono.data._iterating import Batches, tables_of
from unisono.data._options import check_columns, names_of


def _column(torch: Any, name: str, column: numpy.ndarray) -> Any:
    """A tensor of what DLPack does not have."""
    if column.dtype == object:
        raise TypeError("column %r is text or of varying length and cannot become a tensor; leave it out (feature_columns) or encode it" % name)
    if not column.flags.writeable:
        column = column.copy()
    if column.dtype.kind == "u" and column.dtype.itemsize > 1:  # older versions have no such types
        column = column.astype(numpy.int64)
    return torch.from_numpy(column)


def _tensors(torch: Any, names: tuple[str, ...], dtypes: list, unsqueeze: bool) -> Callable[[Any], list]:
    """What makes tensors of these columns of a Table, without a copy; unsqueeze: (rows) becomes (rows, 1)."""
    take = torch.utils.dlpack.from_dlpack
    wrong = [dtype for dtype in dtypes if dtype is not None and not isinstance(dtype, torch.dtype)]
    if wrong:
        raise TypeError("dtypes are those of torch, such as torch.float32, not %r" % (wrong[0],))

    def make(table: Any) -> list:
        out, arrays = [], None
        for name, capsule, dtype in zip(names, table.dlpack(names, unsqueeze), dtypes):
            if capsule is not None:
                tensor = take(capsule)
            else:
                if arrays is None:
                    _convert.refuse_objects(table.schema(), names)
                    arrays = _convert.to_numpy(table)
                tensor = _column(torch, name, arrays[name])
                tensor = tensor.unsqueeze(1) if unsqueeze and tensor.dim() == 1 else tensor
            out.append(tensor if dtype is None else tensor.to(dtype))
        return out

    return make


def _joined(torch: Any, columns: list[str], dtype: Any, unsqueeze: bool) -> Callable[[Any], Any]:
    """What makes one tensor of columns side by side, as Ray has them: (rows, columns), or (rows, 1, ...) of each before they are joined."""
    make = _tensors(torch, tuple(columns), list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * len(columns), unsqueeze)

    def join(table: Any) -> Any:
        tensors = make(table)
        if len(tensors) == 1:
            return tensors[0]
        kind = tensors[0].dtype
        for tensor in tensors[1:]:
            kind = torch.promote_types(kind, tensor.dtype)
        return torch.cat([tensor.to(kind) for tensor in tensors], dim=1)

    return join


def _features(torch: Any, columns: Any, dtypes: Any, unsqueeze: bool) -> Callable[[Any], Any]:
    """What makes the features of a Table: a tensor, a list or a dictionary of them."""
    if isinstance(columns, dict):
        named = {key: _joined(torch, names_of(names), (dtypes or {}).get(key) if isinstance(dtypes, dict) else dtypes, unsqueeze)
                 for key, names in columns.items()}
        return lambda table: {key: join(table) for key, join in named.items()}
    if columns and isinstance(columns[0], (list, tuple)):
        several = [_joined(torch, names, dtypes[i] if isinstance(dtypes, (list, tuple)) else dtypes, unsqueeze) for i, names in enumerate(columns)]
        return lambda table: [join(table) for join in several]
    return _joined(torch, columns, dtypes, unsqueeze)


def _groups(columns: Any) -> list[list[str]]:
    """The columns of each tensor of features."""
    if isinstance(columns, dict):
        return [names_of(names) for names in columns.values()]
    return [list(names) for names in columns] if columns and isinstance(columns[0], (list, tuple)) else [list(columns)]


def _wide(fields: list, columns: Any, label: Any, dtypes: Any) -> tuple[Any, list]:
    """Features with a column instead of many of the same kind, which the reading threads put side by side; and these: [(names, new name, dtype)]. Hundreds of tensors a batch
    would cost more than to read them."""
    groups, known = _groups(columns), {field[0]: field for field in fields}
    used = collections.Counter(name for names in groups for name in names)
    each_its_own = isinstance(dtypes, (list, tuple)) or isinstance(dtypes, dict)
    joins = []
    for index, names in enumerate(groups):
        kinds = {(known[name][1], known[name][2], tuple(known[name][3])) for name in names}
        if len(names) > 1 and not each_its_own and kinds <= {("number", "float32", ())} | {("number", "float64", ())} and len(kinds) == 1 and \
                all(used[name] == 1 and name != label for name in names):
            joins.append((names, "features %d" % index, known[names[0]][2]))
            groups[index] = ["features %d" % index]
    if isinstance(columns, dict):
        return dict(zip(columns, groups)), joins
    return groups if columns and isinstance(columns[0], (list, tuple)) else groups[0], joins


def _flat(columns: Any) -> list[str]:
    if isinstance(columns, dict):
        return [name for names in columns.values() for name in names_of(names)]
    return [name for each in columns for name in (each if isinstance(each, (list, tuple)) else [each])]


def _iterable(torch: Any, make: Callable[[], Iterator[Any]], tracked: bool) -> Any:
    class TorchIterable(torch.utils.data.IterableDataset):
        """Each iteration is an epoch. In the processes of a DataLoader each takes its batches: all of them together are one epoch, in its order."""

        def __iter__(self) -> Iterator[Any]:
            loader = torch.utils.data.get_worker_info()
            if loader is None:
                return make()
            if tracked:
                raise RuntimeError("a trainer's dataset shard counts its batches in the worker itself: use it as it is, or with DataLoader(num_workers=0); "
                                   "its rows are read by threads of their own anyway")
            return itertools.islice(make(), loader.id, None, loader.num_workers)

    return TorchIterable()


def _device_of(torch: Any, device: Any) -> Any:
    """Where tensors go; None: they stay on the CPU. "auto" is the device of a trainer's worker."""
    if device != "auto":
        if isinstance(device, (bool, float)):  # Tensor.to() would take their type for that of the numbers
            raise TypeError("device must be a device, its name or its number, not %r" % (device,))
        return device
    from unisono import _session

    if _session.current() is None or not torch.cuda.is_available():
        return None
    from unisono.train.torch import get_device

    return get_device()


class TorchBatches:
    """What Dataset and DatasetPipeline have for PyTorch."""

    _cursor: Cursor  # of its owner

    def iter_torch_batches(self, *, batch_size: int | None = 256, dtypes: Any = None, device: Any = None, collate_fn: Any = None,
                           drop_last: bool = False, prefetch_batches: int | None = None, prefetch_blocks: int | None = None,
                           local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None) -> Batches:
        """An epoch of dictionaries of tensors each time that it is iterated. dtypes: one for all, or {column: dtype}; device: where they shall be ("auto": that of the trainer's
        worker, otherwise the CPU). collate_fn makes what is wanted of a batch of NumPy arrays, and is then the only one that says types and devices."""
        import torch

        if collate_fn is not None and not (dtypes is None and device in (None, "auto")):
            raise ValueError("iter_torch_batches: collate_fn makes the tensors itself, so that %s cannot be given with it: convert them in collate_fn"
                             % ("dtypes" if dtypes is not None else "device"))
        if isinstance(dtypes, dict):
            check_columns(self.columns(), list(dtypes))

        def epoch() -> Iterator[Any]:
            make, to = None, _device_of(torch, device)
            names: tuple[str, ...] = ()
            for table in tables_of(self, batch_size=batch_size, drop_last=drop_last, prefetch=prefetch_batches, buffer=local_shuffle_buffer_size,
                                   seed=local_shuffle_seed):
                if collate_fn is not None:
                    yield collate_fn(_convert.to_user(table))
                    continue
                if make is None:
                    names = tuple(field[0] for field in table.schema())
                    make = _tensors(torch, names, [dtypes.get(name) if isinstance(dtypes, dict) else dtypes for name in names], False)
                tensors = make(table)
                yield dict(zip(names, tensors if to is None else [tensor.to(to) for tensor in tensors]))

        return Batches(epoch)

    def to_torch(self, *, label_column: str | None = None, feature_columns: Any = None, label_column_dtype: Any = None,
                 feature_column_dtypes: Any = None, batch_size: int | None = 1, prefetch_batches: int | None = None,
                 prefetch_blocks: int | None = None, drop_last: bool = False, local_shuffle_buffer_size: int | None = None,
                 local_shuffle_seed: int | None = None, unsqueeze_label_tensor: bool = True, unsqueeze_feature_tensors: bool = True) -> Any:
        """A PyTorch IterableDataset of (features, label); each iteration is an epoch. Features are the columns side by side, (rows, columns); a list of lists
        or a dictionary of lists gives several tensors."""
        import torch

        have = self.columns()
        if feature_columns is not None and not isinstance(feature_columns, (list, tuple, dict)) or feature_columns is not None and len(feature_columns) == 0:
            raise TypeError("to_torch: feature_columns must be a list of columns, not %r" % (feature_columns,))
        asked = _flat(feature_columns or [])
        check_columns(have, ([label_column] if label_column else []) + asked)
        features = feature_columns or [name for name in have if name != label_column]
        needed = list(dict.fromkeys(_flat(features) + ([label_column] if label_column else [])))

        joins: list = []
        if unsqueeze_feature_tensors:
            features, joins = _wide(self.schema().fields, features, label_column, feature_column_dtypes)
        of_features = _features(torch, features, feature_column_dtypes, unsqueeze_feature_tensors)
        of_label = _tensors(torch, (label_column,) if label_column is not None else (), [label_column_dtype], unsqueeze_label_tensor)

        def epoch() -> Iterator[Any]:
            for table in tables_of(self, batch_size=batch_size, drop_last=drop_last, prefetch=prefetch_batches, buffer=local_shuffle_buffer_size,
                                   seed=local_shuffle_seed, columns=needed if len(needed) < len(have) else None, joins=joins):
                yield of_features(table), of_label(table)[0] if label_column is not None else None

        return _iterable(torch, epoch, self._cursor.tracked)
