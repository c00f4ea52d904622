"""TensorflowCheckpoint: a Checkpoint that knows how to make a Keras model of itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from unisono import _codec, _key, _paths, _safe, _same_keras
from unisono._arguments import strict_class
from unisono.train._checkpoint import Checkpoint

_H5, _SAVED, _KERAS, _WEIGHTS = "model.h5", "saved_model", "model.keras", "model.weights.h5"
_MAC = "model.mac"


@strict_class()
class TensorflowCheckpoint(Checkpoint):
    """from_model(model), from_h5(file) or from_saved_model(directory); get_model() is the model again."""

    @classmethod
    def _of(cls, source: str, name: str) -> TensorflowCheckpoint:
        folder = tempfile.mkdtemp(prefix="checkpoint_")
        target = os.path.join(folder, name)
        shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy2(source, target)
        with open(os.path.join(folder, _MAC), "wb") as file:
            file.write(_key.mac(_digest(target)))
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

    def get_model(self, model: Any = None, *, safe_mode: bool = True) -> Any:
        """The model. Of a checkpoint with weights only (a dictionary with model_weights): `model`, or a function that makes it, gets them.

        Keras runs code that it finds in .h5 files and SavedModels, so those are loaded only if you made the checkpoint (it has a MAC by your key), or
        with safe_mode=False. For .keras files safe_mode is Keras's own.
        """
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
                    return _load(folder, name, safe_mode)
        raise ValueError("%r has no model (%s, %s or %s)" % (self, _KERAS, _H5, _SAVED))


def _digest(path: str) -> bytes:
    """A hash of a file, or of all files of a directory and their names. Links are not followed."""
    import hashlib

    found = [path] if not os.path.isdir(path) else [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    total = hashlib.sha256()
    for each in sorted(found):
        with open(os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            total.update(os.fsencode(os.path.relpath(each, os.path.dirname(path))) + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return total.digest()


def _load(folder: str, name: str, safe_mode: bool) -> Any:
    """The model of that name. What is checked is a private copy: another user can change the original meanwhile."""
    path = os.path.join(folder, name)
    if not safe_mode:
        return _same_keras.module_for(path).models.load_model(path, **({"safe_mode": False} if name == _KERAS else {}))
    if name == _KERAS:
        return _same_keras.module_for(path).models.load_model(path)
    with tempfile.TemporaryDirectory(prefix="checkpoint_tmp_") as private:
        copy = os.path.join(private, "copy")
        _paths.copy_tree(folder, copy)
        path, signature = os.path.join(copy, name), os.path.join(copy, _MAC)
        code = b""
        if os.path.isfile(signature):
            with open(signature, "rb") as file:
                code = file.read(64)
        if not _key.fits(_digest(path), code):
            raise _codec.PickleRefused("%s was not written with your key (%s), and Keras runs code that it finds in such a file; if you trust where it comes from, "
                                       "say safe_mode=False" % (_safe.text(os.path.join(folder, name)), _key._path()))
        return _same_keras.module_for(path).models.load_model(path)
