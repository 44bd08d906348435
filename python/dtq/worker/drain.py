"""How a worker stops: a grace for what runs, then an interruption, then the end. A second signal skips the grace."""

from __future__ import annotations

from collections.abc import Iterable

from dtq._core import Slots
from dtq.settings import Settings
from dtq.worker.journal import LOGGER
from dtq.worker.pool import ChildProcess

_FORCED_GRACE_S = 1.0
"""After a second signal an interrupted handler has no longer than this."""


class Drain:
    """One stop. `active` once it has begun; `released`: handlers were interrupted; `forced_by`: the second signal."""

    def __init__(self, settings: Settings, slots: Slots) -> None:
        self.active = False
        self.released = False
        self.forced_by = 0
        self._settings = settings
        self._slots = slots
        self._until = 0.0
        self._kill_at = 0.0

    def begin(self, now: float) -> None:
        """Start the grace."""
        self.active = True
        self._until = now + self._settings.shutdown_grace_s

    def force(self, number: int, now: float) -> None:
        """End the grace; `number` is the signal that asked for it."""
        self.forced_by = number
        self._until = now
        if self._kill_at:
            self._kill_at = min(self._kill_at, now + _FORCED_GRACE_S)

    def press(self, children: Iterable[ChildProcess], now: float) -> None:
        """When the grace is over: interrupt what runs, then kill."""
        if now < self._until:
            return
        if not self._kill_at:
            grace = self._settings.kill_grace_s
            self._kill_at = now + (min(grace, _FORCED_GRACE_S) if self.forced_by else grace)
            for child in children:
                self._interrupt(child)
        if now >= self._kill_at:
            for child in children:
                if not child.killed_for:
                    LOGGER.warning("child %s did not end in time; killing it, its tasks are released", child.consumer)
                    child.kill("released", [])

    def _interrupt(self, child: ChildProcess) -> None:
        for row in self._slots.rows(child.number):
            self.released = True
            child.interrupted[row.seq] = self._kill_at + 1.0
            child.interrupt(row, "released", "the worker shuts down")
