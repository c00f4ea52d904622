"""Preprocessors: fitted once on a dataset, applied to datasets and batches, saved as plain data (to_dict) with a checkpoint.

    scaler = StandardScaler(columns=["x"]).fit(train)
    train, test = scaler.transform(train), scaler.transform(test)

They run in the library, on its threads, and share their arithmetic with the engine's Normalization and TextVectorization layers. A trainer's preprocessor= is fitted on
the dataset "train" (unless it was fitted already), applied to all, and goes along with every checkpoint: checkpoint.get_preprocessor().
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, TypeAlias

import numpy

from unisono import _safe
from unisono._arguments import Refused, strict_class, strict_module
from unisono._unisono import Preprocessor as _Library
from unisono._unisono import Table
from unisono.data import _convert, _incoming
from unisono.data._options import some_names

if TYPE_CHECKING:
    from unisono.data._dataset import Dataset
    from unisono.data._pipeline import DatasetPipeline

    Rows: TypeAlias = Dataset | DatasetPipeline

__all__ = ["BatchMapper", "Chain", "Concatenator", "LabelEncoder", "MaxAbsScaler", "MinMaxScaler", "Normalizer", "OneHotEncoder", "OrdinalEncoder",
           "Preprocessor", "SimpleImputer", "StandardScaler", "Tokenizer"]
_CHAIN_VERSION = 1


def __getattr__(name: str) -> Any:
    from unisono._missing import complain

    return complain(__name__, name)


class PreprocessorNotFittedException(RuntimeError):
    """transform before fit."""


def _rows(value: Any, what: str) -> Any:
    """The Dataset of what must be one, or a pipeline of one."""
    dataset = getattr(value, "_dataset", value)
    if not hasattr(dataset, "_native"):
        raise TypeError("%s needs a Dataset of unisono.data, not %s (data.from_pandas, data.from_numpy and others make one; transform_batch takes batches)"
                        % (what, type(value).__name__))
    return dataset


def _like(batch: Any, table: Table) -> Any:
    """A Table in the form that a batch has."""
    if _incoming.is_arrow(batch):
        from unisono.data._arrow import to_arrow

        return to_arrow(table)
    return _convert.to_pandas(table) if hasattr(batch, "iloc") else _convert.to_numpy(table)


class Preprocessor:
    """fit, transform, fit_transform and transform_batch."""

    _is_fittable = True

    def fit(self, ds: Rows) -> Preprocessor:
        """Learns what it needs from one pass over the dataset; itself."""
        raise NotImplementedError

    def fit_transform(self, ds: Rows) -> Rows:
        """fit, then transform."""
        return self.fit(ds).transform(ds)

    def transform(self, ds: Rows) -> Rows:
        """A new dataset; nothing is read yet."""
        raise NotImplementedError

    def transform_batch(self, batch: Any) -> Any:
        """A batch (a dictionary of arrays, a data frame, a pyarrow table) in the same form."""
        raise NotImplementedError

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return True

    def _check(self) -> None:
        if not self.is_fitted():
            raise PreprocessorNotFittedException("this %s was not fitted: call fit(dataset) first" % type(self).__name__)

    # ---- plain data ----

    def to_dict(self) -> dict:
        """Plain data, for a checkpoint or a file; Preprocessor.from_dict makes it again."""
        raise TypeError("a %s holds a function, which is not plain data: pickle it, or put it in a checkpoint of a dictionary" % type(self).__name__)

    @staticmethod
    def from_dict(saved: dict) -> Any:
        """A preprocessor from what to_dict gave."""
        kind = saved.get("kind") if isinstance(saved, dict) else None
        if kind == "Chain":
            return Chain._load(saved)
        if kind not in _BY_NAME:
            raise ValueError("not a saved preprocessor: its kind is %r, not one of %s" % (kind, ", ".join(["Chain"] + sorted(_BY_NAME))))
        out = _BY_NAME[kind].__new__(_BY_NAME[kind])
        out.__setstate__({"_options": saved.get("options"), "saved": saved})
        return out

    def serialize(self) -> str:
        """to_dict as text (JSON); Preprocessor.deserialize makes it again."""
        return json.dumps(self.to_dict())

    @staticmethod
    def deserialize(serialized: str) -> Any:
        """A preprocessor from what serialize gave."""
        return Preprocessor.from_dict(json.loads(serialized))


from_dict = Preprocessor.from_dict


class Fitted:
    """What a preprocessor had learnt when a dataset was made with it, as it goes to the workers: a later fit does not change the dataset."""

    def __init__(self, library: _Library) -> None:
        self.library = library

    def __reduce__(self) -> tuple:
        return _fitted, (self.library.save(),)


def _fitted(saved: dict) -> Fitted:
    return Fitted(_Library.load(saved))


class _InLibrary(Preprocessor):
    """One of the library's (include/unisono/preprocess.h)."""

    _options: dict[str, Any]
    _library: Any

    def _init(self, **options: Any) -> None:
        names = {key: some_names(options[key], key) for key in ("columns", "output_columns") if options.get(key) is not None}
        self._options = {key: value for key, value in dict(options, **names).items() if value is not None}
        self._library = _Library(type(self).__name__, self._options)

    def fit(self, ds: Rows) -> Any:
        """Learns what it needs from one pass over the dataset; itself."""
        library, dataset = _Library(type(self).__name__, self._options), _rows(ds, "fit")
        dataset._guard(library.fit, dataset._native)
        self._library = library
        return self

    def transform(self, ds: Rows) -> Rows:
        """A new dataset; nothing is read yet."""
        self._check()
        _rows(ds, "transform")
        return ds._preprocessed(Fitted(self._library))

    def transform_batch(self, batch: Any) -> Any:
        """A batch (a dictionary of arrays, a data frame, a pyarrow table) in the same form."""
        self._check()
        return _like(batch, self._library.apply(_incoming.from_user(batch)))

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return self._library.save()["state"] is not None

    @property
    def stats_(self) -> dict | None:
        """What was found by fit."""
        return self._library.save()["state"]

    def to_dict(self) -> dict:
        """Plain data, for a checkpoint or a file; Preprocessor.from_dict makes it again."""
        return self._library.save()

    def __getstate__(self) -> dict:
        return {"_options": self._options, "saved": self._library.save()}

    def __setstate__(self, state: dict) -> None:
        self._options, self._library = state["_options"], _Library.load(state["saved"])

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % pair for pair in self._options.items()))


