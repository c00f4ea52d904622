"""The worker's half of the horovod backend.

Without real Horovod `import horovod` means unisono.horovod, and there is nothing to set up. With it, its rank variables are in the environment already,
and Horovod finds the other ranks in one of two ways: through MPI where MPI started the workers (launcher mpi), or else through gloo, which needs a
rendezvous: a small key-value server over HTTP. Rank 0 runs that server for the time of the attempt, so that a group that starts again has a fresh one.
"""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

_LOOPBACK = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """PUT, GET and DELETE of /scope/key, as Horovod's HTTPStore asks for them."""

    protocol_version = "HTTP/1.0"
    server: _Store

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if length > 1 << 20:
            return self._answer(413)
        with self.server.lock:
            self.server.values[self.path] = self.rfile.read(length)
        return self._answer(200)

    def do_GET(self) -> None:
        with self.server.lock:
            value = self.server.values.get(self.path)
        self._answer(404) if value is None else self._answer(200, value)

    def do_DELETE(self) -> None:
        """A rank says that it is done with a scope."""
        self._answer(200)

    def log_message(self, *_: Any) -> None:
        """Not shown."""


class _Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str):
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()
        super().__init__((address, 0), _Handler)
        threading.Thread(target=self.serve_forever, name="unisono-rendezvous", daemon=True).start()


def started_by_mpi() -> bool:
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"))


def _meet(session: Any) -> Callable[[], None]:
    """Rank 0 serves; all ranks learn where."""
    local = int(os.environ.get("HOROVOD_CROSS_SIZE", "1")) == 1
    store, place = None, bytearray(256)
    if session.world_rank == 0:
        address = _LOOPBACK if local else os.environ.get("HOROVOD_HOSTNAME", _LOOPBACK)
        store = _Store(address)
        text = ("%s %d" % (address, store.server_port)).encode()
        place[:len(text)] = text
    comm = session.comm()
    comm.broadcast(place, 0)
    comm.close()
    address, port = place.rstrip(b"\0").decode().split()
    os.environ.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=address, HOROVOD_GLOO_RENDEZVOUS_PORT=port, HOROVOD_CONTROLLER="gloo",
                      HOROVOD_CPU_OPERATIONS="gloo")
    if local:
        os.environ.setdefault("HOROVOD_GLOO_IFACE", "lo")
    return store.server_close if store is not None else lambda: None


def set_up(session: Any, settings: dict[str, Any]) -> Callable[[], None]:
    from unisono import horovod

    if horovod.install() or session.world_size == 1:
        return lambda: None
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(settings.get("timeout_s", 300)))
    if started_by_mpi():
        os.environ.setdefault("HOROVOD_CONTROLLER", "mpi")
        os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "mpi")
        return lambda: None
    return _meet(session)
