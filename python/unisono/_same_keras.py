"""One Keras for the driver and its workers.

TensorFlow has two: Keras 3, and tf_keras. It chooses for good when tf.keras is first used, by TF_USE_LEGACY_KERAS. The driver's choice is the workers': where
the driver has used neither yet, use() chooses tf_keras for both, because it does more under MultiWorkerMirroredStrategy. Where it has imported Keras 3
already, workers get Keras 3, too, with Model.fit put right for that strategy (train/tensorflow/_keras3.py). What is left is a variable that the user
has set after TensorFlow had chosen: check() says so in one sentence instead of hundreds of lines from the workers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from typing import Any

VARIABLE = "TF_USE_LEGACY_KERAS"
_REMEDY = "set TF_USE_LEGACY_KERAS=1 before tensorflow is imported, or import unisono.train.tensorflow first"


def _is_installed(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def for_workers(legacy: bool = False) -> list[str]:
    """What workers find in their environment besides the driver's own. legacy: they need tf_keras, whatever the driver has."""
    if VARIABLE in os.environ:
        return []
    if not legacy and _uses_keras_3():
        return [VARIABLE + "=0"]
    return [VARIABLE + "=1"] if _is_installed("tf_keras") else []


def _uses_keras_3() -> bool:
    """Whether tf.keras of this process is Keras 3 for good."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return False
    module = sys.modules.get("tensorflow.keras")  # by `from tensorflow.keras import ...`
    if module is not None:
        return not (getattr(module, "__file__", None) or "tf_keras").split("site-packages")[-1].split("dist-packages")[-1].lstrip("/").startswith("tf_keras")
    lazy = vars(tensorflow).get("keras")  # by tf.keras
    return getattr(lazy, "_tfll_initialized", False) and getattr(lazy, "_tfll_keras_version", "") == "keras_3"


def use() -> None:
    """Chooses the Keras of this process and its workers, where that is still open."""
    if VARIABLE not in os.environ and _is_installed("tf_keras") and not _uses_keras_3():
        os.environ[VARIABLE] = "1"


def check(call: bytes, name: str, environment: list[str]) -> None:
    """A TypeError when a pickled train function brings Keras 3 along to workers that have tf_keras. A program that imports keras itself may.
    environment: what for_workers gave."""
    chosen = (environment or [VARIABLE + "=" + os.environ.get(VARIABLE, "")])[0].partition("=")[2]
    if chosen not in ("1", "true", "True") or not _is_installed("tf_keras") or not _uses_keras_3():
        return
    import pickletools

    for operation, argument, _ in pickletools.genops(call):
        if operation.name.endswith("UNICODE") and str(argument).startswith(("keras.src", "keras._tf_keras", "keras.api")):
            raise TypeError("the train function %s refers to %s of Keras 3, which tensorflow.keras was when it was imported; the workers use tf_keras "
                            "(TF_USE_LEGACY_KERAS=1, or parameter servers): %s" % (name, argument, _REMEDY))


def module_for(path: str) -> Any:
    """The Keras that wrote a model: tf_keras or keras for a .keras file, otherwise tf.keras."""
    if zipfile.is_zipfile(path):
        import json

        with zipfile.ZipFile(path) as archive:
            with archive.open("metadata.json") as file:
                version = json.loads(file.read(1 << 16)).get("keras_version", "")
        if version.startswith("2.") and _is_installed("tf_keras"):
            return importlib.import_module("tf_keras")
        if version.startswith("3."):
            return importlib.import_module("keras")
    import tensorflow

    return tensorflow.keras
