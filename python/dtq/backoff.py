"""How long to wait after a failed attempt: a pure function of the attempt number and one random draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

LONGEST_DELAY_S = 10 * 365 * 86_400.0
"""The longest delay that is accepted anywhere: ten years."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double: `min(max_delay, base * 2 ** (attempt - 1)) * (1 ± jitter)`.

    base, max_delay: seconds (1 and 60). jitter: part of the delay that chance may add or take, 0 to 1 (0.2).
    Raises ValueError, naming the field, for values out of bounds.
    """

    base: float = 1.0
    max_delay: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        for name in ("base", "max_delay", "jitter"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(
                    f"backoff.{name}: {value!r} is not a finite number; give seconds"
                    + (" as a part from 0 to 1" if name == "jitter" else "")
                )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff.jitter: {self.jitter!r} is out of bounds; give a part from 0 to 1")
        if self.base < 0:
            raise ValueError(f"backoff.base: {self.base!r} is negative; give seconds of 0 or more")
        if not self.base <= self.max_delay <= LONGEST_DELAY_S:
            raise ValueError(
                f"backoff.max_delay: {self.max_delay!r} is out of bounds; give seconds from base ({self.base:g}) to "
                f"{LONGEST_DELAY_S:.0f} (10 years)"
            )

    def delay_ms(self, attempt: int, draw: float) -> int:
        """Milliseconds to wait after failed attempt number `attempt` (from 1); at least 1.

        draw: a random number from 0 to 1; 0.5 gives the delay without jitter.
        """
        if attempt < 1:
            raise ValueError(f"attempt: {attempt!r} is out of bounds; attempts count from 1")
        try:
            seconds = min(self.max_delay, math.ldexp(self.base, attempt - 1))
        except OverflowError:
            seconds = self.max_delay
        seconds *= 1 + self.jitter * (2 * draw - 1)
        return max(1, round(seconds * 1000))


def constant(seconds: float) -> Backoff:
    """The same delay, in seconds, after every attempt, without jitter."""
    return Backoff(base=seconds, max_delay=seconds, jitter=0.0)
