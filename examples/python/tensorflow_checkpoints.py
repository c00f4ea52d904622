#!/usr/bin/env python3
"""Directory checkpoints of Ray Train 2.x: by hand, by ReportCheckpointCallback, and gone on from (the Chinese guide)."""

import json
import os
import tempfile

import numpy as np

from unisono import train
from unisono.train import Checkpoint, ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer


def train_func(config):
    import tensorflow as tf

    from unisono.train.tensorflow.keras import ReportCheckpointCallback

    n = 100
    X = np.random.normal(0, 1, size=(n, 4))
    Y = np.random.uniform(0, 1, size=(n, 1))
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with strategy.scope():
        checkpoint = train.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as checkpoint_dir:
                model = tf.keras.models.load_model(os.path.join(checkpoint_dir, "model.keras"))
        else:
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="linear", input_shape=(4,))])
        model.compile(optimizer="Adam", loss="mean_squared_error", metrics=["mse"])
    if config["by_callback"]:
        model.fit(X, Y, batch_size=20, epochs=config["num_epochs"], verbose=0, callbacks=[ReportCheckpointCallback()])
        return
    for epoch in range(config["num_epochs"]):
        history = model.fit(X, Y, batch_size=20, verbose=0)
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            model.save(os.path.join(temp_checkpoint_dir, "model.keras"))
            with open(os.path.join(temp_checkpoint_dir, "checkpoint.json"), "w") as f:
                json.dump({"epoch": epoch}, f)
            checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
            train.report({"loss": history.history["loss"][0]}, checkpoint=checkpoint)


def fit(num_epochs, by_callback=False, **more):
    trainer = TensorflowTrainer(train_func, train_loop_config={"num_epochs": num_epochs, "by_callback": by_callback},
                                scaling_config=ScalingConfig(num_workers=2), **more)
    return trainer.fit()


if __name__ == "__main__":
    result = fit(5)
    print(result.checkpoint)
    with result.checkpoint.as_directory() as folder:
        print(sorted(name for name in os.listdir(folder) if not name.startswith(".")))
    result = fit(2, by_callback=True, resume_from_checkpoint=result.checkpoint)
    print(sorted(name for name in result.metrics if name in ("loss", "mse")), len(result.best_checkpoints))
