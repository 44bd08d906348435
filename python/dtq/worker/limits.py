"""What the supervisor watches in the slots: time limits, cancelled tasks, claims that wait, memory."""

from __future__ import annotations

from collections.abc import Callable

from dtq._core import SlotRow, Slots
from dtq.clock import SYSTEM
from dtq.settings import Settings
from dtq.worker.journal import LOGGER
from dtq.worker.pool import ChildProcess

BUSY_S = 0.025
"""A child that has begun no claim for so long gives back those it holds."""
_MEMORY_S = 1.0
_MEMORY_KILL = 1.25
"""Beyond this multiple of its memory limit a child is killed; between, it leaves after the task it runs."""

HandBack = Callable[[ChildProcess, int, int], None]


class Limits:
    """Looks at one child at a time. hand_back: called with a child and the half-open range of revoked claims."""

    def __init__(self, slots: Slots, settings: Settings, hand_back: HandBack) -> None:
        self._slots = slots
        self._settings = settings
        self._hand_back = hand_back

    def watch(self, child: ChildProcess, now: float) -> bool:
        """One look; True if the child is busy, so that the next look should come soon."""
        rows = self._slots.rows(child.number)
        waiting = self._slots.window(child.number) > 0
        if waiting:
            self._revoke_stuck(child, now)
        if child.cancels:
            self._watch_cancels(child, rows, now)
        if rows:
            self._enforce(child, rows, now)
        elif child.interrupted:
            child.interrupted.clear()
        if self._settings.max_memory_per_child_bytes and now >= child.memory_at:
            child.memory_at = now + _MEMORY_S
            self._check_memory(child, rows)
        return waiting or bool(rows) or bool(child.cancels)

    def revoke(self, child: ChildProcess) -> None:
        """Take back the claims that have not begun; the hand-back follows, never before (protocol 7)."""
        start, end = self._slots.revoke(child.number)
        if start < end:
            self._hand_back(child, start, end)

    def _revoke_stuck(self, child: ChildProcess, now: float) -> None:
        if child.leaving:
            self.revoke(child)
            return
        watermark, since = child.progress
        current = self._slots.watermark(child.number)
        if current != watermark:
            child.progress = (current, now)
        elif now - since > BUSY_S:
            self.revoke(child)

    def _watch_cancels(self, child: ChildProcess, rows: list[SlotRow], now: float) -> None:
        """A cancelled claim that has not begun is revoked with its window; its hand-back ends it."""
        if self._slots.window(child.number) and max(child.cancels) >= self._slots.watermark(child.number):
            self.revoke(child)
        live = {row.seq for row in rows}
        for seq in [seq for seq, until in child.cancels.items() if now >= until and seq not in live]:
            del child.cancels[seq]

    def _enforce(self, child: ChildProcess, rows: list[SlotRow], now: float) -> None:
        """Interrupt what is cancelled or past its limit; kill the child if that does not end it within the grace."""
        now_ns = SYSTEM.boottime_ns()
        cancelled = [row for row in rows if row.seq in child.cancels]
        late = [row for row in rows if row.limit_ns and now_ns >= row.limit_ns and row.seq not in child.cancels]
        for row in cancelled:
            if self._given_up(child, row, now, "cancelled", "the task was cancelled"):
                # its hand-over ends it; what runs beside it goes elsewhere, uncharged
                child.kill("killed beside a cancelled task", [row.seq for row in late])
        for row in late:
            limit_s = (row.limit_ns - row.started_ns) / 1e9
            if self._given_up(child, row, now, "timeout", f"the time limit of {limit_s:.15g} s has passed"):
                child.kill("timeout", [row.seq for row in late])
        if child.interrupted:
            live = {row.seq for row in rows}
            for seq in [seq for seq in child.interrupted if seq not in live]:
                del child.interrupted[seq]

    def _given_up(self, child: ChildProcess, row: SlotRow, now: float, kind: str, text: str) -> bool:
        """Interrupt a handler once; True when it has not ended within the grace and its child is to be killed."""
        given_up_at = child.interrupted.get(row.seq)
        if given_up_at is None:
            child.interrupted[row.seq] = now + self._settings.kill_grace_s
            child.interrupt(row, kind, text)
            return False
        if now < given_up_at or child.killed_for:
            return False
        LOGGER.warning("child %s does not end its handler (%s) within the kill grace; killing it", child.consumer, kind)
        return True

    def _check_memory(self, child: ChildProcess, rows: list[SlotRow]) -> None:
        used, limit = child.private_bytes(), self._settings.max_memory_per_child_bytes
        if used <= limit or child.killed_for:
            return
        if used > limit * _MEMORY_KILL and rows:
            LOGGER.warning(
                "child %s uses %d bytes, far above max_memory_per_child_bytes; killing it", child.consumer, used
            )
            child.kill("out of memory")
        elif not child.leaving:
            LOGGER.info("child %s uses %d bytes, above max_memory_per_child_bytes; replacing it", child.consumer, used)
            child.leave("max_memory_per_child_bytes reached")
