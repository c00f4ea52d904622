"""What a dataset's rows look like."""

import numpy


class Schema:
    """names and types of the columns."""

    def __init__(self, fields):
        self.fields = fields  # (name, kind, dtype, shape) as Table.schema gives them

    @property
    def names(self):
        return [field[0] for field in self.fields]

    @property
    def types(self):
        """NumPy's types; text and lists are object."""
        return [numpy.dtype(dtype) if kind == "number" else numpy.dtype(object) for _, kind, dtype, _ in self.fields]

    def _text(self, field):
        _, kind, dtype, shape = field
        if kind == "number":
            return dtype + (" " + str(tuple(shape)) if shape else "")
        return "list of " + dtype if kind == "list" else kind

    def __eq__(self, other):
        return isinstance(other, Schema) and self.fields == other.fields

    def __repr__(self):
        width = max([6] + [len(name) for name in self.names])
        lines = ["%-*s  Type" % (width, "Column"), "%-*s  ----" % (width, "------")]
        return "\n".join(lines + ["%-*s  %s" % (width, field[0], self._text(field)) for field in self.fields])
