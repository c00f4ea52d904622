"""TFTrainable: RaySGD's TFTrainer as a class that can be tuned. One step is one fit and one evaluate."""

from __future__ import annotations

import os
from typing import Any

from unisono.tune.trainable import Trainable


class TFTrainable(Trainable):
    """config: model_creator, data_creator, num_replicas, use_gpu, trainer_config ({}), num_cpus_per_worker."""

    def setup(self, config: dict[str, Any] | None) -> None:
        """Starts the TFTrainer of this trial."""
        from unisono.util.sgd.tf import TFTrainer

        self._trainer = TFTrainer(model_creator=config["model_creator"], data_creator=config["data_creator"],
                                  config=config.get("trainer_config", {}), num_replicas=config.get("num_replicas", 1),
                                  use_gpu=config.get("use_gpu", False))

    def step(self) -> Any:
        """One train and one validate."""
        result = dict(self._trainer.train())
        result.update(self._trainer.validate())
        return result

    def save_checkpoint(self, checkpoint_dir: Any) -> None:
        """Writes the model's state to a file of the directory."""
        self._trainer.save(os.path.join(checkpoint_dir, "model"))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Reads it again."""
        self._trainer.restore(os.path.join(checkpoint, "model"))

    def cleanup(self) -> None:
        """Ends the trainer's workers."""
        self._trainer.shutdown()
