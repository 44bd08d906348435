"""Values of dtq as bodies of answers: times as ISO 8601 with an offset, durations as `..._seconds`."""

from __future__ import annotations

from typing import Any

from dtq.models import Task

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
