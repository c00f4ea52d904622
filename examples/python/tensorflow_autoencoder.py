#!/usr/bin/env python3
"""An autoencoder on shards of a dataset, made a tf.data pipeline by hand: iter_tf_batches, from_generator, prepare_dataset_shard (Ray Train's
TensorFlow guide, "Loading and preprocessing data", and the autoencoder example that it links). MNIST's digits are random images here."""

import argparse
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf

import unisono
import unisono.data
from unisono import train
from unisono.train import ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer, prepare_dataset_shard
from unisono.train.tensorflow.keras import ReportCheckpointCallback


def build_autoencoder_model():
    return tf.keras.Sequential([tf.keras.Input(shape=(784,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(64, activation="relu"),
                                tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(64, activation="relu"),
                                tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(784, activation="sigmoid")])


def train_func(config):
    dataset_shard = train.get_context().get_dataset_shard("train")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        multi_worker_model = build_autoencoder_model()
        multi_worker_model.compile(loss=tf.keras.losses.BinaryCrossentropy(), optimizer=tf.keras.optimizers.Adam(learning_rate=config["lr"]),
                                   metrics=["binary_crossentropy"])

    def to_tf_dataset(dataset, batch_size):
        def to_tensor_iterator():
            for batch in dataset.iter_tf_batches(batch_size=batch_size, dtypes=tf.float32):
                yield batch["image"], batch["label"]

        output_signature = (tf.TensorSpec(shape=(None, 784), dtype=tf.float32), tf.TensorSpec(shape=(None, 784), dtype=tf.float32))
        tf_dataset = tf.data.Dataset.from_generator(to_tensor_iterator, output_signature=output_signature)
        return prepare_dataset_shard(tf_dataset)

    for _ in range(config["epochs"]):
        tf_dataset = to_tf_dataset(dataset=dataset_shard, batch_size=config["batch_size"])
        multi_worker_model.fit(tf_dataset, callbacks=[ReportCheckpointCallback()], verbose=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", "-n", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    images = (np.random.default_rng(0).random((128, 784)) > 0.8).astype(np.float32)
    dataset = unisono.data.from_numpy(images).map_batches(lambda batch: {"image": batch["data"], "label": batch["data"]}, batch_format="numpy")
    result = TensorflowTrainer(train_loop_per_worker=train_func, train_loop_config={"lr": 1e-3, "batch_size": 32, "epochs": arguments.epochs},
                               datasets={"train": dataset}, scaling_config=ScalingConfig(num_workers=arguments.num_workers)).fit()
    print(sorted(name for name in result.metrics if "loss" in name or "cross" in name), result.metrics["training_iteration"])
