"""What a task is: its statuses and legal moves, the outcome of an attempt, and the task as a reader sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from dtq import _core
from dtq.errors import IllegalTransition


class TaskStatus(StrEnum):
    """Where a task stands. The last five are terminal."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """True where no move leads on."""
        return not VALID_TRANSITIONS[self]

    @property
    def code(self) -> int:
        """The number that stands for this status in records, 1 to 9."""
        return _CODES[self]

    @classmethod
    def from_code(cls, code: int) -> TaskStatus:
        """The status of a record's number; ValueError for an unknown one."""
        if not 1 <= code <= len(STATUSES):
            raise ValueError(f"status code: {code!r} is out of bounds; known are 1 to {len(STATUSES)}")
        return STATUSES[code - 1]


STATUSES: tuple[TaskStatus, ...] = tuple(TaskStatus)
_CODES = {status: code for code, status in enumerate(STATUSES, 1)}

DISCARDED = b"discarded"
"""The place in the record of a dead letter that an operator has discarded."""

VALID_TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.PENDING: frozenset({TaskStatus.QUEUED, TaskStatus.CANCELLED, TaskStatus.EXPIRED}),
    TaskStatus.QUEUED: frozenset({TaskStatus.RUNNING, TaskStatus.CANCELLED, TaskStatus.EXPIRED}),
    TaskStatus.RUNNING: frozenset(
        {TaskStatus.SUCCEEDED, TaskStatus.RETRYING, TaskStatus.FAILED, TaskStatus.DEAD_LETTERED, TaskStatus.CANCELLED}
    ),
    TaskStatus.RETRYING: frozenset({TaskStatus.QUEUED, TaskStatus.CANCELLED}),
    TaskStatus.SUCCEEDED: frozenset(),
    TaskStatus.FAILED: frozenset(),
    TaskStatus.DEAD_LETTERED: frozenset(),
    TaskStatus.CANCELLED: frozenset(),
    TaskStatus.EXPIRED: frozenset(),
}
"""Every legal move. The four named exceptions (requeue, hand-back, release, redelivery) are functions of their own."""
TERMINAL_STATUSES: tuple[TaskStatus, ...] = tuple(status for status in TaskStatus if status.terminal)
"""How a task may end."""


def transition(current: TaskStatus, target: TaskStatus) -> TaskStatus:
    """`target`, where the move from `current` is legal; IllegalTransition otherwise."""
    allowed = VALID_TRANSITIONS[current]
    if target in allowed:
        return target
    if not allowed:
        raise IllegalTransition(f"status: a task that is {current} has ended and cannot become {target}", terminal=True)
    raise IllegalTransition(
        f"status: a {current} task cannot become {target}; it may become {', '.join(sorted(allowed))}"
    )


