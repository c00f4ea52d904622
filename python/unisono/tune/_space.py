"""Spaces: what a parameter can be, and how it travels to the library.

A Domain becomes {"$loguniform": [1e-4, 0.1]} (docs/tune.md), a tuple {"__tuple__": [...]}. Values that are not JSON (functions, classes, arrays) stay here: the library sees
{"__object__": 3, "is": "..."} and workers get the list.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

from unisono._arguments import strict

OBJECT, TUPLE = "__object__", "__tuple__"


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


@strict(name="unisono.tune.grid_search")
def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, crossed with all other grids."""
    return {"grid_search": list(values)}


@strict(name="unisono.tune.choice")
def choice(categories: Sequence[Any]) -> Domain:
    """One of the values."""
    return Domain("choice", *categories)


@strict(name="unisono.tune.uniform")
def uniform(lower: float, upper: float) -> Domain:
    """A number between lower and upper."""
    return Domain("uniform", lower, upper)


@strict(name="unisono.tune.quniform")
def quniform(lower: float, upper: float, q: float) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("quniform", lower, upper, q)


@strict(name="unisono.tune.loguniform")
def loguniform(lower: float, upper: float, base: float = 10) -> Domain:
    """A number whose logarithm is uniform."""
    return Domain("loguniform", lower, upper)


@strict(name="unisono.tune.qloguniform")
def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qloguniform", lower, upper, q)


@strict(name="unisono.tune.randint")
def randint(lower: int, upper: int) -> Domain:
    """A whole number from lower to below upper."""
    return Domain("randint", lower, upper)


@strict(name="unisono.tune.qrandint")
def qrandint(lower: float, upper: float, q: float = 1) -> Domain:
    """A whole number of the range, rounded to multiples of q."""
    return Domain("qrandint", lower, upper, q)


@strict(name="unisono.tune.lograndint")
def lograndint(lower: float, upper: float, base: float = 10) -> Domain:
    """A whole number whose logarithm is uniform."""
    return Domain("lograndint", lower, upper)


@strict(name="unisono.tune.qlograndint")
def qlograndint(lower: float, upper: float, q: float, base: float = 10) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qlograndint", lower, upper, q)


@strict(name="unisono.tune.randn")
def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    """A number of the normal distribution."""
    return Domain("normal", mean, sd)


@strict(name="unisono.tune.qrandn")
def qrandn(mean: float, sd: float, q: float) -> Domain:
    """The same, rounded to multiples of q."""
    return Domain("qnormal", mean, sd, q)


@strict(name="unisono.tune.sample_from")
def sample_from(function: Callable[..., Any]) -> Function:
    """What a function of the config gives."""
    return Function(function)


class Table:
    """What cannot go into the journal as it is: functions of sample_from, and objects."""

    def __init__(self):
        self.functions, self.objects = {}, []

    def encode(self, value: Any, sampled: str | None = None) -> Any:
        """A value as the journal has it. What is not JSON gets a place in the table, but not what was sampled: the workers have their table already."""
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
            return [self.encode(item, sampled) for item in value]
        if type(value) is tuple:
            return {TUPLE: [self.encode(item, sampled) for item in value]}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self.encode(item, sampled) for key, item in value.items()}
        for number, known in enumerate(self.objects):
            if known is value:
                return {OBJECT: number, "is": _name(value)}
        if sampled is not None:
            raise TypeError("the function of tune.sample_from returned %s %.60r, which cannot be kept in the journal: return numbers, text, lists, tuples, "
                            "dictionaries of them, or one of the objects that the space has" % (type(value).__name__, value))
        self.objects.append(value)
        return {OBJECT: len(self.objects) - 1, "is": _name(value)}

    def sample(self, name: str | None, config: dict[str, Any] | None) -> Any:
        """What the library calls for {"$sample_from": name}."""
        config = decode(config, self.objects)
        return self.encode(self.functions[name](_Spec(config, config=_Spec(config))), name)


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
        if len(value) == 1 and TUPLE in value:
            return tuple(decode(item, objects) for item in value[TUPLE])
        return {key: decode(item, objects) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item, objects) for item in value]
    return value
