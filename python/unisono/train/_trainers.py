"""The trainers of AIR and Ray Train 2.x: DataParallelTrainer and its kinds."""

from __future__ import annotations

import os
from typing import Any, Callable, Self

from unisono import _codec, _driver, _key, _paths, _safe, _unisono
from unisono._arguments import Refused, strict_class
from unisono._unisono import Error
from unisono.train._backend import BackendConfig, HorovodConfig, TensorflowConfig, TorchConfig, backend_config as _backend_config, make_group
from unisono.train._checkpoint import MANIFEST, Checkpoint
from unisono.train._config import DataConfig, RunConfig, ScalingConfig, config_of
from unisono.train._result import Result, find_run
from unisono.train.callbacks import sinks_and_own

_TRAINER_FILE = "trainer.pkl"
_TRAINER_FILE_MAX = 32 << 20  # a function that brings more data along is not written, and fit() says so


class TrainingFailedError(Error):
    """The run failed; __cause__ is why. When the train function raised, this is also an instance of what it raised."""


def _failed(cause, path):
    """A TrainingFailedError that `except TypeOfTheCause` catches too, where Python allows such a class."""
    kind, text = type(cause), str(cause)
    if kind is not Error:  # the library's own is a whole sentence; "name 'json' is not defined" wants its NameError in front
        text = kind.__name__ + (": " + text if text else "")
    message = "the run in %s failed: %s" % (path, text)
    try:
        made = type("TrainingFailedError", (TrainingFailedError, kind), {"__init__": lambda self, text: Exception.__init__(self, text),
                                                                           "__str__": lambda self: self.args[0]})
        error = made(message)
        error.__dict__.update(cause.__dict__)
    except TypeError:
        error = TrainingFailedError(message)
    error.__cause__ = cause
    return error


_REFUSED = {"validation_config": Refused(None, "validate in the train function, and report the metric"),
            "placement_group_timeout_s": Refused(None, "nothing is placed: workers start at once")}
# What all trainers take by keyword.
_SHARED = ("train_loop_config", "scaling_config", "dataset_config", "run_config", "datasets", "metadata", "preprocessor", "resume_from_checkpoint")


@strict_class(_REFUSED, methods={"restore": {"storage_filesystem": Refused(None, "runs are directories of this machine")},
                                 "can_restore": {"storage_filesystem": Refused(None, "runs are directories of this machine")}})
