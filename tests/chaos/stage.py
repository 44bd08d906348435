"""Where a chaos run happens: a server that keeps what it acknowledged, workers, producers, an operator, their files."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import redis

from dtq.broker import Broker
from dtq.settings import Settings
from tests.chaos.handlers import QUEUES
from tests.chaos.outside import Client, Connections
from tests.process.harness import WorkerProcess, alive
from tests.servers import PrivateServer

APP = "tests.chaos.handlers:app"
_WORD = "chaos"
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
ANSWER_S = 1.0
"""How long a worker waits for an answer (DTQ_ENQUEUE_DEADLINE_S): shorter than its lease, as it is by default."""
CHILDREN = 2
WORK_ON = (("default",), ("default", "other"), ("other", "default"))
"""The queues of the workers, by their place: what waits for one queue alone takes a shorter way."""


class Place:
    """The place of one worker in the pool: whoever is killed here is followed by another one."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.number = number
        self.connections = stage.connect(f"worker{number}")
        self._stage = stage
        self._queues = WORK_ON[number % len(WORK_ON)]
        self.worker: WorkerProcess | None = None
        self.past: list[WorkerProcess] = []

    def start(self) -> None:
        """Start a worker unless one runs."""
        if self.worker is not None and self.worker.process.poll() is None:
            return
        if self.worker is not None:
            self.past.append(self.worker)
        self.worker = WorkerProcess(
            {**self._stage.worker_environment, "DTQ_REDIS_URL": self.connections.url}, self._stage.directory, APP,
            queues=self._queues, children=CHILDREN, log_level=10,
        )  # fmt: skip

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
    """Server, pool, producers and operator of one run; a context manager that leaves nothing running."""

    def __init__(self, directory: Path, seed: int, workers: int, pause_s: float, server: str = "redis") -> None:
        self.directory = directory
        self.effects_path = directory / "effects"
        self.ledger_path = directory / "ledger"
        users = directory / "users"  # the storm logs in as one that no act touches
        users.write_text(f"user default on nopass ~* &* +@all\nuser keeper on >{_WORD} ~* &* +@all\n")
        config = {"appendfsync": "always", "dbfilename": "snapshot", "aclfile": str(users)}
        self.server = PrivateServer(server, persistence=True, config=config)
        (self.server.directory / "snapshot").mkdir()  # where a snapshot would go: none succeeds
        self._ways: list[Connections] = []
        self.client_connections = self.connect("clients")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DTQ_")},
            "CHAOS_EFFECTS": str(self.effects_path),
            "CHAOS_LEDGER": str(self.ledger_path),
            "PYTHONWARNINGS": "",
            **{f"DTQ_{name.upper()}": str(value) for name, value in SETTINGS.items()},
        }
        self.worker_environment = {**environment, "DTQ_ENQUEUE_DEADLINE_S": str(ANSWER_S)}
        self.places = [Place(self, number) for number in range(workers)]
        around = directory, {**environment, "DTQ_REDIS_URL": self.client_connections.url}
        producers = [Client("producer", [seed, pause_s], number, 2, *around) for number in (0, 1)]
        self.clients = [*producers, Client("operator", [seed], 0, 1, *around)]
        self.broker = Broker(Settings(redis_url=self.server.url))
        self._admin: redis.Redis | None = None

    def __enter__(self) -> Stage:
        try:
            self.server.start()
            for way in self._ways:
                way.start()
            for place in self.places:
                place.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()
        if self._admin is not None:
            self._admin.close()
        for client in self.clients:
            client.close()
        for place in self.places:
            for worker in place.every_worker():
                worker.close()
        for way in self._ways:
            way.close()
        self.server.close()

    def connect(self, name: str) -> Connections:
        """A way to the server, started with the stage."""
        assert self.server.socket_path is not None
        way = Connections(name, self.server.socket_path, self.server.directory)
        self._ways.append(way)
        return way

    def start_clients(self) -> None:
        """Begin to enqueue, and to operate."""
        for client in self.clients:
            client.start()

    def stop_clients(self) -> list[str]:
        """End producers and operator in good order; what they had to say if they did not run to the end."""
        return [line for client in self.clients for line in client.stop()]

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
            url = self.server.url.replace("unix://", f"unix://keeper:{_WORD}@")
            self._admin = redis.Redis.from_url(
                url, socket_timeout=1, socket_connect_timeout=1, single_connection_client=True
            )
        return self._admin

    def quiet(self) -> bool:
        """Whether nothing is queued, running or scheduled. What a late call has paused is resumed."""
        counts = [self.broker.queue_counts(queue) for queue in QUEUES]
        for found in counts:
            for kind in (*([""] if found.paused else []), *found.paused_types):
                self.broker.resume(found.queue, kind)
        return not any(found.waiting or found.running or found.scheduled for found in counts)


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
