"""Starting the server of the embedded store, or joining the one that runs: returns once it answers."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dtq.embedded import directory as places
from dtq.embedded import locks
from dtq.embedded.server_binary import ServerBinary, find_server
from dtq.errors import StoreError

log = logging.getLogger("dtq.embedded")

START_TIMEOUT_S = 15.0
_PING_TIMEOUT_S = 1.0
_POLL_S = 0.003
_STARTS_MAX = 2
_SERVER_LOG_MAX_BYTES = 1 << 20
_TAIL_LINES = 12
_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """What server.json says of the server in a directory."""

    binary: str
    kind: str
    version: str
    socket_path: str
    fsync: str
    pid: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a server is to be started: the program (None: look for one), when to fsync, seconds to stay when unused."""

    server: str | None
    fsync: str
    linger_s: float


def start_or_join(directory: Path, wanted: Wanted) -> RunningServer:
    """Return the server of this directory as soon as it answers; start it if none runs. The caller holds `users`.

    A server that is loading its data is waited for as long as it says so. Raises StoreError when no program is found,
    when the server ends right after its start, or when it does not answer for 15 seconds (with the end of its log).
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    starts = 0
    while True:
        try:
            lock = locks.take_server_lock(directory)
        except OSError as error:
            raise places.unusable(directory, error) from error
        if lock is not None:
            try:
                if starts == _STARTS_MAX:
                    raise StoreError(f"the private server ended right after its start{_log_tail(directory)}")
                _start(directory, lock, wanted)
            finally:
                os.close(lock)
            starts += 1
        running = read_running(directory)
        answer = ping(running.socket_path) if running else b""
        if running and answer.startswith(b"+PONG"):
            if wanted.fsync == "always" and running.fsync != "always":
                # The careful user wins over the one who came first.
                ask(running.socket_path, b"CONFIG SET appendfsync always\r\n")
            return running
        now = time.monotonic()
        if answer.startswith(b"-LOADING"):
            deadline = now + START_TIMEOUT_S
        if now >= deadline:
            silence = f"did not answer for {START_TIMEOUT_S:g} s"
            raise StoreError(f"the private server in {str(directory)!r} {silence}{_log_tail(directory)}")
        time.sleep(_POLL_S)


def read_running(directory: Path) -> RunningServer | None:
    """Return what server.json says; None if there is none or it cannot be read."""
    try:
        facts = json.loads((directory / "server.json").read_bytes())
        return RunningServer(**facts)
    except (OSError, ValueError, TypeError):
        return None


def ping(socket_path: str) -> bytes:
    """Return the server's answer to PING, empty if there is none within a second."""
    return ask(socket_path, b"PING\r\n")


def ask(socket_path: str, command: bytes) -> bytes:
    """Send one command and return the first piece of the answer; empty without one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PING_TIMEOUT_S)
        try:
            connection.connect(socket_path)
            connection.sendall(command)
            return connection.recv(256)
        except OSError:
            return b""


def server_command(binary: str, directory: Path, socket_path: str, fsync: str) -> list[str]:
    """The command line of the server: no port, the append-only file as the one store, nothing evicted.

    The base of the append-only file is plain commands (no RDB preamble), so that every version from 7.0 on, Redis or
    Valkey, opens a directory that another one wrote.
    """
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "600",
        "dir": str(directory),
        "daemonize": "no",
        "supervised": "no",
        "databases": "1",
        "save": "",
        "appendonly": "yes",
        "appendfsync": fsync,
        "aof-use-rdb-preamble": "no",
        "auto-aof-rewrite-percentage": "100",
        "auto-aof-rewrite-min-size": "16mb",
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "logfile": str(directory / "server.log"),
        "loglevel": "notice",
    }
    return [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]


def _start(directory: Path, lock: int, wanted: Wanted) -> None:
    """Start a guard that inherits the server's lock; returns once the guard is on its own."""
    binary = find_server(wanted.server)
    socket_path = places.choose_socket_path(directory)
    if not sys.executable:
        raise StoreError("no Python program to run the store's guard with (sys.executable is empty); set DTQ_REDIS_URL")
    command = [sys.executable, "-I", "-S", str(_GUARD), str(directory), str(lock), str(wanted.linger_s)]
    command += [_facts(binary, socket_path, wanted.fsync), "--"]
    command += server_command(binary.path, directory, socket_path, wanted.fsync)
    try:
        with _open_log(directory) as server_log:
            guard = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=server_log,
                cwd=directory,
                # A locale that is not installed here would keep some servers from starting.
                env={**os.environ, "LC_ALL": "C"},
                pass_fds=(lock,),
                # Ctrl-C in the terminal ends the workers, not the store under them.
                start_new_session=True,
                umask=0o077,
                check=False,
            )
    except OSError as error:
        raise places.unusable(directory, error) from error
    if guard.returncode != 0:
        raise StoreError(f"the store's guard did not start{_log_tail(directory)}")
    log.info("private %s %s (%s) in %s", binary.kind, binary.version, binary.path, directory)


def _facts(binary: ServerBinary, socket_path: str, fsync: str) -> str:
    """The text of server.json up to the process id, which only the guard's child knows."""
    facts = {
        "binary": binary.path,
        "kind": binary.kind,
        "version": binary.version,
        "socket_path": socket_path,
        "fsync": fsync,
        "pid": 0,
    }
    return json.dumps(facts).removesuffix("0}")


def _open_log(directory: Path) -> BinaryIO:
    """server.log, to append to; one that has grown large is set aside first, as only the last two are of use."""
    path = directory / "server.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if os.fstat(descriptor).st_size > _SERVER_LOG_MAX_BYTES:
        os.close(descriptor)
        path.replace(path.with_suffix(".log.old"))
        return _open_log(directory)
    return os.fdopen(descriptor, "ab", buffering=0)


def _log_tail(directory: Path) -> str:
    """The last lines of server.log, introduced, for the end of an error message."""
    path = directory / "server.log"
    try:
        lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        lines = []
    return "\n".join([f"; the end of {path}:", *(f"  {line}" for line in lines)]) if lines else f"; {path} is empty"
