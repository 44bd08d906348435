"""A real worker pool in processes of its own, and what can be seen of it from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.servers import Server
from bench.workload import BOARD

ROOT = Path(__file__).resolve().parent.parent
STOP_TIMEOUT_S = 60.0
_PROGRAM = (
    "import logging, sys; from dtq.worker import run_worker; "
    "sys.exit(run_worker(sys.argv[3], queues=sys.argv[4:] or None, children=int(sys.argv[1]), "
    "log_level=getattr(logging, sys.argv[2])))"
)


class Pool:
    """A worker with some children on a server, from `with` to its end.

    queues: those it works on; none given: the app's. environment: further DTQ_* variables. application: what it runs.
    """

    def __init__(
        self,
        server: Server,
        children: int,
        *,
        board: Path | None = None,
        queues: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        application: str = "bench.workload:app",
    ) -> None:
        self.children = children
        self._application = application
        self._queues = tuple(queues)
        self._environment = {
            **os.environ,
            "DTQ_REDIS_URL": server.url,
            "DTQ_PREFIX": server.prefix,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            **({BOARD: str(board)} if board else {}),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._template: int | None = None

    @property
    def pid(self) -> int:
        """The supervisor."""
        assert self._process is not None, "the pool is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the worker; returns at once."""
        self._template = None
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _PROGRAM,
                str(self.children),
                os.environ.get("DTQ_BENCH_LOG", "ERROR"),
                self._application,
                *self._queues,
            ],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )

    def check_alive(self) -> None:
        """RuntimeError when the worker has ended by itself."""
        assert self._process is not None, "the pool is not running"
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"the worker ended with exit code {code}")

    def child_pids(self) -> list[int]:
        """The children that run handlers. The template, which was there before them, is left out."""
        started = {pid: time for pid in _children_of(self.pid) if (time := _start_ticks(pid)) is not None}
        if started and self._template is None:
            self._template = min(started, key=lambda pid: (started[pid], pid))
        return sorted(pid for pid in started if pid != self._template)

    def private_mb(self) -> list[float]:
        """Private memory of each child in MB (10**6 bytes): pages it shares with template and siblings do not count."""
        return [private_bytes(pid) / 1e6 for pid in self.child_pids()]

    def cpu_s(self) -> float:
        """CPU time that the children have used so far, in seconds, starting up included."""
        return sum(max(0, _cpu_ticks(pid)) for pid in self.child_pids()) / os.sysconf("SC_CLK_TCK")

    def whole_cpu_s(self) -> float:
        """CPU time of all the worker's processes so far, in seconds: supervisor, template and children."""
        pids = [self.pid, *_children_of(self.pid)]
        return sum(max(0, _cpu_ticks(pid)) for pid in pids) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """SIGTERM and wait for the end of the worker; killed if it does not come."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the worker did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None

    def kill(self) -> None:
        """SIGKILL to the supervisor, which takes template and children with it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def wait_until_up(self, timeout_s: float = 30.0) -> None:
        """Until every child waits for work (it sleeps in poll, having used no CPU for a moment)."""
        deadline = time.monotonic() + timeout_s
        before: dict[int, int] = {}
        while True:
            self.check_alive()
            used = {pid: _cpu_ticks(pid) for pid in self.child_pids()}
            if len(used) == self.children and used == before:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(used)} of {self.children} children are up after {timeout_s} s")
            before = used
            time.sleep(0.1)


def machine_cpu_s() -> float:
    """CPU time that the whole machine has used so far, in seconds; for a guess at what others did meanwhile."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split(None, 9)[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def private_bytes(pid: int) -> int:
    """Memory that only this process has (Private_* of smaps_rollup); 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _cpu_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else -1


def _start_ticks(pid: int) -> int | None:
    """When a process was started; None for one that is gone, or has ended and only waits to be reaped."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat behind the program's name, beginning with the state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
