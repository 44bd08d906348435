"""Promotion: due tasks move once, in bounded batches; damaged ones never block the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, enqueue, live, state


def due_now(broker: Broker) -> None:
    """Let the time of everything in the schedule come."""
    for task in broker.command("ZRANGE", broker.keys.schedule(QUEUE), 0, -1):
        broker.command("ZADD", broker.keys.schedule(QUEUE), "XX", 1, task)


def test_due_tasks_are_queued_with_their_attempt(broker: Broker) -> None:
    """pending keeps attempt 1, retrying gets one more (spec §1)."""
    (retried,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)
    (delayed,) = enqueue(broker, place="w3600000;")
    assert broker.promote(QUEUE)[0] == 0
    due_now(broker)
    assert broker.promote(QUEUE) == (2, None)
    assert live(broker, retried).startswith("q:2:0:")
    assert live(broker, delayed).startswith("q:1:0:")
    claims = child.claim(5)
    assert {(c.id, c.attempt) for c in claims} == {(retried, 2), (delayed, 1)}
    for claim in claims:
        child.settle(claim)


def test_promoting_twice_at_once_moves_each_task_once(broker: Broker) -> None:
    """Two leaders: the script checks each score again."""
    from dtq._core import encode_promote, parse_due

    ids = enqueue(broker, 20, place="w3600000;")
    due_now(broker)
    due = parse_due(broker.run("due", QUEUE, 500, 1 << 20)[2:])
    call = broker.front("promote", QUEUE)
    command = encode_promote(due, call.prefix, call.count)
    assert broker.transport.call(command, call.script) == [20, 0, 0]
    assert broker.transport.call(command, call.script) == [0, 0, 0]
    child = Child(broker)
    claims = child.claim(100)
    assert sorted(c.id for c in claims) == sorted(ids)
    for claim in claims:
        child.settle(claim)


def test_a_damaged_record_is_set_aside_and_blocks_nobody(broker: Broker) -> None:
    """The other due tasks run; the raw bytes are kept among the dead letters (S090)."""
    ids = enqueue(broker, 5, place="w3600000;")
    broker.command("SET", broker.keys.task(QUEUE, ids[2]), b"\x01garbage")
    due_now(broker)
    broker.promote(QUEUE)
    assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0
    assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 1
    child = Child(broker)
    claims = child.claim(10)
    assert {c.id for c in claims} == set(ids) - {ids[2]}
    for claim in claims:
        child.settle(claim)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[:-40], id="cut within its envelope"),
        pytest.param(lambda raw: raw.replace(b"\x04noop", b"\xffnoop"), id="another length of its task type"),
        pytest.param(lambda raw: raw[:1] + b"\x09" + raw[2:], id="a status that does not wait"),
    ],
)
def test_a_task_with_a_damaged_record_leaves_no_lock(broker: Broker, damage: Callable[[bytes], bytes]) -> None:
    """Its unique lock is free and its idempotency key answers that it failed; no lock survives its task (spec §3)."""
    (task,) = enqueue(broker, place="w3600000;uabc,3600000;ikey,print,3600000;")
    record = broker.keys.task(QUEUE, task)
    broker.command("SET", record, damage(broker.command("GET", record)))
    due_now(broker)
    broker.promote(QUEUE)
    assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 1
    assert broker.command("EXISTS", broker.keys.unique(QUEUE, "abc")) == 0
    held = broker.command("GET", broker.keys.idempotency(QUEUE, "key"))
    assert held == f"failed print {task} dead_lettered".encode()


def test_a_missing_record_is_dropped_from_the_schedule(broker: Broker) -> None:
    """A place in the schedule without a record cannot come due again and again."""
    (task,) = enqueue(broker, place="w3600000;")
    broker.command("DEL", broker.keys.task(QUEUE, task))
    due_now(broker)
    assert broker.promote(QUEUE)[0] == 1
    assert broker.promote(QUEUE)[0] == 0


def test_a_batch_is_bounded_and_the_rest_follows(broker: Broker) -> None:
    """Never more than the limit in one call (LIMIT on every scan)."""
    enqueue(broker, 30, place="w3600000;", retention_ms=0)
    due_now(broker)
    assert [broker.promote(QUEUE, limit=10)[0] for _ in range(4)] == [10, 10, 10, 0]
    child = Child(broker)
    for claim in child.claim(100):
        child.end(claim)
    child.turn(0)


def test_a_pending_task_past_its_ttl_expires_when_due(broker: Broker) -> None:
    """Expiry is checked when a task falls due, never by a sweeper (spec §6)."""
    (task,) = enqueue(broker, place="w3600000;t1;")
    due_now(broker)
    broker.promote(QUEUE)
    assert state(broker, task) in "92"
    if state(broker, task) == "2":  # promoted within the same millisecond: the claim expires it
        Child(broker).claim()
        assert state(broker, task) == "9"


def test_a_retry_that_does_not_count_is_not_charged(broker: Broker) -> None:
    """The record's own released count is what the next attempt starts with (spec §2, Retry(counts=False))."""
    (task,) = enqueue(broker, max_attempts=1)
    child = Child(broker)
    (claim,) = child.claim()
    child.outcomes.settle(claim, "R", 0, 3_600_000, b"{}", b'{"attempt":1,"cause":"retry"}\n', released=1)
    assert child.turn(0).codes == b"d"
    due_now(broker)
    broker.promote(QUEUE)
    assert live(broker, task).startswith("q:2:1:")
    (again,) = child.claim()
    child.settle(again)


def test_a_record_key_of_another_type_blocks_nobody(broker: Broker) -> None:
    """It is no task any more; the others are queued, and it is not met again (S090)."""
    ids = enqueue(broker, 5, place="w3600000;")
    broker.command("DEL", broker.keys.task(QUEUE, ids[2]))
    broker.command("LPUSH", broker.keys.task(QUEUE, ids[2]), "x")
    due_now(broker)
    broker.promote(QUEUE)
    assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0
    assert {c.id for c in Child(broker).claim(10)} == set(ids) - {ids[2]}


def test_a_stream_of_another_type_blocks_no_other_band(broker: Broker) -> None:
    """Tasks of its band stay pending and are tried again later, with a word; the others run (S090)."""
    (stuck,) = enqueue(broker, place="w3600000;", band=3)
    others = enqueue(broker, 5, place="w3600000;")
    stream = broker.keys.stream(QUEUE, 3)
    broker.command("DEL", stream)
    broker.command("SET", stream, "x")
    due_now(broker)
    told: list[tuple[str, int, str]] = []
    assert broker.promote(QUEUE, tell=lambda *word: told.append(word))[0] == 6
    ((queue, count, why),) = told
    assert (queue, count) == (QUEUE, 1)
    assert "WRONGTYPE" in why
    assert {c.id for c in Child(broker).claim(10)} == set(others)
    assert state(broker, stuck) == "1"
    assert broker.promote(QUEUE)[0] == 0
    broker.command("DEL", stream)
    due_now(broker)
    assert broker.promote(QUEUE)[0] == 1
    assert [c.id for c in Child(broker).claim(10)] == [stuck]
