"""What waits for a client is bounded: passing events go first, ends of tasks last, and what went is told."""

from __future__ import annotations

import asyncio
import random

import orjson

from dtq.api.event_buffer import DROPPED, INTERRUPTED, TERMINAL, EventBuffer, Told


def told(kind: str, number: int) -> Told:
    return kind, orjson.dumps({"type": kind, "n": number})


def taken(buffer: EventBuffer, most: int = 1000) -> list[Told]:
    return asyncio.run(buffer.take(most))


def test_events_come_in_order() -> None:
    buffer = EventBuffer(limit=10)
    sent = [told(kind, n) for n, kind in enumerate(["TASK_QUEUED", "TASK_SUCCEEDED", "TASK_STARTED", "TASK_FAILED"])]
    for event in sent:
        buffer.put(event)
    assert taken(buffer, 3) == sent[:3]
    assert taken(buffer) == sent[3:]


def test_the_oldest_passing_event_goes_first_and_its_loss_is_told() -> None:
    buffer = EventBuffer(limit=3)
    for n in range(3):
        buffer.put(told("TASK_STARTED", n))
    buffer.put(told("TASK_SUCCEEDED", 3))
    buffer.put(told("TASK_QUEUED", 4))
    notice, *events = taken(buffer)
    assert (notice[0], orjson.loads(notice[1])) == (DROPPED, {"type": DROPPED, "dropped": 2, "dropped_in_all": 2})
    assert events == [told("TASK_STARTED", 2), told("TASK_SUCCEEDED", 3), told("TASK_QUEUED", 4)]
    buffer.put(told("TASK_QUEUED", 5))
    assert taken(buffer) == [told("TASK_QUEUED", 5)]


def test_a_passing_event_never_displaces_an_end() -> None:
    buffer = EventBuffer(limit=2)
    ends = [told("TASK_SUCCEEDED", 0), told("TASK_EXPIRED", 1)]
    for event in (*ends, told("TASK_STARTED", 2)):
        buffer.put(event)
    assert not buffer.too_slow
    assert taken(buffer)[1:] == ends


def test_too_many_ends_are_the_end() -> None:
    buffer = EventBuffer(limit=2)
    for n in range(5):
        buffer.put(told("TASK_CANCELLED", n))
    assert buffer.too_slow
    assert buffer.dropped == 3
    assert taken(buffer) == []
    asyncio.run(asyncio.wait_for(buffer.overflow(), 1))


def test_a_gap_is_told_once() -> None:
    buffer = EventBuffer()
    buffer.interrupt()
    buffer.interrupt()
    buffer.put(told("TASK_QUEUED", 1))
    assert [kind for kind, _ in taken(buffer)] == [INTERRUPTED, "TASK_QUEUED"]


def test_a_client_waits_for_what_comes_and_for_the_end() -> None:
    async def main() -> None:
        buffer = EventBuffer()
        waiting = asyncio.create_task(buffer.take(10))
        await asyncio.sleep(0)
        buffer.put(told("TASK_QUEUED", 1))
        assert await waiting == [told("TASK_QUEUED", 1)]
        waiting = asyncio.create_task(buffer.take(10))
        await asyncio.sleep(0)
        buffer.end()
        assert await waiting == []

    asyncio.run(main())


def test_only_what_was_asked_for() -> None:
    buffer = EventBuffer(frozenset({"a"}), frozenset({"TASK_FAILED"}))
    assert buffer.wants({"queue": "a", "type": "TASK_FAILED"})
    assert not buffer.wants({"queue": "b", "type": "TASK_FAILED"})
    assert not buffer.wants({"queue": "a", "type": "TASK_STARTED"})
    assert EventBuffer().wants({"type": "WORKER_STARTED"})


def test_however_it_is_filled_it_keeps_its_bound_and_its_accounts() -> None:
    chance = random.Random(1)
    kinds = ["TASK_QUEUED", "TASK_STARTED", *sorted(TERMINAL)[:1]]
    for _ in range(200):
        buffer, put, got, dropped = EventBuffer(limit=8), 0, 0, 0
        for n in range(chance.randrange(60)):
            buffer.put(told(chance.choice(kinds), n))
            put += 1
            assert len(buffer._passing) + len(buffer._ends) <= 8
            if buffer.too_slow:
                break
            if chance.random() < 0.1:
                for kind, body in taken(buffer, chance.randrange(1, 10)):
                    dropped += orjson.loads(body)["dropped"] if kind == DROPPED else 0
                    got += kind != DROPPED
        waiting = len(buffer._passing) + len(buffer._ends)
        assert put == got + waiting + buffer.dropped
