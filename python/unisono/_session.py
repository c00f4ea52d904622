"""The session of this process: what train.report and its relatives talk to.

In a worker it is the one that the train function runs in. In a program started by `unisono run` it is that rank's. Anywhere else there is none:
the functions then warn once and do nothing, so that the same code runs by itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from typing import Any

from unisono import _codec, _safe, _unisono
from unisono._arguments import Refused, check, strict

_current = None
_warned: set[str] = set()


class Current:
    """A session and what its trainer said about it."""

    def __init__(self, session: Any, attachment: Any):
        self.session = session
        self.mode = attachment.get("mode", "v2")
        self.score_attribute = attachment.get("score_attribute")
        self.initial = attachment.get("initial_checkpoint")
        self.metadata = attachment.get("metadata") or {}
        self.allow_pickle = bool(attachment.get("allow_pickle"))
        self.resources = attachment.get("resources") or {}
        self.in_trainer = bool((attachment.get("tune") or {}).get("trainer"))  # a trial of a trainer's loop
        self.next_id = None  # of AIR's dictionary checkpoints
        self.accelerator = None
        self._datasets, self._shards = attachment.get("datasets"), None
        self.steps, self.fitting = 0, False  # batches that Keras was through with; whether it is training with a callback of ours
        self.at_report: dict[str, Any] = {}  # by the name of a state: what gives it, as bytes
        self.at_end: list[Any] = []  # called before the session ends: what hangs on it lets go

    def dataset_shard(self, name: str | None) -> Any:
        """Made once a name: an iteration goes on where the one before ended."""
        if self._datasets is None:
            warnings.warn("the trainer was given no dataset: get_dataset_shard returns None", UserWarning, stacklevel=4)
            return None
        return self._opened().get(name, self.session.dataset_state)

    def _opened(self):
        if self._shards is None:
            from unisono.data._shards import Shards

            self._shards = Shards(self._datasets, self.session.world_rank, self.session.world_size)
        return self._shards

    def preprocessor(self) -> Any:
        """The trainer's, fitted: every checkpoint has it. None without one."""
        return None if self._datasets is None else self._opened().preprocessor

    def note_datasets(self) -> None:
        """Reports and saved checkpoints say where the shards stand, as far as their batches were used."""
        if self._shards is not None:
            for name, state in self._shards.states().items():
                self.session.set_dataset_state(name, state)
        for name, give in self.at_report.items():
            self.session.set_state(name, give())

    def end(self) -> None:
        """Calls what hangs on the session, last registered first."""
        while self.at_end:
            self.at_end.pop()()


@contextlib.contextmanager
def begin(session: Any, attachment: Any) -> Any:
    """Makes the session this process's for the time of a `with`."""
    global _current
    _current = here = Current(session, attachment)
    try:
        yield here
    finally:
        _current = None
        here.end()


def current() -> Any:
    """The Current, or None outside of a worker."""
    global _current
    if _current is None and "UNISONO_SESSION" in os.environ:
        session = _unisono.open_session()  # a program below `unisono run`
        if session.is_worker:
            import atexit

            _current = Current(session, {})
            atexit.register(_close)
            _quiet_stops()
    return _current


def was_told_to_stop(error: BaseException) -> bool:
    """Whether fit ended because this worker was told to stop, or to leave its group: nothing is wrong in the user's code."""
    return isinstance(error, _unisono.Error) and getattr(error, "code", "") == "EPREEMPTED"


def _quiet_stops():
    """A program that does not catch such an exception ends with its sentence, without a traceback."""
    usual = sys.excepthook

    def hook(kind, error, trace):
        if was_told_to_stop(error):
            sys.stderr.write("%s\n" % error)
        else:
            usual(kind, error, trace)

    sys.excepthook = hook


def _close():
    """The last checkpoint is handed over before the program ends."""
    global _current
    here, _current = _current, None
    if here is not None:
        here.end()


