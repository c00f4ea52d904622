"""Checkpoint: a directory, or (AIR) a dictionary. One class for both, because one run may hand out both."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from typing import Any, Iterator, Self

from unisono import _codec, _paths, _safe, _unisono
from unisono._arguments import Refused, strict_class

METADATA_FILE = ".metadata.json"
PREPROCESSOR_FILE, _PREPROCESSOR_KEY = "preprocessor.json", "_preprocessor"
MANIFEST = ".unisono-manifest.json"
_folders: dict[str, int] = {}  # to be removed at the end of the process with that number


def new_folder() -> str:
    """For a checkpoint without a place of its own, until the end of this process; if it is pickled, the folder stays."""
    folder = tempfile.mkdtemp(prefix="checkpoint_")
    _folders[folder] = os.getpid()
    return folder


@atexit.register
def _remove_folders():
    for folder, process in _folders.items():
        if process == os.getpid():
            shutil.rmtree(folder, True)


@strict_class({"filesystem": Refused(None, "a checkpoint is a directory of this machine")})
class Checkpoint:
    """Checkpoint(path), Checkpoint.from_directory(path) or Checkpoint.from_dict(data)."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None):
        self._path: Any = os.path.abspath(_paths.local(path, "Checkpoint"))  # or None,
        self._data: dict[str, Any] | None = None  # where it is a dictionary

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """A checkpoint of a directory that is there."""
        return cls(path)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """A checkpoint of a dictionary (AIR)."""
        if not isinstance(data, dict):
            raise TypeError("Checkpoint.from_dict needs a dictionary, not %s" % type(data).__name__)
        out = cls.__new__(cls)
        out._path, out._data = None, dict(data)
        return out

    @property
    def path(self) -> str:
        """The directory. A dictionary that was not reported yet is written to a new one."""
        if self._path is None:
            self._path = self._write(new_folder() + "/checkpoint")
        return self._path

    def _is_made(self):
        """Whether a run has made it: a directory with a list of its files, which is not changed any more."""
        return os.path.exists(os.path.join(self.path, MANIFEST))

    def __getstate__(self) -> Any:
        _folders.pop((self._path or "").removesuffix("/checkpoint"), None)  # another process may need it after the end of this one
        return self.__dict__

    def _check(self):
        """A directory that is not there is an error."""
        if self._data is None and not os.path.isdir(self._path):
            raise ValueError("checkpoint %s does not exist" % _safe.text(self._path))

    def _write(self, path):
        _unisono.checkpoint_write(path, _codec.encode_dict(self._data))
        return path

    def to_dict(self, allow_pickle: bool = False) -> dict[str, Any]:
        """The dictionary. Pickled parts of another user's checkpoint need allow_pickle=True."""
        if self._data is not None:
            return dict(self._data)
        self._check()
        if not self._is_made() or not _unisono.checkpoint_info(self._path)["is_dict"]:
            raise ValueError("%s is a directory of files, not a dictionary: use as_directory()" % _safe.text(self._path))
        return _codec.decode(_unisono.checkpoint_read(self._path), allow_pickle)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files to path (or to a new temporary directory), and returns it."""
        target = os.path.abspath(_paths.local(path, "to_directory")) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        _paths.copy_tree(self.path, target)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory itself; read, do not write. Of a dictionary that was not reported yet: a temporary one."""
        if self._path is not None:
            yield self._path
            return
        with tempfile.TemporaryDirectory(prefix="checkpoint_tmp_") as folder:
            yield self._write(os.path.join(folder, "checkpoint"))

    # ---- the preprocessor ----

    def get_preprocessor(self) -> Any:
        """The fitted preprocessor that the checkpoint was reported with: the trainer's, or one that was given; None when there is none."""
        if self._data is not None:
            return self._data.get(_PREPROCESSOR_KEY)
        self._check()
        path = os.path.join(self.path, PREPROCESSOR_FILE)
        if os.path.lexists(path):
            from unisono.data.preprocessors import Preprocessor

            return Preprocessor.deserialize(_paths.read_text(path))
        if self._is_made() and _unisono.checkpoint_info(self.path)["is_dict"]:
            return self.to_dict().get(_PREPROCESSOR_KEY)
        return None

    def _with(self, preprocessor: Any) -> Self:
        if preprocessor is not None:
            self.set_preprocessor(preprocessor)
        return self

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Puts a fitted preprocessor in: a key of the dictionary, or a file (preprocessor.json) beside the others."""
        if self._data is not None:
            self._data[_PREPROCESSOR_KEY] = preprocessor
            return
        self._check()
        if self._is_made():
            raise ValueError("%s is a checkpoint that a run has made, which is not changed any more: make a new one" % _safe.text(self.path))
        _paths.write_text(os.path.join(self.path, PREPROCESSOR_FILE), preprocessor.serialize())

    # ---- metadata ----

    def get_metadata(self) -> dict[str, Any]:
        """The dictionary beside the files; empty when there is none."""
        try:
            return json.loads(_paths.read_text(os.path.join(self.path, METADATA_FILE)))
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Writes the dictionary beside the files."""
        _paths.write_text(os.path.join(self.path, METADATA_FILE), json.dumps(metadata))

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to the dictionary beside the files."""
        self.set_metadata(dict(self.get_metadata(), **metadata))

    @property
    def filesystem(self) -> str:
        """Always the local one."""
        return "local"

    def __fspath__(self):
        raise TypeError("a Checkpoint is not a path: use to_directory() or `with checkpoint.as_directory() as path`")

    def __repr__(self):
        if self._path is None:
            return "Checkpoint(dict with %s)" % _safe.text(", ".join(sorted(map(str, self._data))))
        return "Checkpoint(filesystem=local, path=%s)" % _safe.text(self._path)
