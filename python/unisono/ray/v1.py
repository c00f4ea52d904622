"""Ray Train v1 (1.8 to 1.13): Trainer with start, run and shutdown; workers stay warm between runs where the backend allows it.

Reports are in lockstep, as v1 has them: train.report returns when the driver's callbacks have seen the report.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from unisono.extend import (backend_config, check_progress_timeout, checkpoint_latest, checkpoint_read, decode, encode_dict, local_path, make_group,
                            pack_datasets, refuse_hooks, returned, storage_of, strict_class)
from unisono.train import BackendConfig
from unisono.train.callbacks import TrainingCallback, sinks_and_own

logger = logging.getLogger(__name__)
_NOT_ACTIVE = "This Trainer is not active. It is either shut down already or never started: call `start` before `run`."


@strict_class()
@dataclass
class CheckpointStrategy:
    """Which checkpoints stay on disk: num_to_keep (None: all, 0: none is written), scored by a number in the checkpoint."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str = "_timestamp"
    checkpoint_score_order: str = "max"

    def __post_init__(self):
        if self.num_to_keep is not None and (not isinstance(self.num_to_keep, int) or self.num_to_keep < 0):
            raise ValueError("num_to_keep must be None or a whole number from 0, it is %r" % (self.num_to_keep,))
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError('checkpoint_score_order must be "max" or "min", not %r' % (self.checkpoint_score_order,))

    def _policy(self):
        keep = {None: 0, 0: -1}.get(self.num_to_keep, self.num_to_keep)
        return keep, self._attribute(), int(self.checkpoint_score_order == "min")

    def _attribute(self):
        """None: the time it was taken, finer than the seconds of _timestamp."""
        return None if self.checkpoint_score_attribute == "_timestamp" or self.num_to_keep == 0 else self.checkpoint_score_attribute


def _place(logdir):
    """(storage_path, name) for the library; both None for the defaults."""
    if logdir is None:
        return None, None
    path = Path(local_path(logdir, "logdir")).expanduser()
    if not path.is_absolute():
        path = Path(storage_of(None)) / path
    path = path.resolve()
    return str(path.parent), path.name