# ---- numbers ----


class StandardScaler(_InLibrary):
    """(x - mean) / deviation of each column."""

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), output_columns=output_columns)


class MinMaxScaler(_InLibrary):
    """(x - min) / (max - min) of each column."""

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), output_columns=output_columns)


class MaxAbsScaler(_InLibrary):
    """x / max |x| of each column."""

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), output_columns=output_columns)


class Normalizer(_InLibrary):
    """Each row over the columns, by its l2, l1 or max norm. Missing values stay missing and are passed over."""

    _is_fittable = False

    def __init__(self, columns: list[str], norm: str = "l2", *, output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), norm=norm, output_columns=output_columns)


class SimpleImputer(_InLibrary):
    """Missing values: the mean, the most frequent value ("most_frequent"), or a constant ("constant", fill_value)."""

    def __init__(self, columns: list[str], strategy: str = "mean", fill_value: Any = None, *, output_columns: list[str] | None = None) -> None:
        fill = int(fill_value) if isinstance(fill_value, (bool, numpy.bool_, numpy.integer)) else fill_value
        self._init(columns=some_names(columns, "columns"), strategy=strategy, fill_value=fill.item() if isinstance(fill, numpy.generic) else fill,
                   output_columns=output_columns)


class Concatenator(_InLibrary):
    """Number columns side by side in one vector. Without columns (or with exclude) all of a dataset's that are numbers, as fit or the first transform finds them."""

    _is_fittable = False

    def __init__(self, columns: list[str] | None = None, output_column_name: str = "concat_out", include: list[str] | None = None,
                 exclude: list[str] | None = None, dtype: Any = None, raise_if_missing: bool = True) -> None:
        given = columns if columns is not None else include
        self._exclude = [] if exclude is None else some_names(exclude, "exclude")
        self._given = None if given is None else [name for name in some_names(given, "columns") if name not in self._exclude]
        self._options = {"output_column_name": output_column_name, "dtype": "float32" if dtype is None else numpy.dtype(dtype).name}
        self._library = None
        if self._given is not None:
            self._make(self._given)

    def _make(self, columns: list[str]) -> None:
        self._init(**dict(self._options, columns=[name for name in columns if name not in self._exclude]))

    def _find(self, fields: Any) -> None:
        numbers = [name for name, kind, _, _ in fields if kind == "number" and name not in self._exclude]
        if not numbers:
            raise ValueError("Concatenator: there is no column of numbers to put side by side among %s" % ", ".join(_safe.text(field[0]) for field in fields))
        self._make(numbers)

    def fit(self, ds: Rows) -> Any:
        """Finds the columns, where they were not given; itself."""
        _rows(ds, "fit")
        if self._given is None:
            self._find(ds.schema().fields)
        return self

    def transform(self, ds: Rows) -> Rows:
        """The dataset with this as a stage."""
        if self._library is None:
            self.fit(ds)
        return super().transform(ds)

    def transform_batch(self, batch: Any) -> Any:
        """One batch (a dictionary of arrays, a data frame, a pyarrow table)."""
        if self._library is None:
            self._find(_incoming.from_user(batch).schema())
        return super().transform_batch(batch)

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return True

    def to_dict(self) -> dict:
        """Plain data, once it has columns."""
        if self._library is None:
            raise PreprocessorNotFittedException("this Concatenator has no columns yet: call fit(dataset) first")
        return super().to_dict()

    def __getstate__(self) -> dict:
        return dict(self.__dict__, _library=None, saved=None if self._library is None else self._library.save())

    def __setstate__(self, state: dict) -> None:
        saved = state.pop("saved")
        self.__dict__.update({"_exclude": [], "_given": saved["options"]["columns"] if saved else None}, **state)
        self._library = None if saved is None else _Library.load(saved)


