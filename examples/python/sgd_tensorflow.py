#!/usr/bin/env python3
"""RaySGD's example: TFTrainer on y = x / 2 (--tune: two trials of TFTrainable)."""

import argparse

import numpy as np

import unisono
from unisono.util.sgd.tf import TFTrainer

NUM_TRAIN_SAMPLES, NUM_TEST_SAMPLES, BATCH = 1000, 400, 128


def linear_dataset(a, size):
    x = np.random.rand(size).reshape((-1, 1))
    return x, a * x


def simple_dataset(config):
    import tensorflow as tf

    def prepared(size):
        return tf.data.Dataset.from_tensor_slices(linear_dataset(0.5, size)).shuffle(size).repeat().batch(config["batch_size"])

    return prepared(NUM_TRAIN_SAMPLES), prepared(NUM_TEST_SAMPLES)


def simple_model(config):
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mean_squared_error", metrics=["mean_squared_error"])
    return model


CONFIG = {"batch_size": BATCH, "fit_config": {"steps_per_epoch": NUM_TRAIN_SAMPLES // BATCH}, "evaluate_config": {"steps": NUM_TEST_SAMPLES // BATCH}}


def train_example(num_replicas, use_gpu):
    trainer = TFTrainer(model_creator=simple_model, data_creator=simple_dataset, num_replicas=num_replicas, use_gpu=use_gpu, verbose=True, config=CONFIG)
    train_stats1 = trainer.train()
    train_stats1.update(trainer.validate())
    print(train_stats1)
    train_stats2 = trainer.train()
    train_stats2.update(trainer.validate())
    print(train_stats2)
    val_stats = trainer.validate()
    print(val_stats)
    difference = train_stats1["train_loss"] - train_stats2["train_loss"]
    print("dLoss: %s, dMSE: %s" % (difference, train_stats1["train_mean_squared_error"] - train_stats2["train_mean_squared_error"]))
    print("success!" if difference > 0 else "training sanity check failed. loss increased!")
    trainer.shutdown()


def tune_example(num_replicas, use_gpu):
    from unisono import tune
    from unisono.util.sgd.tf import TFTrainable

    config = {"model_creator": simple_model, "data_creator": simple_dataset, "num_replicas": num_replicas, "use_gpu": use_gpu, "trainer_config": CONFIG}
    analysis = tune.run(TFTrainable, num_samples=2, config=config, stop={"training_iteration": 2}, verbose=1)
    return analysis.get_best_config(metric="validation_loss", mode="min")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server-address", "--address", help="accepted; the workers run where unisono is told to start them")
    parser.add_argument("--num-replicas", "-n", type=int, default=1)
    parser.add_argument("--use-gpu", action="store_true")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    unisono.init()
    (tune_example if arguments.tune else train_example)(arguments.num_replicas, arguments.use_gpu)
