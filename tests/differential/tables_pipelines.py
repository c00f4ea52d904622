"""Cases of the tables net that are pipelines: a dataset of some source and a chain of transforms, beside the same chain in pandas."""

import os

import numpy
import pandas

from tables_net import Different, check_columns, columns_of, plain
from unisono import data
from unisono.data._dataset import shard_of

MAKES_COLUMNS = ("map", "map_batches", "flat_map", "add_column", "concat_columns")
SOURCES = ["items", "csv", "json", "npy", "parquet", "pandas", "generator"]


def random_pipeline(chance):
    """Rows with an id, and what is done with them."""
    rows = chance.choice([1, 2, 7, 50, chance.randint(1, 400)])
    ops = []
    for _ in range(chance.randint(0, 5)):
        name = chance.choice(["select", "drop", "rename", "limit", "skip", "filter", "map", "map_batches", "flat_map", "add_column", "cast", "union", "repartition", "materialize",
                              "split", "concat_columns", "zip", "none_left"])
        ops.append([name, chance.randint(0, 60), chance.choice(["numpy", "pandas", "pyarrow"])])
    ends = ["rows", "batches", "shards", "shuffle", "aggregate", "pandas", "arrow", "repeat", "window", "torch_split", "take", "resume"]
    return {"kind": "pipeline", "rows": rows, "source": chance.choice(SOURCES), "ops": ops, "end": [chance.choice(ends), chance.randint(0, 2 ** 16)], "options": {}}


def _frame(rows):
    ids = numpy.arange(rows)
    return pandas.DataFrame({"id": ids.astype(numpy.int64), "x": (ids * 7 % 11) / 4.0, "s": ["t%d" % (i % 5) for i in ids], "k": (ids % 3).astype(numpy.int64)})


def _source(case, folder, frame):
    kind = case["source"]
    path = os.path.join(folder, "source." + kind)
    if kind == "csv":
        frame.to_csv(path, index=False)
        return data.read_csv(path, block_bytes=64)
    if kind == "json":
        frame.to_json(path + ".jsonl", orient="records", lines=True)
        return data.read_json(path + ".jsonl", block_bytes=64)
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=13)
        return data.read_parquet(path)
    if kind == "pandas":
        return data.from_pandas(frame)
    if kind == "npy":
        return data.from_numpy({name: frame[name].to_numpy() for name in frame.columns})
    items = frame.to_dict("records")
    return data.from_generator(lambda: iter(items), batches=False) if kind == "generator" else data.from_items(items)


def _plus(batch, number):
    """A function of batches of any format: id + number."""
    if hasattr(batch, "column_names"):
        import pyarrow.compute

        return batch.set_column(batch.column_names.index("id"), "id", pyarrow.compute.add(batch["id"], number))
    batch = dict(batch) if isinstance(batch, dict) else batch.copy()
    batch["id"] = batch["id"] + number
    return batch