# ---- categories and text ----


@strict_class({"encode_lists": Refused(True, "a list is not one value; make text of it with map first")})
class OrdinalEncoder(_InLibrary):
    """Values to whole numbers in sorted order; a value that was not there becomes missing."""

    def __init__(self, columns: list[str], encode_lists: bool = True, *, output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), output_columns=output_columns)


class LabelEncoder(_InLibrary):
    """The same for a column of labels; a value that was not there is an error."""

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        if not isinstance(label_column, str):
            raise TypeError("label_column must be the name of one column, not %r" % (label_column,))
        self._init(label_column=label_column, output_columns=None if output_column is None else [output_column])

    def _labels(self, numbers: numpy.ndarray) -> list:
        known = (self.stats_ or {})[self._options["label_column"]]
        if numbers.dtype.kind not in "iuf":
            raise TypeError("LabelEncoder: the numbers of labels are needed, not %s" % numbers.dtype)
        wrong = [number for number in numbers if not 0 <= number < len(known) or number != int(number)]
        if wrong:
            raise ValueError("LabelEncoder: there are the labels 0 to %d, not %s" % (len(known) - 1, wrong[0]))
        return [known[int(number)] for number in numbers]

    def _inverted(self, batch: Any) -> Any:
        name = self._options.get("output_columns", [self._options["label_column"]])[0]
        table = _incoming.from_user(batch)
        columns = _convert.to_numpy(table)
        if name not in columns:
            raise KeyError("the batch has no column %r; it has %s" % (name, ", ".join(map(_safe.text, columns))))
        columns[name] = numpy.array(self._labels(columns[name]), dtype=None if table.num_rows else object)
        return _like(batch, _incoming.from_columns(columns))

    def inverse_transform_batch(self, batch: Any) -> Any:
        """A batch with the labels of the numbers."""
        self._check()
        return self._inverted(batch)

    def inverse_transform(self, ds: Rows) -> Rows:
        """A dataset with the labels of the numbers."""
        self._check()
        _rows(ds, "inverse_transform")
        return ds.map_batches(self._inverted)


class OneHotEncoder(_InLibrary):
    """Values to vectors with one 1; a value that was not there has none. max_categories ({column: number}): only the most frequent ones."""

    def __init__(self, columns: list[str], max_categories: dict[str, int] | int | None = None, *, output_columns: list[str] | None = None) -> None:
        self._init(columns=some_names(columns, "columns"), max_categories=max_categories, output_columns=output_columns)


