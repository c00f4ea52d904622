"""TorchCheckpoint: a Checkpoint that knows how to make a PyTorch model of itself."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from unisono._arguments import strict_class
from unisono.train._checkpoint import Checkpoint

_FILE = "model.pt"


@strict_class()
class TorchCheckpoint(Checkpoint):
    """from_state_dict(state) or from_model(model): the model's state_dict is stored, as data; get_model(model) puts it into a model."""

    @classmethod
    def from_state_dict(cls, state_dict: Any, *, preprocessor: Any = None) -> "TorchCheckpoint":
        """The weights of a state_dict."""
        import torch

        folder = tempfile.mkdtemp(prefix="checkpoint_")
        torch.save(state_dict, os.path.join(folder, _FILE))
        return cls(folder)._with(preprocessor)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> "TorchCheckpoint":
        """Its state_dict (a model is code; pickling that is not offered)."""
        return cls.from_state_dict(model.state_dict(), preprocessor=preprocessor)

    def get_model(self, model: Any = None) -> Any:
        """`model` with the weights of this checkpoint."""
        import torch

        if model is None:
            raise ValueError("this checkpoint has only the weights: give get_model the model that they belong to")
        with self.as_directory() as folder:
            state = torch.load(os.path.join(folder, _FILE), map_location="cpu", **_safely(torch))
        prefix = "module."
        model.load_state_dict({key[len(prefix):] if key.startswith(prefix) else key: value for key, value in state.items()})
        return model


def _safely(torch: Any) -> dict[str, bool]:
    """Nothing in the file is run, where torch can read it so (1.13 and later)."""
    import inspect

    return {"weights_only": True} if "weights_only" in inspect.signature(torch.load).parameters else {}