@strict_class()
class Trainer:
    """A group of workers that run one function.

    backend: "torch", "tensorflow", "horovod", "none", or one of their configurations. logdir: absolute, or relative to the results directory.
    max_retries: how often the group is started again after a worker died (-1: for ever). progress_timeout (unisono's own): a run in which no rank
    reports for so many seconds has failed; None waits for ever.
    """

    def __init__(self, backend: str | BackendConfig, num_workers: int = 1, use_gpu: bool = False,
                 resources_per_worker: dict[str, float] | None = None, logdir: Any = None, max_retries: int = 3, *,
                 progress_timeout: float | None = None):
        if not isinstance(num_workers, int) or isinstance(num_workers, bool) or num_workers <= 0:
            raise ValueError("`num_workers` must be a positive integer, not %r" % (num_workers,))
        self._config = backend_config(backend)
        self._num_workers, self._use_gpu = num_workers, use_gpu
        self._resources = resources_per_worker
        check_progress_timeout(progress_timeout)
        self._max_retries, self._progress_timeout = max_retries, progress_timeout
        self._hook, self._last = None, {}
        self._iterator = lambda: None  # a weak reference to the last one
        self._where = dict(zip(("storage_path", "name"), _place(logdir)))
        self._group = self._make_group(max_failures=max_retries if max_retries != 0 else -2, lockstep=True)

    def _make_group(self, **options):
        return make_group(self._config, self._num_workers, self._use_gpu, self._resources, mode="v1", no_retry_errors=True, **self._where, **options)

    # ---- life ----

    def start(self, initialization_hook: Callable[[], Any] | None = None) -> None:
        """Starts the workers. initialization_hook is called in every worker before each train function."""
        if self._group.trainer.is_started:
            raise RuntimeError("this Trainer is started already")
        self._hook = initialization_hook
        self._group.trainer.start()

    def shutdown(self) -> None:
        """Ends the workers; start may be called again."""
        iterator = self._iterator()
        if iterator is not None:
            iterator.close()
        try:
            self._group.end_hooks()
        finally:
            self._group.trainer.shutdown()

    # ---- runs ----

    def _options(self, train_func, config, dataset, checkpoint, strategy, sinks=None):
        strategy = strategy or CheckpointStrategy()
        if not isinstance(strategy, CheckpointStrategy):
            raise TypeError("checkpoint_strategy must be a CheckpointStrategy, not %s" % type(strategy).__name__)
        run = {"policy": strategy._policy(), "v1_checkpoints": True, "sinks": sinks or None, "progress_timeout": self._progress_timeout}
        if checkpoint is not None:
            run["from_dict"] = encode_dict(checkpoint if isinstance(checkpoint, dict) else self.load_checkpoint_from_path(checkpoint))
        extra = {"score_attribute": strategy._attribute()}
        if dataset is not None:
            extra["datasets"] = pack_datasets(dataset, num_workers=self._group.num_workers)
        return self._group.options(train_func, config, hook=self._hook, extra=extra, **run)

    def _check_active(self):
        if not self._group.trainer.is_started:
            raise RuntimeError(_NOT_ACTIVE)

    def run(self, train_func: Callable[..., Any], config: dict[str, Any] | None = None, callbacks: list[TrainingCallback] | None = None,
            dataset: Any = None, checkpoint: Any = None, checkpoint_strategy: CheckpointStrategy | None = None) -> list[Any]:
        """Runs train_func in every worker; a list of what it returned, by rank."""
        self._check_active()
        callbacks = list(callbacks or [])
        options = self._options(train_func, config, dataset, checkpoint, checkpoint_strategy, sinks_and_own(callbacks)[0])
        return self._finish(self._group.run(options, callbacks, config, keep=True))

    def run_iterator(self, train_func: Callable[..., Any], config: dict[str, Any] | None = None, dataset: Any = None, checkpoint: Any = None,
                     checkpoint_strategy: CheckpointStrategy | None = None) -> TrainingIterator:
        """The same, one iteration of all workers at a time."""
        self._check_active()
        iterator = TrainingIterator(self, self._options(train_func, config, dataset, checkpoint, checkpoint_strategy))
        self._iterator = weakref.ref(iterator)
        return iterator

    def _finish(self, result):
        self._last = result
        failure = self._group.failure_of(result)
        if failure is not None:
            raise failure
        return returned(result)

    # ---- what runs left ----

    @property
    def logdir(self) -> Path:
        """The directory of this trainer's runs."""
        return Path(self._group.trainer.logdir)

    @property
    def latest_run_dir(self) -> Path | None:
        """The directory of the latest run; None before the first."""
        path = self._group.trainer.latest_run_dir
        return None if path is None else Path(path)

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        """Where the latest run keeps its checkpoints; None before the first run."""
        run_dir = self.latest_run_dir
        return None if run_dir is None else run_dir / "checkpoints"

    @property
    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The dictionary that was last saved, or None."""
        data = self._last.get("latest_dict")
        if data is None and self.latest_run_dir is not None:
            path = checkpoint_latest(str(self.latest_run_dir))
            data = checkpoint_read(path) if path else None
        return None if data is None else decode(data)

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The best checkpoint of the latest run by its CheckpointStrategy; None when none is on disk."""
        path = self._last.get("best_checkpoint")
        return None if path is None else Path(path)

    @property
    def best_checkpoint(self) -> dict[str, Any] | None:
        """The dictionary of the best checkpoint, read from disk."""
        path = self.best_checkpoint_path
        return None if path is None else self.load_checkpoint_from_path(path)

    @staticmethod
    def load_checkpoint_from_path(path: Any, allow_pickle: bool = False) -> Any:
        """The dictionary of a checkpoint directory."""
        path = Path(local_path(path, "load_checkpoint_from_path")).expanduser()
        if not path.exists():
            raise ValueError("checkpoint %s does not exist" % path)
        return decode(checkpoint_read(str(path)), allow_pickle)

    load_checkpoint = load_checkpoint_from_path

    def create_logdir(self, log_dir: Any = None) -> Path:
        """Makes the directory of the runs, or log_dir (relative to the results directory), and returns it. Runs go where Trainer(logdir=) says."""
        storage, name = _place(log_dir)
        path = self.logdir if storage is None else Path(storage) / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def create_run_dir(self) -> Path:
        """The directory of the latest run, as a Path; a run makes its own when it starts."""
        run_dir = self.latest_run_dir
        if run_dir is None:
            raise RuntimeError("this Trainer has not run yet: a run makes its directory when it starts")
        return run_dir

    @property
    def checkpoint_manager(self) -> CheckpointManager:
        """What is known of the latest run's checkpoints."""
        return CheckpointManager(self)

    def to_tune_trainable(self, train_func: Callable[..., Any], dataset: Any = None) -> Any:
        """What tune.run takes: every trial runs train_func in this trainer's number of workers, with the trial's config."""
        from unisono.extend import Prepared, check_arity, environment_of

        refuse_hooks(self._config, "to_tune_trainable")
        if self._group.trainer.is_started:
            raise RuntimeError("to_tune_trainable is for a Trainer that is not started")
        check_arity(train_func)
        group = self._group
        return Prepared(train_func, train_func.__name__, "v1", group.backend, group.backend_config, group.num_workers, {"air": False, "config": {}},
                        datasets=pack_datasets(dataset, num_workers=group.num_workers) if dataset is not None else None,
                        environment=environment_of(group.backend))

    def to_worker_group(self, train_cls: Any, *args: Any, **kwargs: Any) -> Any:
        """An object of a class in every worker, whose methods are called with group[rank].method.remote(...)."""
        from unisono.ray.worker_group import WorkerGroup

        refuse_hooks(self._config, "to_worker_group")
        if self._group.trainer.is_started:
            raise RuntimeError("to_worker_group is for a Trainer that is not started")
        if not isinstance(train_cls, type):
            raise TypeError("to_worker_group needs a class, not %r" % (train_cls,))
        group = self._make_group(max_failures=-2)
        return WorkerGroup(group, train_cls, args, kwargs)


