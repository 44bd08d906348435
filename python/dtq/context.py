"""What a handler may know about its own attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Given to a handler whose first parameter is annotated `dtq.Context`.

    attempt counts from 1. deadline: aware moment (UTC) at which this attempt is stopped, or None. headers and metadata
    are those of the enqueue.
    """

    task_id: str
    task_type: str
    attempt: int
    queue: str
    worker_id: str
    deadline: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """True once the task's cancellation has been asked for; for handlers that look for themselves."""
        return self.is_cancelled()
