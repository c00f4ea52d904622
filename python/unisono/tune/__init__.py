"""Hyperparameter search: ray.tune's names over the tuner of the library.

Trials run in warm worker interpreters, everything that is decided is in the experiment's journal, and Tuner.restore goes on after a kill.
"""

from unisono.tune._analysis import ExperimentAnalysis, ResultGrid, TuneError
from unisono.tune._plan import TuneConfig
from unisono.tune._run import Tuner, run, with_parameters, with_resources
from unisono.tune._space import (choice, grid_search, lograndint, loguniform, qlograndint, qloguniform, qrandint, qrandn, quniform, randint, randn,
                                 sample_from, uniform)
from unisono.tune._trial import checkpoint_dir, get_trial_dir, get_trial_id, get_trial_name, report
from unisono.tune.trainable import Trainable
from unisono.train._checkpoint import Checkpoint
from unisono.train._config import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from unisono.train._context import get_context
from unisono._session import get_checkpoint
from unisono._arguments import strict_module

normal = randn
__all__ = ["Checkpoint", "CheckpointConfig", "ExperimentAnalysis", "FailureConfig", "ResultGrid", "RunConfig", "SyncConfig", "Trainable", "TuneConfig",
           "TuneError", "Tuner", "checkpoint_dir", "choice", "get_checkpoint", "get_context", "get_trial_dir", "get_trial_id", "get_trial_name",
           "grid_search", "lograndint", "loguniform", "normal", "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform", "randint", "randn",
           "report", "run", "sample_from", "uniform", "with_parameters", "with_resources"]


def __getattr__(name):
    if name in ("schedulers", "search", "stopper"):  # tune.schedulers.ASHAScheduler, as in Ray
        import unisono.tune.schedulers
        import unisono.tune.search
        import unisono.tune.stopper

        return {"schedulers": unisono.tune.schedulers, "search": unisono.tune.search, "stopper": unisono.tune.stopper}[name]
    from unisono._missing import complain

    return complain("unisono.tune", name)


strict_module(globals())
