"""unisono.air.session: what a train function calls in AIR."""

from unisono.train import get_checkpoint, get_context, get_dataset_shard, report

__all__ = ["get_checkpoint", "get_dataset_shard", "get_experiment_name", "get_local_rank", "get_local_world_size", "get_node_rank", "get_trial_dir",
           "get_trial_id", "get_trial_name", "get_trial_resources", "get_world_rank", "get_world_size", "report"]

_context = get_context()
get_experiment_name = _context.get_experiment_name
get_local_rank = _context.get_local_rank
get_local_world_size = _context.get_local_world_size
get_node_rank = _context.get_node_rank
get_trial_dir = _context.get_trial_dir
get_trial_id = _context.get_trial_id
get_trial_name = _context.get_trial_name
get_trial_resources = _context.get_trial_resources
get_world_rank = _context.get_world_rank
get_world_size = _context.get_world_size
