"""Counts what the API itself refuses, before a script could: invalid bodies, payloads too large, no Redis."""

from __future__ import annotations

from asyncio import Task, create_task, sleep
from collections import Counter

from dtq.app import App
from dtq.errors import DtqError
from dtq.off_loop import in_thread

PAUSE_S = 1.0
"""Counts go to Redis together, so often at most."""
_BEFORE_THE_SCRIPT = frozenset({"invalid", "payload", "unavailable"})


class Rejections:
    """The refusals of one process that have not been counted in Redis yet."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._counts: Counter[tuple[str, str]] = Counter()
        self._flushing: Task[None] | None = None

    def note(self, error: DtqError, queue: str | None = None, count: int = 1) -> None:
        """One refusal, or several; the scripts count the others. queue: None where it could not be read."""
        if error.reason is None or error.reason not in _BEFORE_THE_SCRIPT:
            return
        self._counts[queue or self._app.settings.queue, error.reason] += count
        if self._flushing is None:
            self._flushing = create_task(self._flush())

    async def _flush(self) -> None:
        try:
            await sleep(PAUSE_S)
        finally:
            self._flushing = None
        await in_thread(self.close)

    def close(self) -> None:
        """Count what has not been counted yet; blocking."""
        taken, self._counts = self._counts, Counter()
        for (queue, reason), count in taken.items():
            self._app.broker.count_rejected(queue, reason, count)
