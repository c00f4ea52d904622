"""ray.train.worker_group: the workers as a Backend's hooks see them."""

from unisono.train._hooks import BackendWorkerGroup as WorkerGroup

__all__ = ["WorkerGroup"]
