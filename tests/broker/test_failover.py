"""A server that has become a replica: its connections are given up, as its name may lead to another one now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dtq.broker import Broker
from dtq.errors import BrokerUnavailable
from tests.broker.driver import QUEUE, Child, enqueue


@contextmanager
def as_a_replica(broker: Broker) -> Iterator[None]:
    """The server refuses writes within the block."""
    broker.command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        broker.command("REPLICAOF", "NO", "ONE")


def test_a_refused_write_gives_its_connection_up(broker: Broker) -> None:
    """The next command comes on a new connection."""
    before = broker.command("CLIENT", "ID")
    child = Child(broker)
    with as_a_replica(broker):
        with pytest.raises(BrokerUnavailable):
            child.claim()
        assert broker.command("CLIENT", "ID") != before
    (task,) = enqueue(broker)
    assert [claim.id for claim in child.claim(recover=True)] == [task]


def test_a_refused_read_gives_its_connection_up(broker: Broker) -> None:
    """A waiting child reads anew, on a new connection."""
    child = Child(broker)
    reader = broker.reader(child.consumer)
    with as_a_replica(broker):
        reader.start([(QUEUE, 5)], 1000)
        with pytest.raises(BrokerUnavailable):
            reader.receive()
        with pytest.raises(BrokerUnavailable, match="no read is under way"):
            reader.fileno()
    (task,) = enqueue(broker)
    reader.start([(QUEUE, 5)], 1000)
    assert [task_id for _, _, _, task_id in reader.receive().entries] == [task.encode()]
    reader.abandon()
