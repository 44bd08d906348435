"""Traces that the state machine of tests/model has found, each in its shortest form."""

from __future__ import annotations

import pytest

from dtq._core import Chunk, Claim
from dtq.broker import Broker
from dtq.keys import BANDS
from tests.broker.driver import QUEUE, Child, enqueue, head, live


def lose_groups(broker: Broker) -> None:
    """The consumer groups are gone, and made anew at 0."""
    for band in BANDS:
        broker.command("XGROUP", "DESTROY", broker.keys.stream(QUEUE, band), "workers")
    broker.prepare_queue(QUEUE)


def shelve_one(broker: Broker) -> None:
    """Leave a task on the shelf."""
    enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    broker.hand_back(QUEUE, child.consumer, claim.seq, claim.seq + 1)


@pytest.mark.parametrize("how", ["adopted", "adopted while paused", "recovered", "recovered while paused"])
def test_a_running_task_read_as_new_never_goes_to_the_shelf(broker: Broker, how: str) -> None:
    """The group was lost: whoever gets the entry again returns it to its owner, also where it would set it aside."""
    (task,) = enqueue(broker, max_attempts=1)
    owner, other = Child(broker), Child(broker)
    (claim,) = owner.claim()
    lose_groups(broker)
    got = other.read()
    assert [entry[2] for entry in got] == [task.encode()]
    if "paused" in how:
        broker.command("HSET", broker.keys.meta(QUEUE), "paused", 1)
    else:
        shelve_one(broker)
    other.turn(1, recover=True) if "recovered" in how else other.turn(1, adopts=got)
    _still_owned(broker, owner, claim, other)


def test_a_running_task_beside_one_that_is_claimed_alone_never_goes_to_the_shelf(broker: Broker) -> None:
    """The same where a turn may carry no more: what is left over of its read is looked at before it is set aside."""
    (solo,) = enqueue(broker)
    first, second, owner, other = (Child(broker) for _ in range(4))
    (ended,) = first.claim()
    broker.hand_over(QUEUE, first.consumer, ended.seq + 1, [], "exit 1")
    (again,) = second.claim()
    assert (again.id, again.solo) == (solo, True)
    enqueue(broker, max_attempts=1)
    (claim,) = owner.claim()
    broker.hand_back(QUEUE, second.consumer, again.seq, again.seq + 1)
    lose_groups(broker)
    assert [taken.id for taken in other.claim(2)] == [solo]
    _still_owned(broker, owner, claim, other)


def _still_owned(broker: Broker, owner: Child, claim: Claim, other: Child) -> None:
    """The claim stands as its owner knows it, nobody else is given the task, and it ends as it should."""
    broker.command("HDEL", broker.keys.meta(QUEUE), "paused")
    assert broker.consumers(QUEUE)[owner.consumer] == 1
    third = Child(broker)
    for _ in range(3):
        assert claim.id not in [taken.id for taken in third.claim(1)]
    assert live(broker, claim.id) == claim.token.decode()
    assert owner.settle(claim) == "d"
    for child in (other, third):
        broker.hand_over(QUEUE, child.consumer, 0, [], "exit 0")


def test_a_task_that_waits_for_its_redelivery_is_released_once(broker: Broker) -> None:
    """The group is lost while it lies on the shelf: taken over again it keeps what it was charged (protocol 13, 19)."""
    (task,) = enqueue(broker)
    child, other = Child(broker, worker="host-dead0003"), Child(broker)
    child.claim(2)
    (late,) = enqueue(broker)
    child.claim(1)
    broker.reap(QUEUE)
    assert live(broker, task).split(":")[:3] == ["r", "1", "1"]
    lose_groups(broker)
    while not other.claim(1):
        broker.reap(QUEUE)
    assert live(broker, task).split(":")[:3] == ["r", "2", "1"]
    broker.hand_over(QUEUE, other.consumer, 0, [], "exit 0")
    assert live(broker, late).startswith("r:1:1:")
    _finish(broker)


@pytest.mark.parametrize("letter", ["S", "R", "L"])
def test_the_result_of_a_worker_whose_task_was_taken_over_is_refused(broker: Broker, letter: str) -> None:
    """At a later attempt as at the first: the history that a takeover writes exists already (spec §4)."""
    (task,) = enqueue(broker, max_attempts=5)
    first, second = Child(broker, worker="host-lost0001"), Child(broker, worker="host-lost0002")
    first.claim(1)
    broker.reap(QUEUE)
    (claim,) = second.claim(1)
    broker.reap(QUEUE)
    assert second.settle(claim, letter) == "s"
    assert live(broker, task).startswith("r:2:0:")
    broker.reap(QUEUE)
    _finish(broker)


