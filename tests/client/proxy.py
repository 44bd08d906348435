"""Stands between a client and its server, and swallows replies: the command was applied, nobody hears of it."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from typing import Self


class Proxy:
    """Forwards connections to a unix socket. `drop` replies of `only` commands are swallowed, their connection cut.

    piece: requests reach the server in so many bytes at a time, as on a slow network; 0: as they come.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._directory = tempfile.TemporaryDirectory(prefix="dtq-proxy-")
        self.url = f"unix://{self._directory.name}/s"
        self.drop = 0
        self.only = b"EVALSHA"
        self.dropped = 0
        self.piece = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._directory.name}/s")
        self._listener.listen()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for opened in (self._listener, *self._sockets):
            opened.close()
        self._directory.cleanup()

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            self._sockets += [client, server]
            last = [b""]
            self._start(self._forward, client, server, last)
            self._start(self._answer, server, client, last)

    def _forward(self, client: socket.socket, server: socket.socket, last: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                last[0] = data
                piece = self.piece or len(data)
                for at in range(0, len(data), piece):
                    server.sendall(data[at : at + piece])
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket, last: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if self.drop > 0 and self.only in last[0] and not data.startswith(b"-NOSCRIPT"):
                    self.drop -= 1
                    self.dropped += 1
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
