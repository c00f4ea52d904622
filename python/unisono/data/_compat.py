"""Names of Ray's that scripts mention."""

from __future__ import annotations

from typing import Any

from unisono._arguments import strict_class
from unisono.data._options import whole


@strict_class()
class ActorPoolStrategy:
    """map_batches(compute=ActorPoolStrategy(size=4)): that many processes."""

    def __init__(self, min_size: Any = None, max_size: Any = None, size: Any = None) -> None:
        given = [each for each in (size, max_size, min_size) if each is not None]
        self.size = whole("size", given[0], 1) if given else 1


class DataContext:
    """Settings of Ray's executor; kept so that scripts that set them run."""

    _current = None

    @classmethod
    def get_current(cls) -> Any:
        """The settings of this process."""
        if cls._current is None:
            cls._current = cls()
        return cls._current
