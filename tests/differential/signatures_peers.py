"""What the peers' signatures are: Ray, Keras and TensorFlow by introspection, Horovod from signatures_horovod.json.

A Pair is one of our callables and the peer's of the same name, with the peer's arguments. Of a class, its constructor and the public methods that both have.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from dataclasses import dataclass, field
from typing import Any, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))

# our module -> the peer's
MODULES = {
    "unisono": "ray", "unisono.util": "ray.util", "unisono.air": "ray.air", "unisono.air.session": "ray.air.session",
    "unisono.train": "ray.train", "unisono.train.torch": "ray.train.torch", "unisono.train.tensorflow": "ray.train.tensorflow",
    "unisono.train.tensorflow.keras": "ray.train.tensorflow.keras", "unisono.train.backend": "ray.train.backend",
    "unisono.data": "ray.data", "unisono.data.preprocessors": "ray.data.preprocessors",
    "unisono.tune": "ray.tune", "unisono.tune.schedulers": "ray.tune.schedulers", "unisono.tune.search": "ray.tune.search",
    "unisono.tune.search.optuna": "ray.tune.search.optuna", "unisono.tune.stopper": "ray.tune.stopper",
    "unisono.keras": "keras", "unisono.keras.layers": "keras.layers", "unisono.keras.models": "keras.models",
    "unisono.keras.optimizers": "keras.optimizers", "unisono.keras.losses": "keras.losses", "unisono.keras.metrics": "keras.metrics",
    "unisono.keras.callbacks": "keras.callbacks", "unisono.keras.initializers": "keras.initializers",
    "unisono.keras.regularizers": "keras.regularizers", "unisono.keras.activations": "keras.activations", "unisono.keras.ops": "keras.ops",
    "unisono.keras.utils": "keras.utils",
    "unisono.tf": "tensorflow", "unisono.tf.data": "tensorflow.data", "unisono.tf.distribute": "tensorflow.distribute", "unisono.tf.nn": "tensorflow.nn",
    "unisono.horovod": "horovod", "unisono.horovod.torch": "horovod.torch", "unisono.horovod.tensorflow": "horovod.tensorflow",
    "unisono.horovod.keras": "horovod.keras", "unisono.horovod.tensorflow.keras": "horovod.tensorflow.keras",
}


@dataclass
class Pair:
    """One callable of ours, by its public name, and the peer's arguments."""

    name: str  # unisono.train.Checkpoint.to_directory
    peer: str  # ray.train.Checkpoint.to_directory
    ours: Any
    owner: Any  # the class of a method, otherwise None
    arguments: dict[str, Any] = field(default_factory=dict)  # the peer's: name -> default (REQUIRED where there is none)


REQUIRED = "<required>"
_NOT_NAMES = ("self", "cls", "args", "kwargs")


def explicit(kind: Any) -> dict[str, Any]:
    """Arguments by name with their defaults; those of the bases too, where **keywords pass them on."""
    functions = [kind]
    if inspect.isclass(kind):
        functions = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base) and base is not object] or [kind]
    out: dict[str, Any] = {}
    for function in functions:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            break
        for each in parameters:
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and each.name not in _NOT_NAMES:
                out.setdefault(each.name, REQUIRED if each.default is each.empty else each.default)
        for name in getattr(function, "__also__", ()):
            out.setdefault(name, None)
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return out


def _peer_modules() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in sorted(set(MODULES.values())):
        if name.partition(".")[0] != "horovod":
            out[name] = importlib.import_module(name)
    return out


def public_names(module: Any) -> list[str]:
    names = getattr(module, "__all__", None) or dir(module)
    return sorted(name for name in names if not name.startswith("_"))


def _ours(module: str) -> Iterator[tuple[str, Any]]:
    """(name, object) of what a module of ours offers itself."""
    found = importlib.import_module(module)
    lazy = set(getattr(found, "_RUNTIME", ())) | set(getattr(found, "_LAZY", ()))
    for name in sorted(set(public_names(found)) | lazy):
        try:
            value = getattr(found, name)
        except Exception:  # what is not offered here says so elsewhere
            continue
        if callable(value) and (getattr(value, "__module__", None) or "unisono").startswith("unisono"):
            yield name, value


def _methods(ours: Any, peer: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(dir(ours)):
        if name.startswith("_") or not hasattr(peer, name):
            continue
        mine, theirs = inspect.getattr_static(ours, name), inspect.getattr_static(peer, name)
        if isinstance(mine, property) or isinstance(theirs, property):
            continue
        if not (getattr(getattr(ours, name), "__module__", None) or "").startswith("unisono"):  # of Python's own classes
            continue
        if callable(getattr(ours, name)) and callable(getattr(peer, name)):
            yield name, getattr(ours, name), getattr(peer, name)


def _of_modules() -> Iterator[Pair]:
    peers = _peer_modules()
    for module, peer_module in MODULES.items():
        if peer_module not in peers:
            continue
        for name, value in _ours(module):
            peer = getattr(peers[peer_module], name, None)
            if not callable(peer):
                continue
            full, peer_full = "%s.%s" % (module, name), "%s.%s" % (peer_module, name)
            yield Pair(full, peer_full, value, None, explicit(peer))
            if inspect.isclass(value) and inspect.isclass(peer):
                for method, mine, theirs in _methods(value, peer):
                    yield Pair("%s.%s" % (full, method), "%s.%s" % (peer_full, method), mine, value, explicit(theirs))


def _of_horovod() -> Iterator[Pair]:
    with open(os.path.join(HERE, "signatures_horovod.json"), encoding="utf-8") as file:
        facts = json.load(file)["functions"]
    for module, peer_module in MODULES.items():
        if peer_module.partition(".")[0] != "horovod":
            continue
        for name, value in _ours(module):
            known = facts.get("%s.%s" % (peer_module, name))
            if known is not None:
                yield Pair("%s.%s" % (module, name), "%s.%s" % (peer_module, name), value, None, dict(known))


def pairs() -> list[Pair]:
    """All pairs, the same object once: under its first (shortest) name."""
    seen: set[Any] = set()
    out = []
    for pair in sorted([*_of_modules(), *_of_horovod()], key=lambda pair: (pair.name.count("."), pair.name)):
        function = getattr(pair.ours, "__func__", pair.ours)
        key = (id(function), pair.owner and id(pair.owner))
        root = id(function)
        if key in seen or (pair.owner is not None and root in seen):
            continue
        seen.update({key, root})
        out.append(pair)
    return sorted(out, key=lambda pair: pair.name)
