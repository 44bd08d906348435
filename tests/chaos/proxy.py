"""Stands between clients and the server as a process of its own: forwards, swallows what passes, cuts, or is stopped.

python -m tests.chaos.proxy TARGET LISTEN: two unix sockets; words on standard input, one a line, say what to do:
`pass`, `hole requests`, `hole replies`, `hole both`, `cut`. A connection of which anything was swallowed never speaks
again, as after a lost route; `cut` ends all connections. A SIGSTOP holds everything back, and its end lets it through,
late.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any


class Leg(asyncio.Protocol):
    """One end of a forwarded connection. dead: what arrives here is swallowed from now on."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.other: Leg | None = None
        self.dead = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and not self.dead:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()


class ClientLeg(Leg):
    """The client's end; opens the server's as soon as it stands."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._proxy.tasks.add(task)
        task.add_done_callback(self._proxy.tasks.discard)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        try:
            server = (await asyncio.get_running_loop().create_unix_connection(Leg, self._proxy.target))[1]
        except OSError:  # no server there
            self.transport.abort()
            return
        self.other, server.other = server, self
        self._proxy.clients.add(self)
        self._proxy.deaden(self)
        if self.transport.is_closing():
            server.transport.close()
        elif not self.dead:
            server.transport.writelines(self._early)
        self._early.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._proxy.clients.discard(self)


class Proxy:
    """All connections of one listening socket."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.clients: set[ClientLeg] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._hole = ""

    def deaden(self, client: ClientLeg) -> None:
        """Let a connection fall into the hole, if there is one."""
        if self._hole in ("requests", "both"):
            client.dead = True
        if self._hole in ("replies", "both") and client.other is not None:
            client.other.dead = True

    def obey(self, word: str) -> None:
        """One line of standard input."""
        if word == "cut":
            for client in list(self.clients):
                client.transport.abort()
            return
        self._hole = word.removeprefix("hole ") if word.startswith("hole ") else ""
        for client in self.clients:
            self.deaden(client)


async def serve(target: str, listen: str) -> None:
    """Until standard input ends."""
    loop, proxy = asyncio.get_running_loop(), Proxy(target)
    server = await loop.create_unix_server(lambda: ClientLeg(proxy), listen)
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    async with server:
        while line := await words.readline():
            proxy.obey(line.decode().strip())


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1], sys.argv[2]))
