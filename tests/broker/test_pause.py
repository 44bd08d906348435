"""Pause and resume of a queue and of a task type (protocol 15): nothing is lost, nothing starts, the rest runs on."""

from __future__ import annotations

import threading

from dtq._core import Chunk
from dtq.broker import Broker
from dtq.keys import PARKED, SHELF
from tests.broker.driver import QUEUE, Child, check_invariants, enqueue, head, live, state, wait_and_claim


def finish(child: Child) -> list[str]:
    """Claim and settle everything that may run; answers the ids in order. Parking may take several turns."""
    done: list[str] = []
    idle = 0
    while idle < 10:
        claims = child.claim(100, recover=True)
        for claim in claims:
            done.append(claim.id)
            child.end(claim)
        child.turn(0)
        idle = 0 if claims else idle + 1
    return done


def test_a_paused_queue_gives_nothing_and_says_so(broker: Broker) -> None:
    """Claims bring nothing, settles go through, and the reply tells the child."""
    first, second = enqueue(broker, 2)
    child = Child(broker)
    (claim,) = child.claim()
    assert broker.pause(QUEUE)
    assert not broker.pause(QUEUE)
    child.end(claim)
    reply = child.turn(5)
    assert (reply.codes, reply.claims) == (b"dp", [])
    assert [state(broker, task) for task in (first, second)] == ["5", "2"]
    assert broker.queue_counts(QUEUE).paused
    assert broker.resume(QUEUE)
    assert not broker.resume(QUEUE)
    assert finish(child) == [second]


def test_what_a_reader_got_is_shelved_and_comes_first_after_the_resumption(broker: Broker) -> None:
    """In its order, attempt unchanged (protocol 15, 16)."""
    tasks = enqueue(broker, 2)
    child = Child(broker)
    got = child.read()
    broker.pause(QUEUE)
    assert child.claim(1, adopts=got) == []
    assert broker.consumers(QUEUE)[SHELF] == 1
    broker.resume(QUEUE)
    assert finish(child) == tasks


def test_a_resumption_wakes_who_waits(broker: Broker) -> None:
    """A child that stands in a blocking read hears a bell, and finds what was shelved meanwhile."""
    other, child = Child(broker), Child(broker)
    child.turn(0)
    (task,) = enqueue(broker)
    got = other.read()
    broker.pause(QUEUE)
    other.claim(1, adopts=got)
    timer = threading.Timer(0.1, lambda: broker.resume(QUEUE))
    timer.start()
    assert wait_and_claim(child) == []  # the bell: nothing to adopt, but the read is over at once
    timer.join()
    assert finish(child) == [task]


def test_due_tasks_and_retries_of_a_paused_queue_wait_in_it(broker: Broker) -> None:
    """The schedule goes on; nothing starts."""
    (task,) = enqueue(broker, place="w1;")
    broker.pause(QUEUE)
    while not broker.promote(QUEUE)[0]:
        pass
    child = Child(broker)
    assert child.claim(5) == []
    assert state(broker, task) == "2"
    broker.resume(QUEUE)
    assert finish(child) == [task]


def test_a_paused_type_waits_and_the_rest_runs_on(broker: Broker) -> None:
    """Only its own entries are parked (protocol 15); they come back in their order, attempt 1."""
    slow = enqueue(broker, 3, task_type="slow")
    quick = enqueue(broker, 3, task_type="quick")
    assert broker.pause(QUEUE, "slow")
    assert not broker.pause(QUEUE, "slow")
    assert broker.queue_counts(QUEUE).paused_types == ("slow",)
    child = Child(broker)
    assert finish(child) == quick
    assert broker.consumers(QUEUE)[PARKED] == 3
    assert [state(broker, task) for task in slow] == ["2"] * 3
    slow += enqueue(broker, task_type="slow")
    assert finish(child) == []
    assert broker.resume(QUEUE, "slow")
    assert not broker.resume(QUEUE, "slow")
    assert broker.consumers(QUEUE)[PARKED] == 0
    assert live(broker, slow[0]).startswith("q:1:0:")
    assert finish(child) == slow
    assert broker.command("HGET", broker.keys.meta(QUEUE), "paused_types") is None


def test_two_paused_types_are_resumed_apart(broker: Broker) -> None:
    """A resumption leaves the other type parked."""
    broker.pause(QUEUE, "a")
    broker.pause(QUEUE, "b")
    first = enqueue(broker, 2, task_type="a")
    second = enqueue(broker, 2, task_type="b")
    child = Child(broker)
    assert finish(child) == []
    broker.resume(QUEUE, "b")
    assert finish(child) == second
    assert broker.queue_counts(QUEUE).paused_types == ("a",)
    broker.resume(QUEUE, "a")
    assert finish(child) == first


def test_a_waiting_child_parks_what_wakes_it(broker: Broker) -> None:
    """The adoption behind a read does nothing where types are paused; the turn parks."""
    enqueue(broker)
    child = Child(broker)
    finish(child)
    broker.pause(QUEUE, "slow")
    (task,) = enqueue(broker, task_type="slow")
    assert wait_and_claim(child) == []
    assert finish(child) == []
    assert broker.consumers(QUEUE)[PARKED] == 1
    assert broker.cancel(QUEUE, task) == "cancelled"
    assert broker.consumers(QUEUE)[PARKED] == 0


