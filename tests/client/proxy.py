"""Stands between a client and its server, and swallows replies: the command was applied, nobody hears of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from tests.forwarder import Forwarder


class Proxy(Forwarder):
    """Forwards connections to a unix socket. `drop` replies of `only` commands are swallowed, their connection cut.

    piece: requests reach the server in so many bytes at a time, as on a slow network; 0: as they come.
    meanwhile: called between a reply that is swallowed and the cut.
    """

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self.drop = 0
        self.only = b"EVALSHA"
        self.dropped = 0
        self.piece = 0
        self.meanwhile: Callable[[], object] = bool

    def _connected(self, client: socket.socket, server: socket.socket) -> None:
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
                    self.meanwhile()
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
