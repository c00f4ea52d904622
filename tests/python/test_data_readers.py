"""Datasets in Python: the readers of files, and what they say of bad ones."""

import gzip
import json
import os
import random
import sqlite3
import struct
import subprocess
import time
import unittest
import unittest.mock
import zipfile

import numpy

import support
import unisono
from data_files import InDirectory, example, record
from unisono import data
from unisono.data._dataset import shard_of

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None
try:
    from PIL import Image
except ImportError:
    Image = None


class Readers(InDirectory):
    def test_options_of_ray(self):
        path = self.write("a.csv", "x\n1\n2\n")
        self.assertEqual(data.read_csv(path, parallelism=4, concurrency=2, filesystem=None, partitioning=None, shuffle=False).count(), 2)
        for options, what in (({"shuffle": "files"}, "random_shuffle"), ({"file_extensions": ["txt"]}, "glob"), ({"ignore_missing_paths": True}, "leave out"),
                              ({"partition_filter": len}, "glob"), ({"filesystem": object()}, "mount")):
            with self.assertRaisesRegex(TypeError, r"read_csv\(%s=.*%s" % (next(iter(options)), what)):
                data.read_csv(path, **options)
        for call, words in ((lambda: data.read_csv(path, delimeter=","), "'delimeter'; did you mean 'delimiter'"), (lambda: data.read_csv(path, delimeter=None), "delimiter"),
                            (lambda: data.read_tfrecords(path, tf_schema=object()), "types="),
                            (lambda: data.range(3).map(len, concurency=2), "did you mean 'concurrency'"), (lambda: data.range(3).repeat(2).rewindow(blocks_per_window=2, preserve_epoch=False), "preserve"),
                            (lambda: data.range(3).repeat(2).random_shuffle_each_window(num_blocks=3), "repartition_each_window"), (lambda: data.ActorPoolStrategy(sizes=3), "'size'")):
            with self.assertRaisesRegex(TypeError, words):
                call()

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

    def test_json_keys_with_escapes(self):
        path = self.write("a.jsonl", '{"\\u00fc": 1, "a\\"b": 2, "\u00fc\u00fc": 3}\n{"\u00fc": 4, "a\\u0022b": 5, "\\u00fc\\u00fc": 6}\n')
        self.assertEqual(data.read_json(path).take_all(), [{"\u00fc": 1, 'a"b': 2, "\u00fc\u00fc": 3}, {"\u00fc": 4, 'a"b': 5, "\u00fc\u00fc": 6}])
        self.assertFails("EFORMAT", "a.jsonl:1:", data.read_json, self.write("a.jsonl", '{"a\\u0000b": 1}\n'))

    def test_json_of_many_keys(self):
        wide = {"key %d" % i: i for i in range(5000)}
        path = self.write("a.jsonl", "\n".join(json.dumps(dict(sorted(wide.items(), key=lambda pair: (pair[1] * 7919 + shift) % 5000))) for shift in range(40)))
        ds = data.read_json(path)
        self.assertEqual((len(ds.columns()), ds.count()), (5000, 40))
        self.assertTrue(all(row == wide for row in ds.take_all()))
        path = self.write("b.jsonl", json.dumps({"key %d" % i: i for i in range(300000)}))
        begin = time.monotonic()
        self.assertFails("ELIMIT", "more than 100000 different keys", data.read_json, path)
        self.assertLess(time.monotonic() - begin, 20)

    def test_npy_of_a_shape_with_many_digits(self):
        for shape, code in (("(1000000000000000000,)", "too large"), ("(99999999999999999999,)", "too large"), ("(1234567890123456789, 1)", "too large")):
            text = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }\n" % shape).encode()
            path = self.write("a.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))
            self.assertFails("EFORMAT", code, data.read_numpy, path)

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
        self.assertFails("ECORRUPT", "the file ends in the middle of its gzip data", lambda: data.read_text(cut).take_all())
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
        self.assertFails("EFORMAT", "is not an idx file", data.read_idx, {"x": self.write("bad", b"hello")})

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
        self.assertFails("EIO", "no such column: nothing", data.read_sqlite, self.path("a.db"), "t", columns=["nothing"])
        self.assertFails("EIO", "not a database", data.read_sqlite, self.write("no.db", b"x" * 5000), "t")
        self.assertEqual(data.read_sql("SELECT id FROM t WHERE id < 3", lambda: sqlite3.connect(self.path("a.db"))).take_all(),
                         [{"id": 1}, {"id": 2}])

    def test_sqlite_rowids_far_apart(self):
        """A small file is read in a few ranges, however far apart its rowids are."""
        with sqlite3.connect(self.path("far.db")) as base:
            base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
            base.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2 ** 40, "b"), (2 ** 60, "c")])
        ds = data.read_sqlite(self.path("far.db"), "t")
        self.assertEqual([row["name"] for row in ds.take_all()], ["a", "b", "c"])
        self.assertEqual(ds.num_blocks(), 1)

    def test_sql_columns_have_one_type(self):
        with sqlite3.connect(self.path("gaps.db")) as connection:
            connection.execute("CREATE TABLE t (late INTEGER, early INTEGER, mixed)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ((i if i < 5000 else None, None if i == 1 else i, i if i % 2 else i + 0.5) for i in range(9000)))
        read = lambda columns: data.read_sql("SELECT %s FROM t" % columns, lambda: sqlite3.connect(self.path("gaps.db")))
        batches = list(read("early, mixed").iter_batches(batch_size=1000))
        self.assertEqual({(str(each["early"].dtype), str(each["mixed"].dtype)) for each in batches}, {("float64", "float64")})
        self.assertEqual(sum(float(each["mixed"].sum()) for each in batches), sum(i if i % 2 else i + 0.5 for i in range(9000)))
        with self.assertRaisesRegex(ValueError, "'late': whole numbers in the first rows, NULL later.*CAST"):
            read("late").count()

    def test_sqlite_by_a_key(self):
        """Keys with gaps, with many rows each, fractions, the largest and smallest numbers, and none: every row is in one block."""
        base = sqlite3.connect(self.path("k.db"))
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, day INTEGER, far INTEGER, name TEXT, text TEXT)")
        days = [i * i % 97 for i in range(5000)] + [2.5] * 3 + [None] * 4 + [10 ** 9]
        far = [2 ** 63 - 1, -2 ** 63, 2 ** 62, None, 0]
        base.executemany("INSERT INTO t (day, far, name, text) VALUES (?, ?, ?, ?)", [(day, far[i % 5], "n%d" % i, "x" * 1000) for i, day in enumerate(days)])
        base.execute("CREATE VIEW v AS SELECT id, day, far, name FROM t")
        base.commit()
        query = "SELECT name, day FROM t WHERE id %% 2 = %d -- a comment"
        self.assertFails("EINVAL", "CREATE INDEX", data.read_sqlite, self.path("k.db"), query % 0, key="day")
        for column in ("day", "far", "name"):
            base.execute("CREATE INDEX index_%s ON t (%s)" % (column, column))
        base.commit()
        for what, key, blocks in ((query % 0, "day", 7), (query % 1 + ";", "day", None), ("v", "day", 50), ("v", "id", None), ("v", "far", None), ("t", "far", 1)):
            ds = data.read_sqlite(self.path("k.db"), what, key=key, num_blocks=blocks, infer_rows=10000)
            with self.subTest(what=what, key=key):
                self.assertIn("block", ds.order())
                expected = sorted(row[0] for row in base.execute("SELECT name FROM (%s)" % (what if " " in what else "SELECT * FROM " + what).replace("-- a comment", "").rstrip(";")))
                self.assertEqual(sorted(row["name"] for row in ds.iter_rows()), expected)
                self.assertEqual(ds.count(), len(expected))
                shards = [shard_of(ds.random_shuffle(seed=1), rank, 3, equal=True) for rank in range(3)]
                rows = [[row["name"] for row in shard.iter_rows()] for shard in shards]
                self.assertEqual(sorted(sum(rows, [])), expected)
                self.assertLessEqual(max(map(len, rows)) - min(map(len, rows)), 1)
        days = [row["day"] for row in data.read_sqlite(self.path("k.db"), "SELECT day FROM t WHERE day < 50 AND id < 4000", key="day").iter_rows()]
        self.assertEqual(days, sorted(days))
        self.assertFails("EINVAL", "not of whole numbers", data.read_sqlite, self.path("k.db"), "t", key="name")
        self.assertFails("EIO", "no such column", data.read_sqlite, self.path("k.db"), "t", key="nothing")
        self.assertFails("EINVAL", "cannot be looked up", data.read_sqlite, self.path("k.db"), "SELECT day FROM t LIMIT 10", key="day")
        self.assertFails("EINVAL", "name one", data.read_sqlite, self.path("k.db"), "t", num_blocks=3)

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
        with unittest.mock.patch.multiple(zipfile, ZIP64_LIMIT=10, ZIP_FILECOUNT_LIMIT=1):  # as NumPy writes more than 2 GiB
            numpy.savez(self.path("large.npz"), x=values, y=values[:, 0])
        large = data.read_numpy(self.path("large.npz")).take_batch(6)
        self.assertTrue(numpy.array_equal(large["x"], values) and numpy.array_equal(large["y"], values[:, 0]))
        content = open(self.path("large.npz"), "rb").read()
        for damaged in (content.replace(b"\1\0\x18\0", b"\2\0\x18\0"), content.replace(b"\1\0\x18\0", b"\1\0\x08\0"), content[:-23]):
            self.assertFails("EFORMAT", "as a .npz archive", data.read_numpy, self.write("damaged.npz", damaged))

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
        self.assertEqual([os.path.basename(name) for name in ds.input_files()], ["0.parquet", "1.parquet"])
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


