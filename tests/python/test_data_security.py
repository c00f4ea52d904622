"""Data files run no code: a table is never unpickled because of what a file says, in any format, by any way out of a dataset."""

import base64
import json
import os
import pickle
import sqlite3
import struct
import subprocess
import sys
import unittest
import unittest.mock

import numpy

import support
import unisono
from data_files import InDirectory, example, record
from unisono import data

try:
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet
except ImportError:
    pyarrow = None
try:
    import pandas
except ImportError:
    pandas = None

NAME = "__object__"  # what the column of pickles is called


class Bomb:
    """Its pickle makes a directory when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Malicious(InDirectory):
    def setUp(self):
        super().setUp()
        self.proof = self.path("executed")
        self.bytes = pickle.dumps(Bomb(self.proof))

    def ways_out(self, ds):
        """Every way that rows leave a dataset, or reach a function of the user's."""
        yield lambda: ds.take(1)
        yield ds.take_all
        yield ds.take_batch
        yield lambda: ds.show(1)
        yield lambda: list(ds.iter_rows())
        yield lambda: list(ds)
        for batch_format in ("default", "numpy") + (("pandas",) if pandas else ()) + (("pyarrow",) if pyarrow else ()):
            yield lambda batch_format=batch_format: list(ds.iter_batches(batch_format=batch_format))
            yield lambda batch_format=batch_format: ds.map_batches(lambda batch: batch, batch_format=batch_format).take_all()
        yield lambda: ds.map(lambda row: row).take_all()
        yield lambda: ds.filter(lambda row: True).take_all()
        yield lambda: ds.flat_map(lambda row: [row]).take_all()
        yield lambda: ds.map_batches(lambda batch: batch, concurrency=2).take_all()
        yield lambda: ds.materialize().take_all()
        yield lambda: ds.random_shuffle(seed=1).take_all()
        yield lambda: ds.repeat(2).take_all()
        yield ds.to_numpy
        yield lambda: ds.unique(NAME)
        if pandas:
            yield ds.to_pandas
        if pyarrow:
            yield ds.to_arrow

    def harmless(self, ds, value=None):
        self.assertEqual(ds.columns(), [NAME])
        self.assertEqual(ds.take_all(), [{NAME: self.bytes if value is None else value}])
        with support.printed():
            for way in self.ways_out(ds):
                way()
        self.assertFalse(os.path.exists(self.proof))

    def test_that_it_would_run(self):
        pickle.loads(self.bytes)
        self.assertTrue(os.path.exists(self.proof))

    def test_tfrecord(self):
        self.harmless(data.read_tfrecords(self.write("a.tfrecord", record(example(**{NAME: self.bytes})))))

    def test_sqlite(self):
        with sqlite3.connect(self.path("a.db")) as file:
            file.execute("CREATE TABLE t (%s BLOB)" % NAME)
            file.execute("INSERT INTO t VALUES (?)", (self.bytes,))
        self.harmless(data.read_sqlite(self.path("a.db"), "t"))
        self.harmless(data.read_sqlite(self.path("a.db"), "SELECT * FROM t"))
        self.harmless(data.read_sql("SELECT * FROM t", lambda: sqlite3.connect(self.path("a.db"))))

    @unittest.skipUnless(pyarrow, "no pyarrow")
    def test_parquet_and_arrow(self):
        table = pyarrow.table({NAME: pyarrow.array([self.bytes], pyarrow.binary())})
        pyarrow.parquet.write_table(table, self.path("a.parquet"))
        pyarrow.feather.write_feather(table, self.path("a.arrow"))
        self.harmless(data.read_parquet(self.path("a.parquet")))
        self.harmless(data.read_arrow(self.path("a.arrow")))
        self.harmless(data.from_arrow(table))

    @unittest.skipUnless(pyarrow, "no pyarrow")
    def test_arrow_extension_types(self):
        """Types that Python registers: older versions of pyarrow unpickled them, and Ray's hold pickles of tensors."""
        for name in ("arrow.py_extension_type", "ray.data.arrow_pickled_object", "ray.data.arrow_tensor"):
            field = pyarrow.field(NAME, pyarrow.binary(), metadata={"ARROW:extension:name": name, "ARROW:extension:metadata": self.bytes})
            table = pyarrow.table([pyarrow.array([self.bytes], pyarrow.binary())], schema=pyarrow.schema([field]))
            pyarrow.parquet.write_table(table, self.path(name + ".parquet"))
            pyarrow.feather.write_feather(table, self.path(name + ".arrow"))
            self.harmless(data.read_parquet(self.path(name + ".parquet")))
            self.harmless(data.read_arrow(self.path(name + ".arrow")))

    @unittest.skipUnless(pyarrow, "no pyarrow")
    def test_old_pyarrow_is_refused(self):
        pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), self.path("a.parquet"))
        with unittest.mock.patch.object(pyarrow, "__version__", "13.0.0"):
            with self.assertRaisesRegex(ImportError, "CVE-2023-47248"):
                data.read_parquet(self.path("a.parquet"))

    def test_json_and_csv(self):
        text = base64.b64encode(self.bytes).decode()
        self.harmless(data.read_json(self.write("a.jsonl", json.dumps({NAME: text}) + "\n")), text)
        self.harmless(data.read_csv(self.write("a.csv", "%s\n%s\n" % (NAME, text))), text)
        protocol_0 = pickle.dumps(Bomb(self.proof), protocol=0).decode()  # is text
        self.harmless(data.read_json(self.write("b.jsonl", json.dumps({NAME: protocol_0}) + "\n")), protocol_0)
        self.harmless(data.read_csv(self.write("b.csv", '%s\n"%s"\n' % (NAME, protocol_0.replace('"', '""')))), protocol_0)
        self.harmless(data.read_text(self.write("c.txt", text), column=NAME), text)

    def test_binary_files(self):
        self.harmless(data.read_binary_files(self.write("a.bin", self.bytes)).rename_columns({"bytes": NAME}))

    def test_tfrecord_raw(self):
        self.harmless(data.read_tfrecords(self.write("a.tfrecord", record(self.bytes)), raw=True).rename_columns({"bytes": NAME}))

    def test_numpy(self):
        numpy.save(self.path("a.npy"), numpy.array([Bomb(self.proof)], dtype=object), allow_pickle=True)
        numpy.savez(self.path("b.npz"), **{NAME: numpy.array([Bomb(self.proof)], dtype=object)})
        for name in ("a.npy", "b.npz"):
            with self.assertRaises(unisono.Error):
                data.read_numpy(self.path(name), column=NAME).take_all()
        self.assertFalse(os.path.exists(self.proof))

    def test_in_memory(self):
        self.harmless(data.from_items([{NAME: self.bytes}]))
        self.harmless(data.from_numpy({NAME: numpy.array([self.bytes], dtype=object)}))
        self.harmless(data.from_generator(lambda: iter([{NAME: self.bytes}]), batches=False))
        if pandas:
            self.harmless(data.from_pandas(pandas.DataFrame({NAME: [self.bytes]})))

    def test_behind_real_objects(self):
        """A block of real objects first, then bytes of a file under the same name: they are not of one kind, and never put together."""
        def blocks():
            yield from ((1, 2) for _ in range(256))
            yield {NAME: numpy.array([self.bytes, self.bytes], dtype=object)}

        ds = data.from_generator(blocks, batches=True)
        for way in (ds.take_all, lambda: list(ds.iter_batches(batch_size=1000)), lambda: list(ds.iter_batches(batch_size=7)),
                    lambda: list(ds.shuffle(1000, seed=1).iter_batches(batch_size=7)), lambda: ds.materialize().take_all()):
            with self.assertRaises(unisono.Error):
                way()
        with self.assertRaises(unisono.Error):
            data.from_items([(1, 2)]).union(data.from_items([{NAME: self.bytes}])).take_all()
        with self.assertRaises(unisono.Error):
            data.from_items([{NAME: self.bytes}]).union(data.from_items([(1, 2)])).take_all()
        self.assertFalse(os.path.exists(self.proof))

    def test_no_reader_makes_objects(self):
        path = self.write("a.jsonl", json.dumps({NAME: "x"}) + "\n")
        for kind in ("object", object):
            with self.assertRaises((TypeError, ValueError, unisono.Error)):
                data.read_json(path, types={NAME: kind}).take_all()


