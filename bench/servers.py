"""The server a benchmark runs on: a private redis-server or embedded store of its own, or one that a URL names.

A private server keeps nothing on disk and is thrown away. On a server of others only keys under this run's own prefix
are written, and removed again; memory figures then count what others do as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

START_TIMEOUT_S = 15.0
BARE = "bare"
"""What the keys of the bare clients begin with, after the run's prefix."""


@dataclass
class Server:
    """A running server. private: nobody else uses it."""

    url: str
    name: str
    version: str
    prefix: str
    private: bool
    client: Any

    @property
    def bare_key(self) -> str:
        """The stream of the bare clients, under the run's prefix."""
        return f"{self.prefix}:{BARE}"

    def cpu_us(self) -> float:
        """CPU time that the server has used so far, all its threads, in microseconds."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6

    def used_memory(self) -> int:
        """Bytes that the server has allocated."""
        return int(self.client.info("memory")["used_memory"])

    def clear(self) -> None:
        """Remove everything this run has written."""
        if self.private:
            self.client.flushall()
            return
        for part in ("", ":*"):
            batch: list[bytes] = []
            for key in self.client.scan_iter(match=f"{self.prefix}{part}", count=1000):
                batch.append(key)
                if len(batch) == 1000:
                    self.client.unlink(*batch)
                    batch.clear()
            if batch:
                self.client.unlink(*batch)


@contextmanager
def open_server(kind: str) -> Iterator[Server]:
    """Start or join a server: `redis` (Debian's, without persistence), `embedded` (dtq's own store), or a URL.

    Raises FileNotFoundError when redis-server is not installed, and what redis-py raises when a URL does not answer.
    """
    if kind == "redis":
        with private_redis() as server:
            yield server
    elif kind == "embedded":
        from dtq.embedded import open_store

        directory = Path(tempfile.mkdtemp(prefix="dtq-bench-"))
        try:
            with open_store(directory, linger_s=0.0) as store:
                yield from _connected(store.url, "dtq", private=True)
                store_pid = store.pid
            _wait_for_end(store_pid)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    else:
        yield from _connected(kind, f"dtq-bench-{os.getpid()}", private=False)


def _connected(url: str, prefix: str, *, private: bool) -> Iterator[Server]:
    client = redis.Redis.from_url(url)
    try:
        info = client.info("server")
        valkey = info.get("valkey_version")
        name = "valkey" if valkey else "redis"
        server = Server(url, name, str(valkey or info["redis_version"]), prefix, private, client)
        server.clear()
        try:
            yield server
        finally:
            if not private:
                server.clear()
    finally:
        client.close()


@contextmanager
def private_redis(*front: str) -> Iterator[Server]:
    """A redis-server of its own on a unix socket. front: what its command begins with, such as valgrind."""
    with _started_redis(front) as url:
        yield from _connected(url, "dtq", private=True)


@contextmanager
def _started_redis(front: tuple[str, ...]) -> Iterator[str]:
    binary = shutil.which("redis-server")
    if binary is None:
        raise FileNotFoundError("redis-server was not found; install it (apt install redis-server), or use --server")
    directory = Path(tempfile.mkdtemp(prefix="dtq-bench-"))
    path = directory / "s"
    command = [
        *front,
        binary,
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--dir",
        str(directory),
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    if sys.platform == "linux" and (setpriv := shutil.which("setpriv")):
        command = [setpriv, "--pdeathsig", "KILL", *command]  # a run that is killed leaves no server behind
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"}, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        with redis.Redis(unix_socket_path=str(path)) as probe:
            while True:
                try:
                    probe.ping()
                    break
                except redis.ConnectionError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        yield f"unix://{path}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
