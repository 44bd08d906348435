"""What a queue has done: times as counts in buckets, by task type for good, and by minute for the last hour."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dtq import _core

BOUNDS_S: Final = tuple(bound / 1e9 for bound in _core.TIMING_BOUNDS_NS)
"""Upper bounds of the buckets, in seconds, but of the last one, which takes the rest."""
BUCKETS: Final = len(BOUNDS_S) + 1
RESULTS: Final = ("succeeded", "retried", "failed", "dead_lettered", "cancelled", "released")
"""How an attempt may end in the eyes of its child."""
COUNTS: Final = ("submitted", "succeeded", "failed", "retried", "dead_lettered", "cancelled", "expired")
"""Counters whose growth a minute keeps, as observe.lua names them."""
MINUTES: Final = 60
"""How far back the minutes go."""
OTHER, UNKNOWN = "(other)", "(unknown)"
"""Stand for task types beyond the bound, and for tasks that no handler could run."""

_MEASURES = 3
_CELL = struct.Struct(f"<{len(RESULTS) + _MEASURES * (BUCKETS + 1)}Q")
_MINUTE = struct.Struct("<Q" + len(COUNTS) * "I" + 2 * (BUCKETS * "I" + "Q"))
_LAST = struct.Struct(f"<{len(COUNTS)}Q")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations, counted in buckets: those of `BOUNDS_S`, then the longer ones; each without those before it."""

    buckets: tuple[int, ...] = (0,) * BUCKETS
    total_seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many durations."""
        return sum(self.buckets)

    @property
    def mean(self) -> float:
        """Seconds; 0 where there is none."""
        return self.total_seconds / self.count if self.count else 0.0

    def quantile(self, q: float) -> float:
        """The duration, in seconds, that the part `q` (0 to 1) of all does not exceed; 0 where there is none.

        Within a bucket durations count as spread evenly; beyond the last bound (an hour) that bound is told.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q: {q!r} is no part of a whole; use 0 to 1")
        wanted, seen, low = q * self.count, 0, 0.0
        for bound, count in zip(BOUNDS_S, self.buckets, strict=False):
            if count and seen + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - seen) / count
            seen, low = seen + count, bound
        return low if self.count else 0.0

    def __add__(self, other: Timing) -> Timing:
        buckets = tuple(mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True))
        return Timing(buckets, self.total_seconds + other.total_seconds)


@dataclass(frozen=True, slots=True)
class TypeTimings:
    """All attempts of one task type that children have told of.

    attempts: by result. wait: from being queued to the start of the handler, where the entry is the attempt's own (not
    after a death or a drain). execution: how long handlers ran. duration: from the making of a task to its end.
    """

    attempts: Mapping[str, int]
    wait: Timing
    execution: Timing
    duration: Timing


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in a queue within one minute, which begins `at` (UTC). Counts are of tasks."""

    at: datetime
    submitted: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    expired: int = 0
    wait: Timing = Timing()
    execution: Timing = Timing()

    def __add__(self, other: Minute) -> Minute:
        """Both together, as those of two queues; `at` is this one's."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Minute(self.at, wait=self.wait + other.wait, execution=self.execution + other.execution, **counts)


def read_cell(cell: bytes) -> TypeTimings | None:
    """The sums of one task type; None where they were written by another version."""
    if len(cell) != _CELL.size:
        return None
    numbers = _CELL.unpack(cell)
    wait, execution, duration = (
        _timing(numbers[start : start + BUCKETS + 1]) for start in range(len(RESULTS), len(numbers), BUCKETS + 1)
    )
    return TypeTimings(dict(zip(RESULTS, numbers, strict=False)), wait, execution, duration)


def read_minutes(stored: Mapping[bytes, bytes], totals: Sequence[int], now_s: int, count: int) -> list[Minute]:
    """The last `count` minutes, the oldest first; the last one is that of `now_s` and still goes on.

    stored: the minutes hash. totals: the counters of COUNTS as they stand now.
    """
    known: dict[int, tuple[int, ...]] = {}
    for slot, packed in stored.items():
        if slot.isdigit() and len(packed) == _MINUTE.size:
            number, *numbers = _MINUTE.unpack(packed)
            known[number] = tuple(numbers)
    now = now_s // 60
    minutes = [_minute(number, known.get(number)) for number in range(now - count + 1, now + 1)]
    packed = stored.get(b"last", b"")
    last = _LAST.unpack(packed) if len(packed) == _LAST.size else (0,) * len(COUNTS)
    grown = {name: max(0, total - before) for name, total, before in zip(COUNTS, totals, last, strict=True)}
    current = minutes[-1]
    counts = {name: getattr(current, name) + more for name, more in grown.items()}
    minutes[-1] = Minute(current.at, wait=current.wait, execution=current.execution, **counts)
    return minutes


def _minute(number: int, numbers: tuple[int, ...] | None) -> Minute:
    at = datetime.fromtimestamp(number * 60, UTC)
    if numbers is None:
        return Minute(at)
    counts = dict(zip(COUNTS, numbers, strict=False))
    times = numbers[len(COUNTS) :]
    return Minute(at, wait=_timing(times[: BUCKETS + 1]), execution=_timing(times[BUCKETS + 1 :]), **counts)


def _timing(numbers: Sequence[int]) -> Timing:
    return Timing(tuple(numbers[:BUCKETS]), numbers[BUCKETS] / 1e6)
