"""Starts real workers for tests and tells what they did, by their log and by the lines that handlers left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import redis

from dtq.app import App
from dtq.errors import BrokerUnavailable, DtqError
from dtq.models import Task

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.process.handlers:app"
RUN = """
import json, sys
from dtq.worker import run_worker
options = json.loads(sys.argv[2])
sys.exit(run_worker(sys.argv[1], **options))
"""


@dataclass(frozen=True)
class Effect:
    """One line that a handler left."""

    word: str
    name: str
    attempt: int
    pid: int
    at: float


class WorkerProcess:
    """One worker in a process group of its own. `log` is what it wrote to stderr."""

    def __init__(self, environment: dict[str, str], directory: Path, app: str = APP, **options: Any) -> None:
        self.log_path = Path(tempfile.mkstemp(suffix=".log", dir=directory)[1])
        options.setdefault("log_level", 10)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, app, json.dumps(options)],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def ready_pids(self) -> list[int]:
        """Pids of all children that ever became ready, in order."""
        return [int(pid) for pid in re.findall(r"child \S+ is ready \(pid (\d+)\)", self.log)]

    def live_pids(self) -> list[int]:
        """Pids of the children that are ready and alive."""
        return [pid for pid in self.ready_pids() if alive(pid)]

    def template_pids(self) -> list[int]:
        """Pids of all templates that ever ran."""
        return [int(pid) for pid in re.findall(r"template started \(pid (\d+)\)", self.log)]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 15.0) -> int:
        """The exit code; the test fails with the log if there is none in time."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {timeout} s; its log:\n{self.log}") from None

    def close(self) -> None:
        """Kill it and everything it started. A traced one may leave first, for SIGKILL would take its trace along."""
        if "COVERAGE_PROCESS_CONFIG" in os.environ:
            self._leave()
        for pid in [*self.ready_pids(), *self.template_pids()]:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _leave(self) -> None:
        """Stop it at once, as two signals do, with little patience: what comes after kills it anyway."""
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGINT):  # two alike would be seen as one
            self.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.5)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def family(word: str) -> list[int]:
    """Pids of the living processes whose environment holds a word."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes() and alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


class Stage:
    """One server, one app to enqueue with, and the workers of a test."""

    def __init__(self, url: str, directory: Path, wait_until: Callable[..., Any], **settings: Any) -> None:
        self.directory = directory
        self.wait_until = wait_until
        self.effects_path = directory / "effects"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DTQ_")},
            "DTQ_REDIS_URL": url,
            "EFFECTS": str(self.effects_path),
            "PYTHONWARNINGS": "",
            **{f"DTQ_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.app = App(redis_url=url, **settings)
        self.workers: list[WorkerProcess] = []

    def worker(self, *, ready: bool = True, **options: Any) -> WorkerProcess:
        """Start a worker; `ready`: wait until all its children are."""
        options.setdefault("children", 2)
        worker = WorkerProcess(self.environment, self.directory, **options)
        self.workers.append(worker)
        if ready:
            self.wait_until(
                lambda: len(worker.ready_pids()) >= options["children"] or worker.process.poll() is not None,
                15,
                "children ready",
            )
        return worker

    def wait_until_waiting(self, children: int) -> None:
        """Until so many children stand in a blocking read."""
        with contextlib.closing(self.app.broker.transport.client()) as client:
            self.wait_until(lambda: client.info("clients")["blocked_clients"] >= children, 20, "children wait")

    @contextlib.contextmanager
    def command(
        self, *prefix: str, app: str = APP, output: int = subprocess.DEVNULL
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of two children behind a prefix of its command line, such as `unshare`; killed in the end."""
        process = subprocess.Popen(
            [*prefix, sys.executable, "-c", RUN, app, json.dumps({"children": 2, "log_level": 10})],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def effects(self, word: str | None = None, name: str | None = None) -> list[Effect]:
        """What handlers left so far."""
        try:
            lines = self.effects_path.read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [
            Effect(parts[0], parts[1], int(parts[2]), int(parts[3]), float(parts[4]))
            for parts in (line.split() for line in lines)
        ]
        return [e for e in found if word in (None, e.word) and name in (None, e.name)]

    def started(self, name: str, attempt: int | None = None, timeout: float = 10.0) -> Effect:
        """Wait for a handler's start."""

        def look() -> Effect | None:
            return next((e for e in self.effects("start", name) if attempt in (None, e.attempt)), None)

        effect: Effect = self.wait_until(look, timeout, f"start of {name}, attempt {attempt}")
        return effect

    def ended(self, handle: Any, timeout: float = 10.0) -> Task:
        """Wait until a task is terminal; its record."""

        def look() -> Task | None:
            try:
                task: Task = handle.task()
            except BrokerUnavailable:  # the test has taken the server away; it says when it is to be back
                return None
            return task if task.status.terminal else None

        task: Task = self.wait_until(look, timeout, f"end of task {handle.id}")
        return task

    def empty(self, queue: str = "default") -> bool:
        """Whether nothing is queued, running or scheduled."""
        counts = self.app.broker.queue_counts(queue)
        return not (counts.waiting or counts.running or counts.scheduled)

    def story(self) -> list[tuple[str, str]]:
        """What explains a failed test: each worker's log, who holds what in the default queue, and its keys."""
        told = [
            (f"worker {worker.pid}, exit code {worker.process.poll()}", "\n".join(worker.log.splitlines()[-200:]))
            for worker in self.workers
        ]
        lines = [f"now {now():.3f}"]
        keys, broker = self.app.broker.keys, self.app.broker
        with (
            contextlib.suppress(DtqError, redis.RedisError),  # the test may have taken the server away
            contextlib.closing(broker.transport.client()) as client,
        ):
            lines.append(f"consumers {broker.consumers('default')}")
            lines.append(f"meta {client.hgetall(keys.meta('default'))}")
            lines.append(f"schedule {client.zrange(keys.schedule('default'), 0, 20, withscores=True)}")
            lines.extend(f"live {item}" for item in islice(client.hscan_iter(keys.live("default")), 50))
        return [*told, ("queue default", "\n".join(lines))]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.app.close()


def now() -> float:
    """The wall clock that effects are written with."""
    return time.time()
