"""Purge of a queue (protocol 18): waiting tasks only, in slices, no record, no lock, counted as cancelled."""

from __future__ import annotations

import threading
import time

import pytest

import dtq
from dtq.broker import Broker
from dtq.broker.operating import SLICE
from tests.broker.driver import QUEUE, Child, enqueue, live, state


def test_waiting_tasks_go_and_running_ones_stay(broker: Broker) -> None:
    """Queued, pending, retrying and what lies on the shelf; no record of any is left."""
    child = Child(broker)
    (ended,) = enqueue(broker)
    child.settle(child.claim()[0])
    (retrying,) = enqueue(broker)
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)
    running, given_back = enqueue(broker, 2)
    claims = child.claim(2)
    broker.hand_back(QUEUE, child.consumer, claims[1].seq, claims[1].seq + 1)
    (pending,) = enqueue(broker, place="w3600000;")
    queued = enqueue(broker, 3) + enqueue(broker, 2, band=9)
    (released,) = enqueue(broker, band=9)
    other = Child(broker)
    for claim in reversed(other.claim(4)):
        other.settle(claim, "L")  # these have a history
    assert sum(broker.purge(QUEUE)) == 9
    gone = [retrying, given_back, pending, released, *queued]
    assert broker.states(QUEUE, gone) == b"0" * 9
    for task in gone:
        assert broker.command("EXISTS", broker.keys.task(QUEUE, task)) == 0
    assert (state(broker, running), state(broker, ended)) == ("3", "5")
    assert broker.queue_counts(QUEUE).totals["cancelled"] == 9
    assert child.settle(claims[0]) == "d"
    assert child.claim(10) == other.claim(10) == []
    assert sum(broker.purge(QUEUE)) == 0


def test_locks_and_keys_are_freed(broker: Broker) -> None:
    """The unique lock is gone, the idempotency record says failed (spec §3, S069)."""
    with dtq.App(broker.settings.redis_url, queue=QUEUE) as app:
        app.enqueue("noop", {}, unique=True)
        keyed = app.enqueue("noop", {"a": 1}, idempotency_key="K")
        app.enqueue("noop", {"b": 1}, unique="mine", delay=3600)
        assert app.queue().purge() == 3
        assert broker.command("KEYS", broker.keys.unique(QUEUE, "*")) == []
        again = app.enqueue("noop", {"a": 1}, idempotency_key="K")
        assert (again.id, again.duplicate) == (keyed.id, True)
        assert broker.command("GET", broker.keys.idempotency(QUEUE, "K")).endswith(b" cancelled")
        app.enqueue("noop", {}, unique=True)
        assert app.queue().purge() == 1
        assert [entry.action for entry in app.audit()] == ["purge", "purge"]
        assert app.audit()[1].facts == {"waiting": 2, "scheduled": 1}


def test_what_was_read_and_not_adopted_goes_and_never_starts(broker: Broker) -> None:
    """Nothing starts before its claim is answered (protocol 14): the adopting turn does not find it any more."""
    (task,) = enqueue(broker)
    child = Child(broker)
    got = child.read()
    assert sum(broker.purge(QUEUE)) == 1
    assert child.claim(1, adopts=got) == []
    assert child.claim(1, recover=True) == []
    assert state(broker, task) == "0"


def test_a_redelivery_stays_running(broker: Broker) -> None:
    """What had begun is not purged, also while it lies on the shelf."""
    (task,) = enqueue(broker)
    lost = Child(broker)
    (claim,) = lost.claim()
    broker.hand_over(QUEUE, lost.consumer, claim.seq + 1, [claim.entry], "exit 1")
    assert sum(broker.purge(QUEUE)) == 0
    child = Child(broker)
    (again,) = child.claim()
    assert (again.id, again.attempt) == (task, 2)
    child.settle(again)


def test_parked_tasks_go_too(broker: Broker) -> None:
    """A paused type waits; a purge takes it."""
    broker.pause(QUEUE, "slow")
    enqueue(broker, 3, task_type="slow")
    Child(broker).claim(3)
    assert sum(broker.purge(QUEUE)) == 3


