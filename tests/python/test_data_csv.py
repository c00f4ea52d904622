"""CSV as people have it: other delimiters, quotes, encodings, headers and rows, compared with pandas where it has the option; and the same by the command."""

import csv
import json
import os
import random
import subprocess
import unittest

import numpy

import support
import unisono
from data_files import InDirectory
from unisono import data

try:
    import pandas
except ImportError:
    pandas = None

SMS = ('ham\tGo until jurong point, crazy.. Available only in bugis n great world la e buffet... Cine there got amore wat...\n'
       'spam\t"FREE entry in 2 a wkly comp to win FA Cup final tkts 21st May 2005\n'
       'ham\tU dun say so early hor... U c already then say "ok"...\n'
       'ham\tI\'m at 5" pipe, \u00dc know? \u00a3500\n'
       'ham\t"\n'
       'spam\tSIX chances to win CASH! From 100 to 20,000 pounds txt> CSH11\n')
KAGGLE = ('v1,v2,,,\r\nham,"Go until jurong point, crazy..",,,\r\nspam,"FREE entry, \u00a3100",,,\r\nham,"say ""ok"", ok","  gr8","",GNT:-)\r\n'
          'ham,U dun say so early,,,\r\n').encode("latin-1")


class Options(InDirectory):
    def command(self, *arguments):
        done = subprocess.run([os.environ["UNISONO_COMMAND"], "data"] + list(arguments), capture_output=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_sms_spam_collection(self):
        path = self.write("SMSSpamCollection", SMS)
        want = [tuple(line.split("\t")) for line in SMS.splitlines()]
        ds = data.read_csv(path, sep="\t", header=None, names=["label", "text"], quoting=csv.QUOTE_NONE)
        self.assertEqual([(row["label"], row["text"]) for row in ds.take_all()], want)
        self.assertEqual(ds.count(), len(want))
        for block in (1, 7, 64, 300):
            again = data.read_csv(path, sep="\t", header=None, quoting=csv.QUOTE_NONE, block_bytes=block)
            self.assertEqual([tuple(row.values()) for row in again.take_all()], want)
        code, out, err = self.command("head", "--rows", "10", "--delimiter", "tab", "--no-header", "--no-quotes", path)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([tuple(json.loads(line).values()) for line in out.splitlines()], want)
        code, out, _ = self.command("count", "--delimiter", "\\t", "--no-header", "--no-quotes", path)
        self.assertEqual((code, out), (0, "6\n"))
        tsv = self.write("SMSSpamCollection.tsv", SMS)
        code, out, _ = self.command("schema", "--no-header", "--no-quotes", tsv)  # a tab, because it is called so
        self.assertEqual((code, out), (0, "f0: string\nf1: string\n"))
        self.assertEqual(data.read_csv(tsv, header=False, quoting=3).columns(), ["f0", "f1"])
        if pandas:
            frame = pandas.read_csv(path, sep="\t", header=None, quoting=csv.QUOTE_NONE, names=["label", "text"], keep_default_na=False)
            self.assertEqual([tuple(row) for row in frame.itertuples(index=False)], want)

    def test_kaggle_spam(self):
        path = self.write("spam.csv", KAGGLE)
        with self.assertRaisesRegex(unisono.Error, 'two columns are called "".*duplicate_names'):
            data.read_csv(path, encoding="latin-1")
        ds = data.read_csv(path, encoding="latin-1", duplicate_names="rename")
        self.assertEqual(ds.columns(), ["v1", "v2", "Unnamed: 2", "Unnamed: 3", "Unnamed: 4"])
        rows = ds.take_all()
        self.assertEqual(rows[1]["v2"], "FREE entry, \u00a3100")
        self.assertEqual(tuple(rows[2].values())[:3], ("ham", 'say "ok", ok', "  gr8"))
        self.assertEqual(rows[2]["Unnamed: 4"], "GNT:-)")
        self.assertEqual([row["v1"] for row in data.read_csv(path, encoding="ISO-8859-1", usecols=["v2", "v1"], duplicate_names="rename").take_all()],
                         ["ham", "spam", "ham", "ham"])
        code, out, err = self.command("head", "--encoding", "latin-1", "--duplicate-names", "rename", path)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(json.loads(out.splitlines()[1])["v2"], "FREE entry, \u00a3100")
        with self.assertRaisesRegex(unisono.Error, "spam.csv:3:2: .* is not valid UTF-8; say the encoding"):
            data.read_csv(path, duplicate_names="rename").take_all()
        if pandas:
            frame = pandas.read_csv(path, encoding="latin-1")
            self.assertEqual(list(frame.columns), ds.columns())
            self.assertEqual(frame["v2"].tolist(), [row["v2"] for row in rows])

    def test_encodings(self):
        text = "a,b\n\u20ac\u2019\u0178,\u00e9\nx,\u00ff\n"
        path = self.write("a.csv", text.encode("cp1252"))
        for name in ("cp1252", "windows-1252", "Windows_1252"):
            self.assertEqual(data.read_csv(path, encoding=name).take_all(), [{"a": "\u20ac\u2019\u0178", "b": "\u00e9"}, {"a": "x", "b": "\u00ff"}])
        every = bytes(range(0x20, 0x22)) + bytes(range(0x23, 0x100))
        path = self.write("b.csv", b"\xe9t\xe9\n" + b'"' + every + b'"\n' * 1)
        got = data.read_csv(path, encoding="latin-1").take_all()
        self.assertEqual(got, [{"\u00e9t\u00e9": every.decode("latin-1")}])
        for block in (1, 5, 50):
            self.assertEqual(data.read_csv(path, encoding="latin-1", block_bytes=1000 * block).take_all(), got)
        with self.assertRaisesRegex(ValueError, "shift_jis.*not supported.*iconv"):
            data.read_csv(path, encoding="shift_jis")
        with self.assertRaisesRegex(unisono.Error, "UTF-16"):
            data.read_csv(self.write("c.csv", "a,b\n1,2\n".encode("utf-16")))

    def test_bad_cells_are_found_in_decoded_files(self):
        path = self.write("a.csv", "h\u00e9,x\n".encode("latin-1") + "\u00e9,1\n".encode("latin-1") * 2000 + b"z,y\n")
        with self.assertRaisesRegex(unisono.Error, 'a.csv:2002:2: "y"'):
            data.read_csv(path, encoding="latin-1", infer_rows=10, block_bytes=4096).take_all()

    def test_short_and_long_rows(self):
        path = self.write("a.csv", "a,b,c\n1,2,x\n3\n4,5,y,z\n6,7,\n")
        with self.assertRaisesRegex(unisono.Error, "a.csv:3:1: only 1 fields in this row, 3 are needed .short_rows"):
            data.read_csv(path).take_all()
        with self.assertRaisesRegex(unisono.Error, "a.csv:4:3: more than 3 fields in this row .long_rows"):
            data.read_csv(path, short_rows="fill").take_all()
        filled = data.read_csv(path, short_rows="fill", long_rows="cut")
        rows = filled.take_all()
        self.assertEqual([row["a"] for row in rows], [1, 3, 4, 6])
        self.assertTrue(numpy.isnan(rows[1]["b"]))
        self.assertEqual([row["c"] for row in rows], ["x", None, "y", ""])
        self.assertEqual(filled.count(), 4)
        for options, want in ((dict(short_rows="skip", long_rows="skip"), [1, 6]), (dict(short_rows="skip", long_rows="cut"), [1, 4, 6]),
                              (dict(short_rows="fill", on_bad_lines="skip"), [1, 3, 6]), (dict(on_error="skip"), [1, 6])):
            ds = data.read_csv(path, **options)
            self.assertEqual([row["a"] for row in ds.iter_rows()], want)
            self.assertEqual((ds.count(), ds.stats()["skipped"]), (len(want), 4 - len(want)))
        for arguments, want in ((["--short-rows", "fill", "--long-rows", "cut"], "4\n"), (["--bad-rows", "skip"], "2\n"),
                                (["--short-rows", "skip", "--long-rows", "cut"], "3\n")):
            self.assertEqual(self.command("count", *arguments, path)[:2], (0, want))
        code, _, err = self.command("count", "--short-rows", "cut", path)
        self.assertNotEqual(code, 0)
        self.assertIn("must be one of error, skip, fill", err)

    @unittest.skipUnless(pandas, "no pandas")
    def test_names_as_pandas_has_them(self):
        chance = random.Random(3)
        for trial in range(200):
            names = [chance.choice(["x", "y", "", "x.1", "x.2", "Unnamed: 1", "x.1.1"]) for _ in range(chance.randint(1, 7))]
            path = self.write("a.csv", ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n" if names != [""] else '""\n1\n')
            with self.subTest(names=names):
                got = data.read_csv(path, duplicate_names="rename").columns()
                self.assertEqual(len(set(got)), len(names))
                if "Unnamed: 1" not in names and not any(name.endswith((".1", ".2")) for name in names):
                    self.assertEqual(got, list(pandas.read_csv(path).columns))
        two = [self.write("1.csv", "x,x\n1,2\n"), self.write("2.csv", "x,x\n3,4\n")]
        self.assertEqual(data.read_csv(two, duplicate_names="rename").take_all(), [{"x": 1, "x.1": 2}, {"x": 3, "x.1": 4}])
        with self.assertRaisesRegex(unisono.Error, "two columns are called"):
            data.read_csv(two, columns=["x"])
        with self.assertRaisesRegex(unisono.Error, 'column_names calls two columns of .* "a"'):
            data.read_csv(two[0], column_names=["a", "a"]).take_all()

    def test_types_of_the_last_line(self):
        path = self.write("a.csv", "a,b\n1,2\n3,x")
        self.assertEqual(data.read_csv(path).take_all(), [{"a": 1, "b": "2"}, {"a": 3, "b": "x"}])
        self.assertEqual(data.read_csv(self.write("b.csv", "a\n1\n2.5")).take_all(), [{"a": 1.0}, {"a": 2.5}])

    def test_columns_that_begin_empty(self):
        for first, value in ((1500, "text"), (1500, "7"), (60000, "late")):
            path = self.write("a.csv", "a,b\n" + "1,\n" * first + "1,%s\n" % value + "1,\n")
            rows = data.read_csv(path).take_all()
            got = rows[first]["b"]
            self.assertEqual(got, float(value) if value.isdigit() else value)
            self.assertEqual(len(rows), first + 2)
        self.assertTrue(numpy.isnan(data.read_csv(self.write("b.csv", "a,b\n" + "1,\n" * 3000)).take(1)[0]["b"]))  # nothing at all: as pandas

    @unittest.skipUnless(pandas, "no pandas")
    def test_missing_values_are_those_of_pandas(self):
        from pandas._libs.parsers import STR_NA_VALUES

        for text in sorted(STR_NA_VALUES) + ["1.#IND", "-nan", "n/a"]:
            path = self.write("a.csv", 'a,b\n1.5,1\n"%s",2\n' % text)
            self.assertTrue(numpy.isnan(data.read_csv(path).take_all()[1]["a"]), text)
            self.assertEqual(data.read_csv(path, keep_default_na=False).take_all()[1]["a"], text) if text not in ("nan", "NaN", "-nan", "-NaN") else None
        path = self.write("b.csv", "a,b\n1,x\n-999,y\n3,-999\n")
        ours = data.read_csv(path, na_values=[-999])
        self.assertTrue(numpy.isnan(ours.take_all()[1]["a"]))
        self.assertEqual([row["a"] for row in data.read_csv(path, null_values=["-999"], types={"a": "float32"}).take_all()][::2], [1, 3])
        self.assertTrue(pandas.isna(pandas.read_csv(path, na_values=[-999])["a"][1]))

    @unittest.skipUnless(pandas, "no pandas")
    def test_arguments_of_pandas(self):
        path = self.write("a.csv", "a;b;c\n1;'x;y';2.5\n3;'z';4\n")
        for options in (dict(sep=";", quotechar="'"), dict(delimiter=";", quotechar="'", usecols=["c", "a"]), dict(sep=";", quotechar="'", header=0, names=["x", "y", "z"]),
                        dict(sep=";", quotechar="'", header=None), dict(sep=";", quotechar="'", dtype=str), dict(sep=";", quotechar="'", dtype={"a": "float32"})):
            want = pandas.read_csv(path, **options)
            got = data.read_csv(path, **options).to_pandas()
            if options.get("header", 0) is None and "names" not in options:
                want.columns = ["f%d" % i for i in range(len(want.columns))]
            self.assertEqual([list(got.columns), got.values.tolist()], [list(want.columns), want.values.tolist()], options)
        self.assertEqual(data.read_csv(path, sep=";", quotechar="'", names=["x", "y", "z"]).count(), 3)  # no header then

    def test_wrong_arguments(self):
        path = self.write("a.csv", "a,b\n1,2\n")
        for options, error, words in ((dict(sep=",", delimiter=";"), TypeError, "same argument"), (dict(sep="\\s+"), ValueError, "one character"),
                                      (dict(header=3), ValueError, "header must be"), (dict(quoting=2), ValueError, "quoting must be"),
                                      (dict(on_bad_lines="warn"), ValueError, "skipped"), (dict(na_values={"a": 1}), ValueError, "single columns"),
                                      (dict(short_rows="cut"), ValueError, "one of error, skip, fill"), (dict(encoding=3), TypeError, "encoding"),
                                      (dict(usecols=[0]), TypeError, "names of columns"), (dict(delimiter="."), unisono.Error, "delimiter cannot be"),
                                      (dict(null_values=["x"], na_values=["y"]), TypeError, "null_values says all")):
            with self.assertRaisesRegex(error, words):
                data.read_csv(path, **options)

    def test_too_many_columns(self):
        path = self.write("a.csv", ",".join("c%d" % i for i in range(300000)) + "\n" + ",".join(["1"] * 300000) + "\n")
        self.assertFails("ELIMIT", "more than 100000 columns", data.read_csv, path)


if __name__ == "__main__":
    support.main()
