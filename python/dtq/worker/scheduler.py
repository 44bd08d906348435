"""While this worker leads: moves due tasks to their streams, and takes over what dead workers hold."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable
from dtq.settings import Settings
from dtq.worker.journal import LOGGER
from dtq.worker.rotation import Rotation

_LEAD_S = 5.0
_KEEP_S = 2.0
_DEAF_S = 0.05
"""The leader looks at the schedules this often while it would not hear of a task that falls due before all others."""
_LOOK_S = 2.0
"""The same while it hears: it looks when the first task falls due, or a note may have been lost."""
_LOOKS_A_SECOND = 10
"""With many queues that have one each is looked at less often than that; the empty ones are looked at together."""
_TOGETHER_S = 0.0001
"""So long for each of them, while the leader would not hear."""
_BATCH = 500
_QUEUES_S = 10.0
_DEAF_QUEUES_S = 1.0
_BURST_S = 0.05
_SWEEP_S = 10.0
"""The reaper looks at every consumer this often at least, and when a lease has run out."""
_EXPIRY_S = 5.0
"""It looks for leases that have run out when the first of them may have, and this often at least."""
_DAMAGED_S = 10.0
"""A queue whose keys are damaged is left alone for so long, then tried again."""


class Isolation:
    """Does something for every queue; one whose keys were damaged by hand does not stop the work on the others."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._until: dict[str, float] = {}

    def each(self, queues: Iterable[str], work: Callable[[str], None]) -> None:
        """Call `work` with each queue. Raises BrokerUnavailable for what is not damage of one queue."""
        for queue in queues:
            if SYSTEM.monotonic() < self._until.get(queue, 0.0):
                continue
            try:
                work(queue)
            except BrokerUnavailable as error:
                if not error.damaged:
                    raise
                self._until[queue] = SYSTEM.monotonic() + _DAMAGED_S
                LOGGER.error("queue %s: %s is not possible: %s; next try in %g s", queue, self._what, error, _DAMAGED_S)


class Leadership:
    """Holds or seeks the lead. Two leaders at once do no harm: what they do is idempotent."""

    def __init__(self, broker: Broker, settings: Settings, worker_id: str) -> None:
        self.next_at = 0.0
        self.leads = False
        self._broker = broker
        self._worker_id = worker_id
        # Often enough to tell a break of Redis from silence: see Steward.steady_for.
        self._period_s = min(_KEEP_S, settings.renew_s / 2)
        self._lead_ms = round(min(_LEAD_S, settings.lease_s) * 1000)

    def run(self) -> None:
        """Take or keep the lead."""
        self.next_at = SYSTEM.monotonic() + self._period_s
        led, self.leads = self.leads, False
        self.leads = self._broker.lead(self._worker_id, self._lead_ms)
        if self.leads and not led:
            LOGGER.debug("%s leads: it promotes due tasks and takes over from dead workers", self._worker_id)

    def give_up(self) -> None:
        """Let the next worker lead at once."""
        if self.leads:
            self.leads = False
            self._broker.stop_leading(self._worker_id)


class Scheduler:
    """Promotes due tasks of every known queue. Redis' clock decides what is due.

    hearing: whether `hurry` would be called for a task that falls due before all others.
    """

    def __init__(self, broker: Broker, leadership: Leadership, hearing: Callable[[], bool]) -> None:
        self._next_at = 0.0
        self._broker = broker
        self._leadership = leadership
        self._hearing = hearing
        self._look_at: dict[str, float] = {}
        self._empty: set[str] = set()
        self._empty_at = 0.0
        self._queues_at = 0.0
        self._hurried: deque[str] = deque()
        self._isolation = Isolation("promotion of due tasks")
        self._tell_at = 0.0

    @property
    def next_at(self) -> float:
        """When to run next, in seconds of the steady clock."""
        return 0.0 if self._hurried else self._next_at

    def hurry(self, queue: str) -> None:
        """Look at a queue at once. From any thread."""
        self._hurried.append(queue)

    def run(self) -> None:
        """One round over the queues whose time has come, in bounded batches."""
        now = SYSTEM.monotonic()
        self._next_at = now + _DEAF_S
        if not self._leadership.leads:
            self._forget()
            return
        if now >= self._queues_at:
            self._look_at = {queue: self._look_at.get(queue, 0.0) for queue in self._broker.queues()}
            self._empty &= self._look_at.keys()
            self._queues_at = now + (_QUEUES_S if self._hearing() else _DEAF_QUEUES_S)
        while self._hurried:
            queue = self._hurried.popleft()
            self._look_at[queue] = 0.0
            self._empty.discard(queue)
        shortest = _LOOK_S if self._hearing() else _DEAF_S
        period = max(shortest, (len(self._look_at) - len(self._empty)) / _LOOKS_A_SECOND)
        due = [queue for queue in self._look_at if queue not in self._empty and self._is_due(queue, now, period)]
        if self._empty and (now >= self._empty_at or self._empty_at > now + shortest):
            due += self._broker.scheduled(sorted(self._empty))
            self._empty_at = now + max(shortest, len(self._empty) * _TOGETHER_S)
        for queue in due:
            self._look_at[queue] = now + period
        self._isolation.each(due, self._promote)
        looks = [at for queue, at in self._look_at.items() if queue not in self._empty]
        if self._empty:
            looks.append(self._empty_at)
        self._next_at = min(now + _LOOK_S, min(looks, default=math.inf))

    def _forget(self) -> None:
        """What is known of the schedules grows old: another one leads, and is told of what comes."""
        self._hurried.clear()
        self._look_at.clear()
        self._empty.clear()
        self._queues_at = 0.0

    def _is_due(self, queue: str, now: float, period: float) -> bool:
        return now >= self._look_at[queue] or self._look_at[queue] > now + period

    def _promote(self, queue: str) -> None:
        moved, next_due_ms = self._broker.promote(queue, _BATCH, self._tell)
        if moved >= _BATCH:
            self._look_at[queue] = SYSTEM.monotonic()  # more stands ready, but other duties come first
        elif next_due_ms is not None:
            due_at = SYSTEM.monotonic() + max(1, next_due_ms) / 1000
            self._look_at[queue] = min(self._look_at[queue], due_at)
        (self._empty.add if next_due_ms is None and not moved else self._empty.discard)(queue)

    def _tell(self, queue: str, count: int, why: str) -> None:
        if SYSTEM.monotonic() >= self._tell_at:
            self._tell_at = SYSTEM.monotonic() + _DAMAGED_S
            LOGGER.error("queue %s: %d due task(s) cannot be queued, tried again every 5 s: %s", queue, count, why)


