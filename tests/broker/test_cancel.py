"""Cancel: the order of the scripts decides, and no mark outlives its task."""

from __future__ import annotations

from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, enqueue, state


def test_waiting_tasks_are_cancelled_at_once_and_never_start(broker: Broker) -> None:
    """pending, queued and retrying: entry or schedule place goes with it (spec §5)."""
    (retrying,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)
    (pending,) = enqueue(broker, place="w3600000;")
    (queued,) = enqueue(broker)
    for task in (retrying, pending, queued):
        assert broker.cancel(QUEUE, task) == "cancelled"
        assert state(broker, task) == "8"
        assert broker.cancel(QUEUE, task) == "terminal:cancelled"
    assert child.claim(10) == []
    assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0


def test_a_running_task_is_asked_and_ends_cancelled_whatever_its_outcome(broker: Broker) -> None:
    """Flag first, settle later: cancelled, its result discarded (spec §5)."""
    for letter in "SRFDCL":
        (task,) = enqueue(broker)
        child = Child(broker)
        (claim,) = child.claim()
        assert broker.cancel(QUEUE, task) == "requested"
        assert broker.cancel(QUEUE, task) == "requested"
        assert child.settle(claim, letter) == "c"
        assert state(broker, task) == "8"


def test_settled_first_it_stays_what_it_became(broker: Broker) -> None:
    """The order of the scripts decides."""
    (task,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0])
    assert broker.cancel(QUEUE, task) == "terminal:succeeded"
    assert state(broker, task) == "5"


def test_a_delivered_entry_is_flagged_and_its_adoption_cancels_it(broker: Broker) -> None:
    """Read but not adopted: 409, and it never starts (protocol 10)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    got = child.read()
    assert broker.cancel(QUEUE, task) == "requested"
    assert child.claim(1, adopts=got) == []
    assert state(broker, task) == "8"


def test_an_unknown_id_is_unknown_and_leaves_no_mark(broker: Broker) -> None:
    """A later task with this id runs (S062)."""
    assert broker.cancel(QUEUE, "never-used") == "unknown"
    enqueue(broker, ids=["never-used"])
    child = Child(broker)
    assert child.settle(child.claim()[0]) == "d"
    assert state(broker, "never-used") == "5"


def test_a_cancelled_task_keeps_its_payload_for_a_minute_at_least(broker: Broker) -> None:
    """Whatever its retention, a repeated enqueue must find it (protocol 11)."""
    (task,) = enqueue(broker, retention_ms=0)
    broker.cancel(QUEUE, task)
    assert 59_000 < broker.command("PTTL", broker.keys.task(QUEUE, task)) <= 60_000
