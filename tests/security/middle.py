#!/usr/bin/env python3
"""middle.py ADDRESS PORT WAY HOW NUMBER [FRAME] - somebody in between: takes connections to ADDRESS:PORT that the router diverts here, passes them on, and
does something to one frame of each.

WAY   up (from the host to the controller) or down
HOW   pass, flip, drop, repeat, swap, truncate (its length field grows), inject (FRAME, in hexadecimal, before it), cut (the connection ends in its middle)
"""

import socket
import struct
import sys
import threading

ADDRESS, PORT, WAY, HOW, NUMBER = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
GREETING = {"down": 48 + 40 + 24, "up": 136 + 24}  # src/group/secure.h: what precedes the frames
IP_TRANSPARENT = 19  # an address that is not ours


def exactly(source, size):
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data


def frame_of(source):
    size = exactly(source, 4)
    return size + exactly(source, struct.unpack("<I", size)[0])


def changed(source, frame):
    """What goes on instead of this frame."""
    if HOW == "flip":
        return frame[:-1] + bytes([frame[-1] ^ 1])
    if HOW == "drop":
        return b""
    if HOW == "repeat":
        return frame + frame
    if HOW == "swap":
        return frame_of(source) + frame
    if HOW == "truncate":
        return struct.pack("<I", struct.unpack_from("<I", frame)[0] + 300000) + frame[4:]
    if HOW == "inject":
        return bytes.fromhex(sys.argv[6]) + frame
    if HOW == "cut":
        return frame[:len(frame) // 2]
    return frame


def carry(way, source, target):
    try:
        greeting = GREETING[way]
        while greeting > 0:
            piece = source.recv(greeting)
            if not piece:
                raise ConnectionError
            greeting -= len(piece)
            target.sendall(piece)
        number = 0
        while way == WAY and HOW != "pass" and number < NUMBER:
            frame = frame_of(source)
            number += 1
            target.sendall(changed(source, frame) if number == NUMBER else frame)
            if number == NUMBER:
                print(HOW, way, flush=True)
                if HOW == "cut":
                    raise ConnectionError
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main():
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
    door.bind((ADDRESS, PORT))
    door.listen()
    print("listening", flush=True)
    while True:
        host, _ = door.accept()
        controller = socket.create_connection((ADDRESS, PORT))
        for end in (host, controller):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=carry, args=("up", host, controller), daemon=True).start()
        threading.Thread(target=carry, args=("down", controller, host), daemon=True).start()


if __name__ == "__main__":
    main()
