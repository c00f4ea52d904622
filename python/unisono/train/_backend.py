"""Backends: what is set up in a worker before the train function."""

from dataclasses import asdict, dataclass


class BackendConfig:
    """Base of the backends' configurations."""

    name = "none"

    @property
    def backend_cls(self):
        return Backend

    def settings(self):
        """Plain data for the worker's half."""
        return {}


class Backend:
    """A backend of one's own is not offered: a train function can do the same at its start."""


@dataclass
class TorchConfig(BackendConfig):
    """How torch.distributed is set up: backend (None: nccl with GPUs, otherwise gloo), init_method "env" or "tcp", timeout_s."""

    backend: str = None
    init_method: str = "env"
    timeout_s: int = 1800
    name = "torch"

    def __post_init__(self):
        if self.init_method not in ("env", "tcp"):
            raise ValueError('init_method must be "env" or "tcp", not %r' % (self.init_method,))

    def settings(self):
        return asdict(self)


@dataclass
class TensorflowConfig(BackendConfig):
    """TF_CONFIG is set for every worker; there is nothing to choose."""

    name = "tensorflow"


@dataclass
class HorovodConfig(BackendConfig):
    """The HOROVOD_* environment is set for every worker. The ssh fields are accepted and not needed: unisono starts the workers."""

    nics: set = None
    verbose: int = 1
    key: str = None
    ssh_port: int = None
    ssh_identity_file: str = None
    ssh_str: str = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100
    name = "horovod"

    def settings(self):
        return {"timeout_s": self.timeout_s}


_BY_NAME = {"torch": TorchConfig, "tensorflow": TensorflowConfig, "horovod": HorovodConfig, "none": BackendConfig, "native": BackendConfig}


def backend_config(backend):
    """A BackendConfig from what a user gives."""
    if isinstance(backend, BackendConfig):
        return backend
    if isinstance(backend, str):
        if backend not in _BY_NAME:
            raise ValueError("the backend %r is not supported; there are: %s" % (backend, ", ".join(sorted(_BY_NAME))))
        return _BY_NAME[backend]()
    raise TypeError("backend must be a name or a BackendConfig, not %s" % type(backend).__name__)


def check_resources(resources, use_gpu):
    """The two contradictions that Ray refuses; what the library wants instead (cpus, gpus)."""
    resources = dict(resources or {})
    gpus = resources.get("GPU", None)
    if gpus and not use_gpu:
        raise ValueError("`use_gpu` is False but GPU resources were asked for (%r): set use_gpu to True or leave GPU out" % (gpus,))
    if gpus == 0 and use_gpu:
        raise ValueError("`use_gpu` is True but 0 GPUs were asked for: set use_gpu to False, or GPU to a positive number")
    unknown = set(resources) - {"CPU", "GPU", "memory"}
    if unknown:
        raise ValueError("workers can be given CPU, GPU and memory, not %s" % ", ".join(sorted(unknown)))
    out = {"use_gpu": bool(use_gpu)}
    if resources.get("CPU"):
        out["cpus_per_worker"] = float(resources["CPU"])
    if gpus:
        out["gpus_per_worker"] = max(1, int(gpus))
    if resources.get("memory"):
        out["memory_per_worker"] = float(resources["memory"])
    return out