class Reaper:
    """Declares workers without a lease dead and takes over what they hold (protocol 8).

    steady_for: seconds for which Redis has answered everything. Below two renewal periods nobody is declared dead:
    after a stall of Redis every lease looks expired.
    """

    def __init__(
        self, broker: Broker, settings: Settings, leadership: Leadership, steady_for: Callable[[], float]
    ) -> None:
        self.next_at = 0.0
        self._broker = broker
        self._settings = settings
        self._leadership = leadership
        self._steady_for = steady_for
        self._born = SYSTEM.monotonic()
        self._sweep_at = 0.0
        self._isolation = Isolation("taking over from dead workers")
        self._rotation = Rotation(broker)

    def run(self) -> None:
        """Look for leases that have run out; where there are some, and every now and then, at every consumer."""
        now = SYSTEM.monotonic()
        period = min(1.0, self._settings.renew_s)
        self.next_at = now + period
        if not self._leadership.leads or not self._sure():
            return
        expired, first_s = self._broker.expired_workers()
        if expired or now >= self._sweep_at:
            queues = self._broker.queues()
            self._isolation.each(queues if expired else self._rotation.choose(queues), self._reap)
            self._sweep_at = now + max(period, min(_SWEEP_S, 2 * self._settings.renew_s))
        for worker_id in expired if self._sure() else ():
            if self._broker.declare_dead(worker_id):
                self._broker.forget_worker(worker_id)
                self._broker.announce("WORKER_STALE", worker_id=worker_id)
        if not expired:  # a lease is renewed or runs out; none can run out sooner than it was seen to
            self.next_at = max(self.next_at, min(now + first_s + 0.01, self._sweep_at, now + _EXPIRY_S))

    def _sure(self) -> bool:
        """Whether leases that look expired are. Asked again after they were read: a stall may have come between."""
        quiet_s = 2 * self._settings.renew_s
        return self._steady_for() >= quiet_s and SYSTEM.monotonic() - self._born >= quiet_s

    def _reap(self, queue: str) -> None:
        moved = self._broker.reap(queue, self._sure)
        if moved:
            LOGGER.warning("queue %s: took over %d task(s) of workers that are gone", queue, moved)
        self._broker.end_lost(queue)
        self._broker.unpark(queue)  # where a resumption was cut short


class BurstWatch:
    """Notices when nothing is left to do in the queues of this worker; what waits in a paused one does not count."""

    def __init__(self, broker: Broker, queues: list[str], on_empty: Callable[[], None]) -> None:
        self.next_at = 0.0
        self._broker = broker
        self._queues = queues
        self._on_empty = on_empty

    def run(self) -> None:
        """Look at each queue; where all are empty, a second time.

        While the last of them was looked at, its last task may have enqueued into the first. If none has got a task
        since it was seen empty, they were so all at once.
        """
        self.next_at = SYSTEM.monotonic() + _BURST_S
        births = self._births_if_empty()
        if births is not None and (len(births) == 1 or self._births_if_empty() == births):
            self._on_empty()

    def _births_if_empty(self) -> list[int] | None:
        """How many tasks each queue has ever got; None where one of them has something to do."""
        births: list[int] = []
        for queue in self._queues:
            counts = self._broker.queue_counts(queue)
            if (counts.waiting and not counts.paused) or counts.running or counts.retrying:
                return None
            births.append(counts.totals.get("submitted", 0))
        return births
