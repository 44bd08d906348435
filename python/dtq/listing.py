"""Tasks page by page: in one status or in all, filtered, with a cursor that stays true while tasks come and go.

The order is by status (`ORDER`), within a status by queue, and within a queue: running tasks as they stand in the
bands, queued ones newest first, waiting ones next due first, ended ones newest end first. A page looks at LOOKS tasks
at most, so it may come back short, or empty, with a cursor, where a filter matches little.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

from dtq import _core
from dtq.errors import BrokerUnavailable, InvalidTask
from dtq.models import Task, TaskStatus, read_task
from dtq.options import check_queue, check_task_type

if TYPE_CHECKING:
    from dtq.broker import Broker, Snapshot

LOOKS = 2000
"""Most tasks that one page looks at."""
MOST = 1000
"""Most tasks of one page."""
_CALL = 20
"""A call of the server counts like so many tasks, at least."""
ORDER = ("running", "queued", "scheduled", "dead_lettered", "failed", "cancelled", "expired", "succeeded")
"""What a listing of all statuses goes through; `scheduled` is pending and retrying."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks, and how to go on.

    cursor: for the next page; None at the end. partial: a list of ended tasks was full, so that older ones are known by
    their ids only (DTQ_RECENT of each queue and status are listed, and none whose retention was 0); or a queue, of
    many, has keys that were damaged by hand.
    """

    tasks: tuple[Task, ...]
    cursor: str | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks are meant; None: any. Times are aware datetimes: created at or after, and before."""

    queue: str | None = None
    status: TaskStatus | None = None
    task_type: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    worker_id: str | None = None
    batch_id: str | None = None

    @classmethod
    def checked(
        cls,
        queue: str | None = None,
        *,
        status: TaskStatus | str | None = None,
        task_type: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        worker_id: str | None = None,
        batch_id: str | None = None,
    ) -> TaskFilter:
        """A filter of what users give. Raises InvalidTask, naming the field."""
        return cls(
            queue=None if queue is None else check_queue(queue),
            status=None if status is None else _status(status),
            task_type=None if task_type is None else check_task_type(task_type),
            created_after=_aware("created_after", created_after),
            created_before=_aware("created_before", created_before),
            worker_id=worker_id,
            batch_id=batch_id,
        )

    @property
    def sections(self) -> tuple[str, ...]:
        """What has to be gone through."""
        return ORDER if self.status is None else (self.status.value,)

    def accepts(self, task: Task) -> bool:
        """Whether this task, of a right queue, status and type, is meant."""
        if self.worker_id is not None and task.worker_id != self.worker_id:
            return False
        if self.batch_id is not None and task.batch_id != self.batch_id:
            return False
        if self.created_after is None and self.created_before is None:
            return True
        if task.created_at is None:
            return False
        if self.created_after is not None and task.created_at < self.created_after:
            return False
        return self.created_before is None or task.created_at < self.created_before

    @property
    def mark(self) -> str:
        """A short text that tells this filter from others: a cursor belongs to one."""
        parts = (self.queue, self.status, self.task_type, self.worker_id, self.batch_id)
        times = [str(time) for time in (self.created_after, self.created_before)]
        return blake2b(orjson.dumps([*parts, *times]), digest_size=6).hexdigest()


def _status(value: TaskStatus | str) -> TaskStatus:
    try:
        return TaskStatus(value)
    except ValueError:
        raise InvalidTask("status", f"{value!r} is no status; use one of {', '.join(TaskStatus)}") from None


def _aware(field: str, value: datetime | None) -> datetime | None:
    if value is not None and value.utcoffset() is None:
        raise InvalidTask(field, f"{value} has no time zone; use an aware datetime, such as datetime.now(timezone.utc)")
    return value


# --- cursors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page begins: in this section, at this queue ('' the first), behind this place ('' from the start)."""

    section: str
    queue: str = ""
    place: str = ""


