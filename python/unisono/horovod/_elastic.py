"""hvd.elastic: training that goes on when ranks die, come or leave; the flavours (torch, Keras, TensorFlow) extend it.

A State knows how to save itself in this process' memory (commit), to go back to that (restore), and to become the first rank's (sync). run() calls the user's function again
whenever the group has changed, after restore and sync, or after sync alone when ranks were let in at a commit. Processes that survive stay as they are.

Which rank is the first follows from what the ranks have saved: the one with the latest commit, so that a new process never is, and every rank's state becomes that of the latest
commit of any. The count of a rank's reports is part of what it commits, and what is reported again is left out: the results have every iteration once.
"""

from __future__ import annotations

import copy
import functools
import queue
from typing import Any, Callable

from unisono import Error
from unisono.horovod import _core
from unisono.horovod._core import HorovodInternalError, HostsUpdatedInterrupt, PeerLost

# What a rank says in a commit: ranks wait to join; this rank is to leave; on_hosts_updated was called.
_JOINING, _LEAVING, _TOLD_ADDED, _TOLD_REMOVED = 1, 2, 4, 8


class HostUpdateResult:
    """What on_hosts_updated is told."""

    no_update, removed, added, mixed = 0, 1, 2, 3


class State:
    """What a rank trains with. A class of your own has save, restore and sync, and maybe reset."""

    def __init__(self, bcast_object: Any, get_rank: Any):
        self._bcast_object, self._rank = bcast_object, get_rank
        self._host_messages: queue.Queue = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    # How often it was saved, by this process or by the one whose state it has, and by this process alone; the reports that were made then.
    _progress = -1
    _saves = 0
    _reports = 0
    _is_saved = False  # nothing was done since

    def register_reset_callbacks(self, callbacks: Any) -> None:
        """Functions that are called after ranks have come or gone, before the state is synchronized: to scale a learning rate, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Ranks have come or gone."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: int) -> None:
        """Ranks can come (HostUpdateResult.added) or will go: the next commit raises HostsUpdatedInterrupt on all ranks. unisono's own news need no call."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state in memory, and lets ranks in or out that wait for it."""
        self._save()
        self._is_saved = True
        self.check_host_updates()
        self._is_saved = False

    def _save(self) -> None:
        before = self._saves
        self.save()
        if self._saves == before:  # a class of the user's own
            self._note_saved()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks at once, when ranks are to join or to leave. All ranks call it."""
        flags = _core.ask(self._news())
        if flags:
            raise HostsUpdatedInterrupt(not flags & (_JOINING | _TOLD_ADDED))

    def _news(self) -> int:
        told, here = 0, _core.world()
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > self._last_updated_timestamp:
                self._last_updated_timestamp, told = timestamp, told | int(update)
        flags = (_TOLD_ADDED if told & HostUpdateResult.added else 0) | (_TOLD_REMOVED if told & HostUpdateResult.removed else 0)
        if here.elastic:
            flags |= (_JOINING if here.session.is_asked(here.group) else 0) | (_LEAVING if here.session.leaves() else 0)
        return flags

    def _note_saved(self) -> None:
        session = _core.world().session if _core.is_initialized() else None
        self._progress, self._saves = max(self._progress, 0) + 1, self._saves + 1
        self._reports = session.reports if session is not None else 0

    def save(self) -> None:
        """Keeps the state in this process' memory."""
        raise NotImplementedError("a State needs save()")

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError("a State needs restore()")

    def sync(self) -> None:
        """Becomes the state of rank 0."""
        raise NotImplementedError("a State needs sync()")

    def reset(self) -> None:
        """What depends on rank and size is made again."""


class ObjectState(State):
    """Python objects, given as keywords, which become attributes."""

    def __init__(self, bcast_object: Any, get_rank: Any, **kwargs: Any):
        self._saved_state = kwargs
        self._set_attributes()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def save(self) -> None:
        """Keeps what restore() brings back."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}
        self._note_saved()

    def restore(self) -> None:
        """Goes back to what was saved last."""
        self._set_attributes()

    def sync(self) -> None:
        """Makes the state of all ranks that of rank 0, and saves it."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attributes()