class Tokenizer(_InLibrary):
    """Text to numbers of words: 0 padding, 1 unknown, then by falling frequency, as Keras's TextVectorization (whose arguments it has; standardize=None: as it is)."""

    def __init__(self, columns: list[str], max_tokens: int | None = None, output_sequence_length: int | None = None,
                 standardize: str | None = "lower_and_strip_punctuation", split: str = "whitespace", ngrams: int | None = None, *,
                 output_columns: list[str] | None = None, tokenization_fn: Callable | None = None) -> None:
        if tokenization_fn is not None:
            raise TypeError("Tokenizer(tokenization_fn=) is not offered: split and standardize say how text is cut, or apply your function with map_batches")
        self._init(columns=some_names(columns, "columns"), max_tokens=max_tokens, output_sequence_length=output_sequence_length,
                   standardize=standardize or "none", split=split, ngrams=ngrams, output_columns=output_columns)


# ---- functions, and several ----


class BatchMapper(Preprocessor):
    """A function of batches."""

    _is_fittable = False

    def __init__(self, fn: Callable, batch_format: str | None = "pandas", batch_size: int | None = None) -> None:
        self.fn, self.batch_format, self.batch_size = fn, batch_format, batch_size
        _convert.converter(batch_format)

    def fit(self, ds: Rows) -> BatchMapper:
        """Learns nothing; itself."""
        return self

    def transform(self, ds: Rows) -> Rows:
        """The dataset with this as a stage."""
        _rows(ds, "transform")
        return ds.map_batches(self.fn, batch_format=self.batch_format, batch_size=self.batch_size)

    def transform_batch(self, batch: Any) -> Any:
        """A batch; the function gets it in its own format, the answer is in the batch's."""
        return _like(batch, _incoming.from_user(self.fn(_convert.to_user(_incoming.from_user(batch), self.batch_format))))

    def __repr__(self) -> str:
        return "BatchMapper(%s)" % getattr(self.fn, "__name__", type(self.fn).__name__)


class Chain(Preprocessor):
    """One after the other; each is fitted on what the ones before made."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        wrong = [each for each in preprocessors if not isinstance(each, Preprocessor)]
        if wrong:
            raise TypeError("Chain takes preprocessors, not %s" % type(wrong[0]).__name__)
        self.preprocessors = preprocessors

    def fit(self, ds: Rows) -> Chain:
        """Fits all, each on what the ones before made; itself."""
        _rows(ds, "fit")
        for preprocessor in self.preprocessors:
            ds = preprocessor.fit_transform(ds)
        return self

    def transform(self, ds: Rows) -> Rows:
        """The dataset with these as stages."""
        for preprocessor in self.preprocessors:
            ds = preprocessor.transform(ds)
        return ds

    def transform_batch(self, batch: Any) -> Any:
        """One batch (a dictionary of arrays, a data frame, a pyarrow table)."""
        for preprocessor in self.preprocessors:
            batch = preprocessor.transform_batch(batch)
        return batch

    def is_fitted(self) -> bool:
        """Whether transform may be called."""
        return all(preprocessor.is_fitted() for preprocessor in self.preprocessors)

    def to_dict(self) -> dict:
        """Plain data, for a checkpoint or a file; Preprocessor.from_dict makes it again."""
        return {"kind": "Chain", "version": _CHAIN_VERSION, "steps": [each.to_dict() for each in self.preprocessors]}

    @staticmethod
    def _load(saved: dict) -> Chain:
        if saved.get("version", 0) > _CHAIN_VERSION:
            raise ValueError("the chain was saved by a newer version (format %r)" % saved["version"])
        return Chain(*map(Preprocessor.from_dict, saved["steps"]))

    def __repr__(self) -> str:
        return "Chain(%s)" % ", ".join(map(repr, self.preprocessors))


_BY_NAME = {kind.__name__: kind for kind in (StandardScaler, MinMaxScaler, MaxAbsScaler, SimpleImputer, OrdinalEncoder, LabelEncoder, OneHotEncoder,
                                              Tokenizer, Normalizer, Concatenator)}


strict_module(globals())
