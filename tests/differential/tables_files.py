"""Cases of the tables net that are files: CSV beside pandas and pyarrow, JSON lines beside json and pyarrow, npy beside NumPy, TFRecords beside what was written, Parquet and Arrow
beside pyarrow. A case is made by random numbers, written by others than unisono, and read by both."""

import csv
import gzip
import io
import json
import os
import struct
import sys

import numpy
import pandas
import pyarrow
import pyarrow.json
import pyarrow.parquet

import unisono
from tables_net import Different, check_column, check_columns, columns_of, plain, write
from unisono import data

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
from data_files import field, record, varint

WORDS = ["a", "b c", "x,y", "quo\"te", "it's", "\u00e9t\u00e9", "\u65e5\u672c", "tab\there", "two\nlines", "-", "0x10", "1_0", "--1", "1e", "abc" * 9, ";", "|", "#", "nanx", "TRUEX"]
NULLS = ["", "NA", "nan", "n/a", "-nan", "1.#IND", "NULL", "null", "None", "<NA>", "#N/A"]
NAMES = ["a", "b", "long name", "\u00fc", "x", "y", "0", "A"]


def _int(chance):
    return str(chance.choice([0, 1, -1, 7, 42, -300, 65536, 2 ** 31, -2 ** 31, 2 ** 53, 2 ** 53 - 1, chance.randint(-10 ** 6, 10 ** 6)]))


def _float(chance):
    value = chance.choice([0.0, 0.5, -1.25, 3.0, 1e300, 1e-300, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, chance.uniform(-1e6, 1e6), chance.gauss(0, 1)])
    return chance.choice([repr, lambda v: "%.17g" % v, lambda v: "%.3f" % v if abs(v) < 1e15 else repr(v), lambda v: ("%e" % v)])(value)


def _odd_number(chance):
    return chance.choice(["+5", ".5", "5.", "1e5", "1E-3", "-0", "-0.0", "007", "inf", "-inf", " 5", "5 ", "Infinity", "1e400", "123456789.123456789123456789"])


def _cell(chance, kind):
    if kind == "int":
        return _int(chance)
    if kind == "float":
        return _float(chance)
    if kind == "odd":
        return chance.choice([_odd_number, _int, _float])(chance)
    if kind == "bool":
        return chance.choice(["true", "false", "True", "False", "TRUE", "FALSE"])
    return chance.choice(WORDS + [_int(chance)])


def random_csv(chance):
    """Columns of cells as texts, and how they are written."""
    count, rows = chance.randint(1, 5), chance.choice([1, 1, 2, 3, 8, 30, chance.randint(1, 120)])
    columns = []
    for name in chance.sample(NAMES, count):
        kind = chance.choice(["int", "int", "float", "odd", "bool", "text", "text"])
        missing = chance.choice([0, 0, 0, 0.2, 0.9]) if kind != "bool" else 0
        cells = [chance.choice(NULLS) if chance.random() < missing else _cell(chance, kind) for _ in range(rows)]
        if chance.random() < 0.4:  # one that is not like the others, at the end more often than elsewhere
            cells[chance.choice([-1, -1, chance.randrange(rows)])] = _cell(chance, chance.choice(["int", "float", "odd", "bool", "text"]))
        columns.append({"name": name, "kind": kind, "cells": cells})
    options = {}
    if chance.random() < 0.3:
        options["delimiter"] = chance.choice(";\t|")
    if chance.random() < 0.2:
        options["quotechar"] = "'"
    if chance.random() < 0.2:
        options["quoting"] = csv.QUOTE_ALL
    if chance.random() < 0.3:
        options["newline"] = "\r\n"
    if chance.random() < 0.4:
        options["last_newline"] = False
    if chance.random() < 0.2:
        options["header"] = None
    if chance.random() < 0.15:
        options["encoding"] = chance.choice(["latin-1", "cp1252"])
    if chance.random() < 0.15:
        options["bom"] = True
    if chance.random() < 0.1:
        options["blank_lines"] = True
    if chance.random() < 0.15:
        options["gz"] = True
    if chance.random() < 0.5:
        options["block_bytes"] = chance.choice([1, 3, 10, 40, 200])
    return {"kind": "csv", "columns": columns, "options": options}