def test_a_retry_after_a_redelivery_need_not_be_alone_any_more(broker: Broker) -> None:
    """Its handler has run and said how it ended: it kills nobody (protocol 19)."""
    ids = enqueue(broker, 2, band=9)
    child, other = Child(broker, worker="host-dead0004"), Child(broker)
    child.claim(2)
    broker.reap(QUEUE)
    (claim,) = other.claim(1)
    assert claim.solo
    assert other.settle(claim, "R", delay_ms=3_600_000) == "d"
    (last,) = other.claim(1)
    assert other.settle(last) == "d"
    assert other.claim(1) == []  # the bells
    broker.command("ZADD", broker.keys.schedule(QUEUE), "XX", 1, ids[0])
    assert broker.promote(QUEUE)[0] == 1
    (beside,) = enqueue(broker, band=5)
    got = [entry for entry in other.read() if entry[2]]
    assert [taken.id for taken in other.claim(2, adopts=got)] == [ids[0], beside]
    broker.hand_over(QUEUE, other.consumer, 1, [], "exit 0")
    _finish(broker)


def test_a_redelivered_task_handed_back_unbegun_is_claimed_alone_again(broker: Broker) -> None:
    """What makes it dangerous is not over when a busy child gives it back (protocol 19)."""
    (task,) = enqueue(broker)
    child, other = Child(broker), Child(broker)
    (claim,) = child.claim()
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.seq], "signal SIGSEGV")
    (again,) = other.claim()
    enqueue(broker, 2)
    broker.hand_back(QUEUE, other.consumer, again.seq, again.seq + 1)
    assert [taken.id for taken in Child(broker).claim(3)] == [task]
    broker.reap(QUEUE)
    _finish(broker)


def test_two_entries_of_one_millisecond_in_two_bands_are_told_apart(broker: Broker) -> None:
    """Entry ids are unique within a stream only: who was executing is told by claim number (protocol 6)."""
    (low,), (high,) = enqueue(broker, band=1), enqueue(broker, band=9)
    child = Child(broker)
    first, second = child.claim(2)
    assert [first.id, second.id] == [high, low]
    broker.hand_over(QUEUE, child.consumer, second.seq + 1, [second.seq], "signal SIGKILL")
    assert [live(broker, task).split(":")[2] for task in (high, low)] == ["1", "0"]
    _finish(broker)


@pytest.mark.parametrize("given", ["", "g;"])
def test_a_repeat_whose_key_says_that_it_ended_runs_nothing(broker: Broker, given: str) -> None:
    """With retention 0 the task leaves no trace but its idempotency record, which closes the hole (protocol 11)."""
    place = f"ikey,F1,86400000;{given}"
    enqueue(broker, ids=["one"], place=place, retention_ms=0)
    child = Child(broker)
    assert child.settle(child.claim()[0]) == "d"
    enqueue(broker, ids=["one"], place=place, retention_ms=0, repeat=True)
    assert child.claim(1) == []
    if given:  # no repeat, the id is used again: the key answers
        chunk = Chunk()
        chunk.add_payload("one", head(retention_ms=0), {}, 1000, f"5{place}".encode())
        assert [(answer.code, answer.detail) for answer in broker.enqueue(QUEUE, chunk)] == [("d", "one succeeded")]


def test_a_late_turn_of_a_child_that_is_gone_leaves_nothing_to_grow(broker: Broker) -> None:
    """It settles only, after the hand-over: its consumer is found by those who look for strays (protocol 4)."""
    enqueue(broker)
    child = Child(broker, worker="host-gone0001")
    (claim,) = child.claim()
    broker.hand_over(QUEUE, child.consumer, claim.seq, [], "signal SIGKILL")
    child.settle(claim)
    assert broker.command("HEXISTS", broker.keys.sends(QUEUE), child.consumer) == 1
    broker.reap(QUEUE)
    assert broker.command("HEXISTS", broker.keys.sends(QUEUE), child.consumer) == 0
    _finish(broker)


def _finish(broker: Broker) -> None:
    """Let everything that stands end."""
    child = Child(broker, worker="host-cleaner2")
    while claims := child.claim(1, recover=True):
        for claim in claims:
            child.end(claim)
    child.turn(0)
    assert broker.command("HLEN", broker.keys.live(QUEUE)) == 0


def test_a_history_without_its_task_is_not_known(broker: Broker) -> None:
    """Somebody removed the live value: a look at the task ended in a ValueError about its status."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.seq], "signal SIGKILL")
    live_key, value = broker.keys.live(QUEUE), live(broker, task)
    broker.command("HDEL", live_key, task)
    assert broker.states(QUEUE, [task]) == b"0"
    assert broker.inspect(QUEUE, [task]) == [None]
    broker.command("HSET", live_key, task, value)