class BadInput(InDirectory):
    """Nothing is silently wrong: what cannot be read is told with its place, or skipped and counted."""

    def rows(self, ds):
        return ds.take(100000)

    def test_csv_headers(self):
        self.assertFails("EFORMAT", "cr.csv:1:2: lines end with a carriage return", data.read_csv, self.write("cr.csv", b"a,b\r1,2\r3,4\r"))
        self.assertFails("EFORMAT", "utf.csv:1:1: a column's name", data.read_csv, self.write("utf.csv", b"\xff,b\n1,2\n"))
        self.assertFails("EEXISTS", "two.csv:1:2: two columns are called \"a\"", data.read_csv, self.write("two.csv", "a,a\n1,2\n"))
        path = self.write("good.csv", "a,b\n1,2\n")
        self.assertFails("ENOTFOUND", "has no column z; its columns are a, b", data.read_csv, path, columns=["z"])
        self.assertFails("ENOTFOUND", "has no column z; its columns are a, b", data.read_csv, path, types={"z": "int64"})
        self.assertEqual(self.rows(data.read_csv(os.fsencode(path))), [{"a": 1, "b": 2}])

    def test_csv_numbers_are_not_rounded(self):
        rows = self.rows(data.read_csv(self.write("u.csv", "a\n18446744073709551615\n1\n")))
        self.assertEqual([row["a"] for row in rows], [2 ** 64 - 1, 1])
        rows = self.rows(data.read_csv(self.write("i.csv", "a\n9223372036854775808\n-1\n")))
        self.assertEqual([row["a"] for row in rows], ["9223372036854775808", "-1"])
        path = self.write("m.csv", "a\n9007199254740993\n\"\"\n")
        self.assertEqual([row["a"] for row in self.rows(data.read_csv(path))], ["9007199254740993", ""])
        self.assertFails("EFORMAT", "m.csv:3:1: \"\" in column a is missing", data.read_csv, path, types={"a": "int64"})
        self.assertFails("EFORMAT", "n.csv:2:1", lambda: self.rows(data.read_csv(self.write("n.csv", b"a\n1\x00\n2\n"), types={"a": "int64"})))
        path = self.write("late.csv", "a\n" + "1\n" * 1500 + "1.5\n")
        self.assertEqual(self.rows(data.read_csv(path))[-1]["a"], 1.5)
        self.assertFails("EFORMAT", "late.csv:1502:1", data.read_csv, path, infer_rows=1000)
        path = self.write("text.csv", "a\n" + "1\n" * 1500 + "x\n")
        self.assertFails("EFORMAT", "give it (types)", data.read_csv, path)

    def test_csv_columns_have_one_type(self):
        """Whole numbers with gaps, in a file that is read in blocks: float64 in all batches where a gap is seen at once, otherwise an error that names it, never both types."""
        rows = ["%d,%d" % (i, i) for i in range(600000)]
        rows[500] = ",500"
        ds = data.read_csv(self.write("early.csv", "a,b\n" + "\n".join(rows) + "\n"))
        for some in (ds, ds.random_shuffle(seed=1)):
            self.assertEqual({(str(batch["a"].dtype), str(batch["b"].dtype)) for batch in some.iter_batches(batch_size=10000)}, {("float64", "int64")})
        rows[500], rows[450000] = "500,500", "NA,450000"
        path = self.write("late.csv", "a,b\n" + "\n".join(rows) + "\n")
        ds, seen = data.read_csv(path), set()
        with self.assertRaisesRegex(unisono.Error, r"late.csv:450002:1: \"NA\" in column a is missing.*give it \(types\)"):
            for batch in ds.iter_batches(batch_size=10000):
                seen.add(str(batch["a"].dtype))
        self.assertEqual(seen, {"int64"})
        ds = data.read_csv(path, types={"a": "float64"})
        self.assertEqual(sum(int(numpy.isnan(batch["a"]).sum()) for batch in ds.iter_batches(batch_size=10000)), 1)
        ds = data.read_csv(path, on_error="skip")
        self.assertEqual(sum(len(batch["a"]) for batch in ds.iter_batches(batch_size=10000)), 599999)

    def test_csv_first_record_longer_than_the_head(self):
        path = self.write("long.csv", 'a,b\n1,"' + "z\n" * 300000 + '"\n2,y\n')
        self.assertEqual([len(row["b"]) for row in self.rows(data.read_csv(path, block_bytes=1 << 20))], [600000, 1])

    def test_csv_quotes_in_a_stream(self):
        choices, generator = ['5" pipe', '"a\nb"', '"q""r"', "plain", '6"'], random.Random(4)
        text = "s,i\n" + "".join("%s,%d\n" % (generator.choice(choices), i) for i in range(150000))
        with gzip.open(self.path("z.csv.gz"), "wb", compresslevel=1) as file:
            file.write(text.encode())
        got = [int(i) for batch in data.read_csv(self.path("z.csv.gz")).iter_batches(batch_size=5000) for i in batch["i"]]
        self.assertEqual(got, list(range(150000)))

    def test_cut_off_streams(self):
        made = {"c.csv.gz": "a,b\n" + "1,2\n" * 100000, "j.jsonl.gz": '{"a": 1}\n' * 100000, "t.txt.gz": "word\n" * 100000,
                "r.tfrecord.gz": b"".join(record(example(a=[i])) for i in range(3000))}
        readers = {"c": data.read_csv, "j": data.read_json, "t": data.read_text, "r": data.read_tfrecords}
        for name, content in made.items():
            whole = gzip.compress(content if isinstance(content, bytes) else content.encode(), 1)
            path, read = self.write(name, whole[:len(whole) * 3 // 4]), readers[name[0]]
            self.assertFails("ECORRUPT", "ends in the middle of its gzip data", lambda: list(read(path).iter_batches()))
            if name[0] != "r":
                with self.assertRaisesRegex(unisono.Error, r"gz:\d+: the file ends"):
                    list(read(path).iter_batches())
            good = self.write("good." + name, whole)
            ds, one = read([path, good], on_error="skip"), read(good).count()
            rows = sum(len(next(iter(batch.values()))) for batch in ds.iter_batches())
            self.assertGreater(rows, one + one // 3)
            self.assertLess(rows, 2 * one)
            self.assertEqual(ds.stats()["skipped"], 1)
            self.assertFails("EFORMAT", "no more are allowed", lambda: list(read([path, path], on_error="skip", max_errors=1).iter_batches()))

    def test_json_numbers_that_do_not_fit(self):
        for name, first, last in (("t", ["[1, 2]"], "[1.5, 2]"), ("l", ["[1]", "[1, 2]"], "[1.5]"), ("s", ["1"], "1.5")):
            text = "".join('{"a": %s}\n' % value for value in first * (1500 // len(first)) + [last])
            path = self.write(name + ".jsonl", text)
            self.assertFails("EFORMAT", name + ".jsonl:1501:", lambda: self.rows(data.read_json(path)))
            self.assertEqual(numpy.ravel(self.rows(data.read_json(path, infer_rows=5000))[-1]["a"])[0], 1.5)
        self.assertFails("EFORMAT", "8.jsonl:1:", lambda: self.rows(data.read_json(self.write("8.jsonl", '{"a": 200}\n'), types={"a": "int8"})))
        rows = self.rows(data.read_json(self.write("big.jsonl", '{"a": [9007199254740993, 1]}\n')))
        self.assertEqual(rows[0]["a"].tolist(), [9007199254740993, 1])

    def test_byte_order_marks_and_lists(self):
        mark = b"\xef\xbb\xbf"
        self.assertEqual(self.rows(data.read_json(self.write("m.jsonl", mark + b'{"a": 1}\r\n{"a": 2}\n'))), [{"a": 1}, {"a": 2}])
        self.assertEqual(self.rows(data.read_json(self.write("m.json", mark + b'[{"a": 1, "b": 2}]'), columns=["b"])), [{"b": 2}])
        self.assertEqual(self.rows(data.read_json(self.write("l.json.gz", gzip.compress(b'[{"a": 1}]')))), [{"a": 1}])
        self.assertEqual(self.rows(data.read_text(self.write("m.txt", mark + b"x\ny\n"))), [{"text": "x"}, {"text": "y"}])
        self.assertEqual(self.rows(data.read_text(self.write("m.txt.gz", gzip.compress(mark + b"x\n")))), [{"text": "x"}])

    def test_tfrecord_values_that_do_not_fit(self):
        path = self.write("n.tfrecord", record(example(a=[5], f=[2.0])) + record(example(a=[2 ** 40], f=[0.5])))
        self.assertEqual(self.rows(data.read_tfrecords(path))[1]["a"], 2 ** 40)
        self.assertFails("EFORMAT", 'the feature "a" has a value that no int32 has', lambda: self.rows(data.read_tfrecords(path, types={"a": "int32"})))
        self.assertFails("EFORMAT", 'the feature "f" has a value that no int64 has', lambda: self.rows(data.read_tfrecords(path, types={"f": "int64"})))

    def test_numpy_files_that_change(self):
        path = self.path("x.npy")
        numpy.save(path, numpy.arange(300000.0))
        batches = data.read_numpy(path).iter_batches(batch_size=100)
        next(batches)
        with open(path, "r+b") as file:  # another array of the same size, in the same file
            file.seek(128)
            file.write(bytes(8 * 300000))
        self.assertFails("EIO", "x.npy changed while it was in use", list, batches)
        numpy.save(path, numpy.array(["a"]))
        self.assertFails("EUNSUPPORTED", "elements of type <U1;", data.read_numpy, path)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet(self):
        table = pyarrow.table({"id": numpy.arange(20000), "x": numpy.random.default_rng(0).random(20000), "text": ["t" * 300] * 20000})
        pyarrow.parquet.write_table(table, self.path("b.parquet"), row_group_size=1000, use_dictionary=False)
        ds = data.read_parquet(self.path("b.parquet"))
        self.assertTrue(ds.order().startswith("block"), ds.order())
        self.assertEqual((ds.num_blocks(), ds.count()), (20, 20000))
        read, whole = [], type(ds._recipe[1]).__call__
        with unittest.mock.patch.object(type(ds._recipe[1]), "__call__", lambda self, number: (read.append(number), whole(self, number))[1]):
            ids = numpy.concatenate([batch["id"] for batch in ds.random_shuffle(seed=3).iter_batches(batch_size=100)])
        self.assertEqual(sorted(read), list(range(20)))  # each row group once, not for each row
        self.assertNotEqual(ids.tolist(), list(range(20000)))
        self.assertEqual(sorted(ids.tolist()), list(range(20000)))
        pyarrow.parquet.write_table(pyarrow.table({"id": [1.5]}), self.path("o.parquet"))
        with self.assertRaisesRegex(ValueError, "o.parquet has other columns than .*b.parquet: id double where that has id int64"):
            data.read_parquet([self.path("b.parquet"), self.path("o.parquet")])
        with open(self.path("b.parquet"), "rb") as file:
            self.write("cut.parquet", file.read()[:-20])
        with self.assertRaisesRegex(ValueError, "cut.parquet as a Parquet file"):
            data.read_parquet(self.path("cut.parquet"))
        pyarrow.parquet.write_table(pyarrow.table({"s": [{"x": 1}]}), self.path("s.parquet"))
        with self.assertRaisesRegex(TypeError, "column 's' is of Arrow's type struct"):
            data.read_parquet(self.path("s.parquet"))


if __name__ == "__main__":
    support.main()
