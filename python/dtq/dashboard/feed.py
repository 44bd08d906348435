"""The newest events, heard once for all open pages, and only while one of them asks."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from dtq.app import App
from dtq.errors import BrokerUnavailable

KEPT = 1000
"""Events that are remembered; a page that asks too late misses what came before, and is told how many."""
PATIENCE_S = 10.0
"""So long after the last question the listening goes on."""
_STEP_S = 0.5


class Feed:
    """Asked with `since`; listening makes the scripts of all queues publish, so it ends when nobody asks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._clock = app.client.clock
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._count = 0
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        """Why nothing is heard, while that is so."""

    @property
    def count(self) -> int:
        """How many were heard in all; the number of the newest one."""
        return self._count

    def since(self, number: int) -> list[dict[str, Any]]:
        """What is remembered of the events behind the one of this number, oldest first."""
        self._asked = self._clock.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="dtq dashboard events")
        wanted = min(self._count - number, len(self._events))
        return list(self._events)[-wanted:] if wanted > 0 else []

    async def close(self) -> None:
        """Stops listening."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _listen(self) -> None:
        events = self._app.events()
        try:
            while self._clock.monotonic() < self._asked + PATIENCE_S:
                try:
                    found = await events.aget(_STEP_S)
                except BrokerUnavailable as error:
                    self.problem = str(error)
                    await asyncio.sleep(_STEP_S)
                    continue
                self.problem = ""
                self._count += len(found)
                self._events.extend(found)
        finally:
            await events.aclose()