class CheckpointManager:
    """The checkpoints of a Trainer's latest run. The library keeps them; this only looks."""

    def __init__(self, trainer: Any):
        self._trainer = trainer

    @property
    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The dictionary that was last saved."""
        return self._trainer.latest_checkpoint

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        """Where the checkpoints are."""
        return self._trainer.latest_checkpoint_dir

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The best one."""
        return self._trainer.best_checkpoint_path


@strict_class()
class TrainingIterator:
    """One list of dictionaries (by rank) for every train.report of all workers."""

    def __init__(self, trainer: Any, options: Any):
        self._trainer, self._group = trainer, trainer._group
        self._logs = self._group.follow_logs(options)
        self._result = self._final = None
        try:
            self._iterator = self._group.trainer.run_iterator(options)
        except BaseException:
            self._end_logs()
            raise

    def _end_logs(self):
        if self._logs is not None:
            logs, self._logs = self._logs, None
            logs.end()

    def __iter__(self):
        return self

    def __next__(self):
        if self._iterator is None:
            raise StopIteration
        try:
            reports = self._iterator.next()
        except BaseException:
            self.close()
            raise
        if reports is not None:
            return self._group.whole(reports)
        self._result = self._iterator.result()
        self.close()
        self._final = self._trainer._finish(self._result)
        raise StopIteration

    def is_finished(self) -> bool:
        """Whether the run is over."""
        return self._iterator is None

    def get_final_results(self, force: bool = False) -> list[Any] | None:
        """What the functions returned, by rank; None before the end unless force drains the rest."""
        if self._iterator is not None:
            if not force:
                logger.info("the run is not finished: get_final_results has nothing yet")
                return None
            for _ in self:
                pass
        return self._final

    def close(self) -> None:
        """Stops the run when it is not finished."""
        if self._iterator is not None:
            if not self._iterator.is_finished:
                self._group.trainer.stop(True)
            self._iterator = None
        self._end_logs()

    def __del__(self):
        if getattr(self, "_iterator", None) is not None or getattr(self, "_logs", None) is not None:
            self.close()
