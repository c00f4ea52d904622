"""unisono.extend: what packages on top of unisono use besides unisono.train, unisono.data and unisono.tune.

The look-alikes of this distribution (unisono.ray, .air, .util, .horovod, .keras and .tf) are such packages: they import public modules of the
package proper and this one, and no module whose name begins with an underscore (tools/check-packages). It may change between versions.

  arguments     strict, strict_class, strict_module, check, Refused, HARMLESS, near: no argument is swallowed; as_kind, checks_kinds: nor replaced by a default
  names         complain, sentence, INSTEAD: a name that is not offered says what to use instead
  text          safe_text: names from files without escape sequences
  the session   current_session: a worker's session and its trainer's settings, or None; outside: says once that a function does nothing here
  runs          Group: workers that run one function; Commands: workers that wait for calls; make_group: a Group as a trainer makes it
  collectives   comm_named: a communicator of processes of this machine that know the same name
  data          dumps, loads: pickles between a driver and its own workers; signed files; checkpoints as dictionaries
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unisono._arguments import (HARMLESS as HARMLESS, Refused as Refused, as_kind as as_kind, check as check, checks_kinds as checks_kinds, near as near,
                                strict as strict, strict_class as strict_class, strict_module as strict_module)
from unisono._missing import INSTEAD as INSTEAD, complain as complain, sentence as sentence
from unisono._safe import text as safe_text

if TYPE_CHECKING:
    from unisono._alias import Alias as Alias, installed as is_alias
    from unisono._codec import decode as decode, dumps as dumps, encode_dict as encode_dict, loads as loads, loads_signed as loads_signed
    from unisono._commands import Commands as Commands, Unanswered as Unanswered, Worker as Worker
    from unisono._driver import (Group as Group, check_arity as check_arity, check_backend as check_backend, environment_of as environment_of,
                                 returned as returned)
    from unisono._key import fits as fits, mac as mac, write_signed as write_signed
    from unisono._paths import local as local_path
    from unisono._same_keras import use as choose_keras
    from unisono._session import current as current_session, outside as outside
    from unisono._unisono import (Array as Array, checkpoint_latest as checkpoint_latest, checkpoint_read as checkpoint_read, comm_named as comm_named,
                                  storage as storage_of, tf_config_place as tf_config_place)
    from unisono.data._shards import pack as pack_datasets
    from unisono.train._backend import (backend_config as backend_config, check_progress_timeout as check_progress_timeout, make_group as make_group,
                                        refuse_hooks as refuse_hooks)
    from unisono.tune._trainable import Prepared as Prepared

# name -> module, name there; imported when it is first used.
_LAZY = {
    "Alias": "_alias.Alias", "is_alias": "_alias.installed",
    "decode": "_codec.decode", "dumps": "_codec.dumps", "encode_dict": "_codec.encode_dict", "loads": "_codec.loads",
    "loads_signed": "_codec.loads_signed",
    "Commands": "_commands.Commands", "Unanswered": "_commands.Unanswered", "Worker": "_commands.Worker",
    "Group": "_driver.Group", "check_arity": "_driver.check_arity", "check_backend": "_driver.check_backend", "environment_of": "_driver.environment_of",
    "returned": "_driver.returned",
    "fits": "_key.fits", "mac": "_key.mac", "write_signed": "_key.write_signed", "local_path": "_paths.local", "choose_keras": "_same_keras.use",
    "current_session": "_session.current", "outside": "_session.outside",
    "Array": "_unisono.Array", "checkpoint_latest": "_unisono.checkpoint_latest", "checkpoint_read": "_unisono.checkpoint_read", "comm_named": "_unisono.comm_named",
    "storage_of": "_unisono.storage", "tf_config_place": "_unisono.tf_config_place", "pack_datasets": "data._shards.pack",
    "backend_config": "train._backend.backend_config", "check_progress_timeout": "train._backend.check_progress_timeout",
    "make_group": "train._backend.make_group", "refuse_hooks": "train._backend.refuse_hooks", "Prepared": "tune._trainable.Prepared",
}
__all__ = sorted({"HARMLESS", "INSTEAD", "Refused", "check", "complain", "near", "safe_text", "sentence", "strict", "strict_class", "strict_module", *_LAZY})


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        return complain("unisono.extend", name)
    module, _, there = _LAZY[name].rpartition(".")
    value = globals()[name] = getattr(importlib.import_module("unisono." + module), there)
    return value