def test_tasks_of_later_are_spared(broker: Broker) -> None:
    """The end is where the streams ended at the start: a busy producer cannot keep a purge from ending."""
    enqueue(broker, 3)
    steps = broker.purge(QUEUE)
    assert next(steps) == 0  # the schedule
    assert next(steps) in (0, 3)
    late = enqueue(broker, 2)
    for _ in steps:
        pass
    later = enqueue(broker, 1, place="w3600000;")
    assert broker.states(QUEUE, [late[1], *later]) == b"21"
    assert sum(broker.purge(QUEUE)) == 3


def test_an_interrupted_purge_is_taken_up_again(broker: Broker) -> None:
    """Between any two steps the queue is consistent (S035)."""
    enqueue(broker, 1800)
    enqueue(broker, 1200, place="w3600000;")
    taken = 0
    for _ in range(8):
        steps = broker.purge(QUEUE)
        for _, count in zip(range(2), steps, strict=False):
            taken += count
            assert count <= SLICE
        steps.close()
    counts = broker.queue_counts(QUEUE)
    assert counts.waiting + counts.scheduled == 3000 - taken
    taken += sum(broker.purge(QUEUE))
    assert taken == 3000 == broker.queue_counts(QUEUE).totals["purged"]


def test_a_purge_beside_workers_loses_and_doubles_nothing(broker: Broker) -> None:
    """Every task either ran or was purged, and the figures agree."""
    enqueue(broker, 3000, retention_ms=0)
    ran: list[str] = []

    def work() -> None:
        child = Child(broker, worker=f"host-{threading.get_ident() % 10**8:08d}")
        while claims := child.claim(7):
            ran.extend(claim.id for claim in claims)
            for claim in claims:
                child.end(claim)
        child.turn(0)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    purged = sum(broker.purge(QUEUE))
    for thread in threads:
        thread.join()
    assert len(ran) == len(set(ran))
    assert len(ran) + purged == 3000
    totals = broker.queue_counts(QUEUE).totals
    assert (totals.get("succeeded", 0), totals.get("cancelled", 0)) == (len(ran), purged)


@pytest.mark.timeout(120)
def test_other_commands_wait_a_few_milliseconds_only(broker: Broker) -> None:
    """S035 at a tenth of its size: p99 of a trivial command beside a purge stays far below 100 ms."""
    enqueue_many(broker, 50_000)
    waits: list[float] = []
    stop = threading.Event()

    def look() -> None:
        client = broker.transport.client()
        while not stop.wait(0.002):
            started = time.perf_counter()
            client.ping()
            waits.append(time.perf_counter() - started)
        client.close()

    watcher = threading.Thread(target=look)
    watcher.start()
    assert sum(broker.purge(QUEUE)) == 50_000
    stop.set()
    watcher.join()
    assert sorted(waits)[len(waits) * 99 // 100] < 0.1
    assert live(broker, "any") == ""


def enqueue_many(broker: Broker, count: int) -> None:
    for _ in range(count // 500):
        enqueue(broker, 500, retention_ms=0)


def test_a_scheduled_task_is_not_passed_over_while_newer_ones_come_and_go(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer tasks due earlier are passed over, and leave when they are due: that moves the older ones behind them."""
    monkeypatch.setattr("dtq.broker.operating.SLICE", 1)
    older = enqueue(broker, 2, place="w3600000;")
    newer: list[str] = []
    for number, _ in enumerate(broker.purge(QUEUE)):
        if number % 2 == 0 and number < 8:
            wait_for_the_next_millisecond(broker)
            newer += enqueue(broker, place="w1800000;")
        elif newer and state(broker, newer[-1]) == "1":
            broker.command("ZADD", broker.keys.schedule(QUEUE), "XX", 1, newer[-1])
            broker.promote(QUEUE)
    assert broker.states(QUEUE, older) == b"00"


def wait_for_the_next_millisecond(broker: Broker) -> None:
    """Until Redis' clock has moved on: what is made now is newer than what was made before."""
    start = broker.command("TIME")
    while [int(part) // unit for part, unit in zip(broker.command("TIME"), (1, 1000), strict=True)] == [
        int(part) // unit for part, unit in zip(start, (1, 1000), strict=True)
    ]:
        pass
