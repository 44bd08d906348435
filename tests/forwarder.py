"""Stands between clients and a server's unix socket, with two threads for each connection: what goes, what comes."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self


class Forwarder:
    """Accepts connections at `url` and makes one to the target for each; what happens to them is `_connected`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._directory = tempfile.TemporaryDirectory(prefix="dtq-between-")
        self.url = f"unix://{self._directory.name}/s"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._directory.name}/s")
        self._listener.listen(64)
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._sockets:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for opened in self._sockets:
            opened.close()
        self._directory.cleanup()

    def _connected(self, client: socket.socket, server: socket.socket) -> None:
        """A connection stands at both ends; start what forwards it."""
        raise NotImplementedError

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._target))
            except OSError:  # the server is down
                client.close()
                server.close()
                continue
            self._sockets += [client, server]
            self._connected(client, server)
