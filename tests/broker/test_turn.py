"""The turn: claiming in order, settling behind the fence, and every rule about lost and late messages."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

import pytest

from dtq._core import parse_record
from dtq.broker import Broker
from dtq.errors import GroupLost
from dtq.keys import GROUP, SHELF
from dtq.settings import Settings
from tests.broker.driver import QUEUE, Child, check_invariants, enqueue, live, state


def test_claims_drain_bands_from_nine_to_zero_and_in_order_within_one(broker: Broker) -> None:
    """Strict priority between bands, first in first out within one (spec §4)."""
    low, middle, high = (enqueue(broker, 3, band=band) for band in (0, 5, 9))
    assert [c.id for c in Child(broker).claim(9)] == high + middle + low


def test_a_batch_settles_and_claims_the_next_in_one_call(broker: Broker) -> None:
    """One round trip both ends the last batch and brings the next one."""
    first = enqueue(broker, 4)
    child = Child(broker)
    claims = child.claim(2)
    for claim in claims:
        child.end(claim)
    reply = child.turn(2)
    assert reply.codes == b"dd"
    assert [c.id for c in reply.claims] == first[2:]
    assert [state(broker, i) for i in first] == ["5", "5", "3", "3"]
    for claim in reply.claims:
        child.settle(claim)


def test_success_with_retention_zero_leaves_nothing(broker: Broker) -> None:
    """The fast path: no record, no recent entry, no stream entry."""
    (task,) = enqueue(broker, retention_ms=0)
    child = Child(broker)
    assert child.settle(child.claim()[0]) == "d"
    assert state(broker, task) == "0"
    assert broker.command("LLEN", broker.keys.recent(QUEUE, "succeeded")) == 0
    assert broker.command("HLEN", broker.keys.live(QUEUE)) == 0


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_list_of_recent_tasks_is_bounded(settings: Settings, broker: Broker, bound: int) -> None:
    """DTQ_RECENT ids at most stand in it, the newest first; 0: none, also of those that stood before."""
    recent = broker.keys.recent(QUEUE, "succeeded")
    broker.command("RPUSH", recent, "older", "oldest")
    tasks = enqueue(broker, 5)
    with closing(Broker(replace(settings, recent=bound))) as bounded:
        child = Child(bounded)
        for claim in child.claim(5):
            child.end(claim)
        child.turn(0)
    listed = [task.decode() for task in broker.command("LRANGE", recent, 0, -1)]
    assert listed == tasks[::-1][:bound]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_batch_leaves_the_stream_whatever_is_pending_around_it(broker: Broker, order: tuple[int, ...]) -> None:
    """Settled below the oldest pending entry its entries are trimmed, elsewhere deleted: never others (protocol 20)."""
    enqueue(broker, 50)  # of one millisecond: their numbers have one digit, then two
    children = [Child(broker) for _ in range(3)]
    claimed = [child.claim(want) for child, want in zip(children, (3, 9, 12), strict=True)]
    left = 50
    for index in order:
        for claim in claimed[index]:
            children[index].end(claim)
        assert children[index].turn(0).codes == b"d" * len(claimed[index])
        left -= len(claimed[index])
        assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == left
        check_invariants(broker)
    assert len(children[0].claim(50)) == left


def test_a_batch_of_a_lost_group_takes_nothing_along(broker: Broker) -> None:
    """The new group has delivered less than its child had: nothing pending, or what lies before (protocol 13, 20)."""
    enqueue(broker, 40)
    child, other = Child(broker), Child(broker)
    first, second = child.claim(12), child.claim(12)
    broker.command("XGROUP", "DESTROY", broker.keys.stream(QUEUE, 5), GROUP)
    for claim in second:
        child.end(claim)
    broker.prepare_queue(QUEUE)
    assert child.turn(0).codes == b"d" * 12
    assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == 28
    assert len(other.claim(50)) == 16
    for claim in first:
        child.end(claim)
    assert child.turn(0).codes == b"d" * 12
    check_invariants(broker)


@pytest.mark.parametrize("band", [5, 9])
@pytest.mark.parametrize(
    "retention_ms", [(0,) * 6, (60_000,) * 6, (2**53 - 1,) * 6, (0, 0, 60_000, 60_000, 0, 2**53 - 1)]
)
def test_a_batch_of_successes_keeps_what_each_is_to_keep(
    broker: Broker, retention_ms: tuple[int, ...], band: int
) -> None:
    """They are compared and deleted in one go, also where some leave a record and others nothing; two bands are not."""
    tasks = [enqueue(broker, band=5 if at else band, retention_ms=each)[0] for at, each in enumerate(retention_ms)]
    child = Child(broker)
    claims = {claim.id: claim for claim in child.claim(9)}
    for task in tasks:
        child.end(claims[task])
    assert child.turn(0).codes == b"d" * 6
    kept = [task for task, each in zip(tasks, retention_ms, strict=True) if each]
    assert [state(broker, task) for task in tasks] == ["5" if each else "0" for each in retention_ms]
    recent = broker.command("LRANGE", broker.keys.recent(QUEUE, "succeeded"), 0, -1)
    assert [task.decode() for task in recent] == kept[::-1]
    for task, each in zip(tasks, retention_ms, strict=True):
        left = broker.command("PTTL", broker.keys.task(QUEUE, task))
        assert left == -2 if not each else left == -1 if each == 2**53 - 1 else 0 < left <= each
        assert (
            not each or parse_record(broker.command("GET", broker.keys.task(QUEUE, task))).token == claims[task].token
        )
    assert broker.command("HGET", broker.keys.meta(QUEUE), "succeeded") == b"6"
    check_invariants(broker)


@pytest.mark.parametrize("at", [0, 5, 11])
@pytest.mark.parametrize("what", ["gone", "cancelled", "other", "shorter", "retry"])
def test_one_odd_outcome_does_not_touch_the_others(broker: Broker, what: str, at: int) -> None:
    """Where one live value is not as claimed, a batch is settled one by one: the fence stands for each (protocol 1)."""
    tasks = enqueue(broker, 12, retention_ms=0)
    child = Child(broker)
    claims = child.claim(12)
    task, code, after = tasks[at], b"d", "0"
    if what == "gone":
        assert child.settle(claims[at]) == "d"
        code = b"g"
    elif what == "cancelled":
        broker.cancel(QUEUE, task)
        code, after = b"c", "8"
    elif what == "retry":  # its batch is no plain one from the start
        after = "4"
    else:
        token = claims[at].token
        value = token.replace(b":0:", b":1:", 1) if what == "other" else token[:-1]
        broker.command("HSET", broker.keys.live(QUEUE), task, value)
        code, after = b"s", "3"
    for claim in claims:
        child.end(claim, "R" if what == "retry" and claim.id == task else "S", delay_ms=60_000)
    codes = child.turn(0).codes
    assert codes == b"d" * at + code + b"d" * (11 - at)
    assert [state(broker, each) for each in tasks] == ["0"] * at + [after] + ["0"] * (11 - at)
    if code != b"s":
        check_invariants(broker)


def test_live_values_are_compared_each_with_its_own(broker: Broker) -> None:
    """Not one text with another: set by hand so that both together read like those claimed."""
    first, second = enqueue(broker, 2, retention_ms=0)
    child = Child(broker)
    claims = child.claim(2)
    one, two = (claim.token.decode() for claim in claims)
    live_values = broker.keys.live(QUEUE)
    broker.command("HSET", live_values, first, one[:5], second, f"{one[6:]}\n{two}")
    for claim in claims:
        child.end(claim)
    assert child.turn(0).codes == b"ss"
    broker.command("HSET", live_values, first, one, second, two)
    for claim in claims:
        child.end(claim)
    assert child.turn(0).codes == b"dd"


def test_a_settle_repeated_after_a_lost_reply_says_done_and_changes_nothing(broker: Broker) -> None:
    """Idempotent: the record tells that this very claim wrote it (protocol 17)."""
    enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    assert child.settle(claim) == "d"
    assert child.settle(claim) == "d"
    assert broker.command("HGET", broker.keys.meta(QUEUE), "succeeded") == b"1"


def test_a_settle_whose_task_is_gone_says_gone(broker: Broker) -> None:
    """With retention 0, repetition and staleness cannot be told apart and need not be (protocol 17)."""
    enqueue(broker, retention_ms=0)
    child = Child(broker)
    (claim,) = child.claim()
    assert child.settle(claim) == "d"
    assert child.settle(claim) == "g"


@pytest.mark.parametrize("letter", ["S", "R", "F", "D", "C", "L"])
def test_a_stale_claim_is_refused_whatever_it_wants(broker: Broker, letter: str) -> None:
    """After a hand-over and a new claim the old one changes nothing (spec §2, protocol 1)."""
    (task,) = enqueue(broker)
    old, new = Child(broker), Child(broker)
    (claim,) = old.claim()
    broker.hand_over(QUEUE, old.consumer, claim.seq + 1, [claim.seq], "signal SIGKILL")
    (again,) = new.claim()
    assert again.attempt == 2
    assert old.settle(claim, letter) == "s"
    assert live(broker, task).split(":")[4] == new.consumer
    assert new.settle(again) == "d"


def test_a_late_copy_of_a_turn_is_ignored(broker: Broker) -> None:
    """Each send has a growing number; lower or equal ones do nothing (protocol 3)."""
    enqueue(broker, 2)
    child = Child(broker)
    (claim,) = child.claim(send=7)
    late = child.turn(1, send=7)
    assert late.late
    assert not late.claims
    assert broker.command("HGET", broker.keys.meta(QUEUE), "running") == b"1"
    child.send = 7
    child.settle(claim)
    (other,) = child.claim()
    child.settle(other)


def test_recovery_returns_unknown_claims_with_new_numbers(broker: Broker) -> None:
    """The reply of a turn is lost: the next one brings its claims back, renumbered (protocol 2, A1, A2)."""
    tasks = enqueue(broker, 3)
    child = Child(broker)
    lost = child.claim(2)
    child.seq = 1000
    reply = child.turn(1, recover=True)
    assert [c.id for c in reply.claims] == tasks[:2]
    assert [c.seq for c in reply.claims] == [1000, 1001]
    assert [c.attempt for c in reply.claims] == [1, 1]
    # the numbers of the lost reply hand back nothing any more
    assert broker.hand_back(QUEUE, child.consumer, lost[0].seq, lost[1].seq + 1) == 2
    assert all(live(broker, t).startswith("r:1:0:") for t in tasks[:2])
    for claim in reply.claims:
        assert child.settle(claim) == "d"
    (third,) = child.claim()
    child.settle(third)


def test_recovery_leaves_out_what_the_child_still_holds(broker: Broker) -> None:
    """Held entries are named and not returned again."""
    enqueue(broker, 2)
    child = Child(broker)
    first, second = child.claim(2)
    reply = child.turn(0, recover=True, held=[first.seq], first_seq=500)
    assert [c.id for c in reply.claims] == [second.id]
    assert child.settle(second) == "s"  # renumbered: the old token is void
    child.settle(first)
    child.settle(reply.claims[0])


def test_recovery_adopts_what_a_lost_read_delivered(broker: Broker) -> None:
    """A blocking read delivered an entry, its reply was lost: the entry lies in the own pending list, queued."""
    (task,) = enqueue(broker)
    child = Child(broker)
    child.read()
    assert state(broker, task) == "2"
    (claim,) = child.claim(1, recover=True)
    assert claim.id == task
    child.settle(claim)


def test_adopting_a_read_entry_starts_attempt_one(broker: Broker) -> None:
    """What a blocked reader got is running after the next turn."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim(1, adopts=child.read())
    assert (claim.id, claim.attempt) == (task, 1)
    assert claim.payload == b'{"i":0}'
    child.settle(claim)


