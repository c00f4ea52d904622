#!/usr/bin/env python3
"""Keras 3 on several workers, which TensorFlow's MultiWorkerMirroredStrategy no longer runs: Horovod's Keras program with only the import changed.
`unisono run -n 2 python3 horovod_keras.py`"""

import keras
import numpy as np

import unisono.horovod.keras as hvd

hvd.init()
keras.utils.set_random_seed(hvd.rank())
x = np.random.normal(0, 1, (512, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss="mse")
history = model.fit(x, y, batch_size=32, epochs=4, verbose=0, callbacks=[
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01 * hvd.size(), warmup_epochs=2),
])
if hvd.rank() == 0:
    print("size", hvd.size(), "loss fell:", history.history["loss"][-1] < history.history["loss"][0])
