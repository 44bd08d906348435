"""Leases: dead is final, a lease may come back only while its worker was never declared dead."""

from __future__ import annotations

import pytest

from dtq.broker import Broker
from dtq.errors import WorkerDeclaredDead
from tests.conftest import WaitUntil

ID = "host-abcdefgh"


def test_a_worker_with_a_lease_cannot_be_declared_dead(broker: Broker) -> None:
    """Declaring looks at the lease in the same script (protocol 8)."""
    broker.renew(ID, {"host": "here"})
    assert not broker.declare_dead(ID)
    assert broker.workers()[0].facts == {"host": "here"}
    broker.leave(ID)
    assert broker.workers() == []


def test_an_undeclared_lease_may_be_restored(broker: Broker, wait_until: WaitUntil) -> None:
    """A stall longer than the lease, and nobody declared the worker: it goes on (protocol 8)."""
    last = broker.renew(ID, {})
    wait_until(lambda: broker.expired_workers()[0] == [ID], 5, "the lease runs out")
    assert broker.renew(ID, {}, last) > last


def test_dead_is_final(broker: Broker, wait_until: WaitUntil) -> None:
    """Renewal never revives an id that was declared dead (A8)."""
    last = broker.renew(ID, {})
    wait_until(lambda: broker.declare_dead(ID), 5, "the lease runs out")
    with pytest.raises(WorkerDeclaredDead):
        broker.renew(ID, {}, last)
    assert broker.workers() == []


def test_a_renewal_older_than_a_mark_lives_is_refused(broker: Broker) -> None:
    """Its mark may have come and gone meanwhile (protocol 8)."""
    with pytest.raises(WorkerDeclaredDead):
        broker.renew(ID, {}, last_success_ms=1)


def test_one_leads_until_its_time_is_over(broker: Broker) -> None:
    """The lead is kept by its holder and given up at once when it leaves."""
    assert broker.lead("a", 60_000)
    assert not broker.lead("b", 60_000)
    assert broker.lead("a", 60_000)
    broker.stop_leading("a")
    assert broker.lead("b", 60_000)
