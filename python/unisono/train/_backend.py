"""Backends: what is set up in a worker before the train function."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

from unisono import _driver
from unisono._arguments import Refused, strict_class


class BackendConfig:
    """Base of the backends' configurations."""

    name = "none"

    @property
    def backend_cls(self) -> Any:
        """The class of the backend."""
        return Backend

    @property
    def train_func_context(self) -> Any:
        """A context manager, without arguments, that the train function runs in."""
        return contextlib.nullcontext

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return dict(vars(self))

    def settings(self) -> Any:
        """Plain data for the worker's half."""
        return {}

    def roles(self) -> Any:
        """Processes besides the workers, as options of the library."""
        return {}


class Backend:
    """The base of Ray's backends. The hooks of one of your own run in the driver, and what they execute runs in the workers.

    on_start runs once for each set of worker processes, on_training_start before each train function, on_shutdown before the workers end.
    worker_group has execute, execute_async, execute_single, execute_single_async, num_workers, len and workers[rank].metadata.
    """

    share_cuda_visible_devices = False
    has_replica_groups = False

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Called when the workers have started."""

    def on_training_start(self, worker_group: Any, backend_config: Any) -> None:
        """Called before the train function; the session is there."""

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        """Called before the workers end."""


# What Ray calls and unisono does not.
_NOT_CALLED = {"encode_data": "checkpoints travel as they are", "decode_data": "checkpoints travel as they are",
               "handle_failure": "the library restarts the workers, and on_start is called again"}


def _check_hooks(config: Any) -> None:
    """What a Backend of the user's own has that would have no effect."""
    kind, name = config.backend_cls, type(config).__name__
    if kind is Backend:
        return
    what = "%s.backend_cls=%s" % (name, getattr(kind, "__name__", kind))
    if not isinstance(kind, type):
        raise TypeError("%s is not supported: it must be a class" % what)
    if config.name != "none":
        raise TypeError("%s is not supported: a Backend of your own does the set-up, and %s has the one of %s: derive the configuration from BackendConfig"
                        % (what, name, config.name))
    for method, instead in _NOT_CALLED.items():
        if hasattr(kind, method):
            raise TypeError("%s is not supported: %s would not be called, because %s" % (what, method, instead))
    if getattr(kind, "has_replica_groups", False):
        raise TypeError("%s is not supported: has_replica_groups has no effect" % what)


def context_of(config: Any) -> Any:
    """The train function's context, or None."""
    context = config.train_func_context
    return None if context is contextlib.nullcontext else context


def hooks_of(config: Any, size: int, ends: bool, use_gpu: bool) -> Any:
    """The driver's half of a Backend of the user's own; None without one."""
    kind = config.backend_cls
    if kind is Backend:
        return None
    from unisono import _runtime
    from unisono.train._hooks import Hooks

    if not _runtime.is_local():
        raise ValueError("the hooks of %s need workers on this machine: without hosts and without a launcher" % kind.__name__)
    if use_gpu and getattr(kind, "share_cuda_visible_devices", False):
        raise ValueError("%s.share_cuda_visible_devices is not supported: a worker sees its own GPUs only" % kind.__name__)
    return Hooks(config, size, ends)


def make_group(config: Any, num_workers: int, use_gpu: bool, resources: Any, ends: bool = False, **options: Any) -> _driver.Group:
    """The workers of a trainer. ends: they end with their run."""
    limits = check_resources(resources, use_gpu)
    return _driver.Group(config.name, config.settings(), hooks=hooks_of(config, num_workers, ends, use_gpu), context=context_of(config),
                         num_workers=num_workers, **config.roles(), **limits, **options)


def refuse_hooks(config: Any, where: str) -> None:
    """Where there is no driver that could call them."""
    what = "the hooks of %s" % config.backend_cls.__name__ if config.backend_cls is not Backend else "train_func_context" if context_of(config) else None
    if what is not None:
        raise TypeError("%s with %s is not supported: do the same at the beginning of the train function" % (where, what))


