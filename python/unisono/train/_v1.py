"""Ray Train v1 (1.8 to 1.13): Trainer with start, run and shutdown; workers stay warm between runs where the backend allows it.

Reports are in lockstep, as v1 has them: train.report returns when the driver's callbacks have seen the report.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from unisono import _codec, _driver, _paths, _unisono
from unisono._arguments import strict_class
from unisono.train._backend import BackendConfig, backend_config, check_progress_timeout, check_reserved, check_resources, context_of, hooks_of, refuse_hooks
from unisono.train.callbacks import TrainingCallback, feed, finish, sink_of, sinks_and_own

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
    path = Path(_paths.local(logdir, "logdir")).expanduser()
    if not path.is_absolute():
        path = Path(_unisono.storage(None)) / path
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
        self._resources = check_resources(resources_per_worker, use_gpu)
        check_reserved(resources_per_worker, num_workers)
        check_progress_timeout(progress_timeout)
        self._max_retries, self._progress_timeout = max_retries, progress_timeout
        self._hook, self._last = None, {}
        self._iterator = lambda: None  # a weak reference to the last one
        storage, name = self._where = _place(logdir)
        self._group = _driver.Group(self._config.name, self._config.settings(), mode="v1", hooks=hooks_of(self._config, num_workers, False, use_gpu),
                                    context=context_of(self._config), num_workers=num_workers, storage_path=storage, name=name,
                                    max_failures=max_retries if max_retries != 0 else -2, no_retry_errors=True, lockstep=True, **self._config.roles(), **self._resources)

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
            run["from_dict"] = _codec.encode_dict(checkpoint if isinstance(checkpoint, dict) else self.load_checkpoint_from_path(checkpoint))
        extra = {"score_attribute": strategy._attribute()}
        if dataset is not None:
            from unisono.data import _shards

            extra["datasets"] = _shards.pack(dataset, num_workers=self._group.num_workers)
        return self._group.options(train_func, config, hook=self._hook, extra=extra, **run)

    def _check_active(self):
        if not self._group.trainer.is_started:
            raise RuntimeError(_NOT_ACTIVE)

    def run(self, train_func: Callable[..., Any], config: dict[str, Any] | None = None, callbacks: list[TrainingCallback] | None = None,
            dataset: Any = None, checkpoint: Any = None, checkpoint_strategy: CheckpointStrategy | None = None) -> list[Any]:
        """Runs train_func in every worker; a list of what it returned, by rank."""
        self._check_active()
        callbacks = list(callbacks or [])
        sinks, own = sinks_and_own(callbacks)
        options = self._options(train_func, config, dataset, checkpoint, checkpoint_strategy, sinks)
        try:
            if not own:
                return self._finish(self._group.call(self._group.trainer.run, options))
            return self._run_with_callbacks(options, own, config or {})
        finally:
            self._began(callbacks)

    def _began(self, callbacks):
        """Loggers know their directory once a run has begun."""
        for callback in callbacks:
            if sink_of(callback) is not None:
                callback._began(self.latest_run_dir)

    def _run_with_callbacks(self, options, callbacks, config):
        iterator = TrainingIterator(self, options)
        failed = True
        run_dir = self._group.trainer.latest_run_dir
        try:
            self._began(callbacks)
            for callback in callbacks:
                callback.start_training(logdir=run_dir, config=config)
            for results in iterator:
                feed(callbacks, results)
            failed = False
        finally:
            iterator.close()
            finish(callbacks, failed)
        return iterator.get_final_results()

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
        return _driver.returned(result)

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
            path = _unisono.checkpoint_latest(str(self.latest_run_dir))
            data = _unisono.checkpoint_read(path) if path else None
        return None if data is None else _codec.decode(data)

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
        path = Path(_paths.local(path, "load_checkpoint_from_path")).expanduser()
        if not path.exists():
            raise ValueError("checkpoint %s does not exist" % path)
        return _codec.decode(_unisono.checkpoint_read(str(path)), allow_pickle)

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
        from unisono.tune._trainable import of_v1_trainer

        refuse_hooks(self._config, "to_tune_trainable")
        if self._group.trainer.is_started:
            raise RuntimeError("to_tune_trainable is for a Trainer that is not started")
        return of_v1_trainer(self, train_func, dataset)

    def to_worker_group(self, train_cls: Any, *args: Any, **kwargs: Any) -> Any:
        """An object of a class in every worker, whose methods are called with group[rank].method.remote(...)."""
        from unisono.train._worker_group import WorkerGroup

        refuse_hooks(self._config, "to_worker_group")
        if self._group.trainer.is_started:
            raise RuntimeError("to_worker_group is for a Trainer that is not started")
        if not isinstance(train_cls, type):
            raise TypeError("to_worker_group needs a class, not %r" % (train_cls,))
        storage, name = self._where
        group = _driver.Group(self._config.name, self._config.settings(), mode="v1", num_workers=self._num_workers, storage_path=storage, name=name,
                              max_failures=-2, no_retry_errors=True, **self._resources)
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
            return [_without_nothing(rank, report) for rank, report in enumerate(reports)]
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


def _without_nothing(rank, report):
    if report is None:
        raise RuntimeError("rank %d did not call train.report as often as the others: every worker must report every iteration" % rank)
    return report
