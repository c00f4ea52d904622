"""resumable(tf.data.Dataset): a worker is killed inside of epochs, and every element is used exactly once."""

import os
import tempfile
import unittest

import tensorflow as tf

import support
from unisono import train
from unisono.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer, resumable

ELEMENTS, EPOCHS = 23, 3


def loop(config):
    if config["seed"] is not None:
        tf.random.set_seed(1)
    data = tf.data.Dataset.range(ELEMENTS).shuffle(8, seed=config["seed"]).map(lambda x: 2 * x).batch(3).prefetch(2)
    data = resumable(data)
    checkpoint = train.get_checkpoint()
    seen = checkpoint.to_dict()["seen"] if checkpoint else []
    for epoch in range(data.epoch, EPOCHS):
        for batch in data:
            seen.append([epoch, batch.numpy().tolist()])
            if len(seen) % config["every"] == 0:
                train.report({"count": len(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))
            marker = "%s_%d" % (config["marker"], len(seen))
            if len(seen) in config["kills"] and not os.path.exists(marker):
                open(marker, "w", encoding="utf-8").close()
                os.kill(os.getpid(), 9)
    train.report({"seen": str(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))


def run(seed, kills=(), every=2):
    with tempfile.TemporaryDirectory(prefix="unisono-test-") as marker:
        result = TensorflowTrainer(loop, train_loop_config={"seed": seed, "kills": list(kills), "every": every, "marker": marker + "/k"},
                                   scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(failure_config=FailureConfig(max_failures=10))).fit()
    return result.checkpoint.to_dict()["seen"]


class Killed(unittest.TestCase):
    def test_in_the_same_order(self):
        calm = run(seed=7)
        self.assertEqual(run(seed=7, kills=(3, 8, 9), every=1), calm)  # 8 batches an epoch
        self.assertEqual(run(seed=7, kills=(5, 13), every=4), calm)

    def test_without_a_seed_each_element_once(self):
        seen = run(seed=None, kills=(3, 10, 18), every=1)
        for epoch in range(EPOCHS):
            self.assertEqual(sorted(element for at, batch in seen if at == epoch for element in batch), list(range(0, 2 * ELEMENTS, 2)))


class Alone(unittest.TestCase):
    def test_without_a_trainer(self):
        data = resumable(tf.data.Dataset.range(5).batch(2))
        self.assertEqual([[batch.numpy().tolist() for batch in data] for _ in range(2)], [[[0, 1], [2, 3], [4]]] * 2)
        self.assertEqual((data.epoch, len(data)), (2, 3))

    def test_mistakes(self):
        data = tf.data.Dataset.range(5)
        for wrong in (lambda: resumable([1, 2]), lambda: resumable(data, name=""), lambda: resumable(data, names="x")):
            self.assertRaises(TypeError, wrong)


if __name__ == "__main__":
    support.main()
