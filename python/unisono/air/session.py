"""unisono.air.session: what a train function calls in AIR."""

from unisono._session import get_checkpoint, get_dataset_shard
from unisono._session import local_rank as get_local_rank
from unisono._session import local_world_size as get_local_world_size
from unisono._session import node_rank as get_node_rank
from unisono._session import report
from unisono._session import world_rank as get_world_rank
from unisono._session import world_size as get_world_size
from unisono.train._context import get_context as _get_context

__all__ = ["get_checkpoint", "get_dataset_shard", "get_experiment_name", "get_local_rank", "get_local_world_size", "get_node_rank", "get_trial_dir",
           "get_trial_id", "get_trial_name", "get_trial_resources", "get_world_rank", "get_world_size", "report"]

get_experiment_name = _get_context().get_experiment_name
get_trial_name = _get_context().get_trial_name
get_trial_id = _get_context().get_trial_id
get_trial_dir = _get_context().get_trial_dir
get_trial_resources = _get_context().get_trial_resources
