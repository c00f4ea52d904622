"""Names of Ray's that scripts mention."""

from __future__ import annotations

from typing import Any


class ActorPoolStrategy:
    """map_batches(compute=ActorPoolStrategy(size=4)): that many processes."""

    def __init__(self, min_size: Any = None, max_size: Any = None, size: Any = None, **more: Any) -> None:
        self.size = size or max_size or min_size or 1


class DataContext:
    """Settings of Ray's executor; kept so that scripts that set them run."""

    _current = None

    @classmethod
    def get_current(cls) -> Any:
        """The settings of this process."""
        if cls._current is None:
            cls._current = cls()
        return cls._current