# ---- the loop ----


def _is_loss(error: BaseException) -> bool:
    """TensorFlow makes errors of its own out of those that a function in a graph raises."""
    lost = _core.world().lost if _core.is_initialized() else None
    return isinstance(error, PeerLost) or (lost is not None and str(lost) in str(error))


class _Loop:
    """One call of a function under run()."""

    def __init__(self, state: State):
        self.state = state
        self.skips = False  # all ranks of the group have the same state already
        self.fruitless = -1  # saves of the state when the function failed last without the loss of a rank

    def begin(self) -> None:
        """All ranks of the group have the state of the first one."""
        state, here = self.state, _core.world()
        if _core.ask(int(not self.skips), _core.BEGIN):
            state.sync()
            state._save()
            progress, reports = _core.broadcast_object((max(state._progress, 1), here.session.reports if here.session is not None else 0))
            state._progress, state._reports = progress, reports
            if here.elastic:
                here.session.stand_at(reports)
        self.skips = False
        if here.elastic:
            here.session.set_replaceable(True, True, True)

    def end(self) -> None:
        """All ranks leave the function at once, so that none is missed by a new one."""
        here = _core.world()
        _core.ask(0, _core.END)
        if not here.elastic:
            return
        try:
            here.session.end_fit(here.group)
        except Error as error:
            raise _core.as_lost(error) from None
        here.session.set_fixed()
        here.session.set_replaceable(False, False, False)

    def interrupted(self, interrupt: HostsUpdatedInterrupt) -> None:
        """Ranks come or leave, and nothing is lost: what was done since the last commit is saved, too."""
        here = _core.world()
        if here.elastic and here.session.leaves():
            self._leave(here.session)
        if not self.state._is_saved:
            self.state._save()
        self.state._is_saved, self.skips = False, interrupt.skip_sync

    @staticmethod
    def _leave(session: Any) -> None:
        _core.shutdown()
        session.left()
        error = Error("this worker has left the group, as it was told to; the others go on")
        error.code, error.message = "EPREEMPTED", str(error)
        raise error

    def is_over(self, error: Exception) -> bool:
        """The program itself is at fault: with another kind of error, or twice in the same place."""
        if _is_loss(error):  # in a group that cannot change, the whole group starts again
            return not (_core.is_initialized() and _core.world().elastic)
        if not isinstance(error, HorovodInternalError) or self.fruitless == self.state._saves:
            return True
        self.fruitless = self.state._saves + 1  # the next sync saves, too
        return False

    def failed(self) -> None:
        """Back to the last commit."""
        self.state.restore()
        self.state._is_saved, self.skips = False, False
        session = _core.world().session if _core.is_initialized() else None
        if session is not None:
            session.stand_at(self.state._reports)

    def reset(self) -> None:
        """Meets the group that follows."""
        _core.reset(self.state._progress)
        self.state.on_reset()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the function that trains; its first argument is the State. It is called again, from the last commit, when ranks have come or gone.

    No collective may be called between hvd.init() and the function: a new process would call it while the others synchronize their state."""

    @functools.wraps(func)
    def call(state: State, *arguments: Any, **keywords: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError("the first argument of a function under hvd.elastic.run is a State, not %s" % type(state).__name__)
        loop, again = _Loop(state), False
        while True:
            failed = False
            try:
                if again:
                    loop.reset()
                again = True
                loop.begin()
                value = func(state, *arguments, **keywords)
                loop.end()
                return value
            except HostsUpdatedInterrupt as interrupt:
                loop.interrupted(interrupt)
            except Exception as error:
                if loop.is_over(error):
                    raise
                failed = True
            if failed:  # after the handler: nothing keeps the function's frames any more, and what they had of the old group
                loop.failed()

    return call


__all__ = ["HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State", "run"]
