"""Figures of all queues, read once for all open pages: how many look does not matter to Redis."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from dtq.app import App
from dtq.broker import QueueCounts
from dtq.clock import Clock
from dtq.history import Minute
from dtq.models import TERMINAL_STATUSES
from dtq.off_loop import in_thread
from dtq.workers import Worker

T = TypeVar("T")

KEEP_S = 1.0
"""Figures are read again after so many seconds at the earliest, and not before REST times what the last look took."""
KEEP_HISTORY_S = 5.0
REST = 9
LONGEST_REST_S = 5.0
"""But nothing is kept for it longer than this: a look that has waited out an outage took long and cost nothing."""
RATE_S = 15.0
"""Rates are those of the last so many seconds."""
CHARTED = 100
"""Queues whose history is summed; with more of them, those in which most tasks have ended."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in figures. rate: tasks a second that ended lately; None until two looks tell."""

    counts: QueueCounts
    rate: float | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.counts.queue


class _Kept(Generic[T]):
    """What a slow look found, for all who ask while it is fresh."""

    def __init__(self, look: Callable[[], T], keep_s: float, clock: Clock) -> None:
        self._look = look
        self._keep_s = keep_s
        self._clock = clock
        self._lock = asyncio.Lock()
        self._found: T | None = None
        self._until = 0.0

    def forget(self) -> None:
        """The next who asks has it looked at anew."""
        self._until = 0.0

    async def get(self) -> T:
        """Looks, where what was found is no longer fresh."""
        async with self._lock:
            began = self._clock.monotonic()
            if self._found is None or began >= self._until:
                self._found = await in_thread(self._look)
                took = self._clock.monotonic() - began
                self._until = began + took + max(self._keep_s, min(REST * took, LONGEST_REST_S))
            return self._found


class Figures:
    """Queues, workers and the last hour, each as of a moment ago. All raise BrokerUnavailable."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, int]]] = deque()
        self._queues = _Kept(self._look_at_queues, KEEP_S, clock)
        self._workers = _Kept(app.workers, KEEP_S, clock)
        self._histories: dict[str | None, _Kept[list[Minute]]] = {}

    async def queues(self) -> list[QueueRow]:
        """All known queues, by name."""
        return await self._queues.get()

    async def workers(self) -> list[Worker]:
        """All workers with a lease."""
        return await self._workers.get()

    def forget(self) -> None:
        """After an act: the next page that asks is told what it did."""
        self._queues.forget()

    async def history(self, queue: str | None) -> list[Minute]:
        """The last hour of one queue, or of all together; the oldest minute first."""
        if queue is not None and queue not in await in_thread(self._app.queue_names):
            return []
        kept = self._histories.get(queue)
        if kept is None:
            kept = self._histories[queue] = _Kept(lambda: self._look_back(queue), KEEP_HISTORY_S, self._clock)
        return await kept.get()

    def _look_at_queues(self) -> list[QueueRow]:
        counted = self._app.queue_counts()
        now = self._clock.monotonic()
        ended = {counts.queue: sum(counts.totals.get(status, 0) for status in TERMINAL_STATUSES) for counts in counted}
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_S:
            self._samples.popleft()
        since, before = self._samples[0] if self._samples else (now, {})
        self._samples.append((now, ended))
        return [
            QueueRow(counts, _rate(before.get(counts.queue), ended[counts.queue], now - since)) for counts in counted
        ]

    def _look_back(self, queue: str | None) -> list[Minute]:
        if queue is not None:
            return self._app.queue(queue).history()
        busiest = sorted(self._samples[-1][1].items(), key=lambda queue: -queue[1])[:CHARTED] if self._samples else []
        return _summed(self._app.queue(name).history() for name, _ in busiest)


def _rate(before: int | None, now: int, seconds: float) -> float | None:
    if before is None or seconds < 0.5:
        return None
    return max(0, now - before) / seconds


def _summed(histories: Iterable[list[Minute]]) -> list[Minute]:
    """Many histories as one, minute by minute."""
    by_time: dict[datetime, Minute] = {}
    for history in histories:
        for minute in history:
            known = by_time.get(minute.at)
            by_time[minute.at] = minute if known is None else known + minute
    return [by_time[at] for at in sorted(by_time)]
