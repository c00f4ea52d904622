"""decrypt.py - opens a recorded connection between hosts with given keys, as src/group/secure.h describes it: an implementation of its own."""

import ctypes
import ctypes.util
import itertools
import struct

SODIUM = ctypes.CDLL(ctypes.util.find_library("sodium"))
CHALLENGE, HELLO, REPLY, HEADER, EXTRA, PROOF = 48, 136, 40, 24, 17, 32


def exchange(private, public):
    """X25519."""
    out = ctypes.create_string_buffer(32)
    assert SODIUM.crypto_scalarmult(out, private, public) == 0
    return out.raw


def hashed(data, key):
    """BLAKE2b of 32 bytes."""
    out = ctypes.create_string_buffer(32)
    assert SODIUM.crypto_generichash(out, ctypes.c_size_t(32), data, ctypes.c_ulonglong(len(data)), key, ctypes.c_size_t(len(key or b""))) == 0
    return out.raw


class Connection:
    """Both directions of a connection, as a tap recorded them."""

    def __init__(self, down, up):
        self.challenge, self.hello = down[:CHALLENGE], up[:HELLO]
        self.controller_ephemeral, self.host_ephemeral, self.host_key = down[8:40], up[24:56], up[56:88]
        self.reply = down[CHALLENGE:CHALLENGE + REPLY]
        self.frames = {"controller to host": down[CHALLENGE + REPLY:], "host to controller": up[HELLO:]}

    def root(self, controller_key, secret, shared):
        """The secret that all keys of the connection come from; shared: the three exchanges."""
        said = b"unisono 2 root\0" + controller_key + self.challenge + self.hello[:-PROOF] + b"".join(shared)
        return hashed(said, secret)

    def proves(self, root):
        """Whether the proof in the hello was made with it."""
        return hashed(b"host proof", root) == self.hello[-PROOF:]

    def read(self, root):
        """What can be read with it, both directions together."""
        return b"".join(itertools.chain.from_iterable(self.direction(label, root) for label in self.frames))

    def direction(self, label, root):
        data, state, tag, size = self.frames[label], ctypes.create_string_buffer(64), ctypes.c_ubyte(), ctypes.c_ulonglong()
        if SODIUM.crypto_secretstream_xchacha20poly1305_init_pull(state, data[:HEADER], hashed(label.encode(), root)):
            return
        at = HEADER
        while at + 4 <= len(data):
            length, = struct.unpack_from("<I", data, at)
            frame, at = data[at + 4:at + 4 + length], at + 4 + length
            out = ctypes.create_string_buffer(max(length, 1))
            if len(frame) < length or SODIUM.crypto_secretstream_xchacha20poly1305_pull(state, out, ctypes.byref(size), ctypes.byref(tag), frame,
                                                                                       ctypes.c_ulonglong(length), None, ctypes.c_ulonglong(0)):
                return
            yield out.raw[:size.value]
