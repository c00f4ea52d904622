"""Initialisers by Keras's names; the values are drawn by the engine from the model's seed."""

from __future__ import annotations


from unisono.extend import as_kind, check, strict
from unisono.keras._arguments import Configured

__all__ = ["Initializer", "Zeros", "Ones", "Constant", "RandomUniform", "RandomNormal", "TruncatedNormal", "GlorotUniform", "GlorotNormal", "HeUniform",
           "HeNormal", "LecunUniform", "LecunNormal", "Orthogonal", "Identity"]


class Initializer(Configured):
    """Base of the initialisers."""

    _config: dict = {}

    @strict(name="unisono.keras.initializers.Initializer")
    def __init__(self):
        self._config = {}

    def get_config(self) -> dict:
        """Its arguments."""
        return dict(self._config)

    def _object(self):
        return {"module": "keras.initializers", "class_name": type(self).__name__, "config": self.get_config(), "registered_name": None}


def _make(name, **defaults):
    def __init__(self, *arguments, **given):
        if len(arguments) > len(defaults):
            raise TypeError("%s() takes at most %d arguments, got %d" % (name, len(defaults), len(arguments)))
        check("unisono.keras.initializers." + name, given, defaults)
        given = dict(defaults, **dict(zip(defaults, arguments)), **given)
        for key, value in given.items():
            as_kind(name, key, value, "int | None" if key == "seed" else "float")
        self._config = {key: value for key, value in given.items() if value is not None}
    return type(name, (Initializer,), {"__init__": __init__, "__doc__": "Keras's %s." % name, "__module__": __name__})


Zeros, Ones, Constant = _make("Zeros"), _make("Ones"), _make("Constant", value=0.0)
RandomUniform = _make("RandomUniform", minval=-0.05, maxval=0.05, seed=None)
RandomNormal, TruncatedNormal = (_make(name, mean=0.0, stddev=0.05, seed=None) for name in ("RandomNormal", "TruncatedNormal"))
GlorotUniform, GlorotNormal, HeUniform, HeNormal, LecunUniform, LecunNormal = (_make(name, seed=None) for name in (
    "GlorotUniform", "GlorotNormal", "HeUniform", "HeNormal", "LecunUniform", "LecunNormal"))
Orthogonal, Identity = _make("Orthogonal", gain=1.0, seed=None), _make("Identity", gain=1.0)
