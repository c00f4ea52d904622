"""train.get_context(): the identity of this worker."""

from __future__ import annotations

from typing import Any

from unisono import _session
from unisono._arguments import strict_class


@strict_class()
class TrainContext:
    """The worker that asks. Outside of a worker: a world of one."""

    def _ask(self, name, otherwise):
        here = _session.current()
        return otherwise if here is None else getattr(here.session, name)

    def get_world_size(self) -> int:
        """The number of workers."""
        return _session.world_size()

    def get_world_rank(self) -> int:
        """This worker's rank among all."""
        return _session.world_rank()

    def get_local_rank(self) -> int:
        """This worker's rank on its machine."""
        return _session.local_rank()

    def get_local_world_size(self) -> int:
        """The number of workers on this machine."""
        return _session.local_world_size()

    def get_node_rank(self) -> int:
        """The rank of this machine."""
        return _session.node_rank()

    def get_experiment_name(self) -> str | None:
        """The run's name; None outside of a worker."""
        return self._ask("experiment_name", None)

    def get_trial_name(self) -> str | None:
        """Experiment and run, as experiment/run_001."""
        run_dir = self.get_trial_dir()
        return None if run_dir is None else "/".join(run_dir.split("/")[-2:])

    get_trial_id = get_trial_name

    def get_trial_dir(self) -> str | None:
        """The run's directory."""
        return self._ask("run_dir", None)

    def get_storage(self) -> str | None:
        """Where the experiments are."""
        return self._ask("storage_path", None)

    def get_metadata(self) -> dict[str, Any]:
        """The trainer's metadata=."""
        here = _session.current()
        return {} if here is None else dict(here.metadata)

    def get_trial_resources(self) -> dict[str, float]:
        """What each worker gets."""
        here = _session.current()
        return {} if here is None else dict(here.resources)

    def get_dataset_shard(self, dataset_name: str | None = None) -> Any:
        """This worker's part of the named dataset."""
        return _session.get_dataset_shard(dataset_name)


_context = TrainContext()


def get_context() -> TrainContext:
    """The worker that asks."""
    return _context
