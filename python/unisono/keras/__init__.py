"""unisono.keras: Keras's names on the native engine (libunisono-engine). Models train at the engine's speed; NumPy arrays are used as they are.

    from unisono import keras

    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(x, y, epochs=3)
"""

try:
    from unisono import _engine  # noqa: F401
except ImportError as error:
    raise ImportError("unisono.keras needs the native engine, which this build of unisono does not have (%s): install Debian's libdnnl-dev (and "
                      "libhdf5-dev, libzip-dev for Keras's files), then build again (`pip install .`, or `ninja -C build`)" % error) from error

from unisono.extend import strict_module
from unisono.keras import activations, callbacks, initializers, layers, losses, metrics, models, ops, optimizers, regularizers, utils
from unisono.keras._graph import Input, KerasTensor
from unisono.keras._tensor import Variable
from unisono.keras.layers import Layer
from unisono.keras.losses import Loss
from unisono.keras.metrics import Metric
from unisono.keras.models import Model, Sequential
from unisono.keras.optimizers import Optimizer

__all__ = ["Input", "KerasTensor", "Layer", "Loss", "Metric", "Model", "Optimizer", "Sequential", "Variable", "activations", "callbacks", "initializers",
           "layers", "losses", "metrics", "models", "ops", "optimizers", "regularizers", "saving", "utils"]


class saving:
    """keras.saving."""

    load_model = staticmethod(models.load_model)


strict_module(globals())
