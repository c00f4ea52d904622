"""train.get_context(): who this worker is."""

from unisono import _session


class TrainContext:
    """The worker that asks. Outside of a worker: a world of one."""

    def _ask(self, name, otherwise):
        here = _session.current()
        return otherwise if here is None else getattr(here.session, name)

    def get_world_size(self):
        return _session.world_size()

    def get_world_rank(self):
        return _session.world_rank()

    def get_local_rank(self):
        return _session.local_rank()

    def get_local_world_size(self):
        return _session.local_world_size()

    def get_node_rank(self):
        return _session.node_rank()

    def get_experiment_name(self):
        return self._ask("experiment_name", None)

    def get_trial_name(self):
        run_dir = self.get_trial_dir()
        return None if run_dir is None else "/".join(run_dir.split("/")[-2:])

    get_trial_id = get_trial_name

    def get_trial_dir(self):
        return self._ask("run_dir", None)

    def get_storage(self):
        return self._ask("storage_path", None)

    def get_metadata(self):
        here = _session.current()
        return {} if here is None else dict(here.metadata)

    def get_trial_resources(self):
        here = _session.current()
        return {} if here is None else dict(here.resources)

    def get_dataset_shard(self, name=None):
        return _session.get_dataset_shard(name)


_context = TrainContext()


def get_context():
    return _context