def outside(name: str) -> None:
    """Says once a function that it does nothing here."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn("`%s` is meant to be called inside a train function that a trainer runs; here it does nothing and returns None" % name,
                      UserWarning, stacklevel=3)


# ---- reports ----


def _is_checkpoint(value):
    from unisono.train._checkpoint import Checkpoint

    return isinstance(value, Checkpoint)


_NAMED_BY_RUN = "the run names its checkpoints"
_REFUSED = {
    "checkpoint_dir_name": Refused(None, _NAMED_BY_RUN + ": result.best_checkpoints has their metrics"),
    "checkpoint_upload_mode": Refused(None, "report() hands the checkpoint over and does not wait for the disk"),
    "delete_local_checkpoint_after_upload": Refused(None, "the directory is yours: delete it after report()", (False,)),
    "checkpoint_upload_fn": Refused(None, "checkpoints are written below storage_path"),
    "validation": Refused(False, "validate in the train function, and report the metric"),
}


def _metrics(here: Any, metrics: Any, more: dict[str, Any]) -> dict[str, Any]:
    """v1 takes metrics as keywords, 2.x takes a dictionary and keywords of its own."""
    if metrics is None:
        return more
    if not isinstance(metrics, dict):
        raise TypeError("metrics must be a dictionary, not %s" % type(metrics).__name__)
    if here is not None and here.mode == "v1":
        return dict(metrics, **more) if more else metrics
    if more:
        check("unisono.train.report", more, ["metrics", "checkpoint"], _REFUSED)
    return metrics


def report(metrics: Any = None, checkpoint: Any = None, **more: Any) -> Any:
    """One iteration of this rank: metrics as a dictionary, or as keywords, and maybe a Checkpoint."""
    here = current()
    if checkpoint is not None and not _is_checkpoint(checkpoint):
        if here is None or here.mode == "v1":
            more["checkpoint"], checkpoint = checkpoint, None
        else:
            raise TypeError("checkpoint must be a Checkpoint, not %s; make one with Checkpoint.from_directory or Checkpoint.from_dict"
                            % type(checkpoint).__name__)
    metrics = _metrics(here, metrics, more)
    if here is None:
        return outside("report")
    here.note_datasets()
    if checkpoint is None:
        here.session.report(metrics, _codec.metric, None, None)
    else:
        _report_with(here, metrics, checkpoint)
    return None


def _add_preprocessor(here, checkpoint):
    """A directory gets the trainer's preprocessor, unless it has one or is a checkpoint that a run made."""
    preprocessor = here.preprocessor()
    if preprocessor is None or checkpoint._is_made() or checkpoint.get_preprocessor() is not None:
        return
    try:
        checkpoint.set_preprocessor(preprocessor)
    except TypeError as error:  # a function in it
        warnings.warn("the preprocessor is not saved with this checkpoint of a directory: %s" % error, UserWarning, stacklevel=4)


def _report_with(here, metrics, checkpoint):
    data = checkpoint._data
    if data is None:
        _add_preprocessor(here, checkpoint)
        here.session.report(metrics, _codec.metric, None, checkpoint.path)
    elif here.session.world_rank == 0:
        here.session.report(metrics, _codec.metric, _codec.encode_dict(_with_id(here, data)), None)
    else:  # rank 0's dictionary is the checkpoint
        here.session.report(metrics, _codec.metric, None, None)


def _with_id(here, data):
    """AIR's own keys. Ids count from 0; a run that began from a checkpoint begins with that one's id."""
    if here.next_id is None:
        given = _start_id(here)
        here.next_id = 0 if given is None else given
    out = dict(data, _timestamp=int(time.time()), _preprocessor=data.get("_preprocessor") or here.preprocessor(), _current_checkpoint_id=here.next_id)
    here.next_id += 1
    return out


