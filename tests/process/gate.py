"""Stands between workers and their server, and stops one command on its way for as long as a test likes.

So a process can be killed while it is known to be in one window: it waits for a reply to a command that the server has
not got yet, or has applied. Nothing in dtq knows of it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dtq.scripts import names, script
from tests.forwarder import Forwarder

Words = list[bytes]


@dataclass(eq=False)
class Command:
    """One command as the server gets it. `name` is that of the script for an EVALSHA."""

    name: str
    words: Words

    def argument(self, number: int) -> bytes:
        """ARGV[number] of a script."""
        return self.words[2 + int(self.words[2]) + number]

    @property
    def outcomes(self) -> int:
        """How many outcomes a turn settles."""
        return self._head()[3]

    @property
    def adopts(self) -> int:
        """How many entries a turn adopts."""
        return self._head()[4]

    def _head(self) -> tuple[int, ...]:
        """The packed numbers of a turn (turn.lua)."""
        return struct.unpack("<Q6IBB", self.argument(7))


@dataclass(eq=False)
class Hold:
    """One command that is stopped: before the server gets it or, `applied`, its reply before the client does.

    skip: so many that match go through first. pid: of the process that waits, once it is caught.
    """

    matches: Callable[[Command], bool]
    applied: bool
    skip: int
    pid: int = 0
    sent: threading.Event = field(default_factory=threading.Event)
    caught: threading.Event = field(default_factory=threading.Event)
    _open: threading.Event = field(default_factory=threading.Event)
    _deliver: bool = False

    def wait(self, timeout: float = 30.0) -> int:
        """Wait until the command, or its reply, is stopped; the pid of the process that waits for it."""
        assert self.caught.wait(timeout), "the process did not come into the window"
        return self.pid

    def wait_sent(self, timeout: float = 30.0) -> None:
        """Wait until the server has got the command whose reply will be stopped."""
        assert self.sent.wait(timeout), "the command was not sent"

    def release(self, *, deliver: bool) -> None:
        """Let it go on its way now, or cut its connection."""
        self._deliver = deliver
        self._open.set()

    def stop(self, pid: int) -> bool:
        """Keep the calling thread here until released; whether to deliver."""
        self.pid = pid
        self.caught.set()
        self._open.wait()
        return self._deliver


@dataclass(eq=False)
class _Connection:
    client: socket.socket
    server: socket.socket
    pid: int
    held_reply: Hold | None = None

    def cut(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Gate(Forwarder):
    """Forwards connections to a unix socket; `hold` arms it for one command. passed: what it let through, by name."""

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self._names = {script(name).sha.encode(): name for name in names()}
        self.passed: Counter[str] = Counter()
        self._holds: list[Hold] = []
        self._lock = threading.Lock()

    def __exit__(self, *_: object) -> None:
        for hold in self._holds:
            hold.release(deliver=False)
        super().__exit__()

    def hold(
        self,
        name: str,
        *,
        applied: bool = False,
        skip: int = 0,
        when: Callable[[Command], bool] = lambda command: True,
    ) -> Hold:
        """Stop the next command of this name for which `when` holds, from whatever process."""
        hold = Hold(lambda command: command.name == name and when(command), applied, skip)
        with self._lock:
            self._holds.append(hold)
        return hold

    # --- the threads ---------------------------------------------------------------------------------------------

    def _connected(self, client: socket.socket, server: socket.socket) -> None:
        pid: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        connection = _Connection(client, server, pid)
        self._start(self._forward, connection)
        self._start(self._answer, connection)

    def _forward(self, connection: _Connection) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := connection.client.recv(1 << 20):
                buffer += data
                while (parsed := _parse(buffer)) is not None:
                    words, size = parsed
                    raw = bytes(buffer[:size])
                    del buffer[:size]
                    name = self._names.get(words[1], "?") if words[0] == b"EVALSHA" else words[0].decode().upper()
                    hold = self._match(Command(name, words))
                    if hold is not None and hold.applied:
                        connection.held_reply = hold
                    elif hold is not None and not hold.stop(connection.pid):
                        return connection.cut()
                    connection.server.sendall(raw)
                    self.passed[name] += 1
                    if hold is not None:
                        hold.sent.set()
        connection.cut()
        return None

    def _answer(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := connection.server.recv(1 << 20):
                hold, connection.held_reply = connection.held_reply, None
                if hold is not None and not hold.stop(connection.pid):
                    break
                connection.client.sendall(data)
        connection.cut()

    def _match(self, command: Command) -> Hold | None:
        with self._lock:
            for hold in self._holds:
                if hold.matches(command):
                    if hold.skip:
                        hold.skip -= 1
                    else:
                        self._holds.remove(hold)
                        return hold
        return None


def _parse(buffer: bytearray) -> tuple[Words, int] | None:
    """The first command in a buffer and its length; None while it is not there as a whole."""
    end = buffer.find(b"\r\n")
    if end < 0:
        return None
    assert buffer[:1] == b"*", "not a command"
    words: Words = []
    at = end + 2
    for _ in range(int(buffer[1:end])):
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(buffer[at + 1 : end])
        at = end + 2
        if len(buffer) < at + size + 2:
            return None
        words.append(bytes(buffer[at : at + size]))
        at += size + 2
    return words, at
