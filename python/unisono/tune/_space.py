"""Spaces: what a parameter can be, and how it travels to the library.

A Domain becomes {"$loguniform": [1e-4, 0.1]} (docs/tune.md). Values that are no JSON (tuples, functions, classes, arrays) stay here: the library sees {"__object__": 3,
"is": "..."} and workers get the list.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

OBJECT = "__object__"


class Domain:
    """One parameter of a space."""

    def __init__(self, kind: str, *arguments: Any):
        self.kind, self.arguments = kind, arguments

    def __repr__(self) -> str:
        return "tune.%s(%s)" % (self.kind, ", ".join(repr(item) for item in self.arguments))

    def sample(self, spec: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """One value."""
        raise NotImplementedError("the tuner samples; use the config that a trial gets")


class Function:
    """sample_from: a function of the others."""

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise TypeError("sample_from needs a function, not %r" % (function,))
        self.function = function


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, crossed with all other grids."""
    return {"grid_search": list(values)}


def choice(categories: Sequence[Any]) -> Domain:
    """One of the values."""
    return Domain("choice", *categories)


def _needs(name, count, given):
    if len(given) != count:
        raise TypeError("tune.%s needs %d numbers, not %d: tune.%s(%s)" % (
            name, count, len(given), name, ", ".join(("lower", "upper", "q")[:count])))
    return Domain(name, *given)


def uniform(*limits: float) -> Domain:
    """A number between lower and upper."""
    return _needs("uniform", 2, limits)


def quniform(*limits: float) -> Domain:
    """The same, rounded to multiples of q."""
    return _needs("quniform", 3, limits)


def loguniform(lower: float, upper: float, base: float = 10) -> Domain:
    """A number whose logarithm is uniform."""
    return Domain("loguniform", lower, upper)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qloguniform", lower, upper, q)


def randint(*limits: float) -> Domain:
    """A whole number from lower to below upper."""
    return _needs("randint", 2, limits)


def qrandint(lower: float, upper: float, q: float = 1) -> Domain:
    """A whole number of the range, rounded to multiples of q."""
    return Domain("qrandint", lower, upper, q)


def lograndint(lower: float, upper: float, base: float = 10) -> Domain:
    """A whole number whose logarithm is uniform."""
    return Domain("lograndint", lower, upper)


def qlograndint(lower: float, upper: float, q: float, base: float = 10) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qlograndint", lower, upper, q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    """A number of the normal distribution."""
    return Domain("normal", mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qnormal", mean, sd, q)


def sample_from(function: Callable[..., Any]) -> Function:
    """What a function of the config gives."""
    return Function(function)


class Table:
    """What cannot go into the journal as it is: functions of sample_from, and objects."""

    def __init__(self):
        self.functions, self.objects = {}, []

    def encode(self, value: Any) -> Any:
        """The place of a value in the table."""
        if isinstance(value, Domain):
            return {"$" + value.kind: [self.encode(item) for item in value.arguments]}
        if isinstance(value, Function):
            name = "f%d" % len(self.functions)
            self.functions[name] = value.function
            return {"$sample_from": name}
        if value is None or isinstance(value, (bool, str)):
            return value
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 and hasattr(value, "dtype"):
            return value.item()
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self.encode(item) for key, item in value.items()}
        for number, known in enumerate(self.objects):
            if known is value:
                return {OBJECT: number, "is": _name(value)}
        self.objects.append(value)
        return {OBJECT: len(self.objects) - 1, "is": _name(value)}

    def sample(self, name: str | None, config: dict[str, Any] | None) -> Any:
        """What the library calls for {"$sample_from": name}."""
        config = decode(config, self.objects)
        return self.encode(self.functions[name](_Spec(config, config=_Spec(config))))


def _name(value):
    return (getattr(value, "__name__", None) or repr(value))[:200]


class _Spec(dict):
    """spec.config.lr, spec["config"]["lr"] and spec["lr"] all work."""

    def __init__(self, values, **more):
        super().__init__({key: _Spec(item) if isinstance(item, dict) else item for key, item in values.items()}, **more)

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def decode(value: Any, objects: Any) -> Any:
    """A config as the user wrote its values."""
    if isinstance(value, dict):
        if OBJECT in value:
            return objects[value[OBJECT]]
        return {key: decode(item, objects) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item, objects) for item in value]
    return value
