"""What the parts of the tables net share: cases that are plain data, how two tables are compared value by value, and how a failing case is made smaller."""

import copy
import json
import math
import os

import numpy


class Different(AssertionError):
    """Two readers do not agree."""


def plain(value):
    """A cell as Python has it: NaN, NA and None are None, arrays are lists."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, numpy.ndarray):
        return [plain(each) for each in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def same(one, other):
    """Equal, and of one kind: True is not 1, text is not bytes. Whole numbers equal the floating point that is exactly they."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) != isinstance(other, bool) or isinstance(one, (str, bytes)) and type(one) is not type(other):
        return False
    return one == other


def check_column(name, ours, theirs):
    """Value by value."""
    ours, theirs = [plain(value) for value in ours], [plain(value) for value in theirs]
    if len(ours) != len(theirs):
        raise Different("column %r: %d rows here, %d there" % (name, len(ours), len(theirs)))
    for row, (one, other) in enumerate(zip(ours, theirs)):
        if not same(one, other):
            raise Different("column %r, row %d: %r here, %r there" % (name, row, one, other))


def check_columns(ours, theirs):
    """Dictionaries of columns."""
    if list(ours) != list(theirs):
        raise Different("columns %s here, %s there" % (list(ours), list(theirs)))
    for name in ours:
        check_column(name, ours[name], theirs[name])


def columns_of(dataset, **options):
    """All rows of a dataset, as columns, by way of batches."""
    out = {name: [] for name in dataset.columns()}
    for batch in dataset.iter_batches(**options):
        for name, values in batch.items():
            out[name] += list(values)
    return out


# ---- smaller cases ----


def _shorter(values):
    """Lists with less in them, the largest cuts first."""
    size = len(values)
    part = size
    while part > 0:
        for begin in range(0, size, part):
            yield values[:begin] + values[begin + part:]
        part //= 2


def smaller(case):
    """Cases like this one with less in them. What a kind of case needs is in its own `shrink`."""
    for key in ("ops", "columns"):
        for less in _shorter(case.get(key, [])):
            if less or key == "ops":
                yield dict(copy.deepcopy(case), **{key: copy.deepcopy(less)})
    columns = case.get("columns", [])
    rows = max([len(column["cells"]) for column in columns] or [0])
    part = rows
    while part > 0:
        for begin in range(0, rows, part):
            made = copy.deepcopy(case)
            for column in made["columns"]:
                del column["cells"][begin:begin + part]
            if all(column["cells"] for column in made["columns"]):
                yield made
        part //= 2
    for key in list(case.get("options", {})):
        made = copy.deepcopy(case)
        del made["options"][key]
        yield made


def shrink(case, fails, most=400):
    """The smallest case that still fails, as far as `most` tries go."""
    tries, found = 0, True
    while found and tries < most:
        found = False
        for less in smaller(case):
            tries += 1
            if tries > most:
                break
            if fails(less):
                case, found = less, True
                break
    return case


def as_text(case):
    """A case on one line, for --replay."""
    return json.dumps(case, sort_keys=True)


def write(folder, name, content):
    """A file of a case."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(content)
    return path
