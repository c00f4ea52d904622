#!/usr/bin/env python3
"""wiretap.py FILE - writes every TCP segment that passes this network namespace to FILE (root only), until its standard input ends.

A record is 4 + 2 + 4 + 2 + 4 + 4 bytes (addresses, ports, sequence number, length; network order) and the payload. `streams` puts a file of records together again.
"""

import collections
import select
import socket
import struct
import sys

HEAD = struct.Struct("!4sH4sHII")
SO_RCVBUFFORCE = 33


def tcp_payload(packet):
    """(source, its port, destination, its port, sequence number, payload) of an IPv4 packet of TCP, or None."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return None
    start, total = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)[0]
    source, target, sequence = struct.unpack_from("!HHI", packet, start)
    payload = packet[start + (packet[start + 12] >> 4) * 4:total or len(packet)]
    return (packet[12:16], source, packet[16:20], target, sequence, payload) if payload else None


def main():
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
    print("listening", flush=True)
    with open(sys.argv[1], "wb", buffering=0) as out:
        while True:
            ready, _, _ = select.select([tap, sys.stdin], [], [])
            if tap in ready:
                found = tcp_payload(tap.recv(1 << 18))
                if found:
                    out.write(HEAD.pack(*found[:5], len(found[5])) + found[5])
            elif sys.stdin in ready:
                return


def streams(path):
    """{(source, port, destination, port): bytes}, by sequence number; a packet that passed two interfaces counts once."""
    segments = collections.defaultdict(dict)
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + HEAD.size <= len(data):
        source, port, target, target_port, sequence, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        key = (socket.inet_ntoa(source), port, socket.inet_ntoa(target), target_port)
        known = segments[key].get(sequence, b"")
        if length > len(known):
            segments[key][sequence] = data[at:at + length]
        at += length
    return {key: join(pieces) for key, pieces in segments.items()}


def join(pieces):
    """Segments by sequence number, repeated parts once; a gap is a zero byte."""
    first = min(pieces)
    if max(pieces) - first > 1 << 31:  # it wrapped around
        pieces = {(sequence - (1 << 32) if sequence > 1 << 31 else sequence): piece for sequence, piece in pieces.items()}
        first = min(pieces)
    out, end = bytearray(), first
    for sequence in sorted(pieces):
        piece = pieces[sequence]
        if sequence > end:
            out += b"\0"
            end = sequence
        out += piece[end - sequence:]
        end = max(end, sequence + len(piece))
    return bytes(out)


if __name__ == "__main__":
    main()