def test_adopt_refuses_an_entry_that_is_in_another_pending_list(broker: Broker) -> None:
    """A late adopting turn of a reader that was handed over must not spend an attempt (A5)."""
    (task,) = enqueue(broker)
    reader = Child(broker)
    got = reader.read()
    broker.hand_over(QUEUE, reader.consumer, 0, [], "signal SIGKILL")
    assert reader.claim(0, adopts=got) == []
    assert live(broker, task).startswith("q:1:0:")
    (claim,) = Child(broker).claim()
    assert claim.attempt == 1
    Child(broker)
    broker.hand_over(QUEUE, claim.token.split(b":")[4].decode(), claim.seq, [], "exit 0")
    cleanup = Child(broker)
    cleanup.settle(cleanup.claim()[0])


def test_older_shelf_work_goes_before_an_adopted_entry(broker: Broker) -> None:
    """The reader of a new entry does not overtake what was handed back (protocol 5, B1)."""
    (old,) = enqueue(broker)
    first, second = Child(broker), Child(broker)
    (claim,) = first.claim()
    (new,) = enqueue(broker)
    got = [item for item in second.read() if item[2]]
    broker.hand_back(QUEUE, first.consumer, claim.seq, claim.seq + 1)
    (taken,) = second.claim(1, adopts=got)
    assert taken.id == old
    assert taken.attempt == 1
    second.settle(taken)
    (rest,) = second.claim()
    assert rest.id == new
    second.settle(rest)


