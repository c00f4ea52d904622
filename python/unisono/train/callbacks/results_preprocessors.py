"""What a callback sees of the workers' reports."""

from __future__ import annotations

import math
from typing import Any, Iterable


class ResultsPreprocessor:
    """Base: leaves the results as they are."""

    def preprocess(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A list of dictionaries by rank to another one."""
        return results


class IndexedResultsPreprocessor(ResultsPreprocessor):
    """Only some workers: an index, a list of them, or None for all."""

    def __init__(self, indices: Any):
        if indices is None:
            self._indices = None
        elif isinstance(indices, int) and not isinstance(indices, bool):
            self._indices = [indices]
        elif isinstance(indices, (list, tuple)):
            if not indices:
                raise ValueError("the list of workers is empty")
            if not all(isinstance(index, int) and not isinstance(index, bool) for index in indices):
                raise TypeError("workers are integers, not %r" % (indices,))
            self._indices = list(indices)
        else:
            raise TypeError("workers are an integer, a list of integers or None, not %r" % (indices,))
        if self._indices is not None and any(index < 0 for index in self._indices):
            raise ValueError("workers must not be negative: %r" % (indices,))

    def preprocess(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The chosen workers' dictionaries."""
        return list(results) if self._indices is None else [results[index] for index in self._indices]


class ExcludedKeysResultsPreprocessor(ResultsPreprocessor):
    """Without some keys."""

    def __init__(self, excluded_keys: Iterable[str] | None = None):
        self.excluded_keys = set(excluded_keys or ())

    def preprocess(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The dictionaries without the keys."""
        return [{key: value for key, value in result.items() if key not in self.excluded_keys} for result in results]


class SequentialResultsPreprocessor(ResultsPreprocessor):
    """One after the other."""

    def __init__(self, preprocessors: Any):
        self.preprocessors = list(preprocessors)

    def preprocess(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Through all of them."""
        for preprocessor in self.preprocessors:
            results = preprocessor.preprocess(results)
        return results


def _is_number(value):
    return isinstance(value, (int, float)) and not (isinstance(value, float) and math.isnan(value))


class _Aggregate(ResultsPreprocessor):
    """Adds a number over all workers to every worker's dictionary; NaN and missing values are left out."""

    def __init__(self, keys=None):
        self.keys = None if keys is None else list(keys)

    def _name(self, key):
        raise NotImplementedError

    def _value(self, numbers, results):
        raise NotImplementedError

    def preprocess(self, results):
        keys = self.keys
        if keys is None:
            keys = sorted({key for result in results for key, value in result.items() if _is_number(value) and not key.startswith("_")})
        added = {}
        for key in keys:
            pairs = [(result[key], result) for result in results if _is_number(result.get(key))]
            if pairs:
                added[self._name(key)] = self._value([number for number, _ in pairs], [result for _, result in pairs])
        return [dict(result, **added) for result in results]


class AverageResultsPreprocessor(_Aggregate):
    """Adds avg(key) over all workers."""

    def _name(self, key):
        return "avg(%s)" % key

    def _value(self, numbers, results):
        return sum(numbers) / len(numbers)


class MaxResultsPreprocessor(_Aggregate):
    """Adds max(key) over all workers."""

    def _name(self, key):
        return "max(%s)" % key

    def _value(self, numbers, results):
        return max(numbers)


class WeightedAverageResultsPreprocessor(_Aggregate):
    """Adds weight_avg_<weight_key>(key) over all workers."""

    def __init__(self, keys: Iterable[str] | None = None, weight_key: str = "nTrainSamples"):
        super().__init__(keys)
        self.weight_key = weight_key

    def _name(self, key):
        return "weight_avg_%s(%s)" % (self.weight_key, key)

    def _value(self, numbers, results):
        weights = [result.get(self.weight_key) for result in results]
        if not all(_is_number(weight) for weight in weights) or not sum(weights):
            weights = [1] * len(numbers)
        return sum(number * weight for number, weight in zip(numbers, weights)) / sum(weights)
