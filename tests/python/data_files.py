"""What the tests of datasets share: a directory for each test, and TFRecord files written by the text of their format."""

import os
import struct
import tempfile
import unittest

import unisono


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