def _csv_bytes(case):
    options = case["options"]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=options.get("delimiter", ","), quotechar=options.get("quotechar", '"'), quoting=options.get("quoting", csv.QUOTE_MINIMAL),
                        lineterminator=options.get("newline", "\n"))
    lines = [] if "header" in options else [[column["name"] for column in case["columns"]]]
    lines += [list(row) for row in zip(*(column["cells"] for column in case["columns"]))]
    for line in lines:
        writer.writerow(line)
        if options.get("blank_lines") and len(line[0]) == 1:
            out.write(options.get("newline", "\n"))
    text = out.getvalue()
    if not options.get("last_newline", True):
        text = text.rstrip("\r\n") or text
    raw = text.encode(options.get("encoding", "utf-8"), "replace")
    return b"\xef\xbb\xbf" + raw if options.get("bom") and "encoding" not in options else raw


def _blank_records(case):
    """A record of one empty cell that is not quoted is an empty line, which nobody can tell."""
    return len(case["columns"]) == 1 and case["options"].get("quoting") != csv.QUOTE_ALL and any(cell == "" for cell in case["columns"][0]["cells"])


def check_csv(case, folder):
    """unisono and pandas read the same file."""
    if _blank_records(case):
        return
    options = case["options"]
    raw = _csv_bytes(case)
    path = write(folder, "case.csv", raw)
    if options.get("gz"):
        path = write(folder, "case.csv.gz", gzip.compress(raw))
    given = {"sep": options.get("delimiter", ","), "quotechar": options.get("quotechar", '"'), "header": options.get("header", 0), "encoding": options.get("encoding", "utf-8")}
    ours = data.read_csv(path, block_bytes=options.get("block_bytes"), **given)
    theirs = pandas.read_csv(path, float_precision="round_trip", low_memory=False, **given)
    texts = pandas.read_csv(path, dtype=str, na_filter=False, **given)
    names = ["f%d" % i for i in range(len(case["columns"]))] if "header" in options else list(theirs.columns)
    if ours.columns() != [str(name) for name in names]:
        raise Different("columns %s here, %s there" % (ours.columns(), names))
    if ours.count() != len(theirs):
        raise Different("%d rows here, %d there" % (ours.count(), len(theirs)))
    columns = columns_of(ours)
    for (name, kind, _, _), there in zip(ours.schema().fields, theirs.columns):
        _check_csv_column(name, kind, columns[name], theirs[there], texts[there])


def _check_csv_column(name, kind, ours, theirs, texts):
    numbers = theirs.dtype.kind in "iuf"
    if kind == "number" and not numbers and theirs.dtype.kind != "b":
        raise Different("column %r is a number here and %s in pandas" % (name, theirs.dtype))
    if kind == "string" and theirs.dtype.kind == "b":
        raise Different("column %r is text here and bool in pandas" % name)
    if kind == "string" and numbers and not _may_stay_text(theirs, texts):
        raise Different("column %r is text here and %s in pandas" % (name, theirs.dtype))
    check_column(name, ours, texts if kind == "string" else theirs)


def _may_stay_text(theirs, texts):
    """Whole numbers that floating point would round are never rounded here (docs/data.md)."""
    whole = [text.strip() for text in texts if text.strip().lstrip("+-").isdigit()]
    return any(abs(int(text)) > 2 ** 53 for text in whole)


# ---- JSON lines ----


