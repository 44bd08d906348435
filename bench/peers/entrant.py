"""One entrant: an adapter in one of its ways to run, and the commands that produce for it and work for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.environments import ROOT, Adapter
from bench.peers.record import Tally, ended, tally
from bench.peers.server import Server
from bench.peers.workers import Workers

PRODUCE_TIMEOUT_S = 240.0
STALL_S = 20.0
"""A drain that has not moved for so long will not end."""
DEFAULTS = {"enqueue": 2_000, "bulk": 50_000, "burn": 1_000, "stamp": 300, "load": 1_000, "kill": 2_000}
"""Tasks of each kind of work, where ENTRANTS of an adapter names no other number."""


_descriptions: dict[tuple[str, bool, int, bool], dict[str, Any]] = {}
"""What adapters have said, by entrant, results, port and naps: commands name the server."""


class Incomplete(Exception):
    """Not every task ran."""


@dataclass(frozen=True)
class Entrant:
    """Who is measured. sizes: how many tasks of each kind of work; driver: command of its producer."""

    name: str
    adapter: Adapter
    driver: tuple[str, ...]
    processes: int
    sizes: dict[str, int] = field(default_factory=dict)

    def size(self, work: str) -> int:
        """How many tasks this work takes; 0: it is not done."""
        if work not in self.sizes and "drain" not in self.sizes:
            return 0  # it enters for single works only
        return self.sizes.get(work, DEFAULTS.get(work, 0))


class Session:
    """An entrant on a server, with or without results, from fresh records to the last look at them."""

    def __init__(self, entrant: Entrant, server: Server, results: bool) -> None:
        self.entrant = entrant
        self.server = server
        self.records = Path(tempfile.mkdtemp(prefix="dtq-peers-"))
        self._results = results
        self._environment = self._make_environment()

    def close(self) -> None:
        """Remove the records."""
        shutil.rmtree(self.records, ignore_errors=True)

    def describe(self, naps: bool = False) -> dict[str, Any]:
        """What the adapter says: `workers`, `handlers`, `bulk`, `versions`."""
        key = (self.entrant.name, self._results, self.server.port, naps)
        if key not in _descriptions:
            arguments = ["describe", "--processes", str(self.entrant.processes), *(["--naps"] if naps else [])]
            _descriptions[key] = self._drive(arguments)
        return _descriptions[key]

    def produce(
        self, kind: str, tasks: int, *, first: int = 0, bulk: bool = False, rate: float = 0.0, warm_up: int = 0
    ) -> dict[str, Any]:
        """Enqueue; returns `seconds` and `cpu_s`, without the start of the producer and the first `warm_up` calls."""
        chunk = ["--bulk", str(self.entrant.adapter.chunk)] if bulk else []
        arguments = ["--kind", kind, "--tasks", str(tasks), "--first", str(first), "--rate", str(rate), *chunk]
        arguments += ["--warm-up", str(warm_up)] if warm_up else []
        return self._drive(["produce", *arguments])

    def fill(self, kind: str, tasks: int) -> None:
        """Enqueue fast, not to be measured: in bulk, or beside the server on one CPU, which saves wake-ups."""
        if self.describe()["bulk"]:
            self.produce(kind, tasks, bulk=True)
            return
        one = min(os.sched_getaffinity(0))
        with self.placed(one, one):
            self.produce(kind, tasks)

    @contextmanager
    def placed(self, producer: int, server: int) -> Iterator[None]:
        """A producer that is started here runs on this CPU, the server on that one."""
        every = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {producer})
        self.server.pin({server})
        try:
            yield
        finally:
            os.sched_setaffinity(0, every)
            self.server.pin(every)

    @contextmanager
    def workers(self, naps: bool = False) -> Iterator[Workers]:
        """The entrant's workers, killed at the end."""
        commands = self.describe(naps)["workers"]
        binaries = Path(self.entrant.driver[0]).parent
        commands = [
            [str(binaries / command[0]) if (binaries / command[0]).exists() else command[0], *command[1:]]
            for command in commands
        ]
        with (self.records / "workers.log").open("ab") as log:
            running = Workers(commands, self._environment, ROOT, log)
            try:
                yield running
            finally:
                running.kill()

    def wait_for_all(self, workers: Workers, kind: str, tasks: int, stall_s: float = STALL_S) -> Tally:
        """Until every task of a kind has ended at least once; raises Incomplete when nothing moves for `stall_s`."""
        last, moved = -1, time.monotonic()
        while True:
            looked = time.monotonic()
            now = tally(self.records, kind)
            if now.ran >= tasks and not self._missing(tasks):
                return tally(self.records, kind)
            if now.ran != last:
                last, moved = now.ran, time.monotonic()
            elif time.monotonic() - moved > stall_s:
                raise Incomplete(f"{tasks - self._missing(tasks)} of {tasks} {kind} tasks ran. {self.log_tail()}")
            workers.check_alive()
            time.sleep(max(0.02, 20 * (time.monotonic() - looked)))  # at most a twentieth of a CPU goes into looking

    def log_tail(self) -> str:
        """The last words of the workers."""
        path = self.records / "workers.log"
        return path.read_text(errors="replace")[-600:] if path.exists() else ""

    def _missing(self, tasks: int) -> int:
        return ended(self.records, tasks).count(0)

    def _drive(self, arguments: list[str]) -> dict[str, Any]:
        done = subprocess.run(
            [*self.entrant.driver, *arguments], env=self._environment, cwd=ROOT, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PRODUCE_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments[:3])}: {done.stderr.strip()[-800:]}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def _make_environment(self) -> dict[str, str]:
        binaries = Path(self.entrant.driver[0]).parent
        own = self.entrant.adapter.requirements or self.entrant.adapter.program
        paths = [str(ROOT), *([] if own else [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])]
        return {
            **{name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
            "PATH": os.pathsep.join([str(binaries), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "BENCH_PORT": str(self.server.port),
            "BENCH_RECORD": str(self.records),
            "BENCH_ENTRANT": self.entrant.name,
            "BENCH_RESULTS": "1" if self._results else "0",
            "C_FORCE_ROOT": "1",  # celery refuses pickle as root without it
        }