class DataParallelTrainer:
    """Runs train_loop_per_worker in every worker.

    The loop takes no argument or one (train_loop_config). fit() returns a Result, and raises TrainingFailedError when the run failed.
    """

    _default_backend = BackendConfig

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: dict[str, Any] | None = None, backend_config: Any = None,
                 scaling_config: ScalingConfig | dict[str, Any] | None = None, dataset_config: Any = None,
                 run_config: RunConfig | dict[str, Any] | None = None, datasets: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None,
                 preprocessor: Any = None, resume_from_checkpoint: Checkpoint | None = None):
        _driver.check_arity(train_loop_per_worker)
        if resume_from_checkpoint is not None and not isinstance(resume_from_checkpoint, Checkpoint):
            raise TypeError("resume_from_checkpoint must be a Checkpoint, not %s" % type(resume_from_checkpoint).__name__)
        if resume_from_checkpoint is not None:
            resume_from_checkpoint._check()
        for name, value in (("train_loop_config", train_loop_config), ("metadata", metadata)):
            if value is not None and not isinstance(value, dict):
                raise TypeError("%s must be a dictionary, not %s" % (name, type(value).__name__))
        self.train_loop_per_worker, self.train_loop_config = train_loop_per_worker, train_loop_config
        self.backend_config = _backend_config(backend_config) if backend_config is not None else self._default_backend()
        self.scaling_config = config_of(ScalingConfig, scaling_config)
        self.run_config = config_of(RunConfig, run_config)
        self.metadata, self.starting_checkpoint = metadata, resume_from_checkpoint
        if datasets is not None and not isinstance(datasets, dict):
            raise TypeError('datasets must be a dictionary such as {"train": dataset}, not %s' % type(datasets).__name__)
        if dataset_config is not None and not isinstance(dataset_config, DataConfig):
            raise TypeError("dataset_config must be a DataConfig, not %s" % type(dataset_config).__name__)
        self.datasets, self.preprocessor, self.dataset_config = datasets or {}, preprocessor, dataset_config
        self._resume_run = None
        _driver.check_backend(self.backend_config.name)

    # ---- fit ----

    def _group(self):
        scaling, run = self.scaling_config, self.run_config
        failures = run.failure_config.max_failures
        if run.stop is not None and run.stop != {}:
            raise ValueError("RunConfig(stop=) is for a Tuner; end the train function's loop instead")
        run.checkpoint_config._check_function(type(self).__name__)
        return make_group(self.backend_config, scaling.num_workers, scaling.use_gpu, scaling.resources_per_worker, ends=True, mode="v2",
                          quiet=run.verbose == 0, name=run.name, storage_path=run.storage_path, max_failures=failures or -2)

    def _options(self, group, sinks):
        extra = {"metadata": _codec.describable(self.metadata or {}), "resources": self.scaling_config._worker()}
        if self.datasets:
            from unisono.data import _shards

            extra["datasets"] = _shards.pack(self.datasets, getattr(self.dataset_config, "datasets_to_split", "all"), self.preprocessor,
                                              self.scaling_config.num_workers)
        run = {"policy": self.run_config.checkpoint_config._policy(), "sinks": sinks or None, "resume_run": self._resume_run,
               "progress_timeout": self.run_config.failure_config.progress_timeout,
               "synchronous_checkpoints": self.run_config.checkpoint_config.synchronous}
        start = self.starting_checkpoint
        if start is not None and not self._resume_run:
            if start._data is not None:
                run["from_dict"] = _codec.encode_dict(start._data)
            elif os.path.exists(os.path.join(start.path, MANIFEST)):
                run["from_checkpoint"] = start.path
            else:  # a directory that no run made
                extra["initial_checkpoint"] = start.path
        return group.options(self.train_loop_per_worker, self.train_loop_config, extra=extra, **run)

    def _sinks(self):
        """Of the loggers among the callbacks."""
        sinks, _ = sinks_and_own(self.run_config.callbacks or [])
        return [("tensorboard", dict(sink[1], prefix="ray/tune/")) if sink[0] == "tensorboard" else sink for sink in sinks]

    def _finished(self):
        """The result of a restored run that is finished already; None when there is something to do."""
        if self._resume_run is None or _unisono.run_description(self._resume_run).get("status") != "succeeded":
            return None
        import sys

        _driver.write(sys.stderr, "unisono: the run in %s is finished: fit() returns its result\n" % _safe.text(self._resume_run))
        return Result.from_path(self._resume_run)

    def fit(self) -> Result:
        """Starts the workers, runs the loop, ends the workers. A restored run that is finished already gives its result."""
        finished = self._finished()
        if finished is not None:
            return finished
        group = self._group()
        options = self._options(group, self._sinks())
        self._save(group.trainer.logdir)
        try:
            left = group.run(options, self.run_config.callbacks or [], self.train_loop_config)
            error = group.failure_of(left)
        finally:
            group.end_hooks()
        result = Result._of(left, error, self.train_loop_config, None if error else _driver.returned(left)[0])
        if error is not None:
            raise _failed(error, result.path)
        return result

    # ---- restore ----

    def _save(self, logdir):
        """What restore needs. It is a pickle, so it carries a MAC by the user's own key."""
        state = {"trainer": type(self).__name__, "train_loop_per_worker": self.train_loop_per_worker,
                 "train_loop_config": self.train_loop_config, "backend_config": self.backend_config,
                 "scaling_config": self.scaling_config, "metadata": self.metadata, "run_config": self.run_config}
        data = _codec.dumps(state)
        if len(data) > _TRAINER_FILE_MAX:
            import sys

            _driver.write(sys.stderr, "unisono: warning: the train function and its config are %d MB, too large to be saved for restore: call "
                          "%s.restore(path, train_loop_per_worker, train_loop_config)\n" % (len(data) >> 20, type(self).__name__))
            data = _codec.dumps(dict(state, train_loop_per_worker=None, train_loop_config=None, too_large=len(data)))
        _unisono.run_make_place(logdir)
        _key.write_signed(os.path.join(logdir, _TRAINER_FILE), data)

    @classmethod
    def _load(cls, path, function):
        """What _save wrote; when it wrote nothing, the caller must give the function."""
        if not os.path.exists(path):
            if function is None:
                raise ValueError("%s does not exist: give restore the train_loop_per_worker" % _safe.text(path))
            return dict.fromkeys(("train_loop_config", "backend_config", "scaling_config", "metadata", "run_config"))
        saved = _codec.loads_signed(path)
        if saved["trainer"] != cls.__name__:
            raise ValueError(_safe.text("%s was made by %s, not by %s" % (path, saved["trainer"], cls.__name__)))
        if function is None and saved["train_loop_per_worker"] is None:
            raise ValueError("the train function of this run was too large to be saved (%d MB with its config): give restore the "
                             "train_loop_per_worker and the train_loop_config" % (saved["too_large"] >> 20))
        return saved

    @classmethod
    def can_restore(cls, path: Any) -> bool:
        """Whether restore finds a run in this directory."""
        path = _paths.local(path, "can_restore(path)")
        run_dir = find_run(path) if os.path.isdir(path) else None
        return run_dir is not None and os.path.exists(os.path.join(os.path.dirname(run_dir), _TRAINER_FILE)) and _key.owns(run_dir)

    @classmethod
    def restore(cls, path: Any, train_loop_per_worker: Callable[..., Any] | None = None, train_loop_config: dict[str, Any] | None = None,
                datasets: dict[str, Any] | None = None, scaling_config: ScalingConfig | dict[str, Any] | None = None,
                run_config: RunConfig | dict[str, Any] | None = None) -> Self:
        """A trainer that goes on with the run in path, from its last complete checkpoint."""
        path = _paths.local(path, "restore(path)")
        run_dir = find_run(path) if os.path.isdir(path) else None
        if run_dir is None:
            raise ValueError("%s is not a run: nothing can be restored from it" % _safe.text(path))
        _unisono.run_check_owner(run_dir)
        saved = cls._load(os.path.join(os.path.dirname(run_dir), _TRAINER_FILE), train_loop_per_worker)
        trainer = cls.__new__(cls)
        DataParallelTrainer.__init__(trainer, train_loop_per_worker or saved["train_loop_per_worker"],
                                     train_loop_config=train_loop_config if train_loop_config is not None else saved["train_loop_config"],
                                     backend_config=saved["backend_config"], scaling_config=scaling_config or saved["scaling_config"],
                                     run_config=run_config or saved["run_config"], datasets=datasets, metadata=saved["metadata"])
        trainer.run_config.name = os.path.basename(os.path.dirname(run_dir))
        trainer.run_config.storage_path = os.path.dirname(os.path.dirname(run_dir))
        trainer._resume_run = run_dir
        return trainer

    def __repr__(self):
        return "<%s num_workers=%d>" % (type(self).__name__, self.scaling_config.num_workers)