_NUMBER = r"(\d{1,20})"
_ENTRY = rf"{_NUMBER}-{_NUMBER}"
_PLACES = {
    "queued": re.compile(rf"{_ENTRY} \d"),
    "running": re.compile(rf"\d {_ENTRY}"),
    "scheduled": re.compile(rf"{_NUMBER} .{{1,300}}", re.DOTALL),
    "ended": re.compile(r"(\d{1,9})( [A-Za-z0-9._:-]{1,128}){1,3}"),
}
_WAITING = ("pending", "retrying", "scheduled")


def _encode(which: TaskFilter, position: _Position) -> str:
    parts = [which.mark, position.section, position.queue, position.place]
    return urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def _decode(which: TaskFilter, cursor: str) -> _Position:
    try:
        parts = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        mark, section, queue, place = [str(part) for part in parts]
    except (ValueError, TypeError):
        raise InvalidTask("cursor", "it was not given by a listing; begin without one") from None
    if mark != which.mark:
        raise InvalidTask("cursor", "it belongs to a listing with another filter; give the same, or begin without one")
    if queue:
        check_queue(queue)
    if section not in which.sections or (place and not _is_place(section, place)):
        raise InvalidTask("cursor", "it is damaged; begin without one")
    return _Position(section, queue, place)


def _is_place(section: str, place: str) -> bool:
    kind = "scheduled" if section in _WAITING else section if section in _PLACES else "ended"
    found = _PLACES[kind].fullmatch(place)
    return found is not None and all(int(n) < 2**64 for n in found.groups() if n is not None and n.isdigit())


# --- pages -----------------------------------------------------------------------------------------------------------


def list_tasks(broker: Broker, which: TaskFilter, limit: int = 100, cursor: str | None = None) -> TaskPage:
    """One page of the tasks that are meant.

    Raises InvalidTask (limit, cursor), BrokerUnavailable.
    """
    if not 1 <= limit <= MOST:
        raise InvalidTask("limit", f"{limit} is out of bounds; use a whole number from 1 to {MOST}")
    start = _Position(which.sections[0]) if cursor is None else _decode(which, cursor)
    tasks: list[Task] = []
    looks, partial = LOOKS, False
    for position in _places(broker, which, start):
        while True:
            if len(tasks) >= limit or looks <= 0:
                return TaskPage(tuple(tasks), _encode(which, position), partial)
            section, queue = position.section, position.queue
            most = min(limit - len(tasks), looks)
            try:
                found = broker.browse(queue, section, most, task_type=which.task_type or "", place=position.place)
            except BrokerUnavailable as error:
                if which.queue is not None or not error.damaged:
                    raise
                partial = True  # its keys were changed by hand; the other queues are listed all the same
                break
            looks -= max(_CALL, found.looked)
            partial = partial or found.cut
            read = (read_snapshot(queue, section, task_id, snapshot) for task_id, snapshot in found.found)
            tasks += [task for task in read if which.accepts(task)]
            if not found.place:
                break
            position = _Position(section, queue, found.place)
    return TaskPage(tuple(tasks), None, partial)


def _places(broker: Broker, which: TaskFilter, start: _Position) -> Iterator[_Position]:
    """The start of every queue and section that may hold something, from a position on."""
    known = [which.queue] if which.queue is not None else broker.queues()
    for section in which.sections[which.sections.index(start.section) :]:
        first = start.queue if section == start.section else ""
        queues = [queue for queue in known if queue >= first]
        for queue in queues if which.queue is not None else broker.having(queues, section):
            begun = section == start.section and queue == start.queue
            yield _Position(section, queue, start.place if begun else "")


def read_snapshot(queue: str, section: str, task_id: str, snapshot: Snapshot) -> Task:
    """The task that a snapshot stands for; where it is damaged, what can be known of it, and why not more."""
    try:
        return read_task(
            queue,
            task_id,
            live=snapshot.live,
            envelope=snapshot.envelope,
            record=snapshot.record,
            due_ms=snapshot.due_ms,
        )
    except (_core.CoreError, ValueError) as error:
        status = TaskStatus.PENDING if section == "scheduled" else TaskStatus(section)
        return Task(task_id, queue, status, "", None, attempt=0, max_attempts=0, priority=0, error=f"damaged: {error}")
