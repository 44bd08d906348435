"""The workers that are alive: their children, what each runs and since when, and why children were replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from dtq.errors import BrokerUnavailable
from dtq.models import LiveState, from_ms

if TYPE_CHECKING:
    from dtq.broker import Broker, Held, WorkerInfo

TASKS_A_CHILD = 25
"""Most running tasks that are listed for a child in one queue, the oldest claims first."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that a child has claimed. since: of this claim, by the server's clock."""

    task_id: str
    queue: str
    task_type: str
    attempt: int
    since: datetime

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "task_id": self.task_id,
            "queue": self.queue,
            "task_type": self.task_type,
            "attempt": self.attempt,
            "since": _text(self.since),
        }


@dataclass(frozen=True, slots=True)
class Child:
    """One child, as its worker last told of it. private_bytes: memory that only it has; None where that is unknown.

    tasks: at most 25 of each queue.
    """

    number: int
    pid: int
    consumer: str
    private_bytes: int | None = None
    tasks: tuple[RunningTask, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "number": self.number,
            "pid": self.pid,
            "consumer": self.consumer,
            "private_bytes": self.private_bytes,
            "tasks": [task.as_dict() for task in self.tasks],
        }


@dataclass(frozen=True, slots=True)
class Restart:
    """A child that was replaced. at: by the clock of the worker's host. number: the child's."""

    at: datetime
    cause: str
    number: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"at": _text(self.at), "cause": self.cause, "number": self.number}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker with a lease, as it last told of itself: at each renewal (`renew_s`), and a second after a change.

    started_at: by the clock of its host. leader: it runs scheduler and reaper. restarts: the last 20, newest first.
    draining: it claims nothing more and leaves. lease_seconds: until the lease runs out, unless it is renewed.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    version: str
    queues: tuple[str, ...]
    leader: bool
    children: tuple[Child, ...]
    restarts: tuple[Restart, ...]
    draining: bool
    app: str = ""
    python: str = ""
    lease_seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values: times as ISO 8601 with an offset."""
        return {
            "id": self.id,
            "host": self.host,
            "pid": self.pid,
            "started_at": _text(self.started_at),
            "version": self.version,
            "queues": list(self.queues),
            "leader": self.leader,
            "children": [child.as_dict() for child in self.children],
            "restarts": [restart.as_dict() for restart in self.restarts],
            "draining": self.draining,
            "app": self.app,
            "python": self.python,
            "lease_seconds": self.lease_seconds,
        }


def read_workers(broker: Broker) -> list[Worker]:
    """The workers that are alive, by id. Raises BrokerUnavailable."""
    found, leader = broker.workers(), broker.leader()
    running = _running(broker, found)
    return [_worker(info, leader, running) for info in found]


def _running(broker: Broker, workers: Iterable[WorkerInfo]) -> Mapping[str, list[RunningTask]]:
    """What each consumer runs, asked in the queues that hold tasks."""
    serving: defaultdict[str, list[str]] = defaultdict(list)
    for info in workers:
        consumers = [str(row[2]) for row in _rows(info.facts.get("processes"), 4)]
        for queue in _texts(info.facts.get("queues")):
            serving[queue] += consumers
    out: defaultdict[str, list[RunningTask]] = defaultdict(list)
    for queue in broker.occupied(sorted(serving)):
        try:
            held = broker.holding(queue, serving[queue], TASKS_A_CHILD)
        except BrokerUnavailable as error:
            if not error.damaged:
                raise
            continue  # its keys were changed by hand: what runs in it is not known
        for one in held:
            out[one.consumer].append(_task(one))
    return out


def _task(held: Held) -> RunningTask:
    state = LiveState.parse(held.live)
    return RunningTask(held.task_id, held.queue, held.task_type, state.attempt, from_ms(state.started_ms) or _LONG_AGO)


def _worker(info: WorkerInfo, leader: str | None, running: Mapping[str, list[RunningTask]]) -> Worker:
    """What a worker tells, read with care: another version may tell less, or otherwise."""
    facts = info.facts
    children = [
        Child(
            _number(number),
            _number(pid),
            str(consumer),
            _number(private) or None,
            tuple(sorted(running.get(str(consumer), ()), key=lambda task: task.since)),
        )
        for number, pid, consumer, private in _rows(facts.get("processes"), 4)
    ]
    restarts = [
        Restart(from_ms(_number(at)) or _LONG_AGO, str(cause), _number(number))
        for at, cause, number in _rows(facts.get("restarts"), 3)
    ]
    return Worker(
        id=info.id,
        host=str(facts.get("host", "")),
        pid=_number(facts.get("pid")),
        started_at=from_ms(_number(facts.get("started_ms"))) or _LONG_AGO,
        version=str(facts.get("version", "")),
        queues=tuple(_texts(facts.get("queues"))),
        leader=info.id == leader,
        children=tuple(sorted(children, key=lambda child: child.number)),
        restarts=tuple(restarts),
        draining=facts.get("draining") is True,
        app=str(facts.get("app", "")),
        python=str(facts.get("python", "")),
        lease_seconds=max(0, info.expires_ms) / 1000,
    )


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _rows(value: object, width: int) -> list[list[object]]:
    return [row for row in map(_list, _list(value)) if len(row) == width]


def _texts(value: object) -> list[str]:
    return [str(text) for text in _list(value)]


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
