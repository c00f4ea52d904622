"""Files that are small and want to become large: each is refused or read within the memory budget of a dataset (256 MiB), and in time."""

import gzip
import os
import sqlite3
import struct
import subprocess
import sys
import time
import unittest
import zlib

import numpy
import support
from data_files import InDirectory, masked

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

BUDGET = 256 << 20
SCRIPT = """
import resource, sys
from unisono import data
import unisono
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = sys.argv[1]
try:
    result = eval(sys.argv[2])
    print("read", str(result)[:60])
except (unisono.Error, ValueError) as error:
    print("refused", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def gz_zeros(path, head, byte, count, tail=b""):
    """head, then `count` MiB of one byte."""
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(count):
            file.write(byte * (1 << 20))
        file.write(tail)


def varint(number):
    """A whole number as Parquet's metadata has it (zigzag, seven bits a byte)."""
    number, out = number * 2, b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def png(width, height):
    """Grey, all black, in few bytes."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    packer = zlib.compressobj(1)
    body = b"".join(packer.compress(bytes(width + 1)) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


class Bombs(InDirectory):
    def bounded(self, path, expression, words, seconds=60):
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", SCRIPT, path, expression], capture_output=True, text=True, check=False, timeout=300)
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(words, lines[0])
        self.assertLess(int(lines[-1]), BUDGET, lines[0])
        self.assertLess(time.monotonic() - begin, seconds)

    def test_lines_of_compressed_files(self):
        gz_zeros(self.path("a.txt.gz"), b"", b"x", 1024)
        self.bounded(self.path("a.txt.gz"), "data.read_text(path).count()", "a line of more than 32 MiB")
        gz_zeros(self.path("a.jsonl.gz"), b'{"a": "', b"x", 1024)
        self.bounded(self.path("a.jsonl.gz"), "data.read_json(path).count()", "a line of more than 32 MiB")
        gz_zeros(self.path("a.csv.gz"), b"a,b\n", b"x", 1024)
        self.bounded(self.path("a.csv.gz"), "data.read_csv(path).count()", "a line of more than 32 MiB")
        gz_zeros(self.path("b.csv.gz"), b'a,b\n"', b"x", 600)
        self.bounded(self.path("b.csv.gz"), "data.read_csv(path).count()", "refused")
        gz_zeros(self.path("c.csv.gz"), b"a,b\n", b"\xe9", 1024)
        self.bounded(self.path("c.csv.gz"), "data.read_csv(path, encoding='cp1252').count()", "a line of more than 32 MiB")

    def test_many_rows_of_a_small_file(self):
        gz_zeros(self.path("a.csv.gz"), b"a\n", b"1\n", 100)
        self.bounded(self.path("a.csv.gz"), "data.read_csv(path).count()", "read 104857600", 200)

    def test_many_keys_of_a_small_file(self) -> None:
        """Each line has another key: a table of many columns, nearly all of them empty."""
        path = self.path("keys.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for number in range(100_000):
                file.write('{"k%d": 1}\n' % number)
        self.bounded(path, "data.read_json(path).count()", "100000")

    @unittest.skipUnless(pyarrow, "no pyarrow")
    def test_zstandard(self):
        with pyarrow.OSFile(self.path("a.txt.zst"), "wb") as file, pyarrow.CompressedOutputStream(file, "zstd") as writer:
            for _ in range(1024):
                writer.write(b"x" * (1 << 20))
        self.bounded(self.path("a.txt.zst"), "data.read_text(path).count()", "a line of more than 32 MiB")

    def test_records(self):
        size = struct.pack("<Q", 1 << 30)
        gz_zeros(self.path("a.tfrecord.gz"), size + masked(size), b"\0", 1024)
        self.bounded(self.path("a.tfrecord.gz"), "data.read_tfrecords(path, raw=True).count()", "unpack the file first")

    def test_idx(self):
        gz_zeros(self.path("a-idx3-ubyte.gz"), bytes([0, 0, 8, 3]) + struct.pack(">III", 1024, 1024, 1024), b"\0", 1024)
        self.bounded(self.path("a-idx3-ubyte.gz"), "data.read_idx({'x': path}).count()", "unpack it first")

    def test_images(self):
        self.write("a/1.png", png(32, 32))
        self.write("a/2.png", png(15500, 15500))
        self.bounded(self.path("a"), "data.read_images(path, size=(32, 32)).take_all()", "MiB to decode")
        self.bounded(self.path("a"), "data.read_images(path, size=(32, 32), on_error='skip').count()", "read 1")
        for i in range(8):  # large, but not too large: one at a time
            self.write("b/%d.png" % i, png(10000, 10000))
        self.bounded(self.path("b"), "data.read_images(path, size=(32, 32), mode='L').random_shuffle().count() and data.read_images(path, size=(32, 32), mode='L').sum('image')", "read 0", 200)

    def test_sqlite(self):
        with sqlite3.connect(self.path("a.db")) as file:
            file.execute("CREATE TABLE t (x INTEGER)")
            file.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(1000)])
            file.execute("CREATE VIEW endless AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c")
            file.execute("CREATE VIEW none AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0")
            file.execute("CREATE VIEW large AS SELECT zeroblob(1000000000) AS b FROM t")
            file.execute("CREATE VIEW many AS SELECT zeroblob(5000000) AS b FROM t")
        for name in ("endless", "none"):
            self.bounded(self.path("a.db"), "data.read_sqlite(path, %r).count()" % name, "is recursive, and may be endless")
            self.bounded(self.path("a.db"), "data.read_sqlite(path, 'SELECT * FROM %s').count()" % name, "is recursive, and may be endless")
        self.bounded(self.path("a.db"), "data.read_sqlite(path, 'WITH c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 50) SELECT x FROM c').count()", "read 50")
        self.bounded(self.path("a.db"), "data.read_sqlite(path, 'large').take(1)", "too big")
        self.bounded(self.path("a.db"), "len(data.read_sqlite(path, 'many').take(3))", "read 3")

    def test_sqlite_rowids_with_gaps(self):
        """Few rows with rowids far apart: a small file does not have tens of thousands of empty blocks, each with a query of its own."""
        with sqlite3.connect(self.path("a.db")) as file:
            file.execute("CREATE TABLE t (x INTEGER)")
            file.executemany("INSERT INTO t (rowid, x) VALUES (?, ?)", [(1, 10), (4, 20), (1 << 40, 30), ((1 << 63) - 1, 40)])
            file.execute("CREATE TABLE two (x INTEGER)")
            file.executemany("INSERT INTO two (rowid, x) VALUES (?, ?)", [(i, 1) for i in [*range(2, 9000), (1 << 63) - 2, (1 << 63) - 1]])
            file.execute("CREATE TABLE u (x INTEGER)")
            file.executemany("INSERT INTO u (rowid, x) VALUES (?, ?)", [(-(1 << 63), 1), (-5, 2), (0, 3), (1 << 62, 4)])
        self.bounded(self.path("a.db"), "data.read_sqlite(path, 'two').count(), len(data.read_sqlite(path, 'two').take_all())", "read (9000, 9000)")
        self.bounded(self.path("a.db"), "(data.read_sqlite(path, 'u').count(), [row['x'] for row in data.read_sqlite(path, 'u').take_all()])", "read (4, [1, 2, 3, 4])")
        self.bounded(self.path("a.db"), "[row['x'] for row in data.read_sqlite(path, 't').take_all()]", "read [10, 20, 30, 40]")

    def test_a_query_of_many_rows_is_left(self):
        """Nobody waits for a step that works for hours."""
        with sqlite3.connect(self.path("a.db")) as file:
            file.execute("CREATE TABLE t (x INTEGER)")
            file.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(2000)])
        code = ("import sys, threading, time\nfrom unisono import data\n"
                "ds = data.read_sqlite(sys.argv[1], 'SELECT a.x FROM t a, t b, t c, t d WHERE a.x < 1000 OR a.x + b.x + c.x + d.x < 0')\n"
                "it = iter(ds.iter_batches(batch_size=1000))\nnext(it)\nbegin = time.monotonic()\nit.close()\nprint('left')")
        done = subprocess.run([sys.executable, "-c", code, self.path("a.db")], capture_output=True, text=True, check=False, timeout=120)
        self.assertIn("left", done.stdout, done.stderr)

    def test_many_small_files(self):
        for i in range(20000):
            self.write("many/%03d/%05d.csv" % (i // 200, i), "a,b\n%d,%d\n" % (i, 2 * i))
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", SCRIPT, self.path("many"), "data.read_csv(path).sum('a')"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.splitlines()[0], "read %d" % sum(range(20000)))
        self.assertLess(int(done.stdout.splitlines()[-1]), 64 << 20)  # 190 MB, when every file had buffers of its own
        self.bounded(self.path("many"), "len(data.read_csv(path).plan(4)[3]['pieces'])", "read 20000")  # each file was looked for among all
        self.assertLess(time.monotonic() - begin, 100)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet_with_one_large_row_group(self) -> None:
        """It is in memory once: 80 MiB of values took twice as much, because the bytes of the file stayed beside them."""
        rows, path = 1 << 20, self.path("large.parquet")
        table = pyarrow.table({"x%d" % number: numpy.arange(rows, dtype=numpy.float64) + number for number in range(10)})
        pyarrow.parquet.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)
        self.bounded(path, "sum(len(batch['x3']) for batch in data.read_parquet(path).iter_batches(batch_size=65536))", "read %d" % rows)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet_of_equal_rows(self) -> None:
        """A run of equal values takes a few bytes however long it is: the file's end says 12 thousand million rows, 100 GB."""
        rows, claimed = 1_234_567, 12_500_000_000
        path = self.path("equal.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"x": numpy.zeros(rows, numpy.int64)}), path, row_group_size=rows)
        with open(path, "rb") as file:
            content = file.read()
        at = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
        end = content[at:-8]
        self.assertGreaterEqual(end.count(varint(rows)), 3)
        end = end.replace(varint(rows), varint(claimed))
        with open(path, "wb") as file:
            file.write(content[:at] + end + struct.pack("<I", len(end)) + b"PAR1")
        self.bounded(path, "data.read_parquet(path).take(1)", "row group 0 becomes 100.0 GB", seconds=30)

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet_of_equal_texts(self) -> None:
        """One text of a megabyte, and 10,000 references to it: 10 GB in a file of 50 KB. Fewer are read."""
        path, text = self.path("texts.parquet"), "x" * (1 << 20)
        for count, word in ((10_000, "row group 0 becomes"), (20, "read")):
            column = pyarrow.DictionaryArray.from_arrays(numpy.zeros(count, numpy.int32), [text])
            pyarrow.parquet.write_table(pyarrow.table({"x": column}), path, store_schema=False)
            self.assertLess(os.path.getsize(path), 1 << 20)
            self.bounded(path, "len(data.read_parquet(path).take(1)[0]['x'])", word, seconds=30)

    def test_wide_files_end(self):
        self.write("a.jsonl", "{%s}" % ", ".join('"k%d": 1' % i for i in range(300000)))
        self.bounded(self.path("a.jsonl"), "data.read_json(path).count()", "more than 100000 different keys")
        self.write("a.csv", ",".join("c%d" % i for i in range(300000)) + "\n" + ",".join(["1"] * 300000) + "\n")
        self.bounded(self.path("a.csv"), "data.read_csv(path).count()", "more than 100000 columns")


if __name__ == "__main__":
    support.main()
