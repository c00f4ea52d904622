"""What can be tuned: a function, a class, a trainer of AIR, a v1 trainer's to_tune_trainable; all become one thing."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from unisono import _driver
from unisono.train._backend import refuse_hooks
from unisono.tune.trainable import ClassTrial, Trainable


@dataclass
class Prepared:
    """A train function and what its trials need."""

    function: object
    name: str
    mode: str = "v2"
    backend: str = "none"
    backend_config: dict = field(default_factory=dict)
    num_workers: int = 1
    trainer: dict | None = None  # for a trainer's loop: its own config, and whether param_space has train_loop_config
    resources: dict = field(default_factory=dict)
    run_config: object = None
    environment: list = field(default_factory=list)
    datasets: object = None  # packed for the workers


def _packed(num_workers, *given):
    from unisono.data import _shards

    return _shards.pack(*given, num_workers=num_workers)


def _spec_resources(given):
    """cpus_per_trial and gpus_per_trial of a dictionary such as {"cpu": 1, "gpu": 0}."""
    out = {}
    if given is None:
        return out
    if not isinstance(given, dict):
        raise TypeError("resources must be a dictionary such as {\"cpu\": 1}, not %s" % type(given).__name__)
    for key, value in given.items():
        name = {"cpu": "cpus_per_trial", "gpu": "gpus_per_trial", "memory": "memory_per_trial"}.get(key.lower())
        if name is None:
            raise ValueError("resources: %r is not known; there are cpu, gpu and memory" % key)
        if name == "cpus_per_trial" and not value > 0:
            raise ValueError("resources: cpu must be above 0, not %r; max_concurrent_trials says how many trials run at a time" % (value,))
        if value < 0 or (name == "gpus_per_trial" and value != int(value)):
            raise ValueError("resources: %s=%r is not supported: give %s" % (key, value, "a whole number" if name == "gpus_per_trial" else "0 or more"))
        if value:
            out[name] = int(value) if name == "gpus_per_trial" else float(value)
    return out


def _of_air_trainer(trainer):
    config = trainer.backend_config
    refuse_hooks(config, "Tuner(%s)" % type(trainer).__name__)
    return Prepared(trainer.train_loop_per_worker, type(trainer).__name__, "v2", config.name, config.settings(), trainer.scaling_config.num_workers,
                    {"air": True, "config": dict(trainer.train_loop_config or {})}, run_config=trainer.run_config,
                    datasets=_packed(trainer.scaling_config.num_workers, trainer.datasets, getattr(trainer.dataset_config, "datasets_to_split", "all"), trainer.preprocessor)
                    if trainer.datasets else None, environment=_driver.environment_of(config.name))


def prepare(trainable: Any, checkpoint_config: Any = None, resources: Any = None, pauses: bool = False) -> Any:
    """Anything that can be tuned as a Prepared. pauses: trials are paused by a scheduler, so that a class must save its state at the end."""
    from unisono.train._trainers import DataParallelTrainer

    given = getattr(trainable, "_unisono_resources", None) if resources is None else resources
    if isinstance(trainable, Prepared):
        out = trainable
    elif isinstance(trainable, DataParallelTrainer):
        out = _of_air_trainer(trainable)
    elif inspect.isclass(trainable) and issubclass(trainable, Trainable):
        frequency = getattr(checkpoint_config, "checkpoint_frequency", 0) or 0
        at_end = bool(getattr(checkpoint_config, "checkpoint_at_end", False)) or pauses
        out = Prepared(ClassTrial(trainable, frequency, at_end), trainable.__name__)
    elif isinstance(trainable, str):
        raise NotImplementedError("a trainable by name (%r) is not offered; give the function or the class" % trainable)
    elif inspect.isclass(trainable):
        raise TypeError("%s is not a subclass of tune.Trainable" % trainable.__name__)
    else:
        if "checkpoint_dir" not in getattr(getattr(trainable, "__code__", None), "co_varnames", ()):
            _driver.check_arity(trainable)
        out = Prepared(trainable, _driver.name_of(trainable))
    if not isinstance(out.function, ClassTrial):
        checkpoint_config._check_function("a trainable that is not a class")
    out.resources = _spec_resources(given)
    return out
