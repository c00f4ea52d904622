"""Names of Ray's that scripts mention."""

from __future__ import annotations

from typing import Any

from unisono._arguments import check
from unisono.data._options import whole


class ActorPoolStrategy:
    """map_batches(compute=ActorPoolStrategy(size=4)): that many processes."""

    def __init__(self, min_size: Any = None, max_size: Any = None, size: Any = None, *, initial_size: Any = None, max_tasks_in_flight_per_actor: Any = None,
                 max_concurrent_calls_per_actor: Any = None, enable_true_multi_threading: Any = None, **more: Any) -> None:
        """initial_size, max_tasks_in_flight_per_actor, max_concurrent_calls_per_actor and enable_true_multi_threading are hints (docs/data.md)."""
        check("unisono.data.ActorPoolStrategy", more, ("min_size", "max_size", "size"))
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
