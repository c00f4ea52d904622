#!/usr/bin/env python3
"""middle.py ADDRESS PORT WAY HOW NUMBER [FRAME] - somebody in between: takes connections to ADDRESS:PORT that the router diverts here, passes them on from
the address that they came from, and does something to one frame of each. WAY "raw" is for connections that are not ours: HOW is "replace" (NUMBER is a text, FRAME what
takes its place) or "flip" (NUMBER counts bytes).

WAY   up (from the host to the controller) or down
HOW   pass, flip, drop, repeat, swap, truncate (its length field grows), inject (FRAME, in hexadecimal, before it), cut (the connection ends in its middle)
"""

import socket
import struct
import sys
import threading

ADDRESS, PORT, WAY, HOW = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
NUMBER = int(sys.argv[5]) if sys.argv[5].isdigit() else sys.argv[5].encode()
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


def carry_raw(source, target):
    """Bytes of some other protocol; the same number of them."""
    seen, left = 0, b""
    while piece := source.recv(1 << 16):
        if HOW == "flip" and seen <= NUMBER < seen + len(piece):
            at = NUMBER - seen
            piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1:]
            print(HOW, flush=True)
        if HOW == "replace" and NUMBER in left + piece:
            start = (left + piece).find(NUMBER) - len(left)
            if start >= 0:
                piece = piece[:start] + sys.argv[6].encode() + piece[start + len(NUMBER):]
                print(HOW, flush=True)
        seen += len(piece)
        left = piece[-len(NUMBER) + 1:] if HOW == "replace" else b""
        target.sendall(piece)


def carry(way, source, target):
    try:
        if WAY == "raw":
            carry_raw(source, target)
            raise ConnectionError
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
        host, (source, _) = door.accept()
        controller = socket.socket()
        if WAY == "raw":  # MPI looks at where it comes from
            controller.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
            controller.bind((source, 0))
        controller.connect((ADDRESS, PORT))
        for end in (host, controller):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=carry, args=("up", host, controller), daemon=True).start()
        threading.Thread(target=carry, args=("down", controller, host), daemon=True).start()


if __name__ == "__main__":
    main()
