"""What the tests of windows share: a server behind a gate, workers on either side of it, a look at where tasks are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtq.keys import BANDS, GROUP, PARKED, SHELF
from dtq.models import Task
from dtq.scripts import names, script
from tests.broker.driver import check_invariants, live
from tests.conftest import WaitUntil
from tests.process.gate import Gate, Hold
from tests.process.harness import Stage, WorkerProcess, alive
from tests.servers import PrivateServer

LEASE_S = 2.0
RENEW_S = 0.3
WAIT_S = 30.0
"""How long a busy machine gets: the reaper wants some time without a stall of its own."""


@dataclass
class Scene:
    """`stage` speaks to the server directly; workers started with `behind_gate` go through `gate`."""

    server: PrivateServer
    gate: Gate
    stage: Stage
    wait_until: WaitUntil
    directory: Path

    def behind_gate(self, overrides: dict[str, Any] | None = None, **options: Any) -> WorkerProcess:
        """A worker whose every command passes the gate."""
        return self.stage.worker(overrides={"redis_url": self.gate.url, **(overrides or {})}, **options)

    def until(self, name: str, **options: Any) -> Any:
        """Enqueue a task that runs until `go`."""
        return self.stage.app.enqueue("until", {"name": name}, **options)

    def go(self, name: str) -> None:
        """Let the handler of such a task return."""
        Path(f"{self.stage.effects_path}.{name}").touch()

    def mark(self, name: str, **options: Any) -> Any:
        """Enqueue a task that leaves a line and takes no time."""
        return self.stage.app.enqueue("mark", {"name": name}, **options)

    def warm(self) -> None:
        """Have the one idle child begin a fresh blocking read, which stands for two seconds."""
        self.stage.ended(self.mark("warm"))
        self.stage.wait_until_waiting(1)

    def wait_until_adopting(self) -> None:
        """Until the adoption behind a blocking read has reached the server as well, where it waits for the read."""
        with contextlib.closing(self.stage.app.broker.transport.client()) as client:
            self.wait_until(
                lambda: any("b" in each["flags"] and each["qbuf"] != "0" for each in client.client_list()),
                5,
                "the adoption behind the standing read",
            )

    def live(self, handle: Any) -> str:
        """The live value of a task, '' where it has none."""
        return live(self.stage.app.broker, handle.id, handle.queue)

    def holder(self, handle: Any) -> str:
        """The consumer in whose pending list a task's entry stands; '' for none."""
        broker = self.stage.app.broker
        parts = self.live(handle).split(":")
        if len(parts) < 4:
            return ""
        for band in BANDS:
            key = broker.keys.stream(handle.queue, band)
            found = broker.command("XPENDING", key, GROUP, parts[3], parts[3], 1) if self._exists(key) else []
            if found:
                consumer: bytes = found[0][1]
                return consumer.decode()
        return ""

    def _exists(self, key: str) -> bool:
        return bool(self.stage.app.broker.command("EXISTS", key))

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait for the end."""
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not alive(pid), 5, f"the end of {pid}")

    def kill_without_heir(self, worker: WorkerProcess, pid: int) -> None:
        """SIGKILL to a child; its worker, which is killed next, cannot replace it."""
        os.kill(worker.template_pids()[-1], signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)

    def kill_worker(self, worker: WorkerProcess) -> None:
        """SIGKILL to the supervisor; the kernel takes its template and children along."""
        pids = [worker.pid, *worker.ready_pids(), *worker.template_pids()]
        os.kill(worker.pid, signal.SIGKILL)
        self.wait_until(lambda: not any(map(alive, pids)), 5, "the end of the whole worker")

    def consumer(self, pid: int) -> str:
        """The consumer name of a child."""
        (found,) = (name for name, owner in self._children().items() if owner == pid)
        return found

    def wait_for_hand_over(self, pid: int) -> None:
        """Wait until the consumer of a dead child is gone."""
        consumer = self.consumer(pid)
        self.wait_until(lambda: consumer not in self._consumers("default"), 5, "the hand-over")

    def load_scripts(self) -> None:
        """So that no call is answered NOSCRIPT: a stopped reply is that of the script itself."""
        with self.server.client() as client:
            for name in names():
                client.script_load(script(name).text)

    def starts(self, name: str) -> list[int]:
        """The attempts of every start of a handler."""
        return [effect.attempt for effect in self.stage.effects("start", name)]

    def fate(self, handle: Any, name: str) -> Fate:
        """Wait for a task's end; `name` is the one that its handler leaves."""
        task: Task = self.stage.ended(handle, WAIT_S)
        return Fate(task.attempt, task.released, self.starts(name), tuple(line.cause for line in task.history))

    def kill_server(self, *holds: Hold | None) -> None:
        """SIGKILL to the server, which comes back with its append-only file; what was on its way is lost."""
        self.server.kill()
        for hold in holds:
            if hold is not None:
                hold.release(deliver=False)
        self.server.start()

    def check_nothing_left(self, *queues: str) -> None:
        """Every task has ended, every place is empty, and only consumers of living children stand."""
        for queue in queues or ("default",):
            self._check_queue(queue)
        broker = self.stage.app.broker
        self.wait_until(
            lambda: int(broker.command("SCARD", broker.keys.workers())) == len(broker.workers()),
            WAIT_S,
            "no dead workers",
        )

    def _check_queue(self, queue: str) -> None:
        self.wait_until(lambda: self.stage.empty(queue), WAIT_S, f"nothing left in {queue}")
        check_invariants(self.stage.app.broker, queue)
        self.wait_until(lambda: not self._strangers(queue), WAIT_S, f"no stray consumers in {queue}")

    def _strangers(self, queue: str) -> set[str]:
        living = {name for name, pid in self._children().items() if alive(pid)}
        return self._consumers(queue) - living - {SHELF, PARKED}

    def _consumers(self, queue: str) -> set[str]:
        """Every name that stands in a group or has a send number."""
        broker = self.stage.app.broker
        return {
            *broker.consumers(queue),
            *(name.decode() for name in broker.command("HKEYS", broker.keys.sends(queue))),
        }

    def _children(self) -> dict[str, int]:
        """Consumer and pid of every child that ever became ready."""
        found = (re.findall(r"child (\S+) is ready \(pid (\d+)\)", worker.log) for worker in self.stage.workers)
        return {consumer: int(pid) for children in found for consumer, pid in children}


@dataclass(frozen=True)
class Fate:
    """What became of a task: attempt, releases (their difference is charged), attempts of its starts, causes kept."""

    attempt: int
    released: int
    starts: list[int]
    causes: tuple[str, ...] = ()


ONCE = Fate(1, 0, [1])
"""It started once, and nothing was charged or noted."""
KILLED, LOST = ("signal SIGKILL",), ("lost lease",)
