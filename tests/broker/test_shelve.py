"""Hand-over, hand-back and reaping: who is charged, who comes back untouched, and that nothing is left behind."""

from __future__ import annotations

from dtq._core import parse_record
from dtq.broker import Broker
from dtq.keys import SHELF
from tests.broker.driver import QUEUE, WORKER, Child, enqueue, live, state


def finish_all(broker: Broker, expected: int) -> list[tuple[str, int, int]]:
    """Claim and settle what waits; answers (id, attempt, released) of each claim."""
    child, seen = Child(broker, worker="host-cleaner1"), []
    while claims := child.claim(100, recover=True):
        for claim in claims:
            seen.append((claim.id, claim.attempt, claim.released))
            child.end(claim)
    child.turn(0)
    assert len(seen) == expected
    return seen


def test_hand_over_charges_only_what_was_executing(broker: Broker) -> None:
    """Executing: charged. Ended but unsettled: uncharged. Never begun: as it was (protocol 6, 19)."""
    executing, ended, unbegun = enqueue(broker, 3)
    child = Child(broker)
    claims = child.claim(3)
    moved = broker.hand_over(QUEUE, child.consumer, claims[2].seq, [claims[0].seq], "signal SIGKILL")
    assert moved == 3
    assert [live(broker, t).split(":")[:3] for t in (executing, ended, unbegun)] == [
        ["r", "1", "0"],
        ["r", "1", "1"],
        ["q", "1", "0"],
    ]
    assert child.consumer not in broker.consumers(QUEUE)
    assert broker.command("HEXISTS", f"dtq:queue:{{{QUEUE}}}:sends", child.consumer) == 0
    assert finish_all(broker, 3) == [(executing, 2, 0), (ended, 2, 1), (unbegun, 1, 0)]


def test_what_was_alone_in_a_child_that_died_of_nothing_else_is_charged(broker: Broker) -> None:
    """Ended but unsettled: free the first time, charged when its child dies again with nothing executing; never beside
    one that executes (protocol 19)."""
    enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim(1)
    deaths: list[tuple[str, list[str], int]] = [
        ("exit 1", [], 1),
        ("signal SIGKILL", ["1-1"], 2),
        ("released", [], 3),
        ("exit 1", [], 3),
    ]
    for cause, executing, released in deaths:
        broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [e.encode() for e in executing], cause)
        child = Child(broker)
        (claim,) = child.claim(1)
        assert claim.released == released, cause
    assert claim.attempt == 5


def test_a_redelivered_task_is_claimed_alone(broker: Broker) -> None:
    """Every redelivery runs in a batch of one, so that a killer takes nobody with it (protocol 19)."""
    enqueue(broker, 3)
    child = Child(broker)
    claims = child.claim(3)
    broker.hand_over(QUEUE, child.consumer, claims[2].seq + 1, [c.seq for c in claims], "signal SIGSEGV")
    other = Child(broker)
    sizes = []
    while got := other.claim(10):
        sizes.append(len(got))
        for claim in got:
            other.end(claim)
    other.turn(0)
    assert sizes == [1, 1, 1]


def test_a_task_that_kills_its_child_every_time_ends_dead_lettered_with_the_cause(broker: Broker) -> None:
    """After max_attempts charged deaths the next claim ends it; it never loops (spec §2)."""
    (task,) = enqueue(broker, max_attempts=3)
    starts = 0
    while True:
        child = Child(broker)
        got = child.claim(1)
        if not got:
            break
        starts += 1
        broker.hand_over(QUEUE, child.consumer, got[0].seq + 1, [got[0].seq], "signal SIGSEGV")
    assert starts == 3
    assert state(broker, task) == "7"
    record = parse_record(broker.command("GET", broker.keys.task(QUEUE, task)))
    assert b"signal SIGSEGV" in record.detail
    assert record.history.count(b'"cause":"signal SIGSEGV"') == 3


def test_a_released_child_charges_nobody(broker: Broker) -> None:
    """Killed because a drain's grace was over: the started attempt comes back uncharged (spec §4)."""
    (task,) = enqueue(broker, max_attempts=1)
    child = Child(broker)
    (claim,) = child.claim()
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.seq], "released")
    assert finish_all(broker, 1) == [(task, 2, 1)]


def test_what_a_reader_got_and_never_adopted_goes_back_as_it_was(broker: Broker) -> None:
    """Killed between read and adopt: queued, attempt unchanged."""
    (task,) = enqueue(broker)
    child = Child(broker)
    child.read()
    broker.hand_over(QUEUE, child.consumer, 1, [], "signal SIGKILL")
    assert finish_all(broker, 1) == [(task, 1, 0)]


def test_hand_back_moves_exactly_the_revoked_range_ahead_of_newer_work(broker: Broker) -> None:
    """Revoked claims are queued again, attempt unchanged, before newer work of their band (spec §4)."""
    old = enqueue(broker, 3)
    child = Child(broker)
    claims = child.claim(3)
    new = enqueue(broker, 1)
    assert broker.hand_back(QUEUE, child.consumer, claims[1].seq, claims[2].seq + 1) >= 2
    assert live(broker, old[0]).startswith("r:")
    assert [i for i, _, _ in finish_all(broker, 3)] == [*old[1:], *new]
    assert child.settle(claims[0]) == "d"
    assert child.settle(claims[1]) in "ds"
    assert broker.command("HGET", broker.keys.meta(QUEUE), "succeeded") == b"4"