def _json_value(chance, kind):
    if kind == "int":
        return int(_int(chance))
    if kind == "float":
        return chance.choice([0.5, -1.25, 1e300, 5e-324, 1 / 3, chance.gauss(0, 1), 3.0])
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "vector":
        return [chance.randint(-9, 9) for _ in range(3)]
    if kind == "list":
        return [chance.choice([1, -7, 2 ** 40]) for _ in range(chance.randint(0, 4))]
    if kind == "object":
        return {"k": chance.randint(0, 9), "l": [None, True, "x"]}
    return chance.choice(WORDS + ["\u0001", "\U0001f600", "/", "\\", "\u2028"])


def random_json(chance):
    """Columns of values; None is null, and a missing key is a cell that is "absent"."""
    rows, columns = chance.choice([1, 2, 5, 40]), []
    for name in chance.sample(NAMES, chance.randint(1, 5)):
        kind = chance.choice(["int", "float", "bool", "text", "text", "vector", "list", "object"])
        missing = chance.choice([0, 0, 0.3]) if kind in ("int", "float", "text", "bool") else 0
        columns.append({"name": name, "kind": kind, "cells": [None if chance.random() < missing else _json_value(chance, kind) for _ in range(rows)]})
    options = {}
    if chance.random() < 0.5:
        options["block_bytes"] = chance.choice([5, 30, 200])
    if chance.random() < 0.3:
        options["absent"] = True
    if chance.random() < 0.3:
        options["ascii"] = True
    if chance.random() < 0.3:
        options["last_newline"] = False
    if chance.random() < 0.2:
        options["blank_lines"] = True
    return {"kind": "json", "columns": columns, "options": options}


def check_json(case, folder):
    """unisono, the json module, and for plain values pyarrow."""
    options = case["options"]
    lines = []
    for row in zip(*(column["cells"] for column in case["columns"])):
        pairs = {column["name"]: cell for column, cell in zip(case["columns"], row) if cell is not None or not options.get("absent") or not lines}
        lines.append(json.dumps(pairs, ensure_ascii=bool(options.get("ascii"))))
    text = ("\n\n" if options.get("blank_lines") else "\n").join(lines) + ("" if options.get("last_newline") is False else "\n")
    path = write(folder, "case.jsonl", text.encode())
    ours = data.read_json(path, block_bytes=options.get("block_bytes"))
    columns = columns_of(ours)
    theirs = {column["name"]: column["cells"] for column in case["columns"]}
    if ours.columns() != list(theirs) or ours.count() != len(lines):
        raise Different("columns %s of %d rows here, %s of %d there" % (ours.columns(), ours.count(), list(theirs), len(lines)))
    for column in case["columns"]:
        values = columns[column["name"]]
        if column["kind"] == "object":
            values = [None if value is None else json.loads(value) for value in values]
        check_column(column["name"], values, column["cells"])
    if all(column["kind"] in ("int", "float", "bool", "text") for column in case["columns"]) and len(lines) > 0:
        table = pyarrow.json.read_json(path)
        for name in table.column_names:
            check_column(name, columns[name], table[name].to_pylist())


# ---- npy ----


def random_npy(chance):
    """A dtype, a shape and an order."""
    dtype = chance.choice(["<f4", "<f8", ">f8", ">f4", "<i8", ">i4", "<i2", "|i1", "|u1", "<u2", ">u2", "<u4", "<u8", "|b1"])
    shape = [chance.choice([1, 2, 7, 60])] + [chance.choice([1, 2, 3, 5]) for _ in range(chance.choice([0, 0, 1, 2, 3]))]
    return {"kind": "npy", "dtype": dtype, "shape": shape, "options": {key: True for key in ("fortran", "npz", "shuffle", "compressed") if chance.random() < 0.25},
            "seed": chance.randrange(2 ** 31), "version": chance.choice([1, 2, 3])}


