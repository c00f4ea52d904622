"""ray.air.integrations.mlflow's place."""

from unisono.train.callbacks import MLflowLoggerCallback  # noqa: F401