def _one_of(trainer, **given):
    found = [(name, value) for name, value in given.items() if value is not None]
    if len(found) > 1:
        raise ValueError("%s: give only one of %s" % (trainer, " and ".join(name for name, _ in found)))
    return found[0][1] if found else None


@strict_class(_REFUSED, also=_SHARED)
class TorchTrainer(DataParallelTrainer):
    """torch.distributed is set up in every worker before the loop begins."""

    _default_backend = TorchConfig

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, torch_config: TorchConfig | None = None, backend_config: Any = None,
                 **keywords: Any):
        super().__init__(train_loop_per_worker, backend_config=_one_of("TorchTrainer", torch_config=torch_config, backend_config=backend_config),
                         **keywords)


@strict_class(_REFUSED, also=_SHARED)
class TensorflowTrainer(DataParallelTrainer):
    """TF_CONFIG is set in every worker, for MultiWorkerMirroredStrategy."""

    _default_backend = TensorflowConfig

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, tensorflow_config: TensorflowConfig | None = None,
                 tensorflow_backend: TensorflowConfig | None = None, backend_config: Any = None, **keywords: Any):
        given = _one_of("TensorflowTrainer", tensorflow_config=tensorflow_config, tensorflow_backend=tensorflow_backend,
                        backend_config=backend_config)
        super().__init__(train_loop_per_worker, backend_config=given, **keywords)


@strict_class(_REFUSED, also=_SHARED)
class HorovodTrainer(DataParallelTrainer):
    """The HOROVOD_* environment is set in every worker."""

    _default_backend = HorovodConfig

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, horovod_config: HorovodConfig | None = None, backend_config: Any = None,
                 **keywords: Any):
        super().__init__(train_loop_per_worker,
                         backend_config=_one_of("HorovodTrainer", horovod_config=horovod_config, backend_config=backend_config), **keywords)