def test_a_lost_group_is_made_anew_and_running_tasks_stay_with_their_owner(broker: Broker) -> None:
    """Entries met as new that run elsewhere go back to their owner's pending list (protocol 13)."""
    (task,) = enqueue(broker)
    owner, other = Child(broker), Child(broker)
    (claim,) = owner.claim()
    for band in range(10):
        broker.command("XGROUP", "DESTROY", broker.keys.stream(QUEUE, band), "workers")
    assert other.claim(5) == []
    assert broker.consumers(QUEUE)[owner.consumer] == 1
    assert owner.settle(claim) == "d"
    assert state(broker, task) == "5"
    broker.prepare_queue(QUEUE)


def test_a_blocking_read_on_a_lost_group_says_so(broker: Broker) -> None:
    """The reader learns it, prepares the queue and goes on."""
    for band in range(10):
        broker.command("XGROUP", "DESTROY", broker.keys.stream(QUEUE, band), "workers")
    with pytest.raises(GroupLost):
        Child(broker).read()
    broker.prepare_queue(QUEUE)


def test_a_turn_carries_at_most_a_mebibyte_after_its_first_task(broker: Broker) -> None:
    """Large payloads come in smaller batches, in order, and none is lost (spec §4)."""
    import os

    from dtq._core import Chunk, new_ids
    from dtq.clock import SYSTEM
    from tests.broker.driver import head

    ids = new_ids(SYSTEM.now_ms(), os.urandom(100), 10)
    for task in ids:
        chunk = Chunk()
        chunk.add(task, head().encode({"x": "y" * 250_000}, 262_144), b"5")
        broker.enqueue(QUEUE, chunk)
    child, seen = Child(broker), []
    while claims := child.claim(10):
        assert sum(len(c.envelope) for c in claims[1:]) <= 1024 * 1024
        seen += [c.id for c in claims]
        for claim in claims:
            child.end(claim)
    child.turn(0)
    assert seen == ids


