"""Exceptions on their way from a worker to its driver: as themselves, with the worker's traceback as their cause."""

from __future__ import annotations

from typing import Any, Callable

from unisono import _codec, _safe

_MOST = 240 << 10  # bytes: the library takes UNI_FAILURE_MAX
_TEXT = 64 << 10  # of a traceback, when all of it is too much


class RemoteTraceback(Exception):
    """What the worker's own traceback looked like; the cause of the exception that came back."""

    def __init__(self, rank: int, text: str):
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return "\n\nOn rank %d:\n%s" % (self.rank, _safe.text(self.text))


def text_of(error: BaseException) -> str:
    """The exception and its traceback, as Python prints them."""
    import traceback

    return "".join(traceback.format_exception(error))


def pack(error: BaseException, rank: int) -> bytes:
    """For unpack in the driver. An exception with too much in it goes without its arguments and attributes."""
    text, pickled = text_of(error), _codec.dumps_exception(error)
    name, message = type(error).__name__, str(error)
    data = _codec.dumps((rank, pickled, name, message, text))
    return data if len(data) <= _MOST else _codec.dumps((rank, None, name, message[:_TEXT], text[-_TEXT:]))


def unpack(packed: tuple[int, bytes | None, str, str, str], otherwise: Callable[[str], Exception] = RuntimeError) -> Exception:
    """The exception again; otherwise(text) makes one where it could not be sent. A worker's SystemExit must not end this process."""
    rank, pickled, name, message, text = packed
    error: Any = None
    if pickled is not None:
        try:
            error = _codec.loads(pickled)
        except Exception:  # a class that cannot be made from its arguments
            error = None
    if not isinstance(error, Exception):
        error = otherwise("%s: %s" % (name, message))
    error.__cause__ = RemoteTraceback(rank, text)
    try:
        error.rank = rank  # type: ignore[attr-defined]
    except AttributeError:
        pass
    return error


class Failed:
    """An answer that is an exception."""

    def __init__(self, error: BaseException, rank: int):
        self._packed = pack(error, rank)

    def exception(self) -> Exception:
        """The exception again, with the worker's traceback as its cause."""
        return unpack(_codec.loads(self._packed))
