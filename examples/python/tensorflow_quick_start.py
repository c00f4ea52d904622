#!/usr/bin/env python3
"""MNIST with Keras: on one worker, then the same model on several (AIR's guide, "Quickstart"). With UNISONO_OFFLINE=1 load_data gives 4,166 samples
without a network, and says so."""

import argparse
import json
import os

import numpy as np

from unisono.train import ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer


def mnist_dataset(batch_size):
    import tensorflow as tf

    (x_train, y_train), _ = tf.keras.datasets.mnist.load_data()
    x_train = x_train / np.float32(255)
    y_train = y_train.astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(60000).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    import tensorflow as tf

    model = tf.keras.Sequential([
        tf.keras.layers.InputLayer(input_shape=(28, 28)),
        tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10),
    ])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
                  metrics=["accuracy"])
    return model


def train_func():
    batch_size = 64
    single_worker_dataset = mnist_dataset(batch_size)
    single_worker_model = build_and_compile_cnn_model()
    return single_worker_model.fit(single_worker_dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


def train_func_distributed(config):
    import tensorflow as tf

    per_worker_batch_size = 64
    tf_config = json.loads(os.environ["TF_CONFIG"])
    num_workers = len(tf_config["cluster"]["worker"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    multi_worker_dataset = mnist_dataset(per_worker_batch_size * num_workers)
    with strategy.scope():
        multi_worker_model = build_and_compile_cnn_model()
    history = multi_worker_model.fit(multi_worker_dataset, epochs=config["epochs"], steps_per_epoch=config["steps"], verbose=2)
    print("replicas", strategy.num_replicas_in_sync, "metrics", sorted(history.history))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", "-n", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--use-gpu", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # for the first part, in this process; workers get it from the trainer
    train_func()
    trainer = TensorflowTrainer(train_func_distributed, train_loop_config={"epochs": arguments.epochs, "steps": arguments.steps},
                                scaling_config=ScalingConfig(num_workers=arguments.num_workers, use_gpu=arguments.use_gpu))
    trainer.fit()
    print("done")
