"""TorchCheckpoint: a Checkpoint that knows how to make a PyTorch model of itself."""

from __future__ import annotations

import os
from typing import Any

from unisono import _safe
from unisono._arguments import strict_class
from unisono.train._checkpoint import Checkpoint, new_folder

_FILE = "model.pt"


@strict_class()
class TorchCheckpoint(Checkpoint):
    """from_state_dict(state) or from_model(model): the model's state_dict is stored, as data; get_model(model) puts it into a model."""

    @classmethod
    def from_state_dict(cls, state_dict: Any, *, preprocessor: Any = None) -> TorchCheckpoint:
        """The weights of a state_dict."""
        import torch

        folder = new_folder()
        torch.save(state_dict, os.path.join(folder, _FILE))
        return cls(folder)._with(preprocessor)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TorchCheckpoint:
        """Its state_dict (a model is code; pickling that is not offered)."""
        return cls.from_state_dict(model.state_dict(), preprocessor=preprocessor)

    def get_model(self, model: Any = None) -> Any:
        """`model` with the weights of this checkpoint."""
        import torch

        if model is None:
            raise ValueError("this checkpoint has only the weights: give get_model the model that they belong to")
        with self.as_directory() as folder:
            state = _load(torch, os.path.join(folder, _FILE))
        prefix = "module."
        model.load_state_dict({key[len(prefix):] if key.startswith(prefix) else key: value for key, value in state.items()})
        return model


def _opened(path: str) -> Any:
    """The file to read, or None if it is not a regular file. One that others can write to is copied into memory: it could change after it was checked."""
    import io
    import stat

    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    about = os.fstat(file.fileno())
    if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022:
        return file
    with file:
        return io.BytesIO(file.read()) if stat.S_ISREG(about.st_mode) else None


def _load(torch: Any, path: str) -> Any:
    """The state_dict in a file; nothing in the file is run.

    torch's weights_only reads only its zip format safely: before 2.6 a file of the older formats (tar) ran code in spite of it (CVE-2025-32434), and an
    archive of TorchScript is handed to another loader. What is checked is what is read: the path may lead to another file a moment later.
    """
    import inspect
    import zipfile

    if "weights_only" not in inspect.signature(torch.load).parameters:
        raise ImportError("torch %s can only read weights by running what the file says; torch 1.13 or later reads them as data" % torch.__version__)
    file = _opened(path)
    is_zip = file is not None and file.read(4) == b"PK\x03\x04"
    if not is_zip or any(name.rpartition("/")[2] == "constants.pkl" for name in zipfile.ZipFile(file).namelist()):
        raise ValueError("%s is not a file of torch.save (its zip format, the default since torch 1.6); others are not read, because they can run code" % _safe.text(str(path)))
    with file:
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
