"""RaySGD's TFTrainer: one Keras model, many replicas; every call of train is one fit.

The workers stay alive between calls and keep their models (unisono/_commands.py).
"""

from unisono.extend import choose_keras, complain
from unisono.util.sgd.tf.trainer import TFTrainer

choose_keras()

__all__ = ["TFTrainer", "TFTrainable"]


def __getattr__(name):
    if name == "TFTrainable":  # imports the tuner only when it is used
        from unisono.util.sgd.tf.trainable import TFTrainable

        return TFTrainable
    return complain("unisono.util.sgd.tf", name)
