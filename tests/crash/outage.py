"""A door in front of a server that can be shut: connections end, and new ones are refused until it opens again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Door:
    """Listens on a port of this machine and passes everything on to a server behind it."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.connect = connect
        self.port = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            _end(listener)
        for pair in self._pairs:
            for end in pair:
                _end(end)
        self._pairs.clear()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                near, _ = listener.accept()
                far = self.connect()
            except OSError:
                return
            self._pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def to_unix_socket(path: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    return end


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        _end(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
