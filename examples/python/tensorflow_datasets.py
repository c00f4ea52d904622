#!/usr/bin/env python3
"""A dataset of 200 rows in two TensorFlow workers, one fit() an epoch (the quick start of Ray Train's TensorFlow guide)."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf

import unisono
import unisono.data
from unisono import train
from unisono.train import ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer
from unisono.train.tensorflow.keras import ReportCheckpointCallback


def build_model():
    return tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=()), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10),
                                tf.keras.layers.Dense(1)])


def train_func(config):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_model()
        model.compile(optimizer=tf.keras.optimizers.SGD(learning_rate=config["lr"]), loss=tf.keras.losses.mean_squared_error,
                      metrics=[tf.keras.metrics.mean_squared_error])
    dataset = train.get_dataset_shard("train")
    results = []
    for _ in range(config["epochs"]):
        tf_dataset = dataset.to_tf(feature_columns="x", label_columns="y", batch_size=config["batch_size"])
        history = model.fit(tf_dataset, callbacks=[ReportCheckpointCallback()])
        results.append(history.history)
    return results


if __name__ == "__main__":
    train_dataset = unisono.data.from_items([{"x": x / 200, "y": 2 * x / 200} for x in range(200)])
    trainer = TensorflowTrainer(train_loop_per_worker=train_func, train_loop_config={"lr": 1e-2, "batch_size": 32, "epochs": 4},
                                scaling_config=ScalingConfig(num_workers=2), datasets={"train": train_dataset})
    result = trainer.fit()
    print(sorted(result.metrics)[-2:], result.metrics["loss"] < 2)
