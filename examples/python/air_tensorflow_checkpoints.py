#!/usr/bin/env python3
"""Dictionary checkpoints of Ray AIR: saved, and gone on from (AIR's guide, "Saving and loading checkpoints")."""

import numpy as np

from unisono.air import Checkpoint, ScalingConfig, session
from unisono.train.tensorflow import TensorflowTrainer


def train_func(config):
    import tensorflow as tf

    n = 100
    X = np.random.normal(0, 1, size=(n, 4))
    Y = np.random.uniform(0, 1, size=(n, 1))
    start_epoch = 0
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="linear", input_shape=(4,))])
        checkpoint = session.get_checkpoint()
        if checkpoint:
            checkpoint_dict = checkpoint.to_dict()
            model.set_weights(checkpoint_dict.get("model_weights"))
            start_epoch = checkpoint_dict.get("epoch", -1) + 1
        model.compile(optimizer="Adam", loss="mean_squared_error", metrics=["mse"])
    for epoch in range(start_epoch, config["num_epochs"]):
        model.fit(X, Y, batch_size=20, verbose=0)
        session.report({}, checkpoint=Checkpoint.from_dict(dict(epoch=epoch, model_weights=model.get_weights())))


def fit(num_epochs, **more):
    trainer = TensorflowTrainer(train_func, train_loop_config={"num_epochs": num_epochs}, scaling_config=ScalingConfig(num_workers=2), **more)
    return trainer.fit()


if __name__ == "__main__":
    print(fit(5).checkpoint.to_dict())
    result = fit(2)
    print(fit(5, resume_from_checkpoint=result.checkpoint).checkpoint.to_dict())
