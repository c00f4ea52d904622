"""What a dataset's rows look like."""

from __future__ import annotations

from typing import Any

import numpy

from unisono import _safe


class Schema:
    """names and types of the columns."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields  # (name, kind, dtype, shape) as Table.schema gives them

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [field[0] for field in self.fields]

    @property
    def types(self) -> list:
        """NumPy's types; text and lists are object."""
        return [numpy.dtype(dtype) if kind == "number" else numpy.dtype(object) for _, kind, dtype, _ in self.fields]

    def _text(self, field: Any) -> str:
        _, kind, dtype, shape = field
        if kind == "number":
            return dtype + (" " + str(tuple(shape)) if shape else "")
        return "list of " + dtype if kind == "list" else kind

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __repr__(self) -> str:
        names = [_safe.text(name) for name in self.names]
        width = max([6] + [len(name) for name in names])
        lines = ["%-*s  Type" % (width, "Column"), "%-*s  ----" % (width, "------")]
        return "\n".join(lines + ["%-*s  %s" % (width, name, self._text(field)) for name, field in zip(names, self.fields)])
