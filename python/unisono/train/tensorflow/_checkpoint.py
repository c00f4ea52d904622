"""TensorflowCheckpoint: a Checkpoint that knows how to make a Keras model of itself."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from typing import Any

from unisono import _codec, _key, _paths, _safe, _same_keras
from unisono._arguments import strict_class
from unisono.train._checkpoint import Checkpoint, new_folder

_H5, _SAVED, _KERAS, _WEIGHTS = "model.h5", "saved_model", "model.keras", "model.weights.h5"
_MAC = "model.mac"
# Earlier ones run code, or read other files, in spite of their safe mode: CVE-2025-1550, -8747, -9906, CVE-2026-1462, -1669.
_SAFE_KERAS = (3, 15, 1)


@strict_class()
class TensorflowCheckpoint(Checkpoint):
    """from_model(model), from_h5(file) or from_saved_model(directory); get_model() is the model again."""

    @classmethod
    def _of(cls, source: str, name: str) -> TensorflowCheckpoint:
        folder = new_folder()
        target = os.path.join(folder, name)
        shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy2(source, target)
        sign(target)
        return cls(folder)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """The whole model, so that get_model needs nothing else."""
        folder = new_folder()
        model.save(os.path.join(folder, _KERAS))
        sign(os.path.join(folder, _KERAS))
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

        Keras runs code that it finds in .h5 files and SavedModels, and tf_keras and older releases of Keras 3 in .keras files, too. So a model is loaded
        only if you made the checkpoint (it has a MAC by your key), or with safe_mode=False, or by the safe mode of Keras 3.15.1 or later.
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


def sign(path: str) -> None:
    """Writes the MAC of a model that this user has made beside it."""
    with open(os.path.join(os.path.dirname(path), _MAC), "wb") as file:
        file.write(_key.mac(_digest(path)))


def _is_signed(path: str) -> bool:
    code, signature = b"", os.path.join(os.path.dirname(path), _MAC)
    if os.path.isfile(signature):
        with open(signature, "rb") as file:
            code = file.read(64)
    return _key.fits(_digest(path), code)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def _is_safe(path: str, keras: Any) -> bool:
    """Whether that Keras reads this file, of anybody, without running what it says. tf_keras's safe mode refuses lambdas only: a Lambda layer calls any
    function of any module that the file names. Whatever is not a zip file is handed to the loaders of .h5 and SavedModel."""
    return path.endswith(".keras") and zipfile.is_zipfile(path) and _release(str(getattr(keras, "__version__", ""))) >= _SAFE_KERAS


def _load(folder: str, name: str, safe_mode: bool) -> Any:
    """The model of that name. What is checked is a private copy: another user can change the original meanwhile."""
    path = os.path.join(folder, name)
    if not safe_mode:
        return _same_keras.module_for(path).models.load_model(path, **({"safe_mode": False} if name == _KERAS else {}))
    with tempfile.TemporaryDirectory(prefix="checkpoint_tmp_") as private:
        path = os.path.join(private, "copy", name)
        _paths.copy_tree(folder, os.path.join(private, "copy"))
        keras = _same_keras.module_for(path) if zipfile.is_zipfile(path) else None
        if not _is_safe(path, keras) and not _is_signed(path):
            raise _codec.PickleRefused("%s was not written with your key (%s), and Keras runs code that it finds in such a file (a .keras file: before Keras %s, and "
                                       "tf_keras); if you trust where it comes from, say safe_mode=False"
                                       % (_safe.text(os.path.join(folder, name)), _key._path(), ".".join(map(str, _SAFE_KERAS))))
        return (keras or _same_keras.module_for(path)).models.load_model(path)
