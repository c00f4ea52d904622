"""ray.tune.integration.mlflow's place."""

from unisono.train.callbacks import MLflowLoggerCallback  # noqa: F401
