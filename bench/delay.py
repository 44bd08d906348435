"""A proxy that puts a distance between clients and a server: whatever passes it arrives half a round trip later.

    with delayed(server.url, 0.001) as url: ...              a server one millisecond away

Bytes on their way do not wait for each other: each direction of each connection is a queue of what is due when, as on a
wire with room for everything. It runs as a process of its own, in one thread that sleeps in select(), whose timeout is
as fine as the kernel's timers; those of poll() and epoll() are whole milliseconds, too coarse for half of one.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

RECEIVED = 1 << 18
"""Most bytes that one recv takes."""
_PR_SET_TIMERSLACK = 29


@contextmanager
def delayed(url: str, round_trip_s: float) -> Iterator[str]:
    """A `unix://` URL that leads to the server at the `unix://` URL given, `round_trip_s` seconds away and back."""
    target = url.removeprefix("unix://")
    if target == url:
        raise ValueError(f"the delaying proxy joins unix sockets; {url} is none")
    directory = Path(tempfile.mkdtemp(prefix="dtq-delay-"))
    path = str(directory / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    process = get_context("fork").Process(target=_serve, args=(listener, target, round_trip_s / 2), daemon=True)
    process.start()
    listener.close()
    try:
        yield f"unix://{path}"
    finally:
        process.kill()
        process.join()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(eq=False)
class _Way:
    """One direction of a connection: what is read from `source` is written to `sink` when it is due."""

    source: socket.socket
    sink: socket.socket
    due: deque[tuple[float, memoryview]] = field(default_factory=deque[tuple[float, memoryview]])
    blocked: bool = False
    """The sink takes no more for now."""
    ended: bool = False
    """The source has closed; when all has been delivered, so does the sink."""


def _serve(listener: socket.socket, target: str, delay_s: float) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # else a timer may be 50 microseconds late
    ways: dict[socket.socket, _Way] = {}
    parent = os.getppid()
    while os.getppid() == parent:
        now = time.monotonic()
        next_s = 1.0
        for way in list(ways.values()):
            _deliver(way, now)
            if way.due and not way.blocked:
                next_s = min(next_s, max(0.0, way.due[0][0] - now))
            elif way.ended and not way.due:
                _close(way, ways)
        readable, writable, _ = select.select(
            [listener, *(way.source for way in ways.values() if not way.ended)],
            [way.sink for way in ways.values() if way.blocked],
            [],
            next_s,
        )
        now = time.monotonic()
        for way in ways.values():
            if way.blocked and way.sink in writable:
                way.blocked = False
        for source in readable:
            if source is listener:
                _join(listener, target, ways)
            elif source in ways:
                _receive(ways[source], now + delay_s)


def _join(listener: socket.socket, target: str, ways: dict[socket.socket, _Way]) -> None:
    client, _ = listener.accept()
    server = socket.socket(socket.AF_UNIX)
    server.connect(target)
    for end in (client, server):
        end.setblocking(False)
    ways[client], ways[server] = _Way(client, server), _Way(server, client)


def _receive(way: _Way, due: float) -> None:
    try:
        data = way.source.recv(RECEIVED)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if data:
        way.due.append((due, memoryview(data)))
    else:
        way.ended = True


def _deliver(way: _Way, now: float) -> None:
    while way.due and not way.blocked and way.due[0][0] <= now:
        due, data = way.due[0]
        try:
            sent = way.sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            way.due.clear()  # nobody is there to read it
            way.ended = True
            return
        if sent == len(data):
            way.due.popleft()
        else:
            way.due[0] = (due, data[sent:])
            way.blocked = True


def _close(way: _Way, ways: dict[socket.socket, _Way]) -> None:
    """Both ends, when one direction has ended: Redis connections are never closed by halves."""
    for end in (way.source, way.sink):
        ways.pop(end, None)
        with suppress(OSError):
            end.close()