def test_a_crash_of_a_paused_type_waits_too_and_keeps_its_attempt(broker: Broker) -> None:
    """Redelivered from the shelf: parked as it is, attempt 2 after the resumption."""
    (task,) = enqueue(broker, task_type="slow")
    lost = Child(broker)
    (claim,) = lost.claim()
    broker.pause(QUEUE, "slow")
    broker.hand_over(QUEUE, lost.consumer, claim.seq + 1, [claim.entry], "signal SIGKILL")
    child = Child(broker)
    assert finish(child) == []
    assert state(broker, task) == "3"
    broker.resume(QUEUE, "slow")
    (again,) = child.claim()
    assert (again.id, again.attempt) == (task, 2)
    child.settle(again)


def test_nobody_reaps_or_sweeps_the_parked(broker: Broker) -> None:
    """Their consumer has no worker and no lease."""
    broker.pause(QUEUE, "slow")
    enqueue(broker, 3, task_type="slow")
    child = Child(broker)
    finish(child)
    broker.reap(QUEUE)
    assert broker.consumers(QUEUE)[PARKED] == 3
    broker.resume(QUEUE, "slow")
    other = Child(broker)
    assert len(finish(other)) == 3


def test_many_of_a_paused_type_are_parked_in_slices(broker: Broker) -> None:
    """One turn moves a bounded number, and rings so that the rest, and what stands behind it, does not wait."""
    enqueue(broker, 900, task_type="slow", retention_ms=0)
    (quick,) = enqueue(broker, task_type="quick")
    broker.pause(QUEUE, "slow")
    child = Child(broker)
    turns = 0
    while not (claims := child.claim(1, recover=True)):
        turns += 1
        assert turns < 10
        assert child.read()
    assert turns >= 4
    assert claims[0].id == quick
    child.settle(claims[0])
    assert broker.consumers(QUEUE)[PARKED] + broker.consumers(QUEUE).get(child.consumer, 0) >= 900
    broker.resume(QUEUE, "slow")
    assert len(finish(child)) == 900


def test_a_resumption_that_was_cut_short_is_finished_by_the_leader(broker: Broker) -> None:
    """The mark stands until a walk is through; the reaper's round calls unpark."""
    tasks = enqueue(broker, 30, task_type="slow")
    broker.pause(QUEUE, "slow")
    child = Child(broker)
    finish(child)
    broker.run("resume", QUEUE, "slow", 64)
    walk, band, after = broker.run("unpark", QUEUE, "", 0, "-", 10)  # ... and the caller is gone
    assert broker.consumers(QUEUE)[PARKED] == 20
    broker.run("resume", QUEUE, "none", 64)
    broker.unpark(QUEUE)
    assert broker.consumers(QUEUE)[PARKED] == 0
    assert broker.run("unpark", QUEUE, walk, band, after, 10) == []
    assert sorted(finish(child)) == sorted(tasks)


def test_a_walk_does_not_end_the_one_that_a_later_resumption_needs(broker: Broker) -> None:
    """Two resumptions at once: the first walk's end leaves the mark of the second."""
    broker.pause(QUEUE, "a")
    broker.pause(QUEUE, "b")
    tasks = enqueue(broker, 5, task_type="a") + enqueue(broker, 15, task_type="b")
    child = Child(broker)
    finish(child)
    broker.run("resume", QUEUE, "a", 64)
    step = broker.run("unpark", QUEUE, "", 0, "-", 10)
    broker.run("resume", QUEUE, "b", 64)
    while step:
        step = broker.run("unpark", QUEUE, *step, 10)
    assert broker.command("HEXISTS", broker.keys.meta(QUEUE), "unparking") == 1
    broker.unpark(QUEUE)
    assert sorted(finish(child)) == sorted(tasks)
    assert broker.command("HEXISTS", broker.keys.meta(QUEUE), "unparking") == 0


def test_a_parked_entry_that_is_gone_ends_its_task(broker: Broker) -> None:
    """Whoever walks a list accepts missing entries (protocol 4)."""
    (task,) = enqueue(broker, task_type="slow")
    broker.pause(QUEUE, "slow")
    child = Child(broker)
    finish(child)
    broker.command("XDEL", broker.keys.stream(QUEUE, 5), live(broker, task).split(":")[3])
    broker.resume(QUEUE, "slow")
    assert broker.end_lost(QUEUE) == 1
    assert state(broker, task) == "7"


def test_an_expired_task_of_a_paused_type_expires_when_it_is_looked_at(broker: Broker) -> None:
    """Ttl goes on; it is checked before parking, and after."""
    late, early = enqueue(broker, place="t600000;", task_type="slow"), enqueue(broker, place="t1;", task_type="slow")
    broker.pause(QUEUE, "slow")
    child = Child(broker)
    finish(child)
    assert [state(broker, task) for task in late + early] == ["2", "9"]
    broker.resume(QUEUE, "slow")
    assert finish(child) == late


def test_a_parked_entry_and_a_running_one_of_the_same_id_are_two(broker: Broker) -> None:
    """Each band counts by itself, so entries of one millisecond may have the same id."""
    child = Child(broker)
    for number in range(50):
        parked, running = f"parked{number}", f"running{number}"
        chunk = Chunk()
        chunk.add_payload(parked, head(task_type="later", band=9), {}, 1000, b"9")
        chunk.add_payload(running, head(band=2), {}, 1000, b"2")
        assert [answer.code for answer in broker.enqueue(QUEUE, chunk)] == ["a", "a"]
        if len({live(broker, task).split(":")[3] for task in (parked, running)}) == 1:
            break
        assert finish(child) == [parked, running]  # the millisecond has passed between the two
    broker.pause(QUEUE, "later")
    (claim,) = child.claim(2)
    assert claim.id == running
    check_invariants(broker)
    broker.resume(QUEUE, "later")
    broker.unpark(QUEUE)
    assert child.settle(claim) == "d"
    assert finish(child) == [parked]