def _apply(ds, frame, op):
    """One transform of both; what does not fit (a column that is gone) does nothing."""
    name, number, batch_format = op
    have = list(frame.columns)
    if name == "select":
        names = [each for each in have if each == "id" or hash_of(each, number) % 2]
        return ds.select_columns(names), frame[names]
    if name == "drop":
        names = [each for each in have if each != "id" and hash_of(each, number) % 3 == 0]
        return (ds.drop_columns(names), frame.drop(columns=names)) if names else (ds, frame)
    if name == "rename":
        old = have[number % len(have)]
        new = "r%d" % number
        return (ds, frame) if old == "id" or new in have else (ds.rename_columns({old: new}), frame.rename(columns={old: new}))
    if name == "limit":
        return ds.limit(number), frame.iloc[:number]
    if name == "skip":
        return ds.skip(number), frame.iloc[number:]
    if name == "filter":
        modulus = number % 5 + 1
        return ds.filter(lambda row: row["id"] % modulus != 0), frame[frame["id"] % modulus != 0]
    if name == "none_left":
        return (ds.filter(lambda row: row["id"] < -5), frame[frame["id"] < -5]) if number % 4 == 0 else (ds, frame)
    if name == "map":
        return ds.map(lambda row: dict(row, id=row["id"] * 2)), frame.assign(id=frame["id"] * 2)
    if name == "map_batches":
        return ds.map_batches(lambda batch: _plus(batch, number), batch_format=batch_format, batch_size=number % 20 + 1), frame.assign(id=frame["id"] + number)
    if name == "flat_map":
        copies = number % 3 + 1  # a flat_map without rows has no columns to tell
        return ds.flat_map(lambda row: [row] * copies), frame.iloc[numpy.repeat(numpy.arange(len(frame)), copies)]
    if name == "add_column":
        return (ds, frame) if "new" in have else (ds.add_column("new", lambda batch: batch["id"] * 3, batch_format="pandas"), frame.assign(new=frame["id"] * 3))
    if name == "cast":
        return ds.cast("id", "float64"), frame.assign(id=frame["id"].astype(float))
    if name == "union":
        return ds.union(ds), pandas.concat([frame, frame])
    if name == "repartition":
        try:
            return ds.repartition(number % 9 + 1), frame
        except Exception as error:
            if "stream" not in str(error):
                raise
            return ds, frame
    if name == "materialize":
        return ds.materialize(), frame
    if name == "split":
        at = sorted([number, number * 2 // 3])
        parts = ds.split_at_indices(at)
        return parts[0].union(*parts[1:]), frame
    if name == "concat_columns":
        return (ds, frame) if "k" not in have or "both" in have else (ds.add_column("both", lambda batch: batch["k"] + 0, batch_format="numpy"), frame.assign(both=frame["k"]))
    names = {each: each + "_1" for each in have}
    return (ds, frame) if set(have) & set(names.values()) or len(have) > 4 else (ds.zip(ds), pandas.concat([frame, frame.rename(columns=names)], axis=1) if len(frame) == 0 or
                                                                                   frame.index.is_unique else _beside(frame, names))


def _beside(frame, names):
    plain_ = frame.reset_index(drop=True)
    return pandas.concat([plain_, plain_.rename(columns=names)], axis=1)


def hash_of(text, number):
    """The same in every process."""
    return sum(map(ord, text)) * 31 + number


def _rows(frame):
    return {name: frame[name].tolist() for name in frame.columns}


def _sorted(columns):
    names = list(columns)
    return sorted(repr([plain(columns[name][row]) for name in names]) for row in range(len(columns[names[0]]) if names else 0))


def _multiset(ours, theirs):
    if list(ours) != list(theirs) or _sorted(ours) != _sorted(theirs):
        raise Different("not the same rows: %d here, %d there" % (len(next(iter(ours.values()), [])), len(next(iter(theirs.values()), []))))


def _joined(parts):
    out = {}
    for part in parts:
        for name, values in part.items():
            out.setdefault(name, []).extend(values)
    return out


def check_pipeline(case, folder):
    """The same chain in unisono and in pandas."""
    frame = _frame(case["rows"])
    ds = _source(case, folder, frame)
    for op in case["ops"]:
        if len(frame) > 3000 and op[0] in ("union", "flat_map"):
            continue
        if len(frame) == 0 and op[0] in MAKES_COLUMNS:
            continue  # a function that was never called has not told its columns
        ds, frame = _apply(ds, frame, op)
    end, number = case["end"]
    want = _rows(frame)
    if ds.columns() != list(want):
        raise Different("columns %s here, %s there" % (ds.columns(), list(want)))
    if ds.count() != len(frame):
        raise Different("%d rows here, %d there" % (ds.count(), len(frame)))
    ENDS[end](ds, frame, want, number)


def _end_rows(ds, frame, want, number):
    rows = list(ds.iter_rows())
    check_columns({name: [row[name] for row in rows] for name in want}, want)


def _end_batches(ds, frame, want, number):
    size, drop = number % 30 + 1, number % 2 == 1
    sizes = [len(batch["id"]) for batch in ds.iter_batches(batch_size=size, drop_last=drop)]
    whole, rest = divmod(len(frame), size)
    if sizes != [size] * whole + ([rest] if rest and not drop else []):
        raise Different("batches of %s for %d rows by %d, drop_last=%s" % (sizes[-3:], len(frame), size, drop))
    if not drop:
        check_columns(columns_of(ds, batch_size=size), want)


def _end_shards(ds, frame, want, number):
    count = number % 4 + 1
    shards = [shard_of(ds, rank, count, equal=number % 2 == 1) for rank in range(count)]
    parts = [columns_of(shard, batch_size=number % 9 + 1) for shard in shards]
    if len(frame) < count * (number % 9 + 1):
        return  # fewer rows than one for each batch of each: some may be left out, which is said
    _multiset(_joined(parts) if any(parts) else {}, want)


def _end_shuffle(ds, frame, want, number):
    shuffled = ds.random_shuffle(seed=number)
    _multiset(columns_of(shuffled, batch_size=7), want)
    again = ds.random_shuffle(seed=number)
    one, other = columns_of(again, batch_size=7), columns_of(ds.random_shuffle(seed=number), batch_size=7)
    check_columns(one, other)
    _multiset(columns_of(ds, batch_size=7, local_shuffle_buffer_size=number % 50 + 1, local_shuffle_seed=1), want)


def _end_aggregate(ds, frame, want, number):
    for name in ("id", "x", "k"):
        if name not in want:
            continue
        for what, there in (("sum", frame[name].sum()), ("min", frame[name].min()), ("max", frame[name].max()), ("mean", frame[name].mean()), ("std", frame[name].std())):
            here, there = plain(getattr(ds, what)(name)), plain(there)
            there = None if len(frame) == 0 else there
            close = here == there or here is not None and there is not None and abs(here - there) <= 1e-9 * max(1.0, abs(there))
            if not close:
                raise Different("%s(%s): %r here, %r there" % (what, name, here, there))
        if [plain(value) for value in ds.unique(name)] != [plain(value) for value in frame[name].unique()]:
            raise Different("unique(%s)" % name)


def _end_pandas(ds, frame, want, number):
    got = ds.to_pandas()
    check_columns(_rows(got), want)
    kinds = [got[name].dtype.kind for name in got.columns]
    if len(frame) and kinds != [frame[name].dtype.kind for name in frame.columns]:
        raise Different("types %s here, %s there" % (kinds, [frame[name].dtype.kind for name in frame.columns]))


def _end_arrow(ds, frame, want, number):
    got = ds.to_arrow()
    check_columns({name: got[name].to_pylist() for name in got.column_names}, want)


def _end_repeat(ds, frame, want, number):
    times = number % 3 + 1
    rows = ds.repeat(times).take_all()
    check_columns({name: [row[name] for row in rows] for name in want}, {name: values * times for name, values in want.items()})


def _end_window(ds, frame, want, number):
    rows = list(ds.window(blocks_per_window=number % 3 + 1).iter_rows())
    check_columns({name: [row[name] for row in rows] for name in want}, want)


def _end_split(ds, frame, want, number):
    if len(frame) < 4:
        return
    train, test = ds.train_test_split(0.25, shuffle=number % 2 == 1, seed=number)
    both = _joined([columns_of(train), columns_of(test)])
    _multiset(both, want) if number % 2 else check_columns(both, want)
    parts = ds.split(number % 3 + 1)
    check_columns(_joined([columns_of(part) for part in parts]), want)


def _end_take(ds, frame, want, number):
    count = number % 70
    rows = ds.take(count)
    check_columns({name: [row[name] for row in rows] for name in want}, {name: values[:count] for name, values in want.items()})


def _end_resume(ds, frame, want, number):
    """A pass that is left in the middle, and goes on in another dataset of the same recipe."""
    shuffled = ds.random_shuffle(seed=number) if number % 2 else ds
    loader = shuffled.iter_batches(batch_size=number % 11 + 1)
    first = []
    for _ in range(number % 7):
        try:
            first.append(next(loader))
        except StopIteration:
            return
    state = shuffled.state_dict()
    again = shuffled._copy()
    again.load_state_dict(state)
    rest = list(again.iter_batches(batch_size=5))
    loader.close()
    both = {name: [value for batch in first + rest for value in list(batch[name])] for name in want}
    _multiset(both, want) if number % 2 else check_columns(both, want)


ENDS = {"rows": _end_rows, "batches": _end_batches, "shards": _end_shards, "shuffle": _end_shuffle, "aggregate": _end_aggregate, "pandas": _end_pandas, "arrow": _end_arrow,
        "repeat": _end_repeat, "window": _end_window, "torch_split": _end_split, "take": _end_take, "resume": _end_resume}
KINDS = {"pipeline": (random_pipeline, check_pipeline, 8)}
