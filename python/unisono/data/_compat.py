"""Names of Ray's that scripts mention."""


class ActorPoolStrategy:
    """map_batches(compute=ActorPoolStrategy(size=4)): that many processes."""

    def __init__(self, min_size=None, max_size=None, size=None, **more):
        self.size = size or max_size or min_size or 1


class DataContext:
    """Settings of Ray's executor; kept so that scripts that set them run."""

    _current = None

    @classmethod
    def get_current(cls):
        if cls._current is None:
            cls._current = cls()
        return cls._current
