"""Text of workers and files made safe to show on a terminal, as src/base/safe_text.c does it for the command.

Controls, C1 controls and marks that turn the direction of writing around are written as JSON writes them (\\u001b, \\u202e), bytes that are not UTF-8 as
\\xff. Colours (SGR) of a program's own lines stay where the stream is a terminal.
"""

from __future__ import annotations

import re
from typing import Any

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_ANY = re.compile("[%s]" % _UNSAFE)
_COLOUR = re.compile("\033\\[[0-9;]{0,37}m")
_ANY_BUT_COLOUR = re.compile("%s|[%s]" % (_COLOUR.pattern, _UNSAFE))


def _escape(match):
    found = match.group()
    if len(found) > 1:
        return found
    code = ord(found)
    if found == "\r":
        return "\\r"
    return "\\u%04x" % code if code < 0x10000 else "\\u%04x\\u%04x" % (0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF))


def text(given: str) -> str:
    """Line feeds and tabs stay."""
    return _ANY.sub(_escape, given)


def line(given: bytes, stream: Any) -> str:
    """A line of a program's output for this stream."""
    decoded = given.decode("utf-8", "backslashreplace")
    if not getattr(stream, "isatty", bool)():
        return text(decoded)
    shown = _ANY_BUT_COLOUR.sub(_escape, decoded)
    return shown + "\033[0m" if _COLOUR.search(shown) else shown
