"""ray.tune.logger's place."""

from unisono.train.callbacks import JsonLoggerCallback, MLflowLoggerCallback, TBXLoggerCallback  # noqa: F401
