"""Places that a user names: a path, or a file:// URL. Other schemes are refused, instead of becoming a directory called "s3:"."""

from __future__ import annotations

import os
import re
from typing import Any


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
