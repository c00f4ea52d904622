"""Places that a user names: a path, or a file:// URL. Other schemes are refused, instead of becoming a directory called "s3:"."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from typing import Any

from unisono import _safe


def local(path: Any, what: str) -> str:
    """An absolute or relative path of this machine, from a path or a file:// URL. `what` names the argument in the error."""
    text = os.fspath(path)
    if not text:
        raise ValueError("%s is empty: give a path, or leave it out" % what)
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if found is None:
        return text
    if found[1].lower() != "file":
        raise ValueError("%s: %s:// is not supported: use a path of this machine, or a file:// URL (%s)" % (what, found[1], text))
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("%s: %s is not a path of this machine; a file URL has three slashes: file:///data/run" % (what, text))
    return unquote(parts.path)


def read_text(path: str, limit: int = 64 << 20) -> str:
    """A text file that may be another user's: a regular file of at most `limit` bytes, and not a link to another one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise ValueError("%s is not a regular file of at most %d bytes" % (_safe.text(path), limit))
        return file.read(limit).decode()


def write_text(path: str, text: str) -> None:
    """A file beside others, whole or not at all. A link in its place is replaced, never followed."""
    descriptor, draft = tempfile.mkstemp(prefix=".%s." % os.path.basename(path), dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def copy_tree(source: str, target: str) -> None:
    """Copies a directory that may be another user's. Links stay links; one that leads outside is refused, and so are pipes and devices."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    top, outside = os.path.realpath(target), []
    for folder, directories, files in os.walk(target):
        for path in (os.path.join(folder, name) for name in directories + files):
            if os.path.islink(path) and os.path.commonpath([top, os.path.realpath(path)]) != top:
                outside.append("%s -> %s" % (os.path.relpath(path, target), os.readlink(path)))
                os.unlink(path)
    if outside:
        raise ValueError("%s has a link that leads out of it (%s); put the file itself into the directory" % (_safe.text(source), _safe.text(outside[0])))
