"""Tables of unusual shapes for the tables net: a thousand columns, rows of megabytes, and filters that leave no rows."""

import pandas
from tables_net import check_columns, columns_of, write

from unisono import data


def random_shape(chance):
    """A case as JSON."""
    shape = chance.choice(("wide", "large", "none"))
    return {"kind": "shape", "shape": shape, "rows": chance.randrange(1, 6), "columns": chance.randrange(900, 1100), "size": chance.randrange(1 << 18, 1 << 21),
            "limit": chance.randrange(0, 7), "text": chance.random() < 0.5}


def _frame(case):
    rows = range(case["rows"])
    if case["shape"] == "wide":
        value = (lambda row, column: "t%d_%d" % (row, column)) if case["text"] else (lambda row, column: row * 7 + column)
        return pandas.DataFrame({"c%d" % column: [value(row, column) for row in rows] for column in range(case["columns"])})
    if case["shape"] == "large":
        return pandas.DataFrame({"id": list(rows), "text": [chr(97 + row) * (case["size"] + row) for row in rows]})
    return pandas.DataFrame({"id": list(rows), "x": [row / 2 for row in rows]})


def check_shape(case, folder):
    """CSV written by pandas; all rows, and the first ones; behind an empty filter the columns of a map."""
    frame = _frame(case)
    ds = data.read_csv(write(folder, "shape.csv", frame.to_csv(index=False).encode()))
    if case["shape"] == "none":
        made = ds.filter(lambda row: row["id"] < 0).map(lambda row: {"y": row["x"] * 2, "id": row["id"]})
        wanted = frame[frame["id"] < 0].assign(y=frame["x"] * 2)[["y", "id"]]
        if (made.columns(), made.count(), len(made.to_pandas())) != (list(wanted.columns), 0, 0):
            raise AssertionError("columns %s, %d rows" % (made.columns(), made.count()))
        if made.select_columns(["y"]).columns() != ["y"]:
            raise AssertionError("select of y: %s" % made.select_columns(["y"]).columns())
        return
    check_columns(columns_of(ds), {name: frame[name].tolist() for name in frame})
    first, head = ds.filter(lambda row: True).limit(case["limit"]), frame.head(case["limit"])
    if first.count() != len(head):
        raise AssertionError("limit: %d rows, not %d" % (first.count(), len(head)))
    if len(head):
        check_columns(columns_of(first), {name: head[name].tolist() for name in head})


KINDS = {"shape": (random_shape, check_shape, 1)}
