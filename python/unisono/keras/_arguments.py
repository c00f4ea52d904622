"""What objects that are made from arguments share: losses, metrics, optimizers. Arguments are checked by unisono._arguments."""

from __future__ import annotations

from typing import Any

from unisono._arguments import Refused, check

__all__ = ["Configured", "check_float32", "dtype_name", "named_arguments"]


def _rebuild(kind: type, config: dict[str, Any]) -> Any:
    return kind(**config)


class Configured:
    """get_config gives the arguments; from_config and pickle make the object of them again."""

    def get_config(self) -> dict[str, Any]:
        """Its arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """An object of what get_config gave."""
        return cls(**config)

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.get_config()))


def dtype_name(dtype: Any) -> Any:
    """float32 of "float32", numpy.float32, a policy, and what a config has for one."""
    if isinstance(dtype, dict):  # a policy in a config
        dtype = (dtype.get("config") or {}).get("name", dtype)
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype


def check_float32(what: str, dtype: Any) -> None:
    """A TypeError unless the type (or policy) is float32, which is what the engine computes in."""
    name = dtype_name(dtype)
    if name is not None and name != "float32":
        raise TypeError("%s(dtype=%r) is not supported: the engine computes in float32; leave dtype out, or convert the data" % (what, name))


def named_arguments(what: str, defaults: dict[str, Any], arguments: tuple, given: dict[str, Any], also: tuple = (),
                    refused: dict[str, Refused] | None = None) -> dict[str, Any]:
    """All arguments by their names, for a class of the engine's. `what` is the public name; unknown and refused ones are a TypeError."""
    names, short = list(defaults), what.rpartition(".")[2]
    if len(arguments) > len(names):
        raise TypeError("%s() takes at most %d arguments, got %d" % (short, len(names), len(arguments)))
    twice = set(given).intersection(names[:len(arguments)])
    if twice:
        raise TypeError("%s() got %s twice" % (short, ", ".join(sorted(twice))))
    check(what, given, [*names, *also, "name", "dtype"], refused)
    check_float32(short, given.get("dtype"))
    return dict(defaults, **given, **dict(zip(names, arguments)))
