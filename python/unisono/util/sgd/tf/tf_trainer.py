"""ray.util.sgd.tf.tf_trainer's place."""

from unisono.util.sgd.tf import TFTrainer  # noqa: F401


def __getattr__(name):
    from unisono.util.sgd import tf

    return getattr(tf, name)