def check_npy(case, folder):
    """unisono and numpy.load."""
    options, random = case["options"], numpy.random.default_rng(case["seed"])
    values = random.integers(0, 256, size=tuple(case["shape"]) + (numpy.dtype(case["dtype"]).itemsize,), dtype=numpy.uint8)
    array = (values[..., 0] % 2 == 1) if case["dtype"] == "|b1" else numpy.frombuffer(values.tobytes(), dtype=case["dtype"]).reshape(case["shape"])
    array = numpy.asfortranarray(array) if options.get("fortran") else array
    path = os.path.join(folder, "case.npz" if options.get("npz") else "case.npy")
    if options.get("npz"):
        (numpy.savez_compressed if options.get("compressed") else numpy.savez)(path, first=array, second=array[::-1])
    else:
        with open(path, "wb") as file:
            numpy.lib.format.write_array(file, array, version=(case["version"], 0))
    loaded = numpy.load(path)
    theirs = dict(loaded) if options.get("npz") else {"data": loaded}
    try:
        ds = data.read_numpy(path)
    except unisono.Error as error:  # what is refused says what to do instead
        refused = (("ascontiguousarray", options.get("fortran")), ("newbyteorder", case["dtype"][0] == ">"), ("np.savez ", options.get("compressed") and options.get("npz")))
        if error.code == "EUNSUPPORTED" and any(words in str(error) for words, may in refused if may):
            return
        raise
    ours = columns_of(ds, batch_size=chance_batch(case["seed"]))
    if options.get("shuffle"):
        rows = ds.random_shuffle(seed=case["seed"]).take_all()
        for name in theirs:
            check_column(name + " shuffled", sorted(repr(plain(row[name])) for row in rows), sorted(repr(plain(value)) for value in theirs[name]))
    check_columns(ours, {name: list(theirs[name]) for name in ours})


def chance_batch(seed):
    """A batch size that the seed says."""
    return [1, 3, 16, 256][seed % 4]


# ---- TFRecord ----


def random_tfrecord(chance):
    """Features of one length, or of several."""
    rows, columns = chance.choice([1, 2, 9, 40]), []
    for name in chance.sample(NAMES, chance.randint(1, 4)):
        kind, size = chance.choice(["int64", "float", "bytes"]), chance.choice([1, 1, 3, -1])
        cells = []
        for _ in range(rows):
            count = size if size > 0 else chance.randint(0, 4)
            if kind == "bytes":
                cells.append([chance.choice(["", "x", "\u00e9", "a\u0000b", "long" * 20])])
            elif kind == "float":
                cells.append([float(numpy.float32(chance.choice([0.0, -1.5, 1e30, chance.gauss(0, 1)]))) for _ in range(count)])
            else:
                cells.append([chance.choice([0, -1, 2 ** 63 - 1, -2 ** 63, chance.randint(-99, 99)]) for _ in range(count)])
        columns.append({"name": name, "kind": kind, "cells": cells})
    return {"kind": "tfrecord", "columns": columns, "options": {key: True for key in ("unpacked", "gz", "swapped") if chance.random() < 0.25} |
            ({"block_bytes": chance.choice([20, 100, 500])} if chance.random() < 0.5 else {})}


def _feature(kind, values, unpacked):
    if kind == "bytes":
        return field(1, b"".join(field(1, value.encode()) for value in values))
    if kind == "float":
        body = b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in values) if unpacked else field(1, struct.pack("<%df" % len(values), *values))
        return field(2, body)
    body = b"".join(varint(1 << 3) + varint(value) for value in values) if unpacked else field(1, b"".join(map(varint, values)))
    return field(3, body)