@strict_class()
@dataclass
class TorchConfig(BackendConfig):
    """How torch.distributed is set up: backend (None: nccl with GPUs, otherwise gloo), init_method "env" or "tcp", timeout_s."""

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800
    name = "torch"

    def __post_init__(self):
        if self.init_method not in ("env", "tcp"):
            raise ValueError('init_method must be "env" or "tcp", not %r' % (self.init_method,))

    def settings(self) -> Any:
        """Plain data for the worker's half."""
        return asdict(self)


@strict_class()
@dataclass
class TensorflowConfig(BackendConfig):
    """TF_CONFIG is set for every worker.

    parameter_servers: so many processes with the role ps, and one with the role chief (rank 0), for ParameterServerStrategy. The train function runs in
    the chief; workers and servers run tf.distribute.Server until it returns. A worker or server that dies is started again alone.
    evaluators: 0 or 1 process with the role evaluator, which runs the train function, too.
    chief: without parameter servers, rank 0 is called chief instead of worker 0 (some scripts ask for that name).
    """

    parameter_servers: int = 0
    evaluators: int = 0
    chief: bool = False
    name = "tensorflow"

    def __post_init__(self):
        if self.parameter_servers < 0 or self.evaluators not in (0, 1):
            raise ValueError("parameter_servers must not be negative and evaluators must be 0 or 1, not %r and %r"
                             % (self.parameter_servers, self.evaluators))

    def settings(self) -> Any:
        """Plain data for the worker's half."""
        return asdict(self)

    def roles(self) -> Any:
        """The ps and evaluator processes, as options of the library."""
        return {"servers": self.parameter_servers, "evaluators": self.evaluators}


_NO_SSH = "unisono starts the workers: use unisono.init(hosts=) or unisono.init(launcher=)"


@strict_class({"nics": Refused(None, "use UNISONO_INTERFACE or the launcher's own options"), "verbose": Refused(1, "use RunConfig(verbose=)"),
               "key": Refused(None, _NO_SSH), "ssh_port": Refused(None, _NO_SSH), "ssh_identity_file": Refused(None, _NO_SSH),
               "ssh_str": Refused(None, _NO_SSH), "placement_group_timeout_s": Refused(100, "nothing is placed: workers start at once")})
@dataclass
class HorovodConfig(BackendConfig):
    """The HOROVOD_* environment is set for every worker. timeout_s: how long Horovod's own start-up may take."""

    nics: set | None = None
    verbose: int = 1
    key: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100
    name = "horovod"

    def settings(self) -> Any:
        """Plain data for the worker's half."""
        return {"timeout_s": self.timeout_s}


_BY_NAME = {"torch": TorchConfig, "tensorflow": TensorflowConfig, "horovod": HorovodConfig, "none": BackendConfig, "native": BackendConfig}


def backend_config(backend: Any) -> Any:
    """A BackendConfig from what a user gives."""
    if isinstance(backend, BackendConfig):
        _check_hooks(backend)
        return backend
    if isinstance(backend, str):
        if backend not in _BY_NAME:
            raise ValueError("the backend %r is not supported; there are: %s" % (backend, ", ".join(sorted(_BY_NAME))))
        return _BY_NAME[backend]()
    raise TypeError("backend must be a name or a BackendConfig, not %s" % type(backend).__name__)


def check_resources(resources: Any, use_gpu: bool) -> Any:
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
    out: dict[str, Any] = {"use_gpu": bool(use_gpu)}
    for name in ("CPU", "GPU", "memory"):
        if resources.get(name) is not None and not resources[name] >= 0:
            raise ValueError("resources_per_worker: %s must not be negative, it is %r" % (name, resources[name]))
    if resources.get("CPU"):
        out["cpus_per_worker"] = float(resources["CPU"])
    if resources.get("memory"):
        out["memory_per_worker"] = float(resources["memory"])
    if gpus:
        out["gpus_per_worker"] = max(1, int(gpus))
    return out


def check_progress_timeout(seconds: Any) -> None:
    """None, or a positive number of seconds."""
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
        raise ValueError("progress_timeout must be None or a positive number of seconds, not %r" % (seconds,))