class Objects(unittest.TestCase):
    """What was made in this process still comes out as itself."""

    def test_every_way(self):
        items = [(i, "x", {"a": i}) for i in range(5)]
        ds = data.from_items(items)
        self.assertEqual(ds.take_all(), items)
        self.assertEqual(ds.map(lambda item: (item[0], 1)).take_all(), [(i, 1) for i in range(5)])
        self.assertEqual(sorted(ds.random_shuffle(seed=1).take_all()[0:0] + ds.random_shuffle(seed=1).take_all(), key=str), sorted(items, key=str))
        self.assertEqual(ds.map_batches(lambda rows: [row[:1] for row in rows], concurrency=2).take_all(), [(i,) for i in range(5)])
        self.assertEqual([len(batch) for batch in ds.iter_batches(batch_size=2)], [2, 2, 1])
        self.assertEqual(ds.union(ds).materialize().count(), 10)
        self.assertEqual(pickle.loads(pickle.dumps(ds)).take_all(), items)

    def test_beside_other_columns(self):
        zipped = data.from_items([(1, 2), (3, 4)]).zip(data.from_items([{"x": 5}, {"x": 6}]))
        self.assertEqual(zipped.take_all(), [{NAME: (1, 2), "x": 5}, {NAME: (3, 4), "x": 6}])
        self.assertEqual(zipped.rename_columns({NAME: "y"}).take(1), [{"y": (1, 2), "x": 5}])


