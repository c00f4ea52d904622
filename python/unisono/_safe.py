"""Text of workers and files made safe to show on a terminal, as src/base/safe_text.c does it for the command.

Controls, C1 controls and marks that turn the direction of writing around are written as JSON writes them (\\u001b, \\u202e), bytes that are not UTF-8 as
\\xff. Colours (SGR) of a program's own lines stay where the stream is a terminal; codes that can hide text (conceal, blink, backgrounds, black and white) are left out.
"""

from __future__ import annotations

import re
from typing import Any

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_ANY = re.compile("[%s]" % _UNSAFE)
_COLOUR = re.compile("\033\\[[0-9;]{0,38}m")
_ANY_BUT_COLOUR = re.compile("%s|[%s]" % (_COLOUR.pattern, _UNSAFE))
# A longer colour is one code, with its parts: 38;5;N and 38;2;R;G;B.
_CODE = re.compile("0*[345]8;0*5(?:;[0-9]*)?(?![0-9])|0*[345]8;0*2(?:;[0-9]*){0,3}(?![0-9])|[0-9]*")
_SHOWS_TEXT = {0, 1, 4, 22, 24, *range(31, 37), 39, *range(91, 97)}


def _showing(colour):
    kept, at = [], 2
    while at < len(colour):
        code = _CODE.match(colour, at)
        if ";" not in code.group() and int(code.group() or 0) in _SHOWS_TEXT:
            kept.append(str(int(code.group() or 0)))
        at = code.end() + 1
    return "\033[%sm" % ";".join(kept) if kept else ""


def _escape(match):
    found = match.group()
    if len(found) > 1:
        return _showing(found)
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
