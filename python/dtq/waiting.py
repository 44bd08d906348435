"""Waiting for many tasks: which ids to ask about next, and how long to pause in between, with no I/O of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from dtq.clock import Clock
from dtq.errors import BrokerUnavailable, ResultTimeout
from dtq.models import TaskStatus

SLICE = 1000
"""Tasks asked about in one call."""
FIRST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.1
BARREN_SLICES = 2
"""Tasks end roughly in the order of their enqueue: a quick look stops after so many slices without an end."""
SWEEP_SHARE = 9
"""A look at everything is followed by quick ones for so many times its own length."""
LONGEST_OUTAGE_S = 60.0
"""How long a wait without a time limit bears an unreachable Redis."""
UNKNOWN, FIRST_TERMINAL = ord("0"), ord("5")


class Waited(Protocol):
    """What is waited for."""

    @property
    def queue(self) -> str:
        """The queue it stands in."""
        ...


W = TypeVar("W", bound=Waited)


class Wait(Generic[W]):
    """One wait: the tasks that are still open, in slices of one queue, and its time limit.

    timeout: seconds, None for no limit. Raises ValueError for a negative one.
    """

    def __init__(self, waited: Sequence[W], timeout: float | None, clock: Clock) -> None:
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout: {timeout!r} is no waiting time; give 0 s or more, or None for no limit")
        self._clock = clock
        self._timeout = timeout
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._slices = _sliced(waited)
        self.total = self.left = len(waited)
        self._pause = FIRST_PAUSE_S / 2
        self._swept = self._next_full = clock.monotonic()
        self._ended = 0
        self._last_code = UNKNOWN
        self._unreachable_since: float | None = None

    def sweep(self) -> Iterator[tuple[str, list[W]]]:
        """The slices to ask about now, with their queue; the answers go to `note`."""
        self._slices = _sliced([item for _, items in self._slices for item in items])
        self._swept, self._ended = self._clock.monotonic(), 0
        full = self._swept >= self._next_full
        barren: dict[str, int] = {}
        for queue, items in self._slices:
            if not full and barren.get(queue, 0) >= BARREN_SLICES:
                continue
            before = self._ended
            yield queue, items
            barren[queue] = 0 if self._ended > before else barren.get(queue, 0) + 1
        if full:
            now = self._clock.monotonic()
            self._next_full = now + SWEEP_SHARE * (now - self._swept)

    def note(self, items: list[W], codes: bytes) -> list[W]:
        """The tasks of a slice that have ended, or are known no more; they are open no longer."""
        self._unreachable_since = None
        ended: list[W] = []
        still: list[W] = []
        for item, code in zip(items, codes, strict=True):
            (ended if code >= FIRST_TERMINAL or code == UNKNOWN else still).append(item)
        if still:
            self._last_code = codes[-1]
        if ended:
            items[:] = still  # in place: the wait stays right when a sweep is broken off
            self.left -= len(ended)
            self._ended += len(ended)
        return ended

    def reopen(self, items: list[W], item: W) -> None:
        """Takes a task back that had ended and was queued again before its record was read."""
        items.append(item)
        self.left += 1
        self._ended -= 1

    def unreachable(self, error: BrokerUnavailable) -> None:
        """Bears an outage until the time limit, or a minute of it where there is none; then raises the error."""
        now = self._clock.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        limit = self._unreachable_since + LONGEST_OUTAGE_S if self._deadline is None else self._deadline
        if now >= limit:
            raise error

    def pause(self) -> float:
        """How many seconds to wait until the next sweep; ResultTimeout where the time is over."""
        now = self._clock.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise ResultTimeout(self._too_late())
        if self._ended > 0:
            self._pause = max(FIRST_PAUSE_S, min(3 * (now - self._swept), LONGEST_PAUSE_S))
        else:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        return self._pause if self._deadline is None else min(self._pause, max(0.0, self._deadline - now))

    def _too_late(self) -> str:
        """What a timeout says. The usual reason is that nobody works there, so it says where to look, and of a single
        task how far it came."""
        after = f"had not ended after {self._timeout:g} s"
        if self.total > 1:
            waited = f"{self.left} of {self.total} tasks {after}"
        elif self._last_code == UNKNOWN:  # nothing has answered yet
            waited = f"the task {after}"
        else:
            status = TaskStatus.from_code(self._last_code - UNKNOWN)
            waited = f"the task {after}, it is {status}"
            if status is TaskStatus.RUNNING:
                return f"timeout: {waited}; wait longer"
        queues = sorted({queue for queue, items in self._slices if items})
        named = f"queue {queues[0]!r}" if len(queues) == 1 else "their queues"
        return f"timeout: {waited}; wait longer, or see in `dtq status` whether a worker works on {named}"


def _sliced(waited: Sequence[W]) -> list[tuple[str, list[W]]]:
    """The tasks in their order, in slices of at most SLICE of one queue."""
    queues: dict[str, list[W]] = {}
    for item in waited:
        queues.setdefault(item.queue, []).append(item)
    return [(queue, items[at : at + SLICE]) for queue, items in queues.items() for at in range(0, len(items), SLICE)]
