"""Values of dtq as the HTTP API answers them and the command line prints them: one name for each thing.

Times are ISO 8601 with an offset, durations `..._seconds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtq.models import Task, from_ms

if TYPE_CHECKING:
    from dtq.broker import AuditEntry, QueueCounts
    from dtq.dead_letters import DeadLetter

_RENAMED = {
    "id": "task_id",
    "timeout": "timeout_seconds",
    "retention": "retention_seconds",
    "ttl": "ttl_seconds",
}
_LARGE = ("payload", "result", "traceback", "headers", "metadata", "history")


def task_body(task: Task) -> dict[str, Any]:
    """All that is known of a task."""
    return {_RENAMED.get(name, name): value for name, value in task.as_dict().items()}


def task_summary(task: Task) -> dict[str, Any]:
    """The same without what may be large."""
    body = task_body(task)
    for name in _LARGE:
        del body[name]
    return body


def queue_body(counts: QueueCounts) -> dict[str, Any]:
    """A queue in figures."""
    return {
        "queue": counts.queue,
        "waiting": counts.waiting,
        "running": counts.running,
        "scheduled": counts.scheduled,
        "retrying": counts.retrying,
        "dead": counts.dead,
        "oldest_age_seconds": _seconds(counts.oldest_ms),
        "next_due_seconds": _seconds(counts.next_due_ms),
        "paused": counts.paused,
        "paused_types": list(counts.paused_types),
        "totals": counts.totals,
    }


def dead_letter_body(letter: DeadLetter) -> dict[str, Any]:
    """All that is known of a dead letter."""
    body = letter.as_dict()
    body["task"] = None if letter.task is None else task_body(letter.task)
    return body


def dead_letter_summary(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter in a list."""
    task = letter.task
    return {
        "entry": letter.entry,
        "queue": letter.queue,
        "task_id": letter.task_id,
        "died_at": letter.died_at.isoformat(timespec="milliseconds"),
        "task_type": None if task is None else task.task_type,
        "attempt": None if task is None else task.attempt,
        "cause": None if task is None else task.cause,
        "error_class": None if task is None else task.error_class,
        "error": None if task is None else task.error,
    }


def audit_body(entry: AuditEntry) -> dict[str, Any]:
    """One act."""
    return {
        "entry": entry.entry,
        "at": moment(entry.time_ms),
        "actor": entry.actor,
        "action": entry.action,
        "queue": entry.queue,
        "task_id": entry.task_id,
        "request_id": entry.request_id,
        "facts": entry.facts,
    }


def moment(milliseconds: int) -> str | None:
    """A time since 1970 as text; None where there is no such time."""
    at = from_ms(milliseconds)
    return None if at is None else at.isoformat(timespec="milliseconds")


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