OutcomeLetter = Literal["S", "R", "F", "D", "C", "L"]
OUTCOME_STATUS: Mapping[OutcomeLetter, TaskStatus] = {
    "S": TaskStatus.SUCCEEDED,
    "R": TaskStatus.RETRYING,
    "F": TaskStatus.FAILED,
    "D": TaskStatus.DEAD_LETTERED,
    "C": TaskStatus.CANCELLED,
    "L": TaskStatus.QUEUED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended, before it is settled.

    letter: S succeeded, R retrying after `delay_ms`, F failed, D dead_lettered, C cancelled, L released (runs again,
    uncharged). cause: "error", "timeout", "retry", "signal SIGKILL", ... The error fields are empty at a success.
    charged: False where the attempt does not count (Retry(counts=False)).
    """

    letter: OutcomeLetter
    result: object = None
    delay_ms: int = 0
    charged: bool = True
    cause: str = ""
    error_class: str = ""
    error: str = ""
    traceback: str = ""

    @property
    def status(self) -> TaskStatus:
        """The status that the task takes by this outcome."""
        return OUTCOME_STATUS[self.letter]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt of a task that has failed, died or been released at least once."""

    attempt: int
    cause: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker_id: str | None = None
    error_class: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One task as its queue and its record show it at one moment. Times are aware (UTC); None: not known, or not yet.

    `payload` is None where the envelope cannot be read. `retention` is None where the record is kept for ever.
    """

    id: str
    queue: str
    status: TaskStatus
    task_type: str
    payload: dict[str, Any] | None
    attempt: int
    max_attempts: int
    priority: int
    released: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    due_at: datetime | None = None
    worker_id: str | None = None
    cancel_requested: bool = False
    result: Any = None
    cause: str | None = None
    error_class: str | None = None
    error: str | None = None
    traceback: str | None = None
    dead_letter_id: str | None = None
    timeout: timedelta | None = None
    retention: timedelta | None = None
    ttl: timedelta | None = None
    deadline: datetime | None = None
    batch_id: str | None = None
    headers: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    history: tuple[AttemptRecord, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values: times as ISO 8601 with an offset, durations in seconds."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def read_task(
    queue: str,
    task_id: str,
    *,
    live: bytes | None,
    envelope: bytes | None,
    record: bytes | None,
    due_ms: int | None,
) -> Task:
    """The task that these parts, read in one script, stand for.

    live: its field of the queue's live hash; envelope: from its stream entry; record: its own key; due_ms: its score
    in the schedule. The live value outranks a record, which then holds only the history of earlier attempts.
    What was damaged by hand in the envelope is missing, and `error` says what it is where nothing else stands there.
    Raises _core.CoreError where the record is damaged.
    """
    kept = None if record is None else _core.parse_record(record)
    head, extras, payload, damage = _read_envelope(envelope or (kept.envelope if kept is not None else b""))
    detail: dict[str, Any] = decode_json(kept.detail) if kept is not None and kept.detail else {}
    state = LiveState.parse(live) if live is not None else None
    created_ms = (kept.created_ms if kept is not None else 0) or _core.id_time_ms(task_id) or extras.get("created_ms")
    if state is not None:
        status, attempt, released, started_ms, ended_ms = (
            state.status,
            state.attempt,
            state.released,
            state.started_ms,
            0,
        )
        worker_id = state.worker_id
    elif kept is not None:
        status, attempt, released = TaskStatus.from_code(kept.status), kept.attempt, kept.released
        started_ms, ended_ms, worker_id = kept.started_ms, kept.ended_ms, detail.get("worker_id")
    else:
        raise ValueError(f"task {task_id}: neither a live value nor a record was given")
    ttl_ms = extras.get("ttl_ms")
    metadata: dict[str, Any] = extras.get("metadata") or {}
    if kept is not None and kept.place == DISCARDED:
        metadata = {**metadata, "discarded": True}
    return Task(
        id=task_id,
        queue=queue,
        status=status,
        task_type=head.task_type if head is not None else "",
        payload=payload,
        attempt=attempt,
        max_attempts=head.max_attempts if head is not None else 0,
        priority=head.band if head is not None else 0,
        released=released,
        created_at=from_ms(created_ms),
        started_at=from_ms(started_ms),
        ended_at=from_ms(ended_ms),
        due_at=from_ms(due_ms) if status in (TaskStatus.PENDING, TaskStatus.RETRYING) else None,
        worker_id=worker_id,
        cancel_requested=state is not None and state.cancel_requested,
        # While an attempt runs, the outcome of an earlier one stands in the history only.
        result=detail.get("result") if status is TaskStatus.SUCCEEDED else None,
        cause=None if state is not None else detail.get("cause"),
        error_class=None if state is not None else detail.get("error_class"),
        error=(None if state is not None else detail.get("error")) or damage,
        traceback=None if state is not None else detail.get("traceback"),
        dead_letter_id=kept.place.decode() if kept is not None and kept.place not in (b"", DISCARDED) else None,
        timeout=timedelta(milliseconds=head.timeout_ms) if head is not None else None,
        retention=_retention(head.retention_ms) if head is not None else None,
        ttl=None if ttl_ms is None else timedelta(milliseconds=ttl_ms),
        deadline=from_ms(extras.get("deadline_ms")),
        batch_id=extras.get("batch_id"),
        headers=extras.get("headers") or {},
        metadata=metadata,
        history=parse_history(kept.history) if kept is not None else (),
    )


def _read_envelope(raw: bytes) -> tuple[_core.Envelope | None, dict[str, Any], Any, str | None]:
    """Head, extras and payload of an envelope as far as they can be read, and what is wrong with it."""
    if not raw:
        return None, {}, None, None
    try:
        head = _core.parse_envelope(raw)
    except _core.CoreError as error:
        return None, {}, None, str(error)
    extras: dict[str, Any] = {}
    payload: Any = None
    try:
        extras = decode_json(head.extras) if head.extras else {}
        payload = decode_json(head.payload)
    except ValueError as error:
        return head, extras, payload, f"envelope: the envelope is damaged: {error}"
    return head, extras, payload, None


@dataclass(frozen=True, slots=True)
class LiveState:
    """The parts of a live value that a reader may want; the protocol's page has its grammar."""

    status: TaskStatus
    attempt: int
    released: int
    started_ms: int
    worker_id: str | None
    cancel_requested: bool

    @classmethod
    def parse(cls, live: bytes) -> LiveState:
        text = live.decode()
        if text.startswith("r:"):
            _, attempt, released, _, consumer, _, started, tail = text.split(":", 7)
            worker_id = consumer.split(".", 1)[0]
            return cls(TaskStatus.RUNNING, int(attempt), int(released), int(started), worker_id, _flagged(tail))
        _, attempt, released, _, tail = text.split(":", 4)
        return cls(TaskStatus.QUEUED, int(attempt), int(released), 0, None, _flagged(tail))


def _flagged(tail: str) -> bool:
    """True where the cancel flag, always the last letter of a tail, is set."""
    return tail.rpartition(";")[2] == "c"


def parse_history(history: bytes) -> tuple[AttemptRecord, ...]:
    """The attempts of a record, oldest first: JSON lines."""
    lines = [decode_json(line) for line in history.splitlines() if line]
    return tuple(
        AttemptRecord(
            attempt=line.get("attempt", 0),
            cause=line.get("cause", ""),
            started_at=from_ms(line.get("started_ms")),
            ended_at=from_ms(line.get("ended_ms")),
            worker_id=line.get("worker_id"),
            error_class=line.get("error_class"),
            error=line.get("error"),
        )
        for line in lines
    )


def decode_json(data: bytes) -> Any:
    """The value of JSON bytes that dtq wrote. orjson is imported at the first use, not by `import dtq`."""
    import orjson

    return orjson.loads(data)


def from_ms(milliseconds: int | None) -> datetime | None:
    """An aware time from milliseconds since 1970; None for None and 0, which stand for "not known".

    What lies beyond the years of a datetime, such as the end of year 9999 west of Greenwich, becomes the last of them.
    """
    if not milliseconds:
        return None
    try:
        # By timedelta, which is exact and knows no platform limit of fromtimestamp.
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return (datetime.max if milliseconds > 0 else datetime.min).replace(tzinfo=UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _retention(milliseconds: int) -> timedelta | None:
    return None if milliseconds >= _core.FOREVER_MS else timedelta(milliseconds=milliseconds)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, TaskStatus):
        return value.value
    if isinstance(value, tuple):
        return [{item.name: _plain(getattr(line, item.name)) for item in fields(line)} for line in value]  # pyright: ignore
    return value
