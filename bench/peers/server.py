"""A redis-server of the benchmark's own on a port of 127.0.0.1, without persistence, and what it counts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

START_TIMEOUT_S = 15.0
_OWN = ("info", "flushall", "ping", "client|setinfo", "client|setname", "config|get")
"""Commands that the runner itself sends, or that only greet: not counted."""


@dataclass
class Counters:
    """What the server has used up to a moment. reads: from its sockets, None where the server does not count them."""

    cpu_us: float
    commands: dict[str, int]
    reads: int | None
    memory: int
    moment: float = field(default_factory=time.monotonic)

    def per_task(self, later: Counters, tasks: int) -> dict[str, Any]:
        """CPU µs, commands and reads from this moment to a later one, for each task."""
        commands = {
            name: (calls - self.commands.get(name, 0)) / tasks for name, calls in sorted(later.commands.items())
        }
        reads = None if self.reads is None or later.reads is None else (later.reads - self.reads) / tasks
        return {
            "redis_us": (later.cpu_us - self.cpu_us) / tasks,
            "commands": sum(commands.values()),
            "round_trips": reads,
            "commands_by_name": {name: round(each, 3) for name, each in commands.items() if each >= 0.005},
        }


class Server:
    """A running redis-server, from `with` to its end. port: where it listens."""

    def __init__(self) -> None:
        self.port = 0
        self.version = ""
        self._directory = Path(tempfile.mkdtemp(prefix="dtq-peers-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Any = None

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        binary = shutil.which("redis-server")
        if binary is None:
            raise FileNotFoundError("redis-server was not found; install it (apt install redis-server)")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command += ["--save", "", "--appendonly", "no"]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]  # a run that is killed leaves no server behind
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
        self._client = redis.Redis(port=self.port)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.version = self._client.info("server")["redis_version"]
                return self
            except redis.ConnectionError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def clear(self) -> None:
        """Forget all data and scripts, so that nothing of one peer helps or hinders the next."""
        self._client.flushall()
        self._client.script_flush()
        self._client.function_flush()

    def counters(self) -> Counters:
        """What the server has used until now."""
        info = self._client.info("everything")
        commands = {
            name.removeprefix("cmdstat_"): int(each["calls"])
            for name, each in info.items()
            if name.startswith("cmdstat_") and name.removeprefix("cmdstat_") not in _OWN
        }
        reads = info.get("total_reads_processed")
        cpu_us = (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])) * 1e6
        return Counters(cpu_us, commands, None if reads is None else int(reads), int(info["used_memory"]))

    def pin(self, cpus: set[int]) -> None:
        """Let the server's threads run on these CPUs only."""
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cpus)
