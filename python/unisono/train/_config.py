"""The configurations of AIR and Ray Train 2.x. Wrong values are errors at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from unisono import _paths
from unisono._arguments import Refused, strict_class
from unisono.train._backend import check_progress_timeout, check_resources

_ONE_MACHINE = "workers are placed by the launcher: use unisono.init(hosts=) or unisono.init(launcher=\"slurm\")"


class _Shown:
    """repr with the fields that are not the default."""

    def __repr__(self):
        shown = []
        for item in fields(self):
            default = item.default_factory() if callable(getattr(item, "default_factory", None)) else item.default
            if getattr(self, item.name) != default:
                shown.append("%s=%r" % (item.name, getattr(self, item.name)))
        return "%s(%s)" % (type(self).__name__, ", ".join(shown))


@strict_class({
    "placement_strategy": Refused("PACK", _ONE_MACHINE),
    "accelerator_type": Refused(None, "GPUs are taken as the machine numbers them: use CUDA_VISIBLE_DEVICES"),
    "_max_cpu_fraction_per_node": Refused(None, _ONE_MACHINE),
    "label_selector": Refused(None, _ONE_MACHINE),
    "use_tpu": Refused(False, "TPUs are not supported"),
    "topology": Refused(None, "TPUs are not supported"),
    "elastic_resize_monitor_interval_s": Refused(60.0, "the number of workers is fixed for a run"),
})
@dataclass(repr=False)
class ScalingConfig(_Shown):
    """How many workers, and what each of them gets. trainer_resources counts only in total_resources: the driver reserves nothing."""

    trainer_resources: dict[str, float] | None = None
    num_workers: int = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"

    def __post_init__(self):
        if isinstance(self.num_workers, tuple):
            raise ValueError("num_workers=%r: the number of workers is fixed for a run; give one number" % (self.num_workers,))
        if not isinstance(self.num_workers, int) or isinstance(self.num_workers, bool) or self.num_workers <= 0:
            raise ValueError("num_workers must be a positive integer, not %r" % (self.num_workers,))
        check_resources(self.resources_per_worker, self.use_gpu)

    def _worker(self):
        out = {key: value for key, value in (self.resources_per_worker or {}).items() if value}
        if self.use_gpu:
            out.setdefault("GPU", 1)
        else:
            out.setdefault("CPU", 1)
        return out

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs of each worker."""
        return self._worker().get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs of each worker."""
        return self._worker().get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker gets besides CPUs and GPUs."""
        return {key: value for key, value in self._worker().items() if key not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """Of the trainer and all workers."""
        total = dict(self.trainer_resources if self.trainer_resources is not None else {"CPU": 1})
        for key, value in self._worker().items():
            total[key] = total.get(key, 0) + value * self.num_workers
        return total

    def as_placement_group_factory(self) -> PlacementGroupFactory:
        """What Ray would reserve: a bundle for the trainer, then one a worker."""
        trainer = dict(self.trainer_resources if self.trainer_resources is not None else {"CPU": 1})
        return PlacementGroupFactory(([trainer] if trainer else []) + [self._worker() for _ in range(self.num_workers)], self.placement_strategy)


@strict_class()
@dataclass
class PlacementGroupFactory:
    """Bundles of resources. Nothing is reserved here; the numbers are what a script may ask for."""

    bundles: list
    strategy: str = "PACK"

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of the bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for key, value in bundle.items():
                total[key] = total.get(key, 0) + value
        return total


@strict_class({
    "controller_failure_limit": Refused(-1, "the controller is part of this process and is not started again"),
    "max_preemption_failures": Refused(-1, "a preempted run ends with its checkpoint; the scheduler starts it again"),
    "relax_collectives_on_preemption": Refused(False, "a preempted run stops at the same step on all ranks"),
    "preemption_grace_s": Refused(0.0, "use train.should_stop() in the loop"),
})
@dataclass(repr=False)
class FailureConfig(_Shown):
    """max_failures: how often the group is started again (-1: for ever). fail_fast: no restart, which is also what max_failures=0 says.
    progress_timeout (unisono's own): a run in which no rank reports for so many seconds has failed; None waits for ever."""

    max_failures: int = 0
    fail_fast: object = False
    progress_timeout: float | None = None

    def __post_init__(self):
        if self.fail_fast == "DEPRECATED":  # the default of today's Ray
            self.fail_fast = False
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError('fail_fast must be True, False or "raise", not %r' % (self.fail_fast,))
        if not isinstance(self.max_failures, int) or self.max_failures < -1:
            raise ValueError("max_failures must be -1 or more, not %r" % (self.max_failures,))
        check_progress_timeout(self.progress_timeout)
        if self.fail_fast and self.max_failures != 0:
            raise ValueError("fail_fast needs max_failures=0, not %r" % (self.max_failures,))


@strict_class()
@dataclass(repr=False)
class CheckpointConfig(_Shown):
    """Which checkpoints stay: num_to_keep (None: all), scored by a metric that was reported with them. checkpoint_frequency and
    checkpoint_at_end are for Trainables of classes; a trainer refuses them, because a train function saves when it reports. synchronous (unisono's
    own): report() returns when its checkpoint is complete on the disk, which needs all ranks to report equally often."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    synchronous: bool = False

    def __post_init__(self):
        if self.num_to_keep is not None and (not isinstance(self.num_to_keep, int) or self.num_to_keep <= 0):
            raise ValueError("num_to_keep must be None or at least 1, not %r" % (self.num_to_keep,))
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError('checkpoint_score_order must be "max" or "min", not %r' % (self.checkpoint_score_order,))

        if self.checkpoint_frequency == "DEPRECATED" or self.checkpoint_frequency is None:  # the default of today's Ray
            self.checkpoint_frequency = 0
        if self.checkpoint_at_end == "DEPRECATED":
            self.checkpoint_at_end = None
        if self.checkpoint_frequency < 0:
            raise ValueError("checkpoint_frequency must be 0 or more, not %r" % (self.checkpoint_frequency,))

    def _check_function(self, trainer):
        """For a trainer of a train function."""
        for name in ("checkpoint_frequency", "checkpoint_at_end"):
            if getattr(self, name):
                raise ValueError("CheckpointConfig(%s=%r) is not supported by %s: the train function saves when it reports, "
                                 "train.report(metrics, checkpoint=...)" % (name, getattr(self, name), trainer))

    def _policy(self):
        return self.num_to_keep or 0, self.checkpoint_score_attribute, int(self.checkpoint_score_order == "min")


@strict_class({"sync_artifacts": Refused(False, "write artifacts below train.get_context().get_trial_dir() instead"),
               "upload_dir": Refused(None, "use RunConfig(storage_path=)"), "syncer": Refused(None, "files are written to storage_path directly", ("auto",))})
@dataclass(repr=False)
class SyncConfig(_Shown):
    """Results are written where storage_path says, so there is nothing to synchronise."""

    sync_artifacts: bool = False


@strict_class({"execution_options": Refused(None, "each worker reads with threads of its own: see the arguments of iter_batches")},
              methods={"configure": {}})
@dataclass(repr=False)
class DataConfig(_Shown):
    """Which datasets are split among the workers; the others are whole in each."""

    datasets_to_split: object = "all"

    def __post_init__(self):
        if self.datasets_to_split != "all" and not isinstance(self.datasets_to_split, (list, tuple)):
            raise TypeError('datasets_to_split must be "all" or a list of names, not %r' % (self.datasets_to_split,))


@strict_class({
    "storage_filesystem": Refused(None, "storage_path is a path of this machine"),
    "progress_reporter": Refused(None, "use RunConfig(callbacks=), or `unisono plot -f RUN`", ("DEPRECATED",)),
    "log_to_file": Refused(False, "what each rank prints is in RUN/logs/rank_N.log already", (None, "DEPRECATED")),
    "worker_runtime_env": Refused(None, "workers have this process's environment and import path; set os.environ before fit()", ({},)),
    "logging_config": Refused(None, "use the module logging in the train function"),
})
@dataclass(repr=False)
class RunConfig(_Shown):
    """Name, place, and what happens around a run. verbose=0: what workers print stays in the run's logs."""

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: object = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    verbose: object = None
    stop: object = None
    callbacks: list[Any] | None = field(default=None)
    local_dir: str | None = None

    def __post_init__(self):
        if self.local_dir is not None:
            raise DeprecationWarning("RunConfig(local_dir=) is gone: use storage_path")
        for key in ("sync_config", "verbose", "stop"):
            if isinstance(getattr(self, key), str) and getattr(self, key) == "DEPRECATED":  # the default of today's Ray
                setattr(self, key, None)
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError("RunConfig(name=) must be text, not %r" % (self.name,))
        self.failure_config = config_of(FailureConfig, self.failure_config)
        self.checkpoint_config = config_of(CheckpointConfig, self.checkpoint_config)
        self.sync_config = config_of(SyncConfig, self.sync_config)
        if self.storage_path is not None:
            self.storage_path = _paths.local(self.storage_path, "RunConfig(storage_path=)")


def config_of(kind: Any, value: Any) -> Any:
    """A configuration from what a user gives: one, a dictionary (Ray 2.0), or None."""
    if value is None:
        return kind()
    if isinstance(value, dict):
        return kind(**value)
    if not isinstance(value, kind):
        raise TypeError("%s must be a %s or a dictionary, not %s" % (kind.__name__, kind.__name__, type(value).__name__))
    return value
