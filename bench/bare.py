"""What bare clients reach on the same server in the same run: the ceilings and floors that dtq is measured against.

Streams through redis-py, pipelined, without any state: XADD, XREADGROUP COUNT 100, XACK and XDEL. For latency a socket
and hiredis, which is about the least that Python can do.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import hiredis
import orjson
import redis

from bench.servers import Server
from bench.workload import burn, payload

GROUP = "bare"
BATCH = 100
_fork = multiprocessing.get_context("fork")


def encoded(index: int) -> bytes:
    """The payload of a task as a bare client sends it."""
    return orjson.dumps(payload(index))


def together(processes: int, work: Callable[..., int], *arguments: Any) -> tuple[int, float]:
    """Run `work` in forked processes that start together; the sum of what they return, and the seconds taken."""
    gate, results = _fork.Barrier(processes), _fork.SimpleQueue()

    def run() -> None:
        gate.wait()
        started = time.monotonic()
        done = work(*arguments)
        results.put((done, started, time.monotonic()))

    pool = [_fork.Process(target=run, daemon=True) for _ in range(processes)]
    for process in pool:
        process.start()
    reports = [results.get() for _ in pool]
    for process in pool:
        process.join()
    seconds = max(report[2] for report in reports) - min(report[1] for report in reports)
    return sum(report[0] for report in reports), seconds


def fill(server: Server, tasks: int) -> None:
    """Put tasks into the bare stream."""
    server.client.delete(server.bare_key)
    server.client.xgroup_create(server.bare_key, GROUP, id="0", mkstream=True)
    pipeline = server.client.pipeline(transaction=False)
    for index in range(tasks):
        pipeline.xadd(server.bare_key, {"d": encoded(index)})
        if len(pipeline) == 500 or index == tasks - 1:
            pipeline.execute()


def drain(server: Server, tasks: int, processes: int) -> tuple[float, float]:
    """Tasks a second through the bare stream, and the server's CPU for each in microseconds (enqueue and drain)."""
    before = server.cpu_us()
    fill(server, tasks)
    done, seconds = together(processes, _drain_one, server.url, server.bare_key)
    assert done == tasks, f"the bare clients got {done} of {tasks} tasks"
    cpu = server.cpu_us() - before
    server.client.delete(server.bare_key)
    return tasks / seconds, cpu / tasks


def _drain_one(url: str, key: str) -> int:
    me, done = str(os.getpid()), 0
    with redis.Redis.from_url(url) as client:
        pipeline = client.pipeline(transaction=False)
        entries: list[bytes] = []
        while True:
            if entries:
                pipeline.xack(key, GROUP, *entries)
                pipeline.xdel(key, *entries)
            pipeline.xreadgroup(GROUP, me, {key: ">"}, count=BATCH)
            reply: Any = pipeline.execute()[-1]
            if not reply:
                return done
            entries = []
            for entry, fields in reply[0][1]:
                orjson.loads(fields[b"d"])
                entries.append(entry)
            done += len(entries)


def xadd_one(server: Server, count: int) -> float:
    """Tasks a second by a loop of single XADD calls through redis-py."""
    data = [encoded(index) for index in range(count)]
    xadd, key = server.client.xadd, server.bare_key
    started = time.perf_counter()
    for item in data:
        xadd(key, {"d": item})
    seconds = time.perf_counter() - started
    server.client.delete(key)
    return count / seconds


def spin(tasks: int, milliseconds: float, processes: int) -> float:
    """Tasks a second by processes that do nothing but the work."""
    done, seconds = together(processes, _spin_one, tasks // processes, milliseconds)
    return done / seconds


def _spin_one(tasks: int, milliseconds: float) -> int:
    for _ in range(tasks):
        burn(milliseconds)
    return tasks


class Wire:
    """A blocking connection: packed commands out, replies in."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(unquote(parts.path))
        else:
            self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        if parts.password:
            self.call("AUTH", *([unquote(parts.username)] if parts.username else []), unquote(parts.password))

    def call(self, *command: Any) -> Any:
        """Send one command and wait for its reply."""
        self._socket.sendall(hiredis.pack_command(command))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def listen(url: str, key: str, board_path: str) -> None:
    """In a process of its own: note on the board when each entry of the bare stream arrives; ends at an entry `end`."""
    from bench.board import Board

    board, wire = Board.open(board_path), Wire(url)
    while True:
        reply = wire.call("XREADGROUP", "GROUP", GROUP, "me", "COUNT", "1", "BLOCK", "2000", "STREAMS", key, ">")
        now = time.monotonic_ns()
        for entry, fields in reply[0][1] if reply else ():
            if fields[0] == b"end":
                return
            board.write(orjson.loads(fields[1])["i"], now)
            wire.call("XACK", key, GROUP, entry)
            wire.call("XDEL", key, entry)


def listen_by_redis_py(url: str, key: str, board_path: str) -> None:
    """As `listen`, through redis-py as everybody uses it."""
    from bench.board import Board

    board = Board.open(board_path)
    with redis.Redis.from_url(url) as client:
        while True:
            reply: Any = client.xreadgroup(GROUP, "me", {key: ">"}, count=1, block=2000)
            now = time.monotonic_ns()
            for entry, fields in reply[0][1] if reply else ():
                if b"end" in fields:
                    return
                board.write(orjson.loads(fields[b"d"])["i"], now)
                client.xack(key, GROUP, entry)
                client.xdel(key, entry)


def encoded_number(number: int) -> bytes:
    """What `listen` reads: the row of the board to write to, beside 150 bytes of payload."""
    return orjson.dumps({**payload(number), "i": number})
