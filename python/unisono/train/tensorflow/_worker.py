"""The worker's half of the tensorflow backend. TF_CONFIG is in the environment; TensorFlow itself is not touched, so that the train function's
first line may still be tf.config.threading."""

import importlib.util
import os

from unisono.train.tensorflow import _mnist


def set_up(session, settings):
    _mnist.install()
    if "TF_USE_LEGACY_KERAS" not in os.environ and importlib.util.find_spec("tf_keras") is None:
        print("unisono: tf_keras is not installed. TensorFlow 2.16 and later cannot run Model.fit under MultiWorkerMirroredStrategy with Keras 3; "
              "pip install tf_keras makes it work", flush=True)
    return lambda: None
