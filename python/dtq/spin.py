"""Whether to wait for a reply awake: to ask the socket again and again, or to let the kernel put the thread to sleep.

A loop of enqueues waits some 20 us for each reply. Put to sleep for it, the thread's CPU falls asleep too, and a
virtual CPU takes 30 to 60 us to wake: 9,400 calls a second asleep, 17,500 awake, for nearly the same CPU time a call
(47 and 52 us), since going to sleep costs as much as asking. Where there is one CPU, or others want all of them, the
server needs the time that is spent on asking: 25,000 asleep, 18,000 awake. Which of the two it is cannot be known
beforehand, so it is tried (docs/decisions/0012-wait-awake-where-it-pays.md).
"""

from __future__ import annotations

from dtq.clock import SYSTEM, Clock

LONGEST_S = 0.0001
"""A reply is asked for at most so long, then slept for: twice what one takes where nobody sleeps."""
LOOP_S = 0.001
"""Calls that follow each other within it are a loop. A lone call sleeps: it shares the CPUs with what it sets going."""
BLOCK, WARMING = 64, 32
"""A mode is kept and timed for so many calls, of which the first do not count: the host takes a while to keep the
server's CPU from sleeping as well (32 calls of 110 us, then 55)."""
PERIOD = 32
"""In one of so many blocks the other mode is tried."""
LEAST_GAIN = 1.2
"""Awake must be so many times as fast."""
_NEW = 0.25
"""Weight of a block in what is known of the mode it was made in: one hiccup must not change it."""


class Spin:
    """What the calls of one process have shown. Threads may share it: a lost count does no harm.

    Args:
        clock: whose steady time is read, once a call.
    """

    __slots__ = ("_awake", "_blocks", "_calls", "_clock", "_seen", "_took_s", "_trying", "_typical_s")

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._seen = self._took_s = 0.0
        self._calls = 0
        self._blocks = PERIOD - 2  # the first block is followed by a trial
        self._awake = self._trying = False
        self._typical_s = {False: 0.0, True: 0.0}

    def awake(self) -> bool:
        """Whether to wait awake in the call that begins now."""
        now = self._clock.monotonic()
        took, self._seen = now - self._seen, now
        calls = self._calls = self._calls + 1
        if calls > WARMING:
            self._took_s += min(took, LOOP_S)
            if calls >= BLOCK:
                self._choose(self._took_s / (BLOCK - WARMING))
        return self._awake and took <= LOOP_S

    def _choose(self, mean_s: float) -> None:
        """The mode of the next block, once one is over whose calls took so long."""
        typical_s = self._typical_s
        known_s = typical_s[self._awake]
        typical_s[self._awake] = mean_s if self._trying or not known_s else known_s + _NEW * (mean_s - known_s)
        better = typical_s[False] > LEAST_GAIN * typical_s[True] > 0
        self._blocks = (self._blocks + 1) % PERIOD
        self._trying = self._blocks == PERIOD - 1
        self._awake = better is not self._trying
        self._calls, self._took_s = 0, 0.0
