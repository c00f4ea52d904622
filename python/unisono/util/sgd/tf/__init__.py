"""RaySGD's TFTrainer: one Keras model, many replicas; every call of train is one fit.

The workers stay alive between calls and keep their models (unisono/_commands.py).
"""

from unisono import _same_keras
from unisono.util.sgd.tf.trainer import TFTrainer

_same_keras.use()

__all__ = ["TFTrainer", "TFTrainable"]


def __getattr__(name):
    from unisono._missing import complain

    if name == "TFTrainable":  # imports the tuner only when somebody tunes
        from unisono.tune.tf_trainable import TFTrainable

        return TFTrainable
    return complain("unisono.util.sgd.tf", name)
