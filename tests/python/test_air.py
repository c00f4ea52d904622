"""Ray AIR's names on real workers, no framework."""

import os
import unittest

import support
from unisono import air, train
from unisono.air import session
from unisono.train import Checkpoint, DataParallelTrainer, ScalingConfig

TWO = ScalingConfig(num_workers=2)


def fit(function, config=None, **keywords):
    return DataParallelTrainer(function, train_loop_config=config, scaling_config=TWO, **keywords).fit()


def save_dictionaries(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    for epoch in range(start, config["num_epochs"]):
        session.report({}, checkpoint=Checkpoint.from_dict(dict(epoch=epoch, weights=(1, [2.5]))))


class Dictionaries(unittest.TestCase):
    def test_the_ids_of_air(self):
        first = fit(save_dictionaries, {"num_epochs": 5}).checkpoint.to_dict()
        self.assertEqual(set(first), {"epoch", "weights", "_timestamp", "_preprocessor", "_current_checkpoint_id"})
        self.assertEqual((first["epoch"], first["weights"], first["_preprocessor"], first["_current_checkpoint_id"]), (4, (1, [2.5]), None, 4))

    def test_a_resumed_run_goes_on_from_the_id(self):
        first = fit(save_dictionaries, {"num_epochs": 2})
        last = fit(save_dictionaries, {"num_epochs": 5}, resume_from_checkpoint=first.checkpoint).checkpoint.to_dict()
        self.assertEqual((last["epoch"], last["_current_checkpoint_id"]), (4, 3))

    def test_resume_from_memory(self):
        result = fit(save_dictionaries, {"num_epochs": 3}, resume_from_checkpoint=air.Checkpoint.from_dict({"epoch": 1}))
        self.assertEqual(result.checkpoint.to_dict()["epoch"], 2)
        self.assertEqual(len(result.best_checkpoints), 1)


class Names(unittest.TestCase):
    def test_they_are_those_of_train(self):
        for name in ("Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"):
            self.assertIs(getattr(air, name), getattr(train, name))
        self.assertIs(air.config.RunConfig, train.RunConfig)
        self.assertIs(session.report, train.report)

    def test_the_session_in_a_worker(self):
        def function():
            session.report({"seen": [session.get_world_rank(), session.get_world_size(), session.get_local_rank(), session.get_local_world_size(),
                                     session.get_node_rank(), os.path.isdir(session.get_trial_dir()), bool(session.get_trial_name())]})

        self.assertEqual(fit(function).metrics["seen"], [0, 2, 0, 2, 0, True, True])

    def test_what_is_not_offered(self):
        with self.assertRaisesRegex(AttributeError, "ScalingConfig"):
            air.ScalingConfg


if __name__ == "__main__":
    support.main()
