"""ray.train.error's place."""


class SessionMisuseError(Exception):
    """A function of a train function's session was called elsewhere."""


__all__ = ["SessionMisuseError"]
