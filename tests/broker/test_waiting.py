"""An adoption sent behind a blocking read: what wakes a waiting child is claimed in the same round trip."""

from __future__ import annotations

from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, enqueue, live, state, wait_and_claim


def test_a_waiting_child_claims_what_wakes_it_in_one_round_trip(broker: Broker) -> None:
    """The script stands behind the read at the server and runs as soon as the read has got something."""
    child = Child(broker)
    enqueue(broker, 1)
    child.settle(child.claim()[0])
    tasks: list[str] = []
    (claim,) = wait_and_claim(child, first=lambda: tasks.extend(enqueue(broker)))
    assert (claim.id, claim.attempt) == (tasks[0], 1)
    assert live(broker, claim.id).endswith(":w;")
    assert child.settle(claim) == "d"


def test_a_dead_worker_is_not_charged_for_what_it_got_while_waiting(broker: Broker) -> None:
    """A host cut off while its children wait may have started nothing: uncharged, then claimed alone (protocol 19)."""
    (task,) = enqueue(broker, max_attempts=1)
    lost = Child(broker, worker="host-cutoff01")
    wait_and_claim(lost)
    assert broker.reap(QUEUE) == 1
    assert state(broker, task) == "3"
    other = Child(broker, worker="host-other001")
    assert wait_and_claim(other) == []  # a redelivery is never claimed behind a read
    (claim,) = other.claim(1, recover=True)
    assert (claim.id, claim.attempt, claim.released) == (task, 2, 1)
    assert not claim.tail.endswith(b"w;")
    assert other.settle(claim) == "d"


def test_older_work_on_the_shelf_goes_first(broker: Broker) -> None:
    """The entry that woke the child waits behind what was handed back (protocol 5, B1)."""
    (old,) = enqueue(broker)
    busy, child = Child(broker), Child(broker)
    (held,) = busy.claim()

    def meanwhile() -> None:
        broker.hand_back(QUEUE, busy.consumer, held.seq, held.seq + 1)

    assert wait_and_claim(child, first=meanwhile) == []  # a bell woke it
    claims = child.claim(1, recover=True)
    assert [c.id for c in claims] == [old]
    child.settle(claims[0])


def test_a_settle_sent_meanwhile_makes_it_late_and_loses_nothing(broker: Broker) -> None:
    """Another turn of the same child with a higher send number: the adoption does nothing (protocol 3)."""
    child = Child(broker)
    tasks: list[str] = []

    def meanwhile() -> None:
        child.turn(0)
        tasks.extend(enqueue(broker))

    assert wait_and_claim(child, first=meanwhile) == []
    (claim,) = child.claim(1, recover=True)
    assert claim.id == tasks[0]
    child.settle(claim)


def test_a_paused_queue_gives_nothing_to_a_waiting_child(broker: Broker) -> None:
    """What the read got goes to the shelf, queued as it was (protocol 15)."""
    broker.command("HSET", broker.keys.meta(QUEUE), "paused", 1)
    (task,) = enqueue(broker)
    child = Child(broker)
    assert wait_and_claim(child) == []
    assert live(broker, task).startswith("q:1:0:")
    broker.command("HDEL", broker.keys.meta(QUEUE), "paused")
    child.settle(child.claim(1, recover=True)[0])


def test_anything_but_one_plain_task_is_left_to_the_next_turn(broker: Broker) -> None:
    """Options, two entries, garbage: the adoption does nothing, a recovering turn does the rest."""
    (overdue,) = enqueue(broker, place="d1;")
    child = Child(broker)
    assert wait_and_claim(child) == []
    assert child.claim(1, recover=True) == []
    assert state(broker, overdue) == "9"
    two = enqueue(broker, band=1) + enqueue(broker, band=2)
    assert wait_and_claim(child) == []
    claims = child.claim(5, recover=True)
    assert sorted(c.id for c in claims) == sorted(two)
    for claim in claims:
        child.settle(claim)


def test_a_retry_after_a_waited_claim_starts_clean(broker: Broker) -> None:
    """The mark of the waited claim does not outlive it."""
    enqueue(broker, 1)
    child = Child(broker)
    (claim,) = wait_and_claim(child)
    task = claim.id
    assert child.settle(claim, "R") == "d"
    while not broker.promote(QUEUE)[0]:
        pass
    assert live(broker, task).endswith(":h;")
    child.settle(child.claim()[0])


def test_claims_of_a_lost_turn_do_not_hide_behind_a_wait(broker: Broker) -> None:
    """A claim whose reply was lost, then a wait: the adoption sees two entries and leaves them to recovery."""
    tasks = enqueue(broker, 2)
    child = Child(broker)
    child.claim(1)  # its reply is lost
    child.seq = 100
    assert wait_and_claim(child) == []
    claims = child.claim(5, recover=True)
    assert sorted(c.id for c in claims) == sorted(tasks)
    assert all(c.seq >= 100 for c in claims)
    for claim in claims:
        assert child.settle(claim) == "d"
