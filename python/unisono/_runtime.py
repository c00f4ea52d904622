"""init and shutdown: there is no cluster to start. Where workers run (launcher, hosts) is handed to the library in the environment, as the command
line does it, so that an unchanged script runs over MPI and Slurm: UNISONO_LAUNCHER=slurm python script.py."""

from __future__ import annotations

import os
from typing import Any

from unisono._arguments import Refused, strict

LAUNCHERS = ("local", "ssh", "mpi", "slurm")
_state: dict[str, Any] = {"initialized": False, "before": {}, "quiet": False, "resources": {}}


def _set(name: str, value: str | None) -> None:
    _state["before"].setdefault(name, os.environ.get(name))
    if value is not None:
        os.environ[name] = value


_REFUSED = {
    "labels": Refused(None, "machines have no labels; say where the workers run with hosts="),
    "local_mode": Refused(False, "workers are processes; call the train function itself to run it in this one"),
    "include_dashboard": Refused(None, "there is no dashboard; `unisono plot -f RUN` shows a run", (False,)),
    "job_config": Refused(None, "there is no cluster that takes jobs"),
    "runtime_env": Refused(None, "workers have this process's environment and import path; set os.environ before fit()", ({},)),
    "enable_resource_isolation": Refused(False, "use the cgroups of the machine's own service manager"),
    "cgroup_path": Refused(None, "use the cgroups of the machine's own service manager"),
    "system_reserved_cpu": Refused(None, "ask for fewer CPUs with resources_per_worker"),
    "system_reserved_memory": Refused(None, "ask for less memory with resources_per_worker"),
    "proxy_server_url": Refused(None, "there is no server"),
}


@strict(_REFUSED, name="unisono.init")
def init(address: str | None = None, *, num_cpus: int | None = None, num_gpus: int | None = None, resources: dict[str, float] | None = None,
         log_to_driver: bool | None = None, hosts: Any = None, launcher: str | None = None, encrypt: bool | None = None, no_seal: bool | None = None,
         secret_file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Nothing needs to be started. launcher: "local", "ssh", "mpi" or "slurm"; hosts: "a:2,b:2" or a dictionary {"a": 2, "b": 2} (then ssh is meant).

    encrypt, no_seal, secret_file: as the options of `unisono run` over hosts (docs/hosts.md, Security).
    address: None, "auto" or "local". There is no server to connect to: what `ray up` and --address did, hosts= and launcher= do.
    num_cpus, num_gpus, resources: what cluster_resources() says. log_to_driver=False: what workers print stays in the run's logs."""
    if address not in (None, "auto", "local"):
        raise NotImplementedError("init(address=%r): there is no cluster to connect to; say where the workers run with hosts=\"a:2,b:2\" or "
                                  "launcher=\"slurm\" (or UNISONO_HOSTS, UNISONO_LAUNCHER)" % (address,))
    if isinstance(hosts, dict):
        hosts = ",".join("%s:%d" % pair for pair in hosts.items())
    if launcher is None and hosts is not None and "UNISONO_LAUNCHER" not in os.environ:
        launcher = "ssh"
    if launcher is not None and launcher not in LAUNCHERS:
        raise ValueError("launcher must be one of %s, not %r" % (", ".join(LAUNCHERS), launcher))
    _set("UNISONO_LAUNCHER", launcher)
    _set("UNISONO_HOSTS", hosts)
    _set("UNISONO_ENCRYPT", None if encrypt is None else "%d" % encrypt)
    _set("UNISONO_NO_SEAL", None if no_seal is None else "%d" % no_seal)
    _set("UNISONO_SECRET_FILE", None if secret_file is None else os.fspath(secret_file))
    said = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
    _state.update(initialized=True, quiet=log_to_driver is False, resources={key: float(value) for key, value in said.items() if value is not None})
    return {"address": None, "num_cpus": int(cluster_resources()["CPU"]), "launcher": os.environ.get("UNISONO_LAUNCHER", "local"),
            "hosts": os.environ.get("UNISONO_HOSTS")}


def is_quiet() -> bool:
    """init(log_to_driver=False) was said."""
    return bool(_state["quiet"])


def is_local() -> bool:
    """Workers run on this machine, without MPI or Slurm."""
    return os.environ.get("UNISONO_LAUNCHER", "local") in ("", "local") and not os.environ.get("UNISONO_HOSTS")


def is_initialized() -> bool:
    """init was called and shutdown was not."""
    return _state["initialized"]


@strict(name="unisono.shutdown")
def shutdown() -> None:
    """Takes back what init said, and ends the templates of workers that were kept for the next fit."""
    import sys

    if "unisono._template" in sys.modules:
        sys.modules["unisono._template"].shutdown()
    _state.update(initialized=False, quiet=False, resources={})
    for name, value in _state["before"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _state["before"] = {}


@strict(name="unisono.cluster_resources")
def cluster_resources() -> dict[str, float]:
    """What this machine has, or what init said that it has."""
    return {"CPU": float(len(os.sched_getaffinity(0))), **_state["resources"]}


available_resources = cluster_resources


def nodes() -> list[dict[str, Any]]:
    """The machines: this one."""
    return [{"Alive": True, "NodeManagerAddress": "127.0.0.1", "Resources": cluster_resources()}]


@strict({"_use_object_store": Refused(False, "there is no object store")}, name="unisono.get")
def get(object_refs: Any, *, timeout: float | None = None) -> Any:
    """The answers of a worker group's methods (Trainer.to_worker_group): of one future, or of a list of them. timeout: seconds for all of them,
    then a TimeoutError."""
    import time

    until = None if timeout is None else time.monotonic() + timeout
    if isinstance(object_refs, (list, tuple)):
        return [get(each, timeout=None if until is None else max(0.0, until - time.monotonic())) for each in object_refs]
    if not hasattr(object_refs, "result"):
        raise TypeError("get waits for what worker.method.remote(...) gave, not for %s: there is no object store; Trainer.run returns a list"
                        % type(object_refs).__name__)
    return object_refs.result(timeout)
