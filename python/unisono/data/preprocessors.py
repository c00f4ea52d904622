"""Preprocessors: fitted once on a dataset, applied to datasets and batches, saved as plain data (to_dict) with a checkpoint.

    scaler = StandardScaler(columns=["x"]).fit(train)
    train, test = scaler.transform(train), scaler.transform(test)

They run in the library, on its threads, and share their arithmetic with the engine's Normalization and TextVectorization layers.
"""

from __future__ import annotations

from typing import Any

from unisono._unisono import Preprocessor as _Library
from unisono.data import _convert

__all__ = ["BatchMapper", "Chain", "Concatenator", "LabelEncoder", "MaxAbsScaler", "MinMaxScaler", "Normalizer", "OneHotEncoder", "OrdinalEncoder",
           "Preprocessor", "SimpleImputer", "StandardScaler", "Tokenizer"]


class PreprocessorNotFittedException(RuntimeError):
    """transform before fit."""


class _Apply:
    """A preprocessor as a function of Tables that can be sent to workers."""

    def __init__(self, preprocessor: Any) -> None:
        self.preprocessor = preprocessor

    def __call__(self, table: Any) -> Any:
        return self.preprocessor._table(table)


class Preprocessor:
    """fit, transform, fit_transform and transform_batch."""

    _is_fittable = True

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        raise NotImplementedError

    def fit_transform(self, ds: Any) -> Any:
        """fit, then transform."""
        return self.fit(ds).transform(ds)

    def transform(self, ds: Any) -> Any:
        """A new dataset; nothing is read yet."""
        self._check()
        return ds._map(_Apply(self), type(self).__name__, 0, False, False)

    def transform_batch(self, batch: Any) -> Any:
        """A batch (a dictionary of arrays, a data frame ...) in the same form."""
        self._check()
        table = self._table(_convert.from_user(batch))
        return _convert.to_pandas(table) if hasattr(batch, "iloc") else _convert.to_numpy(table)

    def _check(self) -> None:
        if not self.is_fitted():
            raise PreprocessorNotFittedException("this %s was not fitted: call fit(dataset) first" % type(self).__name__)

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return True

    def _table(self, table: Any) -> Any:
        raise NotImplementedError


class _InLibrary(Preprocessor):
    """One of the library's (include/unisono/preprocess.h)."""

    def _init(self, **options: dict) -> None:
        self._options = {key: value for key, value in options.items() if value is not None}
        self._library = _Library(type(self).__name__, self._options)

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        library = _Library(type(self).__name__, self._options)
        dataset = ds if hasattr(ds, "_native") else ds._dataset
        dataset._guard(library.fit, dataset._native)
        self._library = library
        return self

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return self._library.save()["state"] is not None

    def _table(self, table: Any) -> Any:
        return self._library.apply(table)

    @property
    def stats_(self) -> Any:
        """What was found by fit."""
        return self._library.save()["state"]

    def to_dict(self) -> dict:
        """Plain data, for a checkpoint; Preprocessor.from_dict makes it again."""
        return self._library.save()

    def __getstate__(self) -> dict:
        return {"_options": self._options, "saved": self._library.save()}

    def __setstate__(self, state: dict) -> None:
        self._options, self._library = state["_options"], _Library.load(state["saved"])

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % pair for pair in self._options.items()))


def from_dict(saved: dict) -> Any:
    """A preprocessor from what to_dict gave."""
    out = _BY_NAME[saved["kind"]].__new__(_BY_NAME[saved["kind"]])
    out.__setstate__({"_options": saved["options"], "saved": saved})
    return out


Preprocessor.from_dict = staticmethod(from_dict)


class StandardScaler(_InLibrary):
    """(x - mean) / deviation of each column."""

    def __init__(self, columns: Any, output_columns: Any = None) -> None:
        self._init(columns=list(columns))


class MinMaxScaler(_InLibrary):
    """(x - min) / (max - min) of each column."""

    def __init__(self, columns: Any, output_columns: Any = None) -> None:
        self._init(columns=list(columns))


class MaxAbsScaler(_InLibrary):
    """x / max |x| of each column."""

    def __init__(self, columns: Any, output_columns: Any = None) -> None:
        self._init(columns=list(columns))


class SimpleImputer(_InLibrary):
    """Missing values: the mean, the most frequent value, or a constant."""

    def __init__(self, columns: Any, strategy: str = "mean", fill_value: Any = None) -> None:
        self._init(columns=list(columns), strategy=strategy, fill_value=fill_value)


class OrdinalEncoder(_InLibrary):
    """Values to whole numbers in sorted order."""

    def __init__(self, columns: Any, encode_lists: bool = True) -> None:
        self._init(columns=list(columns))


