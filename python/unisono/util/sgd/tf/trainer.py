"""TFTrainer, the driver's half; replica.py is the workers'."""

from __future__ import annotations

import logging
import os
from typing import Any

from unisono.extend import Commands, Group, check_backend, dumps, environment_of, loads_signed, strict_class, write_signed
from unisono.util.sgd.tf import replica

logger = logging.getLogger(__name__)


@strict_class()
class TFTrainer:
    """model_creator(config) makes a compiled model, data_creator(config) a pair of datasets. config may have fit_config and evaluate_config."""

    def __init__(self, model_creator: Any, data_creator: Any, config: dict[str, Any] | None = None, num_replicas: int = 1,
                 num_cpus_per_worker: int = 1, use_gpu: bool = False, verbose: bool = False):
        self.model_creator, self.data_creator = model_creator, data_creator
        self.config = {} if config is None else config
        self.num_replicas, self.num_cpus_per_worker = num_replicas, num_cpus_per_worker
        self.use_gpu, self.verbose = use_gpu, verbose
        self.workers = list(range(num_replicas))
        # One replica is a plain model without TF_CONFIG; more are a cluster.
        backend = "tensorflow" if num_replicas > 1 else "none"
        check_backend("tensorflow")
        # 1 is the default and asks for nothing: replicas share the CPUs.
        cpus = {} if num_cpus_per_worker == 1 else {"cpus_per_worker": float(num_cpus_per_worker)}
        group = Group(backend, mode="v1", quiet=not verbose, num_workers=num_replicas, use_gpu=use_gpu, max_failures=-2, no_retry_errors=True,
                              environment=environment_of("tensorflow") if backend == "none" else [],
                              names={"cpus_per_worker": "num_cpus_per_worker", "workers": "replicas"}, **cpus)
        asked = {"model_creator": model_creator, "data_creator": data_creator, "config": self.config, "verbose": verbose}
        self._commands = Commands(group, lambda: replica.Replica(asked), fatal=True)
        self._call("ready")

    def _call(self, command: str, *arguments: Any, ranks: Any = None) -> list[Any]:
        if not self._commands.is_open:
            raise RuntimeError("this TFTrainer is shut down")
        return self._commands.call(command, *arguments, ranks=ranks)

    # ---- RaySGD's methods ----

    def train(self) -> Any:
        """One fit; {"train_loss": ...} of rank 0."""
        return self._call("train")[0]

    def validate(self) -> Any:
        """One evaluate; {"validation_loss": ...} of rank 0."""
        stats = self._call("validate")[0]
        if stats is not None:
            return stats
        logger.warning("the replicas' evaluate gave nothing: a model of this process evaluates instead")
        _, data = self.data_creator(self.config)
        return replica.validation_stats(self.get_model(), data, dict(self.config.get("evaluate_config") or {}, verbose=int(self.verbose)))

    def get_model(self) -> Any:
        """A new model with the trained weights, in this process."""
        model = self.model_creator(self.config)
        model.set_weights(self._call("get_state", ranks=[0])[0]["weights"])
        return model

    def save(self, checkpoint: Any) -> Any:
        """Writes the state to a file and returns its name. The file is a pickle with a MAC by your key."""
        write_signed(os.path.abspath(os.fspath(checkpoint)), dumps(self._call("get_state", ranks=[0])[0]))
        return checkpoint

    def restore(self, checkpoint: Any) -> None:
        """Reads what save wrote and hands it to all replicas; a file that was not written with your key is refused."""
        self._call("set_state", loads_signed(os.fspath(checkpoint)))

    def shutdown(self) -> None:
        """Ends the workers."""
        self._commands.stop()