def test_a_paused_queue_shelves_what_a_reader_got_and_claims_nothing(broker: Broker) -> None:
    """Pause: readers' entries wait on the shelf, unchanged, until resume (protocol 15)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    got = child.read()
    broker.command("HSET", broker.keys.meta(QUEUE), "paused", 1)
    assert child.claim(5, adopts=got) == []
    assert live(broker, task).startswith("q:1:0:")
    assert broker.consumers(QUEUE)[SHELF] == 1
    broker.command("HDEL", broker.keys.meta(QUEUE), "paused")
    (claim,) = child.claim(5)
    assert claim.attempt == 1
    child.settle(claim)


def test_foreign_entries_go_to_the_dead_letters_as_they_are(broker: Broker) -> None:
    """Garbage in a stream is quarantined once, the good tasks behind it run (spec §1)."""
    stream = broker.keys.stream(QUEUE, 5)
    broker.cancel(QUEUE, enqueue(broker)[0])  # the band is in use
    broker.command("XADD", stream, "*", "not a task", b"\x00\xff")
    broker.command("XADD", stream, "*", "a", "1", "b", "2")
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim(10)
    assert claim.id == task
    child.settle(claim)
    assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 2
    assert broker.command("XLEN", stream) == 0


def test_an_entry_whose_task_ended_is_absorbed(broker: Broker) -> None:
    """A second entry of a finished task is acked and not run (spec §1)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    child.settle(claim)
    broker.command("XADD", broker.keys.stream(QUEUE, 5), "*", task, claim.envelope)
    assert child.claim(5) == []
    assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == 0
    assert state(broker, task) == "5"


def test_a_retry_keeps_one_line_per_attempt_and_the_first_created_time(broker: Broker) -> None:
    """History: nothing at a first-attempt success, a line for each attempt after a failure (spec §2)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    assert child.settle(claim, "R") == "d"
    created = parse_record(broker.command("GET", broker.keys.task(QUEUE, task))).created_ms
    while not broker.promote(QUEUE)[0]:
        pass
    (claim,) = child.claim()
    assert (claim.attempt, claim.history) == (2, True)
    assert child.settle(claim, "D") == "d"
    record = parse_record(broker.command("GET", broker.keys.task(QUEUE, task)))
    assert record.history.count(b"\n") == 2
    assert record.created_ms == created
    assert record.place
    assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 1


def test_a_released_attempt_is_queued_again_uncharged(broker: Broker) -> None:
    """Drain or eviction: running -> queued, attempt + 1, released + 1, and a bell rings (spec §1, §4)."""
    (task,) = enqueue(broker, max_attempts=1)
    child, other = Child(broker), Child(broker)
    (claim,) = child.claim()
    assert child.settle(claim, "L") == "d"
    assert live(broker, task).startswith("q:2:1:")
    assert other.read(), "no bell woke the waiting child"
    (again,) = other.claim(1, recover=True)
    assert (again.attempt, again.released) == (2, 1)
    assert other.settle(again) == "d"


def test_a_ttl_that_passed_expires_the_task_at_its_claim(broker: Broker) -> None:
    """It never starts; its record says why."""
    (task,) = enqueue(broker, place="t1;")
    good = enqueue(broker, 1)
    child = Child(broker)
    claims: list[str] = []
    while state(broker, task) == "2":
        claims += [c.id for c in child.claim(1)]
    assert state(broker, task) == "9"
    assert b'"cause":"ttl"' in parse_record(broker.command("GET", broker.keys.task(QUEUE, task))).detail
    broker.hand_over(QUEUE, child.consumer, 10**6, [], "released")
    rest = Child(broker)
    for claim in rest.claim(1):
        rest.settle(claim)
    assert state(broker, good[0]) == "5"
