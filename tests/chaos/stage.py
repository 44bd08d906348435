"""Where a chaos run happens: a server that keeps what it acknowledged, workers, a producer, and their files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis

from dtq.broker import Broker
from dtq.settings import Settings
from tests.process.harness import ROOT, WorkerProcess, alive
from tests.servers import PrivateServer

APP = "tests.chaos.handlers:app"
LEASE_S = 1.5
SETTINGS: dict[str, Any] = {
    "lease_s": LEASE_S,
    "renew_s": 0.3,
    "shutdown_grace_s": 0.5,
    "kill_grace_s": 0.4,
    "max_attempts": 1000,  # DTQ_MAX_ATTEMPTS: the cap
    "concurrency": 20,
    "dead_letter_max": 1_000_000,
    "recent": 1_000_000,
}
CHILDREN = 2


class Place:
    """The place of one worker in the pool: whoever is killed here is followed by another one."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.number = number
        self._stage = stage
        self.worker: WorkerProcess | None = None
        self.past: list[WorkerProcess] = []

    def start(self) -> None:
        """Start a worker unless one runs."""
        if self.worker is not None and self.worker.process.poll() is None:
            return
        if self.worker is not None:
            self.past.append(self.worker)
        self.worker = WorkerProcess(
            self._stage.environment, self._stage.directory, APP, children=CHILDREN, log_level=10
        )

    @property
    def pid(self) -> int:
        """Pid of the supervisor; 0 while there is none."""
        return self.worker.pid if self.worker is not None and self.worker.process.poll() is None else 0

    def children(self) -> list[int]:
        """Pids of the children that are ready."""
        return self.worker.live_pids() if self.worker is not None else []

    def templates(self) -> list[int]:
        """Pids of the templates that live."""
        return [pid for pid in self.worker.template_pids() if alive(pid)] if self.worker is not None else []

    def everyone(self) -> list[int]:
        """Pids of supervisor, template and children."""
        return [pid for pid in (self.pid, *self.templates(), *self.children()) if pid]

    def every_worker(self) -> list[WorkerProcess]:
        """All that ever ran here."""
        return [*self.past, *([self.worker] if self.worker is not None else [])]


class Stage:
    """Server, pool and producer of one run; a context manager that leaves nothing running."""

    def __init__(self, directory: Path, seed: int, workers: int, pause_s: float) -> None:
        self.directory = directory
        self.effects_path = directory / "effects"
        self.ledger_path = directory / "ledger"
        self.server = PrivateServer("redis", persistence=True, config={"appendfsync": "always"})
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DTQ_")},
            "DTQ_REDIS_URL": self.server.url,
            "CHAOS_EFFECTS": str(self.effects_path),
            "CHAOS_LEDGER": str(self.ledger_path),
            "PYTHONWARNINGS": "",
            **{f"DTQ_{name.upper()}": str(value) for name, value in SETTINGS.items()},
        }
        self.places = [Place(self, number) for number in range(workers)]
        self._seed = seed
        self._pause_s = pause_s
        self.producer: subprocess.Popen[bytes] | None = None
        self.broker = Broker(Settings(redis_url=self.server.url))
        self._admin: redis.Redis | None = None

    def __enter__(self) -> Stage:
        self.server.start()
        for place in self.places:
            place.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()
        if self._admin is not None:
            self._admin.close()
        if self.producer is not None:
            self.producer.kill()
            self.producer.wait()
        for place in self.places:
            for worker in place.every_worker():
                worker.close()
        self.server.close()

    def start_producer(self) -> None:
        """Begin to enqueue."""
        with (self.directory / "producer.log").open("wb") as log:
            self.producer = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.producer", str(self._seed), str(self._pause_s)],
                cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def stop_producer(self) -> str:
        """End it in good order; what it had to say if it did not run to the end."""
        producer, self.producer = self.producer, None
        if producer is None:
            return ""
        producer.send_signal(signal.SIGTERM)
        try:
            code = producer.wait(20)
        except subprocess.TimeoutExpired:
            producer.kill()
            code = producer.wait()
        return "" if code == 0 else f"exit {code}: " + (self.directory / "producer.log").read_text()[-2000:]

    def say(self, *command: object) -> Any:
        """One command to the server, with little patience; None where it does not answer or refuses."""
        with contextlib.suppress(redis.RedisError, OSError):
            return self._connection().execute_command(*command)
        return None

    def say_while_frozen(self, seconds: float, *command: object) -> None:
        """Freeze the server, let commands pile up before it and this one among them, and thaw it.

        It works them off in one go and sends replies at the end: what CLIENT KILL hits has been done, unanswered.
        """
        connection = self._connection().connection
        self.server.freeze()
        try:
            time.sleep(seconds)
            connection.send_command(*command)
        except (redis.RedisError, OSError):
            connection = None
        finally:
            self.server.thaw()
        if connection is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                connection.read_response()

    def _connection(self) -> Any:
        """One connection, kept: the server may have a limit on new ones."""
        if self._admin is None:
            self._admin = redis.Redis.from_url(
                self.server.url, socket_timeout=1, socket_connect_timeout=1, single_connection_client=True
            )
        return self._admin

    def quiet(self) -> bool:
        """Whether nothing is queued, running or scheduled."""
        counts = self.broker.queue_counts("default")
        return not (counts.waiting or counts.running or counts.scheduled)


def send(pid: int, number: int) -> bool:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def now() -> float:
    """The clock of all lines: the steady one, the same in every process."""
    return time.monotonic()
