"""RaySGD's TFTrainer on real TensorFlow: the example of the guide, written anew."""

import os
import tempfile
import unittest

import numpy

import support
import unisono
from unisono.util.sgd.tf import trainer as sgd_trainer
from unisono.util.sgd.tf import TFTrainer

CONFIG = {"batch_size": 32, "fit_config": {"steps_per_epoch": 8}, "evaluate_config": {"steps": 3}}


def model_creator(config):
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mean_squared_error", metrics=["mean_squared_error"])
    return model


def data_creator(config):
    import numpy
    import tensorflow as tf

    def data(size):
        inputs = numpy.linspace(0, 1, size, dtype="float32").reshape(-1, 1)
        return tf.data.Dataset.from_tensor_slices((inputs, inputs / 2)).shuffle(size, seed=1).repeat().batch(config["batch_size"])

    return data(1000), data(400)


def fixed_data(config):
    import numpy
    import tensorflow as tf

    inputs = numpy.linspace(0, 1, 256, dtype="float32").reshape(-1, 1)
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs / 2)).repeat().batch(config["batch_size"])
    return data, data


class Example(unittest.TestCase):
    def check(self, num_replicas):
        trainer = TFTrainer(model_creator=model_creator, data_creator=data_creator, num_replicas=num_replicas, config=CONFIG)
        before = trainer.validate()
        for _ in range(3):
            numbers = trainer.train()
        after = trainer.validate()
        self.assertEqual(set(numbers), {"train_loss", "train_mean_squared_error"})
        self.assertEqual(set(after), {"validation_loss", "validation_mean_squared_error"})
        self.assertLess(after["validation_loss"], before["validation_loss"])
        saved = trainer.get_model().get_weights()
        self.assertEqual([weights.shape for weights in saved], [(1, 10), (10,), (10, 1), (1,)])
        with tempfile.TemporaryDirectory() as folder:
            path = trainer.save(os.path.join(folder, "model"))
            trainer.train()
            self.assertFalse(numpy.array_equal(trainer.get_model().get_weights()[0], saved[0]))
            trainer.restore(path)
        for restored, weights in zip(trainer.get_model().get_weights(), saved):
            numpy.testing.assert_array_equal(restored, weights)
        trainer.shutdown()
        with self.assertRaisesRegex(RuntimeError, "shut down"):
            trainer.train()

    def test_moments_are_restored(self):
        """A new trainer goes on as the one that saved would have: the optimizer's state is part of it."""
        def momentum(config):
            model = model_creator(config)
            import tensorflow as tf

            model.compile(optimizer=tf.keras.optimizers.SGD(0.05, momentum=0.9), loss="mean_squared_error")
            return model

        def new():
            return TFTrainer(model_creator=momentum, data_creator=fixed_data, num_replicas=1, config={"batch_size": 32, "fit_config": {"steps_per_epoch": 8}})

        with tempfile.TemporaryDirectory() as folder:
            trainer = new()
            trainer.train()
            path = trainer.save(os.path.join(folder, "model"))
            expected = trainer.train()["train_loss"]
            trainer.restore(path)
            self.assertAlmostEqual(trainer.train()["train_loss"], expected, places=6)
            trainer.shutdown()
            trainer = new()
            trainer.restore(path)
            self.assertAlmostEqual(trainer.train()["train_loss"], expected, places=6)
            trainer.shutdown()

    def test_more_replicas_than_cpus(self):
        group = []
        real = sgd_trainer.Group

        def record(*arguments, **options):
            group.append(options)
            raise KeyboardInterrupt  # before any worker starts

        sgd_trainer.Group = record
        self.addCleanup(setattr, sgd_trainer, "Group", real)
        with self.assertRaises(KeyboardInterrupt):
            TFTrainer(model_creator=model_creator, data_creator=data_creator, num_replicas=4096)
        self.assertNotIn("cpus_per_worker", group[0])  # replicas share the CPUs
        sgd_trainer.Group = real
        with self.assertRaisesRegex(unisono.Error, "2 replicas with 4096 CPUs each.*leave num_cpus_per_worker out"):
            TFTrainer(model_creator=model_creator, data_creator=data_creator, num_replicas=2, num_cpus_per_worker=4096)

    def test_one_replica(self):
        self.check(1)

    def test_two_replicas(self):
        self.check(2)

    def test_errors_of_the_creators_come_back(self):
        def broken(config):
            raise KeyError("model")

        with self.assertRaises(KeyError):
            TFTrainer(model_creator=broken, data_creator=data_creator, config=CONFIG)

    def test_tuned(self):
        from unisono import tune
        from unisono.util.sgd.tf import TFTrainable

        def sized(config):
            import tensorflow as tf

            model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,), kernel_initializer="zeros")])  # no lucky start
            model.compile(optimizer=tf.keras.optimizers.SGD(config["lr"]), loss="mean_squared_error", metrics=["mean_squared_error"])
            return model

        analysis = tune.run(TFTrainable, stop={"training_iteration": 2}, verbose=0, max_concurrent_trials=1, config={
            "model_creator": sized, "data_creator": data_creator, "num_replicas": 1, "trainer_config": dict(CONFIG, lr=tune.grid_search([1e-9, 0.1]))})
        self.assertEqual([trial.last_result["training_iteration"] for trial in analysis.trials], [2, 2])
        self.assertEqual(analysis.get_best_config(metric="validation_loss", mode="min")["trainer_config"]["lr"], 0.1)


if __name__ == "__main__":
    support.main()
