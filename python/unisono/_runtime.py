"""init, shutdown: there is no cluster to start; what they were given is remembered, and what cannot be done is refused."""

import os

_state = {"initialized": False}


def init(address=None, *, num_cpus=None, num_gpus=None, hosts=None, launcher=None, **ignored):
    """Nothing needs to be started. address: None, "auto" or "local". launcher: "local" (mpi and slurm are not part of this version)."""
    launcher = launcher or os.environ.get("UNISONO_LAUNCHER") or "local"
    if launcher != "local" or hosts:
        raise NotImplementedError("only the launcher \"local\" is part of this version: the workers run on this machine")
    if address not in (None, "auto", "local"):
        raise NotImplementedError("init(address=%r): there is no cluster to connect to; the workers run on this machine" % (address,))
    _state["initialized"] = True
    return {"address": None, "num_cpus": num_cpus or os.cpu_count()}


def is_initialized():
    return _state["initialized"]


def shutdown():
    _state["initialized"] = False


def cluster_resources():
    return {"CPU": float(len(os.sched_getaffinity(0)))}


available_resources = cluster_resources


def nodes():
    return [{"Alive": True, "NodeManagerAddress": "127.0.0.1", "Resources": cluster_resources()}]
