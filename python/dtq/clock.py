"""The clocks: the only reader of the wall clock; steady clock and sleep, handed in where tests need their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts through sleep.
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The clocks of this machine. Tests hand in a subclass."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, of this host; never used to decide what is due (Redis' clock does)."""
        return time.time_ns() // 1_000_000

    # Read several times for each task, hence without frames of their own.
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Seconds of a clock that never goes back."""
    monotonic_ns: Callable[[], int] = staticmethod(time.monotonic_ns)
    """Nanoseconds of a clock that never goes back."""
    boottime_ns: Callable[[], int] = staticmethod(partial(time.clock_gettime_ns, _BOOTTIME))
    """Nanoseconds of a clock that also counts while the machine sleeps; the same in every process of this host."""

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(seconds)


SYSTEM = Clock()