def check_tfrecord(case, folder):
    """unisono and what was written, by the text of the format."""
    options, raw = case["options"], b""
    for row in zip(*(column["cells"] for column in case["columns"])):
        entries = []
        for column, values in zip(case["columns"], row):
            parts = [field(1, column["name"].encode()), field(2, _feature(column["kind"], values, options.get("unpacked")))]
            entries.append(field(1, b"".join(reversed(parts) if options.get("swapped") else parts)))
        raw += record(field(1, b"".join(entries)))
    path = write(folder, "case.tfrecord", raw)
    if options.get("gz"):
        path = write(folder, "case.tfrecord.gz", gzip.compress(raw))
    ours = data.read_tfrecords(path, block_bytes=options.get("block_bytes"))
    columns = columns_of(ours)
    if sorted(columns) != sorted(column["name"] for column in case["columns"]):
        raise Different("columns %s here, %s there" % (sorted(columns), sorted(column["name"] for column in case["columns"])))
    for column in case["columns"]:
        kind = next(field_[1] for field_ in ours.schema().fields if field_[0] == column["name"])
        scalar = kind in ("string", "binary") or kind == "number" and all(numpy.ndim(value) == 0 for value in columns[column["name"]])
        want = [values[0] if scalar else values for values in column["cells"]]
        want = [value.encode() for value in want] if column["kind"] == "bytes" else want
        check_column(column["name"], columns[column["name"]], want)


# ---- Parquet and Arrow ----


def random_parquet(chance):
    """Typed columns with nulls, in row groups."""
    rows, columns = chance.choice([1, 3, 20, 100]), []
    for name in chance.sample(NAMES, chance.randint(1, 5)):
        kind = chance.choice(["int64", "int32", "uint8", "float32", "float64", "string", "large_string", "binary", "bool", "list", "dictionary"])
        missing = chance.choice([0, 0, 0.3])
        values = {"list": lambda: [chance.randint(0, 9) for _ in range(chance.randint(0, 3))], "uint8": lambda: chance.randint(0, 255), "int32": lambda: chance.randint(-2 ** 31, 2 ** 31 - 1),
                  "int64": lambda: chance.choice([2 ** 62, -2 ** 63, 5, chance.randint(-9, 9)]), "bool": lambda: chance.random() < 0.5,
                  "float64": lambda: chance.choice([0.5, 1 / 3, -1e300]), "float32": lambda: float(numpy.float32(chance.gauss(0, 1))),
                  "binary": lambda: chance.choice(["", "x", "\u00e9"])}.get(kind, lambda: chance.choice(WORDS))
        columns.append({"name": name, "kind": kind, "cells": [None if chance.random() < missing else values() for _ in range(rows)]})
    return {"kind": "parquet", "columns": columns, "options": {"group": chance.choice([1, 7, 1000])} | ({"arrow": True} if chance.random() < 0.3 else {})}


def check_parquet(case, folder):
    """unisono and pyarrow."""
    arrays = []
    for column in case["columns"]:
        kind = {"list": pyarrow.list_(pyarrow.int64()), "dictionary": pyarrow.string(), "bool": pyarrow.bool_()}.get(column["kind"]) or getattr(pyarrow, column["kind"])()
        cells = [cell.encode() if column["kind"] == "binary" and cell is not None else cell for cell in column["cells"]]
        made = pyarrow.array(cells, kind)
        arrays.append(made.dictionary_encode() if column["kind"] == "dictionary" else made)
    table = pyarrow.table(arrays, names=[column["name"] for column in case["columns"]])
    path = os.path.join(folder, "case.parquet")
    pyarrow.parquet.write_table(table, path, row_group_size=case["options"].get("group", 1000))
    ours = data.from_arrow(table) if case["options"].get("arrow") else data.read_parquet(path)
    check_columns(columns_of(ours), {name: table[name].to_pylist() for name in table.column_names})
    back = ours.to_arrow()
    check_columns({name: back[name].to_pylist() for name in back.column_names}, {name: table[name].to_pylist() for name in table.column_names})


KINDS = {"csv": (random_csv, check_csv, 8), "json": (random_json, check_json, 4), "npy": (random_npy, check_npy, 2), "tfrecord": (random_tfrecord, check_tfrecord, 3),
         "parquet": (random_parquet, check_parquet, 2)}
