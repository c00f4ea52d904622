"""TensorflowCheckpoint: a Checkpoint that knows how to make a Keras model of itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from unisono import _same_keras
from unisono._arguments import strict_class
from unisono.train._checkpoint import Checkpoint

_H5, _SAVED, _KERAS, _WEIGHTS = "model.h5", "saved_model", "model.keras", "model.weights.h5"


@strict_class()
class TensorflowCheckpoint(Checkpoint):
    """from_model(model), from_h5(file) or from_saved_model(directory); get_model() is the model again."""

    @classmethod
    def _of(cls, source: str, name: str) -> TensorflowCheckpoint:
        folder = tempfile.mkdtemp(prefix="checkpoint_")
        target = os.path.join(folder, name)
        shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy2(source, target)
        return cls(folder)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """The whole model, so that get_model needs nothing else."""
        folder = tempfile.mkdtemp(prefix="checkpoint_")
        model.save(os.path.join(folder, _KERAS))
        return cls(folder)._with(preprocessor)

    @classmethod
    def from_h5(cls, file_path: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """An .h5 file that Keras wrote."""
        path = os.fspath(file_path)
        if not os.path.isfile(path) or not path.endswith(".h5"):
            raise ValueError("from_h5 needs an .h5 file, which %s is not" % path)
        return cls._of(path, _H5)._with(preprocessor)

    @classmethod
    def from_saved_model(cls, dir_path: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A SavedModel directory."""
        path = os.fspath(dir_path)
        if not os.path.isfile(os.path.join(path, "saved_model.pb")):
            raise ValueError("from_saved_model needs a directory with saved_model.pb, which %s is not" % path)
        return cls._of(path, _SAVED)._with(preprocessor)

    def get_model(self, model: Any = None) -> Any:
        """The model. Of a checkpoint with weights only (a dictionary with model_weights): `model`, or a function that makes it, gets them."""
        if self._data is not None and "model_weights" in self._data:
            if model is None:
                raise ValueError("this checkpoint has only the weights: give get_model the model, or a function that makes it")
            made = model() if callable(model) and not hasattr(model, "set_weights") else model
            made.set_weights(self._data["model_weights"])
            return made
        with self.as_directory() as folder:
            for name in (_KERAS, _H5, _SAVED):
                path = os.path.join(folder, name)
                if os.path.exists(path):
                    return _same_keras.module_for(path).models.load_model(path)
        raise ValueError("%r has no model (%s, %s or %s)" % (self, _KERAS, _H5, _SAVED))
