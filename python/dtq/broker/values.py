"""What the broker's verbs answer."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server a broker is connected to. name: `redis` or `valkey`; policy: '' where CONFIG is forbidden."""

    name: str
    version: str
    policy: str
    clock_skew_ms: int
    place: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one task of an enqueue call.

    code: a accepted, e id taken, f queue full, p schedule full, u unique conflict, i idempotency in progress,
    r idempotency key reused, d duplicate of an ended task. detail: the holder's id (u, i), or id and status (d).
    """

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that Redis knows of one task at one instant, still encoded. due_ms: its place in the schedule."""

    live: bytes | None
    envelope: bytes | None
    record: bytes | None
    due_ms: int | None


@dataclass(frozen=True, slots=True)
class CancelCounts:
    """What a cancel by filter did. requested: they run, their workers are told. ended: they ended while it went on."""

    cancelled: int = 0
    requested: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class CancelNote:
    """A claim whose task has been cancelled while its child holds it."""

    consumer: str
    seq: int


@dataclass(frozen=True, slots=True)
class DueNote:
    """A task came that falls due before all others of its queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue in figures.

    scheduled counts pending and retrying tasks together. oldest_ms: how long the oldest waiting task has waited, None
    where none waits. totals: tasks that ever ended in each status, and other counters.
    """

    queue: str
    waiting: int
    running: int
    scheduled: int
    retrying: int
    dead: int
    oldest_ms: int | None
    paused: bool
    paused_types: tuple[str, ...]
    next_due_ms: int | None
    totals: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker with a lease. facts: what it says of itself (worker/facts.py)."""

    id: str
    expires_ms: int
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Held:
    """A running task that a consumer holds. live: its live value, still encoded."""

    consumer: str
    queue: str
    task_id: str
    live: bytes
    task_type: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of the audit stream. task_id: '' for an act on a whole queue. facts: what else was kept of it."""

    entry: str
    time_ms: int
    actor: str
    action: str
    queue: str
    task_id: str
    request_id: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
