"""Datasets: read, transform, shuffle, shard and batch, by the library's own threads (docs/data.md).

    ds = data.read_csv("train.csv").random_shuffle(seed=1)
    for batch in ds.iter_batches(batch_size=256):   # dictionaries of NumPy arrays
        ...

A dataset is a recipe; rows are read during iteration, each iteration is an epoch. Trainer(datasets={"train": ds}) gives every worker its shard
(train.get_dataset_shard("train")).
"""

from __future__ import annotations

_READERS = ("read_arrow", "read_binary_files", "read_csv", "read_idx", "read_images", "read_json", "read_numpy", "read_parquet", "read_sql",
            "read_sqlite", "read_text", "read_tfrecords")
_SOURCES = ("from_arrow", "from_generator", "from_huggingface", "from_items", "from_numpy", "from_numpy_refs", "from_pandas", "from_tf", "from_torch",
            "range", "range_tensor", "read_datasource")
_LAZY = dict(dict.fromkeys(_READERS, "_read"), **dict.fromkeys(_SOURCES, "_sources"), AUTO="_dataset", Dataset="_dataset",
             DataIterator="_dataset", DatasetPipeline="_pipeline", Schema="_schema", ActorPoolStrategy="_compat", DataContext="_compat",
             TensorArray="_incoming", Datasource="datasource", ReadTask="datasource")
_MODULES = ("dataset", "dataset_pipeline", "datasource", "extensions", "preprocessor", "preprocessors")
__all__ = sorted(set(_LAZY) | set(_MODULES))


def __getattr__(name: str) -> object:
    from unisono._lazy import find

    try:
        return find("unisono.data", name, _LAZY, _MODULES)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise ImportError("unisono.data.%s needs NumPy, which is not installed: pip install numpy (Debian: python3-numpy)" % name) from None


def __dir__() -> list[str]:
    return __all__
