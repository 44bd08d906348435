"""The worker's lease: renewed at regular times, written to shared memory as "safe until", swept of strays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import WorkerDeclaredDead
from dtq.settings import Settings
from dtq.worker.rotation import Rotation
from dtq.worker.scheduler import Isolation

_NEWS_S = 1.0
"""After a renewal the next one, with which something new is told, does not come sooner than this."""


@dataclass(frozen=True, slots=True)
class Fate:
    """How a consumer ended: claims below `watermark` had begun, `executing` are those whose handlers ran."""

    watermark: int = 0
    executing: Sequence[int] = field(default=())
    cause: str = "lost claim"


_UNKNOWN = Fate()
"""What late commands of a child that is gone have claimed: nobody received it, so nothing of it has begun."""


class Lease:
    """Renews one worker id (protocol 8, 9), and at each renewal looks for consumers of it that are no live child (4).

    facts: what the worker tells of itself with it.
    live: names of the consumers that must not be swept: live children, and dead ones whose hand-over is under way.
    fate: how a consumer of this worker died. Where a group was lost before its hand-over, its claims come back to its
    name later (protocol 13), and those that had begun must not start as the same attempt again.
    """

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        worker_id: str,
        facts: Callable[[], dict[str, Any]],
        slots: Slots,
        queues: Sequence[str],
        live: Callable[[], set[str]],
        fate: Callable[[str], Fate | None],
    ) -> None:
        self.next_at = 0.0
        self._broker = broker
        self._settings = settings
        self._worker_id = worker_id
        self._facts = facts
        self._slots = slots
        self._queues = tuple(queues)
        self._live = live
        self._fate = fate
        self._last_success_ms = 0
        self._isolation = Isolation("the look for strays")
        self._rotation = Rotation(broker)
        self._margin_s = min(1.0, settings.lease_s / 10)
        self._begun_at = 0.0

    def hurry(self) -> None:
        """Renew sooner than usual, to tell of something new; once a second at most. From any thread."""
        if self.next_at != math.inf:
            self.next_at = min(self.next_at, self._begun_at + _NEWS_S)

    def run(self) -> None:
        """Renew, then sweep. Raises WorkerDeclaredDead, BrokerUnavailable."""
        period, self._begun_at = self._settings.renew_s, SYSTEM.monotonic()
        self.next_at = SYSTEM.monotonic() + min(period, 0.25)  # sooner than usual if this fails
        try:
            self.renew()
        except WorkerDeclaredDead:
            self.next_at = math.inf  # said once; another lease follows
            raise
        self.next_at = SYSTEM.monotonic() + period
        self._sweep()

    def renew(self) -> None:
        """Renew the lease once."""
        sent_ns = SYSTEM.boottime_ns()
        timeout_s = max(0.5, min(5.0, self._settings.renew_s))
        self._last_success_ms = self._broker.renew(self._worker_id, self._facts(), self._last_success_ms, timeout_s)
        self._slots.set_safe_until(sent_ns + round((self._settings.lease_s - self._margin_s) * 1e9))

    def _sweep(self) -> None:
        """Hand over what stands under the names of children that are gone."""
        self._isolation.each(self._rotation.choose(self._queues), self._sweep_queue)

    def _sweep_queue(self, queue: str) -> None:
        for consumer in self._broker.consumers(queue):
            if consumer.startswith(f"{self._worker_id}.") and consumer not in self._live():
                fate = self._fate(consumer) or _UNKNOWN
                self._broker.hand_over(queue, consumer, fate.watermark, fate.executing, fate.cause, ended=True)
