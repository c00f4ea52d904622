"""Values to plain data and back: every kind survives, pickles only with the user's key."""

import collections
import math
import os
import tempfile
import unittest

import support
from unisono import Error, _codec, _key, _unisono


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x


def through_a_file(value):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint")
        _unisono.checkpoint_write(path, _codec.encode_dict(value))
        return _codec.decode(_unisono.checkpoint_read(path))


class Plain(unittest.TestCase):
    def test_every_kind_survives_a_checkpoint(self):
        value = {"none": None, "yes": True, "int": -(1 << 63), "large": 1 << 80, "float": 0.1, "inf": -math.inf, "text": "ä\0b", "bytes": b"\0\xff",
                 "list": [1, [2, {}]], "tuple": (1, (2,)), "set": {1, 2}, "frozen": frozenset("a"), "complex": 1 + 2j,
                 "keys": {1: "a", (1, 2): "b", None: 3}, "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
                 "tag": {_codec.TAG: "mine"}, "empty": {}}
        out = through_a_file(value)
        self.assertEqual(out, value)
        self.assertEqual({key: type(item) for key, item in out.items()}, {key: type(item) for key, item in value.items()})
        self.assertEqual(list(out["ordered"]), ["b", "a"])
        self.assertIs(type(out["tuple"][1]), tuple)

    def test_nan_stays_nan(self):
        self.assertTrue(math.isnan(through_a_file({"loss": math.nan})["loss"]))

    def test_wrong_checkpoints_are_refused(self):
        with self.assertRaisesRegex(TypeError, "text, not 1"):
            _codec.encode_dict({1: 2})
        deep = []
        for _ in range(40):
            deep = [deep]
        with self.assertRaisesRegex(ValueError, "nesting"):
            through_a_file({"deep": deep})

    def test_metrics_of_odd_kinds(self):
        self.assertEqual(_codec.metric(1 << 70), float(1 << 70))
        self.assertEqual(_codec.metric({1}), [1])
        self.assertEqual(_codec.metric(Point), str(Point))


class Pickles(unittest.TestCase):
    def test_own_pickles_open(self):
        self.assertEqual(through_a_file({"point": Point(3)})["point"], Point(3))

    def test_key_is_private_and_stays(self):
        key = _key.user_key()
        self.assertEqual(key, _key.user_key())
        self.assertEqual(os.stat(_key._path()).st_mode & 0o777, 0o600)

    def test_a_key_that_others_can_read_is_refused(self):
        _key.user_key()
        os.chmod(_key._path(), 0o644)
        try:
            with self.assertRaisesRegex(PermissionError, "chmod 600"):
                _key.user_key()
        finally:
            os.chmod(_key._path(), 0o600)

    def test_foreign_pickles_run_nothing(self):
        marker = os.path.join(tempfile.gettempdir(), "touched")

        class Evil:
            def __reduce__(self):
                return open, (marker, "w")

        plain = _codec.encode(Evil())
        plain["mac"] = bytes(32)
        with self.assertRaisesRegex(_codec.PickleRefused, "allow_pickle=True"):
            _codec.decode(plain)
        self.assertFalse(os.path.exists(marker))
        _codec.decode(plain, allow_pickle=True).close()
        self.assertTrue(os.path.exists(marker))

    def test_changed_pickles_are_refused(self):
        plain = _codec.encode(Point(1))
        plain["data"] = plain["data"][:-1] + b"!"
        with self.assertRaises(_codec.PickleRefused):
            _codec.decode(plain)


class Extension(unittest.TestCase):
    def test_arrays_share_memory(self):
        source = bytearray(range(24))
        array = _unisono.Array("float32", (2, 3), source)
        view = memoryview(array)
        self.assertEqual((view.shape, view.strides, view.format, view.itemsize), ((2, 3), (12, 4), "f", 4))
        source[0] = 99
        self.assertEqual(bytes(view)[0], 99)
        with self.assertRaises(BufferError):  # it is in use
            source.append(1)
        del array, view
        source.append(1)

    def test_arrays_that_do_not_fit(self):
        with self.assertRaisesRegex(ValueError, "24 bytes"):
            _unisono.Array("float32", (2, 2), bytes(24))
        with self.assertRaisesRegex(TypeError, "complex64"):
            _unisono.Array("complex64", (1,), bytes(8))

    def test_errors_have_code_and_message(self):
        with self.assertRaises(Error) as caught:
            _unisono.checkpoint_info("/nowhere/at/all")
        self.assertEqual(caught.exception.code, "ENOTFOUND")
        self.assertIn("/nowhere/at/all", caught.exception.message)
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_unknown_options_are_refused(self):
        with self.assertRaisesRegex(TypeError, "no option workers"):
            _unisono.Trainer(workers=2)


class Arrays(unittest.TestCase):
    def setUp(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.numpy = numpy

    def test_numpy_survives(self):
        numpy = self.numpy
        value = {"f": numpy.arange(6, dtype="float32").reshape(2, 3), "t": numpy.arange(6).reshape(2, 3).T, "e": numpy.zeros((0, 3)),
                 "z": numpy.array(2.5), "h": numpy.ones(2, "float16"), "b": numpy.array([True, False]), "s": numpy.float64(1.5),
                 "o": numpy.array(["a", "bc"]), "w": [numpy.ones(2)], "big": numpy.arange(3, dtype=">i4")}
        out = through_a_file(value)
        for key in value:
            self.assertEqual(type(out[key]), type(value[key]), key)
            if key != "w":
                self.assertEqual(out[key].dtype, value[key].dtype, key)
                numpy.testing.assert_array_equal(out[key], value[key])
        numpy.testing.assert_array_equal(out["w"][0], value["w"][0])
        out["f"][0, 0] = 7  # copy on write

    def test_metrics(self):
        numpy = self.numpy
        self.assertEqual(_codec.metric(numpy.float32(0.5)), 0.5)
        self.assertEqual(_codec.metric(numpy.ones(1)), 1.0)
        self.assertEqual(_codec.metric(numpy.ones((1, 2))), [[1.0, 1.0]])


if __name__ == "__main__":
    support.main()
