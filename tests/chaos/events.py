"""What was done during a run, when, to whom, and what is still to be undone."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.stage import Stage, now

STALL_S = 0.25
"""The machine counts as stalled when a thread that wants to run every 20 ms could not for so long."""


@dataclass(slots=True)
class Event:
    """One act. pids: who was hit (for a worker: its supervisor's pid stands for all). until: when it was over."""

    at: float
    what: str
    pids: tuple[int, ...] = ()
    until: float = 0.0

    def covers(self, start: float, end: float, slack: float = 0.0) -> bool:
        """Whether it went on within a span of time."""
        return self.at <= end and max(self.at, self.until) + slack >= start


class Chronicle:
    """Notes events, calls what is to be done later when its time has come, and watches the machine."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self.tell = tell
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._watching = True

    def note(self, what: str, *pids: int) -> Event:
        """Write down what happens now."""
        event = Event(now(), what, pids)
        self.events.append(event)
        self.tell(f"{what} {' '.join(map(str, pids))}")
        return event

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done in so many seconds."""
        heapq.heappush(self._later, (now() + seconds, next(self._order), action))

    def do_later(self) -> None:
        """Do what is due."""
        while self._later and self._later[0][0] <= now():
            heapq.heappop(self._later)[2]()

    def do_the_rest(self) -> None:
        """Do everything that is left, due or not."""
        while self._later:
            heapq.heappop(self._later)[2]()
            time.sleep(0.01)

    def watch_the_machine(self) -> None:
        """Note from now on when the machine leaves nobody the time to run."""
        threading.Thread(target=self._watch, daemon=True).start()

    def stop_watching(self) -> None:
        """Stop that."""
        self._watching = False

    def _watch(self) -> None:
        while self._watching:
            before = now()
            time.sleep(0.02)
            if (late := now() - before - 0.02) > STALL_S:
                self.events.append(Event(before, "stall of the machine", (), before + 0.02 + late))


class Acts:
    """A family of acts. weighted: each with how often it is drawn, beside the others."""

    weighted: list[tuple[float, Callable[[], None]]]

    def __init__(self, stage: Stage, dice: random.Random, chronicle: Chronicle) -> None:
        self._stage = stage
        self._dice = dice
        self._chronicle = chronicle
        self._note, self._after, self._tell = chronicle.note, chronicle.after, chronicle.tell
