"""ray.train._internal.worker_group: the name that a Backend's hooks give as a type."""

from unisono.train._hooks import BackendWorkerGroup as WorkerGroup

__all__ = ["WorkerGroup"]