class LabelEncoder(_InLibrary):
    """The same for a column of labels; a value that was not there is an error."""

    def __init__(self, label_column: str) -> None:
        self._init(label_column=label_column)

    def inverse_transform_batch(self, batch: Any) -> Any:
        """The labels of the numbers."""
        values = next(iter(self.stats_.values()))
        name = self._options["label_column"]
        return dict(batch, **{name: [values[int(i)] for i in batch[name]]})


class OneHotEncoder(_InLibrary):
    """Values to vectors with one 1."""

    def __init__(self, columns: Any, max_categories: Any = None) -> None:
        self._init(columns=list(columns), max_categories=max_categories)


class Tokenizer(_InLibrary):
    """Text to numbers of words: 0 padding, 1 unknown, then by falling frequency."""

    def __init__(self, columns: Any, max_tokens: Any = None, output_sequence_length: Any = None, standardize: Any = None, split: Any = None,
                 ngrams: Any = None) -> None:
        self._init(columns=list(columns), max_tokens=max_tokens, output_sequence_length=output_sequence_length, standardize=standardize, split=split,
                   ngrams=ngrams)


class Normalizer(_InLibrary):
    """Each row over the columns, by its l2, l1 or max norm."""

    _is_fittable = False

    def __init__(self, columns: Any, norm: str = "l2") -> None:
        self._init(columns=list(columns), norm=norm)

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        return self


class Concatenator(_InLibrary):
    """Number columns side by side in one vector. Without columns (or with exclude) all of a dataset's that are numbers."""

    _is_fittable = False

    def __init__(self, columns: Any = None, output_column_name: str = "concat_out", include: Any = None, exclude: Any = None, dtype: Any = None,
                 raise_if_missing: bool = False) -> None:
        import numpy

        self._given = columns or include
        self._given = [self._given] if isinstance(self._given, str) else self._given
        self._exclude = [exclude] if isinstance(exclude, str) else list(exclude or [])
        self._name = output_column_name
        self._dtype = "float32" if dtype is None else numpy.dtype(dtype).name
        self._library = None
        self._options = {"output_column_name": output_column_name}
        if self._given:
            self._make(list(self._given))

    def _make(self, columns: Any) -> Any:
        self._init(columns=[name for name in columns if name not in self._exclude], output_column_name=self._name, dtype=self._dtype)

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        if self._library is None:
            self._make([name for name, kind, _, _ in ds.schema().fields if kind == "number"])
        return self

    def transform(self, ds: Any) -> Any:
        """The dataset with this as a stage."""
        return super(Concatenator, self.fit(ds)).transform(ds)

    def transform_batch(self, batch: Any) -> Any:
        """One batch (a dictionary of arrays or a data frame)."""
        if self._library is None:
            self._make([name for name in batch])
        return super().transform_batch(batch)

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return True

    def __getstate__(self) -> dict:
        state = dict(self.__dict__, _library=None)
        return dict(state, saved=None if self._library is None else self._library.save())

    def __setstate__(self, state: dict) -> None:
        saved = state.pop("saved")
        self.__dict__.update({"_exclude": [], "_dtype": "float32", "_given": saved["options"]["columns"] if saved else None,
                              "_name": state["_options"].get("output_column_name", "concat_out")}, **state)
        self._library = None if saved is None else _Library.load(saved)


class BatchMapper(Preprocessor):
    """A function of batches."""

    _is_fittable = False

    def __init__(self, fn: Any, batch_format: str | None = "pandas", batch_size: Any = None) -> None:
        self.fn, self.batch_format, self.batch_size = fn, batch_format, batch_size

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        return self

    def transform(self, ds: Any) -> Any:
        """The dataset with this as a stage."""
        return ds.map_batches(self.fn, batch_format=self.batch_format, batch_size=self.batch_size)

    def transform_batch(self, batch: Any) -> Any:
        """One batch (a dictionary of arrays or a data frame)."""
        return self.fn(batch)


class Chain(Preprocessor):
    """One after the other; each is fitted on what the ones before made."""

    def __init__(self, *preprocessors: Any) -> None:
        self.preprocessors = preprocessors

    def fit(self, ds: Any) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        for preprocessor in self.preprocessors:
            ds = preprocessor.fit_transform(ds)
        return self

    def transform(self, ds: Any) -> Any:
        """The dataset with this as a stage."""
        for preprocessor in self.preprocessors:
            ds = preprocessor.transform(ds)
        return ds

    def transform_batch(self, batch: Any) -> Any:
        """One batch (a dictionary of arrays or a data frame)."""
        for preprocessor in self.preprocessors:
            batch = preprocessor.transform_batch(batch)
        return batch

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return all(preprocessor.is_fitted() for preprocessor in self.preprocessors)


_BY_NAME = {kind.__name__: kind for kind in (StandardScaler, MinMaxScaler, MaxAbsScaler, SimpleImputer, OrdinalEncoder, LabelEncoder, OneHotEncoder,
                                              Tokenizer, Normalizer, Concatenator)}
