"""The modules that TensorFlow's AutoGraph writes, in a directory of the run.

AutoGraph writes every function that it converts to the temporary directory and removes the files when the process exits. A worker that fails or is
killed never comes to that. In workers these files, and no others, are in the run's staging directory, which the library removes however a worker ends.
"""

from __future__ import annotations

import tempfile
from types import SimpleNamespace
from typing import Any

from unisono._imported import when_imported

LOADER = "tensorflow.python.autograph.pyct.loader"


class _Run:
    """The run that this worker works for."""

    session: Any = None
    folder: str | None = None  # None: not made yet, or there is no run


_run = _Run()
_prepared: list[bool] = []


def _named_temporary_file(*arguments: Any, **keywords: Any) -> Any:
    if _run.folder is None and _run.session is not None:
        _run.folder = _run.session.checkpoint_dir()
    keywords.setdefault("dir", _run.folder)  # between runs: the usual directory
    return tempfile.NamedTemporaryFile(*arguments, **keywords)


def _change(loader: Any) -> None:
    if "tempfile" in vars(loader):  # otherwise another TensorFlow, with ways of its own
        loader.tempfile = SimpleNamespace(**{**vars(tempfile), "NamedTemporaryFile": _named_temporary_file})


def begin(session: Any) -> None:
    """Before the train function. Each run has its own directory."""
    _run.session, _run.folder = session, None
    if not _prepared:
        _prepared.append(True)
        when_imported(LOADER, _change)


def end() -> None:
    """After it: the directory does not outlive the run."""
    _run.session = _run.folder = None
