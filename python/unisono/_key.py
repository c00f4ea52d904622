"""The user's own key: 32 random bytes that only the user can read. Pickles that were written by this user carry a MAC with it."""

from __future__ import annotations

import os
from typing import Any

_SIZE = 32


def _path():
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "unisono", "key")


def _read(path):
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        key = file.read()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError("%s must belong to you and not be readable by others (chmod 600)" % path)
    if len(key) != _SIZE:
        raise ValueError("%s is not a key of unisono; remove it to get a new one" % path)
    return key


def user_key() -> bytes:
    """The key; made at the first use. Two processes at once agree: the first link wins."""
    path = _path()
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        draft = "%s.%d" % (path, os.getpid())
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, os.urandom(_SIZE))
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        os.unlink(draft)
    return _read(path)


def mac(data: Any, key: Any = None) -> bytes:
    """A MAC of the data with the user's key, or with the given one."""
    import hmac  # with OpenSSL behind it: only when it is needed

    return hmac.new(user_key() if key is None else key, data, "sha256").digest()


def fits(data: Any, code: Any, key: Any = None) -> bool:
    """Whether this is the MAC of the data; takes the same time either way."""
    import hmac

    return hmac.compare_digest(mac(data, key), code)


def write_signed(path: str, data: bytes) -> None:
    """A file of the MAC and the data, whole or not at all, that only the user can read. A directory of another user is refused."""
    import tempfile

    folder = os.path.dirname(path)
    owner = os.lstat(folder).st_uid
    if owner != os.geteuid():
        raise PermissionError("refusing to write to %s: it belongs to another user (uid %d); use a name or a storage path of your own" % (folder, owner))
    descriptor, draft = tempfile.mkstemp(prefix=".%s." % os.path.basename(path), dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(mac(data) + data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def owns(directory: str) -> bool:
    """Whether a run or an experiment is the user's alone, so that it may be resumed."""
    from unisono import _unisono

    try:
        _unisono.run_check_owner(directory)
    except _unisono.Error:
        return False
    return True
