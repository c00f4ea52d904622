"""What objects that are made from arguments share: losses, metrics, optimizers."""

from __future__ import annotations

from typing import Any

__all__ = ["Configured", "named_arguments"]


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


def named_arguments(kind: str, defaults: dict[str, Any], arguments: tuple, given: dict[str, Any], also: tuple = ()) -> dict[str, Any]:
    """All arguments by their names, for a class of the engine's; a TypeError says which there are."""
    names = list(defaults)
    if len(arguments) > len(names):
        raise TypeError("%s takes at most %d arguments" % (kind, len(names)))
    given = dict(given, **dict(zip(names, arguments)))
    unknown = set(given) - set(names) - set(also) - {"name", "dtype"}
    if unknown:
        raise TypeError("%s has no argument %s; it has %s" % (kind, ", ".join(sorted(unknown)), ", ".join([*names, *also, "name"])))
    return dict(defaults, **given)
