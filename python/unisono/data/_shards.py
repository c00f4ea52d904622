"""Datasets on their way to the workers of a run, and what train.get_dataset_shard gives there."""

import sys

from unisono import _codec


def _is_dataset(value):
    """Without importing what a dataset needs (numpy): where there is one, its module is loaded already."""
    kinds = (("unisono.data._dataset", "Dataset"), ("unisono.data._pipeline", "DatasetPipeline"))
    return any(module in sys.modules and isinstance(value, getattr(sys.modules[module], kind)) for module, kind in kinds)


def _check(name, dataset):
    if callable(dataset) and not _is_dataset(dataset):  # a function that makes it, as AIR allows
        dataset = dataset()
    if not _is_dataset(dataset):
        raise TypeError("dataset %r must be a Dataset of unisono.data, not %s" % (name, type(dataset).__name__))
    return dataset


def pack(datasets, split="all", preprocessor=None):
    """The attachment's bytes; None when there is nothing. One dataset without a name has the name None."""
    if datasets is None or (isinstance(datasets, dict) and not datasets):
        return None
    named = datasets if isinstance(datasets, dict) else {None: datasets}
    named = {name: _check(name, dataset) for name, dataset in named.items()}
    if preprocessor is not None:
        train = named.get("train", next(iter(named.values())))
        preprocessor.fit(train)
        named = {name: preprocessor.transform(dataset) for name, dataset in named.items()}
    return _codec.dumps((named, None if split == "all" else list(split)))


def shard(packed, name, rank, world_size):
    """This worker's part of the named dataset; datasets that are not split are whole in every worker."""
    from unisono.data._dataset import shard_of

    datasets, split = packed
    if name is None:
        if set(datasets) != {None}:
            raise RuntimeError("the run has the datasets %s: say which one, get_dataset_shard(name)" % ", ".join(map(repr, datasets)))
    elif name not in datasets:
        if set(datasets) != {None}:
            raise KeyError("the run has no dataset %r; it has %s" % (name, ", ".join(map(repr, datasets))))
        name = None
    dataset = datasets[name]
    return shard_of(dataset, rank, world_size) if world_size > 1 and (split is None or name in split) else dataset