@unittest.skipUnless(pyarrow, "pyarrow is not installed")
class ArrowFiles(InDirectory):
    """pyarrow takes the offsets and indices of an Arrow IPC file as they are: rows of it were bytes from elsewhere in memory, or the end of the process."""

    def written(self, values, find, at, number):
        """A file with one number changed, which lies so many bytes after the beginning of a buffer."""
        path, table = self.path("bad.arrow"), pyarrow.table({"a": values})
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
        with open(path, "rb") as file:
            content = bytearray(file.read())
        buffer = find(table.column(0).chunk(0)).to_pybytes()[:80]
        place = content.index(buffer) + at
        content[place:place + 4] = struct.pack("<i", number)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def refused(self, path):
        """In a process of its own: it may crash."""
        code = "import sys\nfrom unisono import data\ntry:\n    print(data.read_arrow(sys.argv[1]).take_all())\nexcept ValueError as error:\n    print('refused', error)"
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("refused cannot read %s as an Arrow IPC file: " % path, done.stdout)

    def test_offsets_and_indices(self):
        numbers = list(range(100))
        for values, find in (([["x%d" % i for i in numbers]], lambda chunk: chunk.buffers()[1]), ([[b"x%d" % i for i in numbers]], lambda chunk: chunk.buffers()[1]),
                             ([[[i, i] for i in numbers]], lambda chunk: chunk.buffers()[1]),
                             ([pyarrow.array(["a", "b"] * 50).dictionary_encode()], lambda chunk: chunk.indices.buffers()[1])):
            for number in (0x7ffffff0, 300, -5):
                with self.subTest(values=values[0][0], number=number):
                    self.refused(self.written(values[0], find, 40, number))

    def test_views(self):
        if not hasattr(pyarrow, "string_view"):
            self.skipTest("this pyarrow has no views")
        self.refused(self.written(pyarrow.array(["x" * 40] * 100).cast(pyarrow.string_view()), lambda chunk: chunk.buffers()[1], 12, 0x6fffffff))

    def test_files_that_others_can_write_are_not_mapped(self):
        """They could be changed after the check, or cut off."""
        path = self.path("numbers.arrow")
        for mode, mapped in ((0o600, True), (0o644, True), (0o664, False), (0o666, False)):
            pyarrow.feather.write_feather(pyarrow.table({"a": list(range(20000))}), path, compression="uncompressed")
            os.chmod(path, mode)
            ds = data.read_arrow(path)
            with open("/proc/self/maps", encoding="utf-8") as file:
                self.assertEqual(path in file.read(), mapped, oct(mode))
            self.assertEqual(ds.count(), 20000)
            del ds

    def test_parquet_files_are_named(self):
        """When the contents of a row group are damaged, too."""
        path = self.path("damaged.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"a": list(range(1000))}), path)
        with open(path, "r+b") as file:
            file.seek(30)
            file.write(b"\xff" * 200)
        with self.assertRaisesRegex((OSError, ValueError), "damaged.parquet"):
            data.read_parquet(path).take_all()


def _report(config):
    unisono.train.report({"loss": 1.0})


class Planted(InDirectory):
    """The current directory may be one where another user leaves modules. No process that we start takes them from there."""

    def setUp(self):
        super().setUp()
        self.proof, before = self.path("executed"), os.getcwd()
        for name in ("unisono", "numpy", "json", "pickle", "struct", "cloudpickle", "sitecustomize"):
            with open(self.path(name + ".py"), "w", encoding="utf-8") as file:
                file.write("import os\nos.mkdir(%r)\n" % self.proof)
        os.chdir(self.path("."))
        self.addCleanup(os.chdir, before)

    def tearDown(self):
        self.assertFalse(os.path.exists(self.proof), "a module of the current directory was imported")
        super().tearDown()

    def test_processes_of_a_dataset(self):
        self.assertEqual(data.range(10).map_batches(lambda batch: batch, concurrency=2).count(), 10)

    def test_workers(self):
        config = unisono.train.RunConfig(storage_path=self.path("runs"))
        result = unisono.train.DataParallelTrainer(_report, scaling_config=unisono.train.ScalingConfig(num_workers=2), run_config=config).fit()
        self.assertEqual(result.metrics["loss"], 1.0)


if __name__ == "__main__":
    support.main()
