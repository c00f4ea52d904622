"""How the ranks of a new group find each other: through the store that torch.distributed has opened for them."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import timedelta
from typing import Any

from unisono.extend import comm_named, current_session

_taken_by: Any = None  # the session whose communicator a group uses at present


def _place() -> str:
    """What processes that can share memory have in common: the kernel that runs, the network namespace (of abstract sockets), and the user."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return "%s/%d/%d" % (boot, os.stat("/proc/self/ns/net").st_ino, os.geteuid())


def _run(rank: int, size: int) -> str:
    """The run whose workers are the ranks of this group, in the same order; "" when there is none, or its communicator is taken."""
    here = current_session()
    if here is None or _taken_by is here or here.session.world_size != size or here.session.world_rank != rank:
        return ""
    return "%s#%d" % (here.session.run_dir, here.session.attempt)


def _verdict(store: Any, size: int) -> str:
    """Rank 0 decides: how do the ranks meet?"""
    said = [store.get("unisono/rank/%d" % rank).decode().split("|") for rank in range(size)]
    places, runs, names = zip(*said)
    if runs[0] and len(set(runs)) == 1:
        return "run"
    if len(set(places)) == 1:
        return "here|" + secrets.token_hex(16)
    other = next(rank for rank in range(size) if places[rank] != places[0])
    return "apart|rank 0 is on %s, rank %d on %s" % (names[0], other, names[other])


def open_comm(store: Any, rank: int, size: int, timeout: timedelta) -> tuple[Any, Any]:
    """The communicator of a group, and the session whose it is (or None). All of its ranks call this."""
    global _taken_by
    milliseconds = min(max(1, int(timeout.total_seconds() * 1000)), 2**31 - 1)
    store.set("unisono/rank/%d" % rank, "|".join((_place(), _run(rank, size), socket.gethostname().replace("|", "?"))))
    if rank == 0:
        store.set("unisono/verdict", _verdict(store, size))
    way, _, rest = store.get("unisono/verdict").decode().partition("|")
    if way == "here":
        return comm_named(rest, rank, size, milliseconds), None
    here = current_session()
    if way == "run" and here is not None:
        comm = here.session.comm(milliseconds)
        _taken_by = here
        return comm, here
    raise RuntimeError("the ranks of this group are not on one machine as one user (%s): start them with `unisono run --hosts`, which connects machines, and "
                       "use the group of all ranks; for other groups over machines use the backend gloo" % (rest or "they do not agree"))


def give_back(here: Any) -> None:
    """The group that used the session's communicator is closed: another one may."""
    global _taken_by
    if here is not None and _taken_by is here:
        _taken_by = None
