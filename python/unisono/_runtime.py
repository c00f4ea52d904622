"""init and shutdown: there is no cluster to start. Where workers run (launcher, hosts) is handed to the library in the environment, as the command
line does it, so that an unchanged script runs over MPI and Slurm: UNISONO_LAUNCHER=slurm python script.py."""

from __future__ import annotations

import os
from typing import Any

LAUNCHERS = ("local", "mpi", "slurm")
_state: dict[str, Any] = {"initialized": False, "before": {}}


def _set(name: str, value: str | None) -> None:
    _state["before"].setdefault(name, os.environ.get(name))
    if value is not None:
        os.environ[name] = value


def init(address: str | None = None, *, num_cpus: int | None = None, num_gpus: int | None = None, hosts: Any = None, launcher: str | None = None,
         **ignored: Any) -> dict[str, Any]:
    """Nothing needs to be started. launcher: "local", "mpi" or "slurm"; hosts: "a:2,b:2" or a dictionary {"a": 2, "b": 2} (then mpi is meant).

    address: None, "auto" or "local". There is no server to connect to: what `ray up` and --address did, hosts= and launcher= do. Other
    arguments of ray.init are accepted and have no meaning here."""
    if address not in (None, "auto", "local"):
        raise NotImplementedError("init(address=%r): there is no cluster to connect to; say where the workers run with hosts=\"a:2,b:2\" or "
                                  "launcher=\"slurm\" (or UNISONO_HOSTS, UNISONO_LAUNCHER)" % (address,))
    if isinstance(hosts, dict):
        hosts = ",".join("%s:%d" % pair for pair in hosts.items())
    if launcher is None and hosts is not None and "UNISONO_LAUNCHER" not in os.environ:
        launcher = "mpi"
    if launcher is not None and launcher not in LAUNCHERS:
        raise ValueError("launcher must be one of %s, not %r" % (", ".join(LAUNCHERS), launcher))
    _set("UNISONO_LAUNCHER", launcher)
    _set("UNISONO_HOSTS", hosts)
    _state["initialized"] = True
    return {"address": None, "num_cpus": num_cpus or os.cpu_count(), "launcher": os.environ.get("UNISONO_LAUNCHER", "local"),
            "hosts": os.environ.get("UNISONO_HOSTS")}


def is_local() -> bool:
    """Workers run on this machine, without MPI or Slurm."""
    return os.environ.get("UNISONO_LAUNCHER", "local") in ("", "local") and not os.environ.get("UNISONO_HOSTS")


def is_initialized() -> bool:
    """init was called and shutdown was not."""
    return _state["initialized"]


def shutdown(*_: Any, **__: Any) -> None:
    """Takes back what init said, and ends the templates of workers that were kept for the next fit."""
    import sys

    if "unisono._template" in sys.modules:
        sys.modules["unisono._template"].shutdown()
    _state["initialized"] = False
    for name, value in _state["before"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _state["before"] = {}


def cluster_resources() -> dict[str, float]:
    """What this machine has."""
    return {"CPU": float(len(os.sched_getaffinity(0)))}


available_resources = cluster_resources


def nodes() -> list[dict[str, Any]]:
    """The machines: this one."""
    return [{"Alive": True, "NodeManagerAddress": "127.0.0.1", "Resources": cluster_resources()}]


def get(futures: Any, *, timeout: float | None = None) -> Any:
    """The answers of a worker group's methods (Trainer.to_worker_group): of one future, or of a list of them."""
    if isinstance(futures, (list, tuple)):
        return [get(each) for each in futures]
    if not hasattr(futures, "result"):
        raise TypeError("get waits for what worker.method.remote(...) gave, not for %s: there is no object store; Trainer.run returns a list"
                        % type(futures).__name__)
    return futures.result()