def test_hand_back_repeated_or_late_moves_nothing_twice(broker: Broker) -> None:
    """A sibling claimed the task meanwhile: the repeated hand-back misses it (A4)."""
    (task,) = enqueue(broker)
    child, sibling = Child(broker), Child(broker)
    (claim,) = child.claim()
    broker.hand_back(QUEUE, child.consumer, claim.seq, claim.seq + 1)
    (again,) = sibling.claim()
    assert broker.hand_back(QUEUE, child.consumer, claim.seq, claim.seq + 1) == 0
    assert live(broker, task).split(":")[4] == sibling.consumer
    assert sibling.settle(again) == "d"


def test_hand_back_finds_its_claims_behind_many_that_have_begun(broker: Broker) -> None:
    """A child with many async handlers under way: the revoked claims are the last of a long list."""
    enqueue(broker, 510)
    child = Child(broker)
    claims = child.claim(510)
    broker.hand_back(QUEUE, child.consumer, claims[-2].seq, claims[-1].seq + 1)
    assert [live(broker, claim.id)[:1] for claim in claims[-3:]] == ["r", "q", "q"]


def test_hand_back_wakes_a_waiting_reader(broker: Broker) -> None:
    """XCLAIM wakes nobody, so a bell is rung (protocol 16, B1)."""
    enqueue(broker)
    child, waiter = Child(broker), Child(broker)
    (claim,) = child.claim()
    broker.hand_back(QUEUE, child.consumer, claim.seq, claim.seq + 1)
    bells = waiter.read()
    assert [task for _, _, task in bells] == [b""]
    (again,) = waiter.claim(1, adopts=bells)
    assert waiter.settle(again) == "d"
    assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == 0


def test_a_promised_cancel_survives_every_way_back(broker: Broker) -> None:
    """A flagged claim that is handed back or redelivered ends cancelled, it never starts again (protocol 10, A10)."""
    back, over = enqueue(broker, 2)
    child = Child(broker)
    claims = child.claim(2)
    assert broker.cancel(QUEUE, back) == "requested"
    assert broker.cancel(QUEUE, over) == "requested"
    broker.hand_back(QUEUE, child.consumer, claims[0].seq, claims[0].seq + 1)
    assert state(broker, back) == "8"
    broker.hand_over(QUEUE, child.consumer, claims[1].seq + 1, [claims[1].seq], "signal SIGKILL")
    assert finish_all(broker, 0) == []
    assert state(broker, over) == "8"


def test_the_reaper_charges_what_was_held_alone(broker: Broker) -> None:
    """One task held by a dead worker: charged, and the cause is kept (protocol 19)."""
    (task,) = enqueue(broker)
    child = Child(broker, worker="host-dead0001")
    child.claim(1)
    assert broker.reap(QUEUE) == 1
    assert finish_all(broker, 1) == [(task, 2, 0)]
    assert child.consumer not in broker.consumers(QUEUE)


def test_the_reaper_charges_nobody_in_a_batch(broker: Broker) -> None:
    """Nobody can know which of a batch had started: all come back uncharged and are claimed alone."""
    tasks = enqueue(broker, 3, max_attempts=1)
    Child(broker, worker="host-dead0002").claim(3)
    broker.reap(QUEUE)
    assert finish_all(broker, 3) == [(t, 2, 1) for t in tasks]


def test_a_reaper_that_dies_in_the_middle_of_a_batch_charges_nobody(broker: Broker) -> None:
    """Between two calls for one long pending list; the next reaper must not take the rest for held alone."""
    tasks = enqueue(broker, 3)
    child = Child(broker)
    assert len(child.claim(3)) == 3
    broker.run("shelve", QUEUE, "reap", child.consumer, 0, 0, "lost lease", 2, 1)  # and here the first one dies
    broker.reap_consumer(QUEUE, child.consumer)
    assert sorted(finish_all(broker, 3)) == sorted((task, 2, 1) for task in tasks)


def test_the_reaper_spares_a_worker_with_a_lease(broker: Broker) -> None:
    """A long task on a live worker is never taken away (spec §4)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    broker.renew(WORKER, {})
    assert broker.reap(QUEUE) == 0
    assert live(broker, task).startswith("r:1:")
    child.settle(claim)


def test_missing_entries_are_acked_and_their_tasks_end_message_lost(broker: Broker) -> None:
    """An entry deleted by hand: every walker accepts it, its task ends with the reason (protocol 4, S014)."""
    tasks = enqueue(broker, 5)
    child = Child(broker)
    claims = child.claim(5)
    for claim in claims[:2]:
        broker.command("XDEL", broker.keys.stream(QUEUE, 5), claim.entry)
    broker.hand_over(QUEUE, child.consumer, 10**6, [], "signal SIGKILL")
    assert broker.end_lost(QUEUE) == 2
    assert [state(broker, t) for t in tasks[:2]] == ["7", "7"]
    assert b"message lost" in parse_record(broker.command("GET", broker.keys.task(QUEUE, tasks[0]))).detail
    finish_all(broker, 3)
    assert broker.consumers(QUEUE).get(SHELF, 0) == 0


def test_a_long_pending_list_is_moved_in_slices(broker: Broker) -> None:
    """More entries than one call moves: the verb goes on until all are moved."""
    enqueue(broker, 1200, retention_ms=0)
    child = Child(broker)
    held = 0
    while held < 1200:
        held += len(child.claim(300))
    assert broker.hand_over(QUEUE, child.consumer, 1, [], "exit 1") >= 1200
    assert broker.consumers(QUEUE)[SHELF] == 1200
    finish_all(broker, 1200)
