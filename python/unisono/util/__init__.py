"""unisono.util."""

from __future__ import annotations

from typing import Any

from unisono import init as _init
from unisono.extend import Refused, complain, strict

__all__ = ["connect", "sgd"]


_NO_SERVER = "there is no server to connect to; say where the workers run with unisono.init(hosts=) or unisono.init(launcher=)"


@strict({"secure": Refused(False, _NO_SERVER), "metadata": Refused(None, _NO_SERVER), "connection_retries": Refused(3, _NO_SERVER),
         "job_config": Refused(None, _NO_SERVER), "namespace": Refused(None, _NO_SERVER), "ignore_version": Refused(False, _NO_SERVER),
         "_credentials": Refused(None, _NO_SERVER), "ray_init_kwargs": Refused(None, "call unisono.init with them")})
def connect(conn_str: Any) -> Any:
    """ray.util.connect's place. "auto" and "local" are this machine; any other address is refused: there is no server."""
    return _init(conn_str)


def __getattr__(name):
    import importlib

    if name == "sgd":
        return importlib.import_module("unisono.util.sgd")
    return complain("unisono.util", name)
