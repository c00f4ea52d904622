"""Datasets in Python without a framework: readers, transforms, order, shards, resume, bad data."""

import gzip
import json
import os
import pickle
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cloudpickle
import numpy

import support
import unisono
from unisono import data
from unisono.data._dataset import shard_of

try:
    import pandas
except ImportError:
    pandas = None
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None
try:
    from PIL import Image
except ImportError:
    Image = None


def crc32c(data_):
    crc = 0xFFFFFFFF
    for byte in data_:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def masked(data_):
    crc = crc32c(data_)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    value &= 2 ** 64 - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def example(**features):
    """A tf.train.Example, by the text of its format."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value[0], float):
            feature = field(2, field(1, struct.pack("<%df" % len(value), *value)))
        else:
            feature = field(3, field(1, b"".join(map(varint, value))))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def record(body):
    size = struct.pack("<Q", len(body))
    return size + masked(size) + body + masked(body)


class InDirectory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def path(self, *names):
        path = os.path.join(self.dir, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def write(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def assertFails(self, code, part, function, *arguments, **keywords):
        with self.assertRaises(unisono.Error) as caught:
            function(*arguments, **keywords)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(part, str(caught.exception))


class Readers(InDirectory):
    def test_csv(self):
        path = self.write("a.csv", 'x,y,name\n1,0.5,"a ""b"", c"\n2,,d\n')
        ds = data.read_csv(path)
        self.assertEqual(ds.columns(), ["x", "y", "name"])
        rows = ds.take_all()
        self.assertEqual(rows[0], {"x": 1, "y": 0.5, "name": 'a "b", c'})
        self.assertTrue(numpy.isnan(rows[1]["y"]))
        self.assertEqual(data.read_csv(path, columns=["name", "x"], types={"x": "float32"}).take_batch(1)["x"].dtype, numpy.float32)

    def test_csv_compressed(self):
        text = "a,b\n" + "".join("%d,%d\n" % (i, 2 * i) for i in range(20000))
        with gzip.open(self.path("a.csv.gz"), "wb") as file:
            file.write(text.encode())
        ds = data.read_csv(self.path("a.csv.gz"))
        self.assertEqual(sum(int(batch["b"].sum()) for batch in ds.iter_batches()), 2 * sum(range(20000)))

    def test_json_lines(self):
        path = self.write("a.jsonl", '{"i": 1, "f": 1, "s": "\\u00e9\\n", "v": [1, 2], "l": [1], "o": {"a": [true]}, "b": true}\n\n'
                                     '{"i": -2, "f": 2.5, "s": null, "v": [3, 4], "l": [1, 2, 3], "b": false}\n')
        ds = data.read_json(path)
        first, second = ds.take_all()
        self.assertEqual((first["i"], first["f"], first["s"], first["b"]), (1, 1.0, "\u00e9\n", True))
        self.assertEqual(json.loads(first["o"]), {"a": [True]})
        self.assertEqual((second["s"], second["o"], second["b"]), (None, None, False))
        self.assertEqual(second["v"].tolist(), [3, 4])
        self.assertEqual(second["l"].tolist(), [1, 2, 3])
        self.assertEqual(ds.count(), 2)

    def test_json_in_many_blocks(self):
        rows = [{"id": i, "text": "x" * (i % 50), "value": i / 7} for i in range(5000)]
        path = self.write("many.jsonl", "\n".join(map(json.dumps, rows)))
        ds = data.read_json(path, block_bytes=4096)
        self.assertEqual(ds.take_all(), rows)
        shuffled = ds.random_shuffle(seed=3).take_all()
        self.assertNotEqual([row["id"] for row in shuffled[:50]], list(range(50)))
        self.assertEqual(sorted(row["id"] for row in shuffled), list(range(5000)))

    def test_json_list(self):
        path = self.write("a.json", json.dumps([{"a": 1}, {"a": 2}]))
        self.assertEqual(data.read_json(path).take_all(), [{"a": 1}, {"a": 2}])

    def test_bad_json(self):
        path = self.write("bad.jsonl", '{"a": 1}\n{"a": 2\n{"a": 3}\n{"a": 1.5e400}\n')
        self.assertFails("EFORMAT", "bad.jsonl:2:8", data.read_json, path)
        ds = data.read_json(path, on_error="skip")
        self.assertEqual(ds.take_all(), [{"a": 1}, {"a": 3}])
        self.assertEqual(ds.count(), 2)
        list(ds.iter_batches())
        self.assertEqual(ds.stats()["skipped"], 2)
        self.assertFails("EFORMAT", "are allowed", lambda: data.read_json(path, on_error="skip", max_errors=1).take_all())
        self.assertFails("EFORMAT", "bad.jsonl:2:8", lambda: data.read_json(path, on_error="skip", max_errors=0).take_all())
        with self.assertRaisesRegex(TypeError, "a path or a list of paths, not int"):
            data.read_json(5)

    def test_not_offered(self):
        with self.assertRaisesRegex(AttributeError, "Dataset.sort is not offered; use to_pandas"):
            data.range(3).sort("id")
        self.assertFalse(hasattr(data.range(3), "_nothing"))

    def test_text(self):
        path = self.write("a.txt", "one\r\n\ntwo\nthree")
        self.assertEqual([row["text"] for row in data.read_text(path).take_all()], ["one", "two", "three"])
        self.assertEqual(data.read_text(path, drop_empty_lines=False).count(), 4)
        bad = self.write("b.txt", b"good\nb\xff\xffd\n")
        self.assertFails("EFORMAT", "b.txt:2:2", lambda: data.read_text(bad).take_all())
        self.assertEqual(data.read_text(bad, on_error="skip").take_all(), [{"text": "good"}])

    def test_text_gz_and_zst(self):
        lines = "".join("line %d\n" % i for i in range(100000))
        with gzip.open(self.path("a.txt.gz"), "wb") as file:
            file.write(lines.encode())
        ds = data.read_text(self.path("a.txt.gz"))
        self.assertIn("stream", ds.order())
        self.assertEqual(ds.count(), 100000)
        self.assertEqual(ds.take(1), [{"text": "line 0"}])
        whole = open(self.path("a.txt.gz"), "rb").read()
        cut = self.write("cut.txt.gz", whole[:len(whole) // 2])
        self.assertFails("ECORRUPT", "cut.txt.gz ends in the middle", lambda: data.read_text(cut).take_all())
        self.write("plain.txt", lines)
        try:
            subprocess.run(["zstd", "-q", self.path("plain.txt"), "-o", self.path("b.txt.zst")], check=True)
        except FileNotFoundError:
            return
        self.assertEqual(data.read_text(self.path("b.txt.zst")).count(), 100000)

    def test_tfrecords(self):
        bodies = [example(x=[i / 2, 1.0], y=[i], name=b"n%d" % i, many=list(range(1 + i % 3))) for i in range(50)]
        path = self.write("a.tfrecord", b"".join(map(record, bodies)))
        ds = data.read_tfrecords(path, types={"name": str}, block_bytes=512)
        rows = ds.take_all()
        self.assertEqual(len(rows), 50)
        self.assertEqual((rows[7]["x"].tolist(), rows[7]["y"], rows[7]["name"], rows[7]["many"].tolist()), ([3.5, 1.0], 7, "n7", [0, 1]))
        self.assertEqual(ds.count(), 50)
        self.assertEqual([row["bytes"] for row in data.read_tfrecords(path, raw=True).take_all()], bodies)
        with gzip.open(self.path("b.tfrecord.gz"), "wb") as file:
            file.write(open(path, "rb").read())
        self.assertEqual([row["y"] for row in data.read_tfrecords(self.path("b.tfrecord.gz")).take_all()], list(range(50)))

    def test_damaged_tfrecords(self):
        bodies = [example(y=[i]) for i in range(20)]
        whole = bytearray(b"".join(map(record, bodies)))
        size = len(record(bodies[0]))
        whole[5 * size + 15] ^= 1  # data of the sixth
        path = self.write("a.tfrecord", bytes(whole))
        self.assertFails("EFORMAT", "a.tfrecord: the record at byte %d" % (5 * size), lambda: data.read_tfrecords(path).take_all())
        ds = data.read_tfrecords(path, on_error="skip")
        self.assertEqual([row["y"] for row in ds.take_all()], [i for i in range(20) if i != 5])
        whole[10 * size + 1] ^= 1  # length of the eleventh
        path = self.write("b.tfrecord", bytes(whole))
        self.assertEqual([row["y"] for row in data.read_tfrecords(path, on_error="skip").take_all()], [i for i in range(20) if i not in (5, 10)])
        cut = self.write("c.tfrecord", b"".join(map(record, bodies))[:-3])
        self.assertFails("EFORMAT", "ends in the middle of the record", lambda: data.read_tfrecords(cut).take_all())
        self.assertFails("EFORMAT", "is this a TFRecord file?", data.read_tfrecords, self.write("d.tfrecord", b"no such file at all"))

    def test_idx(self):
        images = numpy.arange(5 * 2 * 3, dtype=numpy.uint8).reshape(5, 2, 3)
        labels = numpy.array([3, 1, 4, 1, 5], dtype=">i4")
        self.write("images", bytes([0, 0, 8, 3]) + struct.pack(">3I", 5, 2, 3) + images.tobytes())
        with gzip.open(self.path("labels.gz"), "wb") as file:
            file.write(bytes([0, 0, 12, 1]) + struct.pack(">I", 5) + labels.tobytes())
        ds = data.read_idx({"image": self.path("images"), "label": self.path("labels.gz")})
        batch = ds.take_batch(5)
        self.assertTrue(numpy.array_equal(batch["image"], images))
        self.assertEqual(batch["label"].tolist(), [3, 1, 4, 1, 5])
        shuffled = ds.random_shuffle(seed=1).take_all()
        self.assertEqual(sorted((row["label"], int(row["image"][0, 0])) for row in shuffled), sorted(zip([3, 1, 4, 1, 5], [0, 6, 12, 18, 24])))
        self.assertFails("EFORMAT", "is no idx file", data.read_idx, {"x": self.write("bad", b"hello")})

    def test_binary(self):
        self.write("f/a.bin", b"\0\1")
        self.write("f/b.bin", b"")
        rows = data.read_binary_files(self.path("f"), include_paths=True).take_all()
        self.assertEqual([(row["bytes"], os.path.basename(row["path"])) for row in rows], [(b"\0\1", "a.bin"), (b"", "b.bin")])

    def test_sqlite(self):
        base = sqlite3.connect(self.path("a.db"))
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, price REAL, name TEXT, blob BLOB)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(i, i / 4 if i % 3 else None, "n%d" % i, b"\0" * i) for i in range(1, 101)])
        base.commit()
        ds = data.read_sqlite(self.path("a.db"), "t")
        self.assertIn("global", ds.random_shuffle().order())
        rows = ds.take_all()
        self.assertEqual((len(rows), rows[0], rows[3]["price"]), (100, {"id": 1, "price": 0.25, "name": "n1", "blob": b"\0"}, 1.0))
        self.assertTrue(numpy.isnan(rows[2]["price"]))
        base.execute("DELETE FROM t WHERE id = 50")
        base.commit()
        gaps = data.read_sqlite(self.path("a.db"), "t", columns=["id"])
        self.assertEqual([row["id"] for row in gaps.take_all()], [i for i in range(1, 101) if i != 50])
        query = data.read_sqlite(self.path("a.db"), "SELECT name, price * 2 AS double FROM t WHERE id < 3")
        self.assertEqual(query.take_all(), [{"name": "n1", "double": 0.5}, {"name": "n2", "double": 1.0}])
        self.assertFails("EIO", "no such table", data.read_sqlite, self.path("a.db"), "nothing")
        self.assertFails("EIO", "not a database", data.read_sqlite, self.write("no.db", b"x" * 5000), "t")
        self.assertEqual(data.read_sql("SELECT id FROM t WHERE id < 3", lambda: sqlite3.connect(self.path("a.db"))).take_all(),
                         [{"id": 1}, {"id": 2}])

    @unittest.skipUnless(Image, "needs Pillow")
    def test_images(self):
        generator = numpy.random.default_rng(1)
        smooth = numpy.kron(generator.integers(0, 255, (6, 8, 3)), numpy.ones((8, 8, 1))).astype(numpy.uint8)
        for name in ("cats/a.png", "dogs/b.png"):
            Image.fromarray(smooth).save(self.path("pictures", name))
        Image.fromarray(smooth).save(self.path("pictures/cats/c.jpg"), quality=95)
        ds = data.read_images(self.path("pictures"), labels=True, include_paths=True)
        rows = ds.take_all()
        self.assertEqual([(os.path.basename(row["path"]), row["label"]) for row in rows], [("a.png", 0), ("c.jpg", 0), ("b.png", 1)])
        self.assertTrue(numpy.array_equal(rows[0]["image"], smooth))
        with Image.open(self.path("pictures/cats/c.jpg")) as image:
            self.assertLessEqual(numpy.abs(numpy.asarray(image).astype(int) - rows[1]["image"]).max(), 3)
        small = data.read_images(self.path("pictures/cats/a.png"), size=(20, 30), mode="L").take_batch(1)["image"][0, :, :, 0]
        expected = numpy.asarray(Image.fromarray(smooth).convert("L").resize((30, 20), Image.BILINEAR))
        self.assertLessEqual(numpy.abs(small.astype(int) - expected).max(), 1)
        scaled = data.read_images(self.path("pictures/cats/a.png"), rescale=True).take_batch(1)["image"]
        self.assertTrue(numpy.allclose(scaled[0], smooth / 255, atol=1e-6))
        with open(self.path("pictures/cats/c.jpg"), "rb") as file:
            whole = file.read()
        self.write("pictures/dogs/d.jpg", whole[:len(whole) // 2])
        self.assertFails("EFORMAT", "d.jpg", lambda: data.read_images(self.path("pictures")).take_all())
        self.assertEqual(data.read_images(self.path("pictures"), on_error="skip").count(), 3)
        self.write("pictures/dogs/d.jpg", b"not an image")
        self.assertFails("EFORMAT", "neither JPEG nor PNG", lambda: data.read_images(self.path("pictures")).take_all())
        Image.new("RGB", (3, 3)).save(self.path("pictures/dogs/d.png"))
        os.unlink(self.path("pictures/dogs/d.jpg"))
        self.assertFails("EFORMAT", "give height and width", lambda: data.read_images(self.path("pictures")).take_all())

    def test_numpy_files(self):
        values = numpy.arange(24, dtype=numpy.float32).reshape(6, 4)
        numpy.save(self.path("a.npy"), values)
        self.assertTrue(numpy.array_equal(data.read_numpy(self.path("a.npy")).take_batch(6)["data"], values))
        numpy.savez(self.path("b.npz"), x=values, y=values[:, 0])
        self.assertEqual(data.read_numpy(self.path("b.npz")).take(1)[0]["y"], 0.0)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet_and_arrow(self):
        table = pyarrow.table({"i": pyarrow.array([1, None, 3]), "f": [0.5, None, 2.0], "s": ["a", None, "\u00e9"], "b": [True, False, None],
                               "v": pyarrow.array([[1, 2], [3, 4], [5, 6]], pyarrow.list_(pyarrow.float32(), 2)), "l": [[1], [], [2, 3]],
                               "d": pyarrow.array(["x", "y", "x"]).dictionary_encode()})
        rows = data.from_arrow(table).take_all()
        self.assertEqual([row["s"] for row in rows], ["a", None, "\u00e9"])
        self.assertEqual([row["d"] for row in rows], ["x", "y", "x"])
        self.assertEqual([row["l"].tolist() for row in rows], [[1], [], [2, 3]])
        self.assertEqual(rows[1]["v"].tolist(), [3, 4])
        self.assertTrue(numpy.isnan(rows[1]["f"]) and numpy.isnan(rows[1]["i"]))
        self.assertIsNone(rows[2]["b"])
        numbers = pyarrow.table({"n": list(range(1000)), "t": [str(i) for i in range(1000)]})
        for part in range(2):
            pyarrow.parquet.write_table(numbers.slice(part * 500, 500), self.path("p", "%d.parquet" % part), row_group_size=90)
        ds = data.read_parquet(self.path("p"))
        self.assertEqual(ds.count(), 1000)
        self.assertEqual([row["n"] for row in ds.take_all()], list(range(1000)))
        self.assertEqual(sorted(int(row["t"]) for row in ds.random_shuffle(seed=1).take_all()), list(range(1000)))
        self.assertEqual(data.read_parquet(self.path("p"), columns=["t"]).columns(), ["t"])
        batches = list(data.from_arrow(table).iter_batches(batch_format="pyarrow"))
        self.assertEqual(batches[0].column("s").to_pylist(), ["a", None, "\u00e9"])
        self.assertEqual(batches[0].column("v").to_pylist(), [[1, 2], [3, 4], [5, 6]])

    def test_missing_files(self):
        self.assertFails("ENOTFOUND", "nothing.csv", data.read_csv, self.path("nothing.csv"))
        self.assertFails("ENOTFOUND", "fits the pattern", data.read_json, self.path("*.jsonl"))
        path = self.write("gone.jsonl", '{"a": 1, "b": "%s"}\n' % ("x" * 1000) * 5000)  # too large to be kept in memory
        ds = data.read_json(path)
        os.unlink(path)
        with self.assertRaises(unisono.Error) as caught:
            list(ds.iter_batches())
        self.assertIn("gone.jsonl", str(caught.exception))


class Memory(unittest.TestCase):
    def test_numpy_is_shared(self):
        values = numpy.arange(12, dtype=numpy.float32).reshape(6, 2)
        batches = list(data.from_numpy(values).iter_batches(batch_size=3))
        self.assertTrue(numpy.shares_memory(batches[0]["data"], values))
        self.assertEqual([batch["data"].shape for batch in batches], [(3, 2), (3, 2)])

    @unittest.skipUnless(pandas, "needs pandas")
    def test_pandas(self):
        frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, None, 2.0]})
        ds = data.from_pandas(frame)
        self.assertEqual([row["b"] for row in ds.take_all()], ["x", None, "z"])
        back = ds.to_pandas()
        self.assertEqual(back["a"].tolist(), [1, 2, 3])
        self.assertTrue(numpy.isnan(back["c"][1]))
        out = ds.map_batches(lambda frame_: frame_.assign(d=frame_["a"] * 2), batch_format="pandas")
        self.assertEqual([row["d"] for row in out.take_all()], [2, 4, 6])

    def test_items_and_objects(self):
        self.assertEqual(data.from_items([3, 4]).take_all(), [{"item": 3}, {"item": 4}])
        rows = data.from_items([(1, "a"), (2, "b")])
        self.assertEqual(rows.take_all(), [(1, "a"), (2, "b")])
        out = rows.map_batches(lambda batch: {"n": numpy.array([number for number, _ in batch])})
        self.assertEqual(out.take_all(), [{"n": 1}, {"n": 2}])

    def test_what_is_kept_in_memory_stays_as_it_is(self):
        """A loop that scales its batches in place would scale them again in every epoch: batches of kept tables are read only, functions get copies."""
        values = numpy.full(8, 255.0, numpy.float32)
        ds = data.from_numpy(values)
        for batch in ds.iter_batches(batch_size=4):
            with self.assertRaisesRegex(ValueError, "read-only"):
                batch["data"] /= 255
            self.assertEqual((batch["data"] / 255).tolist(), [1.0] * 4)

        def scale(batch):
            batch["data"] /= 255
            return batch

        scaled = ds.map_batches(scale)
        for _ in range(2):
            self.assertEqual([row["data"] for row in scaled.take_all()], [1.0] * 8)
        self.assertEqual(values.tolist(), [255.0] * 8)
        for batch in data.range(8).iter_batches(batch_size=4):  # made for this batch: the loop's own
            batch["id"] += 1

    def test_generator_and_datasource(self):
        class Squares(data.Datasource):
            def prepare_read(self, parallelism, n):
                from unisono.data.datasource import ReadTask

                return [ReadTask(lambda begin=begin: [[{"x": i * i} for i in range(begin, begin + 5)]]) for begin in range(0, n, 5)]

        self.assertEqual([row["x"] for row in data.read_datasource(Squares(), n=10).take_all()], [i * i for i in range(10)])
        ds = data.from_generator(lambda: ({"i": i} for i in range(1000)))
        self.assertEqual([ds.count(), ds.count()], [1000, 1000])

    def test_statistics_while_a_source_is_let_go(self):
        """The thread that lets go of a Python source wants the GIL, and must not hold back who asks with it."""
        from unisono._unisono import Dataset
        from unisono.data import _convert

        class Source:
            def __init__(self):
                self.left, self.ended = [_convert.from_columns({"i": numpy.arange(3)})], False

            def __iter__(self):
                return self

            def __next__(self):
                self.ended = not self.left
                if self.ended:
                    raise StopIteration
                return self.left.pop()

            def __del__(self):
                if self.ended:  # read to its end, by a thread of the iterator
                    closing.set()
                    time.sleep(0.2)

        closing = threading.Event()
        native = Dataset.from_python(Source, [], "source", -1).iterate({"batch_size": 3, "epochs": 1})
        self.assertTrue(closing.wait(20))
        self.assertEqual(native.stats()["rows"], 0)
        self.assertEqual(native.next().num_rows, 3)
        native.close()

    def test_errors_of_functions_come_back(self):
        def bad(row):
            raise KeyError("column q")

        with self.assertRaises(KeyError):
            data.range(10).map(bad).take_all()
        with self.assertRaises(TypeError):
            data.range(10).map_batches(lambda batch: 5).take_all()
        with self.assertRaisesRegex(ValueError, "different numbers of rows"):
            data.range(10).map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take_all()
        with self.assertRaises(unisono.Error):
            data.range(10).select_columns(["nothing"])


class Transforms(unittest.TestCase):
    def test_rows(self):
        ds = data.range(100)
        self.assertEqual(ds.filter(lambda row: row["id"] % 2 == 0).count(), 50)
        self.assertEqual(ds.map(lambda row: {"x": row["id"] * 2}).take(2), [{"x": 0}, {"x": 2}])
        self.assertEqual(ds.flat_map(lambda row: [row] * (row["id"] % 3)).count(), 99)
        self.assertEqual(ds.limit(3).union(ds.skip(98)).take_all(), [{"id": i} for i in (0, 1, 2, 98, 99)])
        self.assertEqual(sum(part.count() for part in ds.split(3)), 100)
        self.assertEqual([part.count() for part in ds.split(3, equal=True)], [33, 33, 33])
        self.assertEqual([part.count() for part in ds.split_at_indices([10, 30])], [10, 20, 70])
        train, test = ds.train_test_split(0.2, shuffle=True, seed=1)
        self.assertEqual(sorted(row["id"] for part in (train, test) for row in part.take_all()), list(range(100)))
        self.assertEqual(test.count(), 20)
        self.assertEqual(ds.zip(ds.rename_columns({"id": "other"})).take(1), [{"id": 0, "other": 0}])
        self.assertEqual((ds.sum("id"), ds.mean("id"), ds.max("id")), (4950, 49.5, 99))
        self.assertAlmostEqual(ds.std("id"), numpy.arange(100).std(ddof=1))

    def test_columns(self):
        ds = data.from_numpy({"a": numpy.arange(4), "b": numpy.ones((4, 2))})
        self.assertEqual(ds.concat_columns(["a", "b"], "x").take_batch(4)["x"].tolist(), [[i, 1, 1] for i in range(4)])
        self.assertEqual(ds.cast("a", "float32").take_batch(1)["a"].dtype, numpy.float32)
        self.assertEqual(ds.add_column("c", lambda batch: batch["a"] + 1, batch_format="numpy").take(1)[0]["c"], 1)
        self.assertEqual(ds.drop_columns(["b"]).columns(), ["a"])

    def test_processes(self):
        def slow(batch):
            return {"pid": numpy.full(len(batch["id"]), os.getpid()), "id": batch["id"]}

        ds = data.range(64).map_batches(slow, batch_size=8, concurrency=2)
        rows = ds.take_all()
        self.assertEqual([row["id"] for row in rows], list(range(64)))
        self.assertNotIn(os.getpid(), {row["pid"] for row in rows})
        with self.assertRaises(ZeroDivisionError):
            data.range(4).map_batches(lambda batch: 1 / 0, concurrency=2).take_all()

    def test_a_class_is_made_once(self):
        class Add:
            made = 0

            def __init__(self, amount):
                Add.made += 1
                self.amount = amount

            def __call__(self, batch):
                return {"id": batch["id"] + self.amount}

        ds = data.range(1000).map_batches(Add, fn_constructor_args=(5,), batch_size=10)
        self.assertEqual(ds.take(1), [{"id": 5}])
        ds.take_all()
        self.assertEqual(Add.made, 1)

    def test_materialized(self):
        calls = []
        ds = data.range(10).map_batches(lambda batch: calls.append(1) or batch).materialize()
        before = len(calls)
        ds.take_all()
        self.assertEqual(len(calls), before)


class Order(unittest.TestCase):
    def ids(self, ds):
        return [row["id"] for row in ds.iter_rows()]

    def test_epochs_differ_and_repeat(self):
        ds = data.range(1000).random_shuffle(seed=7)
        first, second = self.ids(ds), self.ids(ds)
        self.assertNotEqual(first, second)
        self.assertEqual(sorted(first), list(range(1000)))
        self.assertEqual(self.ids(data.range(1000).random_shuffle(seed=7)), first)
        same = data.range(1000).shuffle(100, seed=1, reshuffle_each_iteration=False)
        self.assertEqual(self.ids(same), self.ids(same))

    def test_shards_cover(self):
        ds = data.range(103).random_shuffle(seed=2)
        whole = []
        for rank in range(4):
            shard = shard_of(ds, rank, 4)
            whole += [int(i) for batch in shard.iter_batches(batch_size=8) for i in batch["id"]]
        self.assertEqual(len(set(whole)), len(whole))
        self.assertGreaterEqual(len(whole), 100)
        steps = {len(list(shard_of(ds, rank, 4).iter_batches(batch_size=8))) for rank in range(4)}
        self.assertEqual(len(steps), 1)

    def test_pipeline(self):
        pipe = data.range(20).repeat(3).random_shuffle_each_window(seed=1)
        epochs = [self.ids(epoch) for epoch in pipe.iter_epochs()]
        self.assertEqual([sorted(epoch) for epoch in epochs], [list(range(20))] * 3)
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)
        self.assertEqual(pipe.count(), 60)
        halves = [[row["id"] for row in next(part.iter_epochs()).iter_rows()] for part in pipe.split(2)]
        self.assertEqual(sorted(halves[0] + halves[1]), list(range(20)))
        windows = data.range(100).repartition(10).window(blocks_per_window=2).repeat().random_shuffle_each_window(seed=1)
        first = self.ids(next(windows.iter_epochs()))
        self.assertEqual([sorted(first[i:i + 20]) for i in range(0, 100, 20)], [list(range(i, i + 20)) for i in range(0, 100, 20)])
        self.assertNotEqual(first, list(range(100)))

    def test_resume(self):
        ds = data.range(100).random_shuffle(seed=3)
        whole = self.ids(data.range(100).random_shuffle(seed=3))
        iterator = ds.iter_batches(batch_size=7)
        taken = [int(i) for _ in range(5) for i in next(iterator)["id"]]
        state = pickle.loads(pickle.dumps(ds.state_dict()))
        iterator.close()
        again = data.range(100).random_shuffle(seed=3)
        again.load_state_dict(state)
        rest = [int(i) for batch in again.iter_batches(batch_size=7) for i in batch["id"]]
        self.assertEqual(taken + rest, whole)

    def test_resume_when_one_rank_was_through(self):
        def shard(rank):
            return shard_of(data.range(1000).filter(lambda row: True), rank, 2)

        first, second = shard(0), shard(1)
        seen = self.ids(first)
        iterator = second.iter_batches(batch_size=7)
        seen += [int(i) for _ in range(5) for i in next(iterator)["id"]]
        states = pickle.loads(pickle.dumps([first.state_dict(), second.state_dict()]))
        iterator.close()
        for rank in range(2):
            again = shard(rank)
            again.load_state_dict(states)
            seen += self.ids(again)
        self.assertEqual(sorted(seen), list(range(1000)))

    def test_resume_with_a_local_shuffle(self):
        options = {"batch_size": 7, "local_shuffle_buffer_size": 20, "local_shuffle_seed": 4}
        whole = [int(i) for batch in data.range(100).iter_batches(**options) for i in batch["id"]]
        ds = data.range(100)
        iterator = ds.iter_batches(**options)
        taken = [int(i) for _ in range(5) for i in next(iterator)["id"]]
        state = ds.state_dict()
        iterator.close()
        again = data.range(100)
        again.load_state_dict(state)
        rest = [int(i) for batch in again.iter_batches(**options) for i in batch["id"]]
        self.assertEqual((taken + rest, sorted(whole)), (whole, list(range(100))))

    def test_what_cannot_be_is_refused(self):
        for size in (0, -1):
            with self.assertRaisesRegex(ValueError, "batch_size must be positive"):
                list(data.range(10).iter_batches(batch_size=size))
        with self.assertRaisesRegex(NotImplementedError, "stratify"):
            data.range(10).train_test_split(0.5, stratify="id")

    @unittest.skipIf(pandas is None, "no pandas")
    def test_to_pandas_has_a_limit(self):
        self.assertEqual(len(data.range(10).to_pandas(limit=10)), 10)
        with self.assertRaisesRegex(ValueError, "more than 9 rows"):
            data.range(10).to_pandas(limit=9)

    def test_recipe_travels(self):
        ds = data.range(50).map(lambda row: {"x": row["id"] + 1}).random_shuffle(seed=1)
        there = cloudpickle.loads(cloudpickle.dumps(ds))
        self.assertEqual(there.take_all(), ds.take_all())
        part = cloudpickle.loads(cloudpickle.dumps(data.from_numpy({"a": numpy.arange(6), "s": list("abcdef")}).split(2)[1]))
        self.assertEqual(part.take_all(), [{"a": i, "s": "abcdef"[i]} for i in (3, 4, 5)])

    def test_an_iterator_left_alone_ends_with_the_program(self):
        code = ("from unisono import data\nds = data.range(10**9).map(lambda row: row)\n"
                "it = ds.iter_batches(batch_size=10)\nnext(it)\nprint('over')")
        done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "over"), done.stderr)


class Pipelines(unittest.TestCase):
    """The spellings of Ray 1.x."""

    def test_module_paths(self):
        from unisono.data.dataset import Dataset
        from unisono.data.dataset_pipeline import DatasetPipeline

        self.assertIs(DatasetPipeline, data.DatasetPipeline)
        self.assertIs(Dataset, data.Dataset)
        self.assertIsInstance(data.range(4).repeat(2), DatasetPipeline)
        self.assertIsInstance(data.range(4).window(blocks_per_window=1), DatasetPipeline)

    def test_epochs_and_statistics(self):
        pipe = data.range(10).repeat(2)
        self.assertEqual(pipe.stats(), {})
        self.assertEqual([len(batch["id"]) for batch in pipe.iter_batches(batch_size=4)], [4, 4, 2, 4, 4, 2])
        self.assertEqual((pipe.stats()["rows"], pipe.stats()["batches"]), (10, 3))
        self.assertEqual(len(pipe.take_all()), 20)
        self.assertEqual([row["id"] for row in pipe.take(12)], list(range(10)) + [0, 1])
        with self.assertRaisesRegex(ValueError, "more than 19 rows"):
            pipe.take_all(limit=19)
        self.assertEqual((pipe.count(), pipe.sum("id"), pipe.columns()), (20, 90, ["id"]))
        endless = data.range(3).repeat()
        self.assertEqual([row["id"] for row in endless.take(7)], [0, 1, 2, 0, 1, 2, 0])
        with self.assertRaisesRegex(ValueError, "endless"):
            endless.count()
        with support.printed() as out:
            pipe.show(2)
        self.assertEqual(out.getvalue(), "{'id': 0}\n{'id': 1}\n")

    def test_transforms(self):
        pipe = data.range(10).window(blocks_per_window=1).map(lambda row: {"x": 2 * row["id"]}).filter(lambda row: row["x"] > 10).repeat(2)
        self.assertEqual([row["x"] for row in pipe.iter_rows()], [12, 14, 16, 18] * 2)
        doubled = pipe.map_batches(lambda batch: {"x": batch["x"] * 2}).rename_columns({"x": "y"}).add_column("z", lambda frame: frame["y"], batch_format="default")
        self.assertEqual(doubled.take(1), [{"y": 24, "z": 24}])
        self.assertEqual([len(part.take_all()) for part in data.range(9).repeat(2).split_at_indices([3])], [6, 12])

    def test_split(self):
        pipe = data.range(23).repeat(2).random_shuffle_each_window(seed=1)
        parts = pipe.split(2, equal=True, locality_hints=[None, None])
        batches = [[batch["id"].tolist() for batch in part.iter_batches(batch_size=4)] for part in parts]
        self.assertEqual([len(each) for each in batches], [6, 6])
        for epoch in range(2):
            ids = [i for each in batches for batch in each[3 * epoch:3 * epoch + 3] for i in batch]
            self.assertEqual(sorted(ids), list(range(23)))
        with self.assertRaisesRegex(ValueError, "as many locality_hints"):
            pipe.split(2, locality_hints=[None])
        halves = data.range(23).split(2, equal=True, locality_hints=["a", "b"])
        self.assertEqual([half.count() for half in halves], [11, 11])


class Formats(InDirectory):
    """Batches as people want them, and sources of their own."""

    def frame(self):
        return data.from_items([{"x": i, "name": "row %d" % i, "v": [float(i), i + 0.5]} for i in range(10)])

    def test_numpy(self):
        batch = next(self.frame().iter_batches(batch_size=4, batch_format="numpy"))
        self.assertEqual((batch["x"].tolist(), batch["v"].shape, batch["name"][3]), ([0, 1, 2, 3], (4, 2), "row 3"))
        with self.assertRaisesRegex(ValueError, "batch_format must be one of"):
            next(self.frame().iter_batches(batch_format="lists"))

    @unittest.skipIf(pandas is None, "no pandas")
    def test_pandas(self):
        frame = next(self.frame().iter_batches(batch_size=4, batch_format="pandas"))
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual((frame["x"].tolist(), frame["name"][1], frame["v"][2].tolist()), ([0, 1, 2, 3], "row 1", [2.0, 2.5]))

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_pyarrow(self):
        table = next(self.frame().iter_batches(batch_size=4, batch_format="pyarrow"))
        self.assertIsInstance(table, pyarrow.Table)
        self.assertEqual((table["x"].to_pylist(), table["name"].to_pylist()[0], table["v"].to_pylist()[1]), ([0, 1, 2, 3], "row 0", [1.0, 1.5]))
        back = data.from_arrow(pyarrow.table({"a": [1, None, 3], "s": ["x", None, "z"]}))
        self.assertEqual([row["s"] for row in back.take_all()], ["x", None, "z"])
        self.assertEqual([row["a"] for row in back.take_all()][::2], [1, 3])
        twice = data.from_arrow([pyarrow.table({"a": [1]}), pyarrow.table({"a": [2]})])
        self.assertEqual([row["a"] for row in twice.take_all()], [1, 2])

    def test_a_datasource_of_ones_own(self):
        class Squares(data.Datasource):
            def __init__(self, n):
                self.n = n

            def get_read_tasks(self, parallelism):
                return [data.ReadTask(lambda first=first: [[{"square": i * i} for i in range(first, min(first + 4, self.n))]])
                        for first in range(0, self.n, 4)]

        ds = data.read_datasource(Squares(10), parallelism=2)
        self.assertEqual([row["square"] for row in ds.take_all()], [i * i for i in range(10)])
        self.assertEqual(sorted(row["square"] for row in ds.random_shuffle(seed=1).take_all()), [i * i for i in range(10)])

        class Old(data.Datasource):
            def prepare_read(self, parallelism, count):
                return [data.ReadTask(lambda: [{"i": numpy.arange(count)}])]

        self.assertEqual(data.read_datasource(Old(), count=3).take_all(), [{"i": 0}, {"i": 1}, {"i": 2}])
        with self.assertRaisesRegex(NotImplementedError, "get_read_tasks"):
            data.read_datasource(data.Datasource())

    def test_tensor_columns(self):
        from unisono.data.extensions import TensorArray

        column = TensorArray(numpy.arange(12).reshape(3, 2, 2))
        self.assertEqual((column.shape, len(column), column[1].tolist()), ((3, 2, 2), 3, [[4, 5], [6, 7]]))
        batch = data.range(3).map_batches(lambda batch: {"image": TensorArray(numpy.ones((len(batch["id"]), 4, 4)))}).take_batch(2)
        self.assertEqual(batch["image"].shape, (2, 4, 4))
        self.assertEqual(data.range_tensor(5, shape=(2, 2)).take_batch(5)["data"].shape, (5, 2, 2))

    def test_bad_rows_are_named(self):
        path = self.path("bad.csv")
        with open(path, "w") as file:
            file.write("a,b\n1,2\n3\n4,5\n")
        with self.assertRaisesRegex(unisono.Error, r"bad\.csv:3"):
            data.read_csv(path).take_all()
        with open(path, "w") as file:
            file.write("a,b\n1,2\n3,x\n")
        with self.assertRaisesRegex(unisono.Error, r"bad\.csv:3:2"):
            data.read_csv(path, types={"b": "float64"}).take_all()
        skipped = data.read_csv(path, types={"b": "float64"}, on_error="skip")
        self.assertEqual(skipped.take_all(), [{"a": 1, "b": 2.0}])
        with self.assertRaisesRegex((unisono.Error, KeyError), "nothing"):
            data.read_csv(path).select_columns(["nothing"])


class Preprocessors(unittest.TestCase):
    def setUp(self):
        generator = numpy.random.default_rng(5)
        self.x = generator.normal(3, 2, 1000).astype(numpy.float32)
        self.words = numpy.array(["red", "green", "blue"])[generator.integers(0, 3, 1000)]
        self.ds = data.from_numpy({"x": self.x, "y": numpy.arange(1000), "c": list(self.words)})

    def column(self, ds, name):
        return ds.to_numpy()[name]

    def test_scalers(self):
        from unisono.data.preprocessors import Chain, MaxAbsScaler, MinMaxScaler, StandardScaler

        x = self.x.astype(numpy.float64)
        scaler = StandardScaler(columns=["x"])
        self.assertTrue(numpy.allclose(self.column(scaler.fit_transform(self.ds), "x"), (x - x.mean()) / x.std(), atol=1e-5))
        self.assertTrue(numpy.allclose(self.column(MinMaxScaler(["x", "y"]).fit_transform(self.ds), "y"), numpy.arange(1000) / 999, atol=1e-6))
        self.assertAlmostEqual(float(numpy.abs(self.column(MaxAbsScaler(["x"]).fit_transform(self.ds), "x")).max()), 1, places=6)
        from unisono.data.preprocessors import Preprocessor

        again = Preprocessor.from_dict(json.loads(json.dumps(scaler.to_dict())))
        self.assertEqual(again.transform_batch({"x": self.x[:3]})["x"].tolist(), scaler.transform_batch({"x": self.x[:3]})["x"].tolist())
        there = cloudpickle.loads(cloudpickle.dumps(scaler.transform(self.ds)))
        self.assertEqual(there.take(1), scaler.transform(self.ds).take(1))
        both = Chain(StandardScaler(["x"]), MinMaxScaler(["x"])).fit(self.ds)
        self.assertTrue(numpy.allclose(self.column(both.transform(self.ds), "x"), (x - x.min()) / (x.max() - x.min()), atol=1e-5))
        with self.assertRaisesRegex(RuntimeError, "not fitted"):
            StandardScaler(["x"]).transform(self.ds)
        with self.assertRaises(unisono.Error):
            StandardScaler(["nothing"]).fit(self.ds)

    def test_encoders(self):
        from unisono.data.preprocessors import LabelEncoder, OneHotEncoder, OrdinalEncoder, SimpleImputer

        numbers = {"blue": 0, "green": 1, "red": 2}
        expected = [numbers[word] for word in self.words]
        self.assertEqual(self.column(OrdinalEncoder(["c"]).fit_transform(self.ds), "c").tolist(), expected)
        encoder = LabelEncoder("c").fit(self.ds)
        self.assertEqual(encoder.stats_, {"c": ["blue", "green", "red"]})
        with self.assertRaises(unisono.Error):
            encoder.transform_batch({"c": ["yellow"]})
        hot = self.column(OneHotEncoder(["c"]).fit_transform(self.ds), "c")
        self.assertTrue(numpy.array_equal(hot, numpy.eye(3, dtype=numpy.float32)[expected]))
        gaps = data.from_items([{"v": 1.0}, {"v": None}, {"v": 3.0}])
        self.assertEqual(self.column(SimpleImputer(["v"]).fit_transform(gaps), "v").tolist(), [1, 2, 3])

    def test_concatenator_and_tokenizer(self):
        from unisono.data.preprocessors import Concatenator, Tokenizer

        joined = Concatenator(columns=["x", "y"], output_column_name="features").fit_transform(self.ds)
        self.assertEqual(joined.columns(), ["c", "features"])
        self.assertEqual(joined.take(2)[1]["features"].tolist(), [float(self.x[1]), 1.0])
        texts = data.from_items([{"t": "The cat, the dog!"}, {"t": "a cat"}])
        tokenizer = Tokenizer(["t"]).fit(texts)
        self.assertEqual(tokenizer.stats_["vocabulary"][0], "the")
        rows = self.column(tokenizer.transform(texts), "t")
        self.assertEqual(rows[0].tolist(), [2, 3, 2, 4])
        self.assertEqual(rows[1].tolist()[2:], [0, 0])
        self.assertEqual(tokenizer.transform_batch({"t": ["unknown words"]})["t"].tolist(), [[1, 1, 0, 0]])


if __name__ == "__main__":
    support.main()
