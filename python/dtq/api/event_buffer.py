"""The events that one client has not taken yet: bounded, and what is dropped is counted and told."""

from __future__ import annotations

from asyncio import Event
from collections import deque
from collections.abc import Mapping
from typing import Any

import orjson

from dtq.models import TERMINAL_STATUSES
from dtq.watching import is_meant

LIMIT = 5000
"""Most events that wait for one client."""
TERMINAL = frozenset(f"TASK_{status.name}" for status in TERMINAL_STATUSES)
"""What tells the end of a task: dropped last."""
DROPPED = "EVENTS_DROPPED"
INTERRUPTED = "EVENTS_INTERRUPTED"

Told = tuple[str, bytes]
"""The type of an event, and the event as JSON."""


class EventBuffer:
    """Filled by the hub, emptied by the client's connection.

    queues, types: what this client wants, None for all. When it is full, the oldest event that ends no task goes;
    where all of them end tasks, the client is too slow, and nothing more is kept for it.
    """

    def __init__(
        self, queues: frozenset[str] | None = None, types: frozenset[str] | None = None, limit: int = LIMIT
    ) -> None:
        self.too_slow = False
        self.ended = False
        self.dropped = 0
        self.queues = queues
        self._types = types
        self._limit = limit
        self._number = 0
        self._passing: deque[tuple[int, Told]] = deque()
        self._ends: deque[tuple[int, Told]] = deque()
        self._untold = 0
        self._notices: list[Told] = []
        self._changed = Event()
        self._overflown = Event()

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Whether this client has asked for an event."""
        return is_meant(event, self.queues, self._types)

    def put(self, told: Told) -> None:
        """Keep an event."""
        if self.too_slow or self.ended:
            return
        end = told[0] in TERMINAL
        if len(self._passing) + len(self._ends) >= self._limit:
            if self._passing:
                self._passing.popleft()
            elif end:
                self.dropped += len(self._ends)
                self._ends.clear()
                self.too_slow = True
                self._overflown.set()
                self._changed.set()
            self.dropped += 1
            self._untold += 1
            if len(self._ends) >= self._limit or self.too_slow:
                return
        self._number += 1
        (self._ends if end else self._passing).append((self._number, told))
        self._changed.set()

    def interrupt(self) -> None:
        """Redis could not be reached for a while: events may be missing, nobody knows how many."""
        self._notices = [_notice(INTERRUPTED)]
        self._changed.set()

    async def overflow(self) -> None:
        """Returns when the client was too slow."""
        await self._overflown.wait()

    def end(self) -> None:
        """The server stops."""
        self.ended = True
        self._changed.set()

    async def take(self, most: int) -> list[Told]:
        """The next events, at least one; none once the client was too slow, or the server stops."""
        while not (self._passing or self._ends or self._notices or self.too_slow or self.ended):
            self._changed.clear()
            await self._changed.wait()
        if self.too_slow or self.ended:
            return []
        found, self._notices = self._notices, []
        if self._untold:
            found.append(_notice(DROPPED, dropped=self._untold, dropped_in_all=self.dropped))
            self._untold = 0
        while len(found) < most and (self._passing or self._ends):
            sooner = not self._ends or (bool(self._passing) and self._passing[0][0] < self._ends[0][0])
            found.append((self._passing if sooner else self._ends).popleft()[1])
        return found


def _notice(kind: str, **facts: int) -> Told:
    return kind, orjson.dumps({"type": kind, **facts})
