#!/usr/bin/env python3
"""A Keras model under MultiWorkerMirroredStrategy: saved, and gone on from (the guide's "Saving checkpoints" and "Loading checkpoints")."""

import numpy as np

from unisono import train
from unisono.train import Trainer


def train_func(config):
    import tensorflow as tf

    n = 100
    X = np.random.normal(0, 1, size=(n, 4))
    Y = np.random.uniform(0, 1, size=(n, 1))
    start_epoch = 0
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="linear", input_shape=(4,))])
        checkpoint = train.load_checkpoint()
        if checkpoint:
            model.set_weights(checkpoint.get("model_weights"))
            start_epoch = checkpoint.get("epoch", -1) + 1
        model.compile(optimizer="Adam", loss="mean_squared_error", metrics=["mse"])
    for epoch in range(start_epoch, config["num_epochs"]):
        model.fit(X, Y, batch_size=20, verbose=0)
        train.save_checkpoint(epoch=epoch, model_weights=model.get_weights())


if __name__ == "__main__":
    trainer = Trainer(backend="tensorflow", num_workers=2)
    trainer.start()
    trainer.run(train_func, config={"num_epochs": 2})
    trainer.shutdown()
    trainer.start()
    trainer.run(train_func, config={"num_epochs": 5}, checkpoint=trainer.latest_checkpoint)
    trainer.shutdown()
    print(trainer.latest_checkpoint)
