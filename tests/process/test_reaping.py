"""The reaper beside stalls: a round that a frozen Redis has held up declares nobody dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtq.broker import Broker
from dtq.settings import Settings
from dtq.worker.scheduler import Leadership, Reaper
from dtq.worker.steward import Steward
from tests.broker.driver import QUEUE, Child, enqueue
from tests.conftest import WaitUntil
from tests.servers import PrivateServer

OTHER = "host-00000001"


class Stalling(Broker):
    """Takes its time in the middle of the reaper's round: until the leases of others have run out."""

    def __init__(self, settings: Settings, wait_until: WaitUntil) -> None:
        super().__init__(settings)
        self._wait_until = wait_until
        self.armed = False
        self.done = False

    def queues(self) -> list[str]:
        found = super().queues()
        if self.armed:
            self.armed = False
            self._wait_until(lambda: OTHER in self.expired_workers()[0], 5, "the lease runs out")
            self.done = True
        return found


@pytest.fixture
def broker(clean_server: PrivateServer, wait_until: WaitUntil) -> Iterator[Stalling]:
    """A lease of a second, and a queue with a task that another worker runs."""
    broker = Stalling(Settings(redis_url=clean_server.url, lease_s=1.0, renew_s=0.2), wait_until)
    broker.prepare_queue(QUEUE)
    yield broker
    broker.close()


def test_a_stall_in_the_middle_of_a_round_costs_nobody_the_lease(broker: Stalling, wait_until: WaitUntil) -> None:
    """What it sees after the stall may be old; it looks again when Redis has been steady for two renewals."""
    enqueue(broker)
    child = Child(broker, OTHER)
    claim = child.claim()[0]
    steward = Steward(broker, lambda: None, 0.5)
    leadership = Leadership(broker, broker.settings, "host-00000002")
    reaper = Reaper(broker, broker.settings, leadership, steward.steady_for)
    rounds: list[bool] = []

    class Noted:
        next_at = 0.0

        def run(self) -> None:
            reaper.run()
            self.next_at = reaper.next_at
            rounds.append(broker.done)

    steward.take_duties(leadership, Noted())
    last = broker.renew(OTHER, {})
    steward.start()
    try:
        broker.armed = True
        wait_until(lambda: any(rounds), 10, "a round that was held up")
        broker.renew(OTHER, {}, last)  # not refused
        assert child.settle(claim) == "d"
    finally:
        assert steward.stop(5)
