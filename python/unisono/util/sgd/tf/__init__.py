"""RaySGD's TFTrainer: one Keras model, many replicas; every call of train is one fit.

The workers stay alive between calls and keep their models. They run one long function that waits for commands, because a TensorFlow cluster
lives as long as its processes. Commands and answers travel over a socket in a private directory, with the run's own secret.
"""

from unisono.util.sgd.tf.trainer import TFTrainer

__all__ = ["TFTrainer", "TFTrainable"]


def __getattr__(name):
    from unisono._missing import INSTEAD, complain

    if name == "TFTrainable":
        raise AttributeError("unisono.util.sgd.tf.TFTrainable is not offered; use " + INSTEAD["unisono.tune"])
    return complain("unisono.util.sgd.tf", name)