def _start_id(here):
    path = here.session.get_checkpoint()
    data = here.session.load_checkpoint() if path is None or _unisono.checkpoint_info(path)["is_dict"] else None
    if not data:
        return None
    number = data.get("_current_checkpoint_id")
    own = path is not None and path.startswith(here.session.run_dir + os.sep)
    return number + 1 if own and isinstance(number, int) else number


# ---- v1's checkpoints ----


def save_checkpoint(**state: Any) -> Any:
    """Saves rank 0's dictionary; the other ranks' are accepted and not stored."""
    here = current()
    if here is None:
        return outside("save_checkpoint")
    attribute = here.score_attribute
    state["_timestamp"] = int(time.time())
    if attribute is not None:
        if attribute not in state:
            raise ValueError("the checkpoint has no %r, which the CheckpointStrategy scores by; it has: %s"
                             % (attribute, ", ".join(map(_safe.text, sorted(state)))))
        score = state[attribute]
        if hasattr(score, "item"):
            score = state[attribute] = score.item()
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise ValueError("the CheckpointStrategy scores by %r, which is not a number in this checkpoint: %r" % (attribute, score))
    if here.session.world_rank == 0:
        here.note_datasets()
        here.session.save_checkpoint(_codec.encode_dict(state))
    else:
        here.session.save_checkpoint({})  # not stored, but load_checkpoint gives rank 0's from now on
    return None


def load_checkpoint() -> Any:
    """The dictionary of the most recently saved checkpoint of this run, on every rank; None when there is none.

    Until this rank has reported or saved, it is the one that this attempt began with."""
    here = current()
    if here is None:
        return outside("load_checkpoint")
    data = here.session.load_checkpoint()
    return None if data is None else _codec.decode(data, here.allow_pickle)


def get_checkpoint() -> Any:
    """The most recently reported Checkpoint; until this rank has reported or saved, the one to go on from; or None."""
    from unisono.train._checkpoint import Checkpoint

    here = current()
    if here is None:
        return outside("get_checkpoint")
    path = here.session.get_checkpoint()
    if path is None:
        data = here.session.load_checkpoint()
        if data is not None:
            return Checkpoint.from_dict(_codec.decode(data, here.allow_pickle))
        path = here.initial
    return None if path is None else Checkpoint(path)


def world_rank() -> int:
    """This worker's rank among all; 0 outside of a worker."""
    here = current()
    return 0 if here is None else here.session.world_rank


def local_rank() -> int:
    """This worker's rank on its machine; 0 outside of a worker."""
    here = current()
    return 0 if here is None else here.session.local_rank


def world_size() -> int:
    """The number of workers; 1 outside of a worker."""
    here = current()
    return 1 if here is None else here.session.world_size


def local_world_size() -> int:
    """The number of workers on this machine; 1 outside of a worker."""
    here = current()
    return 1 if here is None else here.session.local_world_size


def node_rank() -> int:
    """The rank of this worker's machine; 0 outside of a worker."""
    here = current()
    return 0 if here is None else here.session.node_rank


@strict(name="unisono.train.get_dataset_shard")
def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of a dataset that the trainer was given; each iteration over it is an epoch."""
    here = current()
    if here is None:
        return outside("get_dataset_shard")
    return here.dataset_shard(dataset_name)


def set_state(name: str, state: bytes | None) -> None:
    """Keeps this rank's bytes under a name (a generator, the place in a sampler): each checkpoint has them as of its iteration. None forgets the name. Experimental."""
    here = current()
    if here is None:
        return outside("set_state")
    here.session.set_state(name, state)
    return None


def get_state(name: str) -> bytes | None:
    """What this rank's set_state kept last, in this attempt or before the checkpoint that it goes on from; None when there is nothing. Experimental."""
    here = current()
    return None if here is None else here.session.state(name)


def should_stop() -> Any:
    """True once all ranks have agreed to stop (SIGTERM, a time limit): save a last checkpoint and return."""
    here = current()
    return here is not None and here.session.should_stop()
