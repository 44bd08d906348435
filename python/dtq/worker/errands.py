"""What the supervisor has its steward do in Redis: a worker id's duties, hand-overs, hand-backs, the farewell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable, GroupLost
from dtq.settings import Settings
from dtq.worker.canceller import CancelInbox, FlagWatch
from dtq.worker.lease import Fate, Lease
from dtq.worker.listener import Listener
from dtq.worker.pool import ChildProcess, Death
from dtq.worker.scheduler import BurstWatch, Leadership, Reaper, Scheduler
from dtq.worker.steward import Duty, Steward

_FATES = 1000
"""So many deaths are remembered: what they held may turn up later, if a group was lost just before."""
_PATIENCE_S = 5.0
"""How long the first lease is tried for."""


class Errands:
    """The supervisor's way to Redis. Nothing here waits: everything is done in the steward's thread.

    facts: what the worker tells of itself. live: names of the consumers whose children live. inbox: takes cancelled
    claims. All but the inbox, and on_declared_dead and on_empty, are called in the steward's thread.
    """

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        queues: list[str],
        slots: Slots,
        facts: Callable[[], dict[str, Any]],
        live: Callable[[], set[str]],
        inbox: CancelInbox,
        on_declared_dead: Callable[[], None],
        on_empty: Callable[[], None] | None,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._queues = queues
        self._slots = slots
        self._facts = facts
        self._live = live
        self._inbox = inbox
        self._on_empty = on_empty
        self._handing_over: set[str] = set()
        self._fates: dict[str, Fate] = {}
        # A shorter pause lets no lease expire that is renewed in time, as two renewals fit into a lease.
        self._steward = Steward(broker, on_declared_dead, max(0.5, settings.renew_s))
        self._listener = Listener(broker, inbox, self._hurry)
        self._scheduler: Scheduler | None = None
        self._leadership: Leadership | None = None
        self._renewing: Lease | None = None
        self._worker_id = ""

    def begin(self, worker_id: str) -> None:
        """Take the first lease of this worker id, at once, and do everything else from now on in the thread.

        Raises BrokerUnavailable, after some patience.
        """
        lease, deadline = self._lease(worker_id), SYSTEM.monotonic() + _PATIENCE_S
        while True:
            try:
                lease.renew()
                break
            except BrokerUnavailable:
                if SYSTEM.monotonic() >= deadline:
                    raise
            SYSTEM.sleep(0.1)
        self._steward.start()
        self.serve(worker_id)

    def serve(self, worker_id: str) -> None:
        """Do the duties of this worker id instead of another one's."""
        self._worker_id = worker_id
        leadership = self._leadership = Leadership(self._broker, self._settings, worker_id)
        scheduler = self._scheduler = Scheduler(self._broker, leadership, lambda: self._listener.hearing)
        renewing = self._renewing = self._lease(worker_id)
        duties: list[Duty] = [
            renewing,
            FlagWatch(self._broker, self._slots, self._queues, self._inbox),
            leadership,
            scheduler,
            Reaper(self._broker, self._settings, leadership, self._steward.steady_for),
        ]
        if self._on_empty is not None:
            duties.append(BurstWatch(self._broker, self._queues, self._on_empty))
        self._steward.take_duties(*duties)
        self._steward.submit("announcement", lambda: self._broker.announce("WORKER_STARTED", worker_id=worker_id))
        self._listener.serve(worker_id)

    def tell_soon(self) -> None:
        """The facts have changed: tell them before the next renewal."""
        if self._renewing is not None:
            self._renewing.hurry()
            self._steward.wake()

    def hand_over(self, death: Death) -> None:
        """Give what a dead child held to others, in every queue."""
        consumer = death.child.consumer
        self._handing_over.add(consumer)
        fate = self._fates[consumer] = Fate(death.watermark, death.executing, death.cause)
        if len(self._fates) > _FATES:
            del self._fates[next(iter(self._fates))]

        def one(queue: str) -> object:
            return self._broker.hand_over(queue, consumer, fate.watermark, fate.executing, fate.cause, ended=True)

        def job() -> None:
            self._in_queues(self._queues, one)
            self._handing_over.discard(consumer)

        self._steward.submit("hand-over", job)

    def hand_back(self, child: ChildProcess, start: int, end: int) -> None:
        """Give the revoked claims start <= number < end of a live child to others."""
        consumer = child.consumer

        def one(queue: str) -> object:
            return self._broker.hand_back(queue, consumer, start, end)

        self._steward.submit("hand-back", lambda: self._in_queues(self._broker.occupied(self._queues), one))

    def leave(self, timeout_s: float) -> bool:
        """Finish, then give up lead and lease, renewed until then. False if Redis did not answer in time."""
        worker_id, leadership = self._worker_id, self._leadership

        def job() -> None:
            if leadership is not None:
                leadership.give_up()
            self._broker.leave(worker_id)
            self._broker.announce("WORKER_STOPPED", worker_id=worker_id)

        def last() -> None:
            self._steward.take_duties()
            job()

        self._listener.stop()
        self._steward.submit("leave", last)
        return self._steward.stop(timeout_s)

    def _hurry(self, queue: str) -> None:
        if self._scheduler is not None:
            self._scheduler.hurry(queue)
            self._steward.wake()

    def _lease(self, worker_id: str) -> Lease:
        return Lease(
            self._broker,
            self._settings,
            worker_id,
            self._facts,
            self._slots,
            self._queues,
            self._unswept,
            self._fates.get,
        )

    def _unswept(self) -> set[str]:
        """A name is never used twice, so a stale view only delays a sweep."""
        return self._live() | set(self._handing_over)

    def _in_queues(self, queues: Iterable[str], work: Callable[[str], object]) -> None:
        """One whose keys are damaged keeps the job open, but not from the others."""
        damaged: BrokerUnavailable | None = None
        for queue in queues:
            try:
                try:
                    work(queue)
                except GroupLost:
                    self._broker.prepare_queue(queue)
                    work(queue)
            except BrokerUnavailable as error:
                if not error.damaged:
                    raise
                damaged = error
        if damaged is not None:
            raise damaged
