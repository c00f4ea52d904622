"""Arguments: none is swallowed.

Every public function takes an argument and acts on it, or refuses it with a TypeError that names it. There are three kinds of names that a
function does not act on:

  unknown    a misspelling: the error names the nearest argument
  refused    an argument of the peer's (Ray, Keras, TensorFlow, Horovod) without an effect here. The error says why, and what to use
             instead. The peer's default value asks for nothing and is accepted.
  harmless   an argument of the peer's that cannot change a result: HARMLESS below is the only list of them

A function that takes only what it declares is decorated with @strict(...). A function that takes keywords of its own (**metrics) calls check().
docs/signatures.md lists all of them; tests/differential/signatures.py compares that list with the peers' own signatures.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, Iterable, Mapping, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Refused(NamedTuple):
    """An argument of the peer's that has no effect here."""

    default: Any  # the peer's: asks for nothing
    why: str  # "… is not supported: <why>", with what to use instead


# function -> {argument: why ignoring it cannot change what the user gets}. Keep it short: speed, memory and looks are harmless, results are not.
HARMLESS: dict[str, dict[str, str]] = {}


def near(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown argument: the nearest one, or all that there are."""
    known = list(known)
    found = difflib.get_close_matches(name, known, 1, 0.6)
    if found:
        return "; did you mean %r?" % found[0]
    return "; its arguments are: %s" % ", ".join(known) if known else "; it takes no keyword arguments"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and isinstance(value, (bool, int, float, str, tuple, type(None))) and value == default)


def check(what: str, given: Mapping[str, Any], known: Iterable[str] = (), refused: Mapping[str, Refused] | None = None) -> None:
    """A TypeError for every name in `given` that is neither known nor harmless. `what` is the public name, "unisono.init"."""
    known, refused = list(known), refused or {}
    short = what.rpartition(".")[2]
    for name, value in given.items():
        if name in refused:
            if not _is_default(value, refused[name].default):
                raise TypeError("%s(%s=%.40r) is not supported: %s" % (short, name, value, refused[name].why))
        elif name not in known and name not in HARMLESS.get(what, ()):
            raise TypeError("%s() got an unexpected keyword argument %r%s" % (short, name, near(name, known)))


def public_name(function: Any) -> str:
    """unisono.train._config.ScalingConfig.__init__ -> unisono.train.ScalingConfig"""
    parts = (function.__module__ + "." + function.__qualname__.removesuffix(".__init__")).split(".")
    return ".".join(part for part in parts if not part.startswith("_") or part.startswith("__"))


def strict(refused: Mapping[str, Refused] | None = None, *, name: str | None = None) -> Callable[[_Function], _Function]:
    """Decorates a function (or an __init__) that takes only the arguments it declares: any other one is a TypeError that helps, and those in
    `refused` are refused by name. A refused argument may also be declared, where the peer's scripts pass it by position."""
    refused = dict(refused or {})

    def wrap(function: _Function) -> _Function:
        what, signature = name or public_name(function), inspect.signature(function)
        kinds = {parameter.kind for parameter in signature.parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, "%s takes any keyword: call check() in it" % what
        declared = set(signature.parameters)
        offered = [each for each in signature.parameters if each not in refused and each not in ("self", "cls")]
        by_position = declared.intersection(refused)

        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            if not declared.issuperset(given):
                check(what, given, offered, refused)
                given = {key: value for key, value in given.items() if key in declared}
            if by_position:
                bound = signature.bind(*arguments, **given).arguments
                check(what, {key: bound[key] for key in by_position.intersection(bound)}, offered, refused)
            return function(*arguments, **given)

        call.__refused__, call.__public__ = refused, what  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return wrap
