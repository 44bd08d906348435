"""No queue: what a peer could be at best. XADD over a plain socket with hiredis, sync; in each worker process one
blocking XREADGROUP, 100 entries at a time while handlers are fast, then XACK, XDEL and the next read in one write.
JSON. No state, no retries, no recovery.

Results kept: one SET a task, 10 min, in the same write.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from typing import Any

import hiredis
import orjson

from bench.peers import handlers
from bench.peers.adapters import HOST, PORT, RESULTS

RECOVERY = "nothing"
ENTRANTS = {"bare": {"drain": 400_000, "bulk": 200_000, "nap": 0, "kill": 0}}
HANDLERS = "2 processes"
NAP_HANDLERS = "none"

STREAM, GROUP = "bench", "bench"
SLOW_S = 0.0005
"""Handlers that take longer get their entries one by one."""


class Connection:
    """A socket, and commands whose answers are waited for together."""

    def __init__(self) -> None:
        self._socket = socket.create_connection((HOST, PORT))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def send(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Write them at once, and return all answers."""
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._reader.gets()
            if answer is False:
                self._reader.feed(self._socket.recv(1 << 16))
            else:
                answers.append(answer)
        return answers


@functools.cache
def _producer() -> Connection:
    return Connection()


def workers(processes: int, naps: bool) -> list[list[str]]:
    """This module, run."""
    return [[sys.executable, "-m", "bench.peers.adapters.bare"] for _ in range(processes)]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    _producer().send(("XADD", STREAM, "*", kind, orjson.dumps(payload)))


def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk, a hundred in one write."""
    for start in range(0, len(payloads), 100):
        chunk = payloads[start : start + 100]
        _producer().send(*[("XADD", STREAM, "*", kind, orjson.dumps(payload)) for payload in chunk])


def work() -> None:
    """Read, run, acknowledge, for ever."""
    connection, count = Connection(), 1
    connection.send(("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"))
    settled: list[tuple[Any, ...]] = []
    while True:
        read = ("XREADGROUP", "GROUP", GROUP, str(os.getpid()), "COUNT", str(count), "BLOCK", "5000", "STREAMS", STREAM)
        answer = connection.send(*settled, (*read, ">"))[-1]
        settled = []
        if not answer:
            continue
        entries = answer[0][1]
        started = time.monotonic()
        values = [handlers.SYNC[kind.decode()](**orjson.loads(body)) for _, (kind, body) in entries]
        count = 1 if (time.monotonic() - started) / len(entries) > SLOW_S else 100
        ids = [entry for entry, _ in entries]
        settled = [("XACK", STREAM, GROUP, *ids), ("XDEL", STREAM, *ids)]
        if RESULTS:
            settled += [
                ("SET", b"result:" + entry, str(value), "EX", "600") for entry, value in zip(ids, values, strict=True)
            ]


if __name__ == "__main__":
    work()
