"""terminal_fixture.py - runs a command on a terminal of its own and returns what it wrote; for the tests beside it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios


def run_in_terminal(words, columns, **keywords):
    """(exit code, bytes) of the command on a terminal of 24 lines; input and both outputs are the terminal."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(words, stdin=child, stdout=child, stderr=child, **keywords) as process:
        os.close(child)
        text = b""
        while select.select([parent], [], [], 20)[0]:
            try:
                text += os.read(parent, 65536)
            except OSError:  # the last process that had it open has ended
                break
        code = process.wait(20)
    os.close(parent)
    return code, text
