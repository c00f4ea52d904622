"""TFTrainable: RaySGD's TFTrainer as a class that can be tuned. One step is one fit and one evaluate."""

import os

from unisono.tune.trainable import Trainable


class TFTrainable(Trainable):
    """config: model_creator, data_creator, num_replicas, use_gpu, trainer_config ({}), num_cpus_per_worker."""

    def setup(self, config):
        from unisono.util.sgd.tf import TFTrainer

        self._trainer = TFTrainer(model_creator=config["model_creator"], data_creator=config["data_creator"],
                                  config=config.get("trainer_config", {}), num_replicas=config.get("num_replicas", 1),
                                  use_gpu=config.get("use_gpu", False))

    def step(self):
        result = dict(self._trainer.train())
        result.update(self._trainer.validate())
        return result

    def save_checkpoint(self, checkpoint_dir):
        self._trainer.save(os.path.join(checkpoint_dir, "model"))

    def load_checkpoint(self, checkpoint):
        self._trainer.restore(os.path.join(checkpoint, "model"))

    def cleanup(self):
        self._trainer.shutdown()
