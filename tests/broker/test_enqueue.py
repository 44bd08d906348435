"""Enqueue: what is accepted, what is refused, and what a repeat after a lost reply answers."""

from __future__ import annotations

import contextlib

import pytest

from dtq._core import Chunk, EnvelopeHead, pack_args, parse_record
from dtq.broker import Broker
from dtq.settings import Settings
from tests.broker.driver import QUEUE, Child, enqueue, head, state
from tests.conftest import WaitUntil
from tests.servers import PrivateServer

DAY = 86_400_000


def offer(broker: Broker, task_id: str, place: str, *, payload: object = None, repeat: bool = False) -> str:
    """Enqueue one task with options; answers its code, and the detail where there is one."""
    chunk = Chunk()
    chunk.add_payload(task_id, head(), payload or {"i": 0}, 1000, f"5{place}".encode())
    (answer,) = broker.enqueue(QUEUE, chunk, repeat=repeat)
    return f"{answer.code} {answer.detail}".strip()


def drain(broker: Broker) -> list[str]:
    """Run everything that waits; answers the ids in order."""
    child, ids = Child(broker), []
    while claims := child.claim(50):
        for claim in claims:
            ids.append(claim.id)
            child.end(claim)
    child.turn(0)
    return ids


def test_a_repeated_chunk_is_accepted_once(broker: Broker) -> None:
    """The same ids again: accepted, and one entry each (protocol 11)."""
    ids = enqueue(broker, 3)
    enqueue(broker, ids=ids, repeat=True)
    assert drain(broker) == ids
    enqueue(broker, ids=ids, repeat=True)  # ended meanwhile, with a record
    assert drain(broker) == []


def test_a_given_id_that_exists_is_a_conflict_and_its_repeat_is_not(broker: Broker) -> None:
    """The envelope (it carries a nonce) tells a repeat from a conflict, in every status (protocol 11)."""
    assert offer(broker, "mine", "g;") == "a"
    assert offer(broker, "mine", "g;", repeat=True) == "a"
    assert offer(broker, "mine", "g;", payload={"other": 1}) == "e"
    drain(broker)
    assert offer(broker, "mine", "g;", repeat=True) == "a"
    assert offer(broker, "mine", "g;", payload={"other": 1}) == "e"
    assert offer(broker, "later", "g;w60000;") == "a"
    assert offer(broker, "later", "g;w60000;", repeat=True) == "a"
    assert offer(broker, "later", "g;", payload={"other": 1}) == "e"
    broker.cancel(QUEUE, "later")


def test_the_same_given_id_twice_in_one_chunk_is_a_conflict(broker: Broker) -> None:
    """One of two is accepted, the other one refused."""
    chunk = Chunk()
    chunk.add_payload("twin", head(), {"i": 1}, 1000, b"5g;")
    chunk.add_payload("twin", head(), {"i": 2}, 1000, b"5g;")
    assert [a.code for a in broker.enqueue(QUEUE, chunk)] == ["a", "e"]
    assert drain(broker) == ["twin"]


def test_depth_is_a_hard_limit_checked_inside_the_script(clean_server: PrivateServer) -> None:
    """queued + running never exceed the limit; scheduled tasks have a limit of their own (spec §3)."""
    broker = Broker(Settings(redis_url=clean_server.url, max_queue_depth=3, max_scheduled=1))
    broker.prepare_queue(QUEUE)
    ids = enqueue(broker, 5, any=True)
    assert [state(broker, i) for i in ids] == ["2", "2", "2", "0", "0"]
    child = Child(broker)
    claims = child.claim(3)
    assert offer(broker, "x1", "") == "f"
    child.settle(claims[0])
    assert offer(broker, "x1", "") == "a"
    assert offer(broker, "x2", "w60000;") == "a"
    assert offer(broker, "x3", "w60000;") == "p"
    broker.close()


def test_a_task_due_in_the_future_waits_in_the_schedule(broker: Broker) -> None:
    """pending: a record without expiry and a place in the schedule, nothing in a stream; past times run now."""
    assert offer(broker, "later", "w60000;") == "a"
    assert state(broker, "later") == "1"
    snapshot = broker.inspect(QUEUE, ["later"])[0]
    assert snapshot is not None
    assert snapshot.due_ms is not None
    assert snapshot.record is not None
    assert parse_record(snapshot.record).status == 1
    assert offer(broker, "past", "a1;") == "a"
    assert offer(broker, "now", "w0;") == "a"
    assert drain(broker) == ["past", "now"]
    assert broker.cancel(QUEUE, "later") == "cancelled"
    assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0


def test_a_unique_lock_lives_as_long_as_its_task(broker: Broker) -> None:
    """Refused while the first is not terminal, free with its end (spec §3)."""
    place = f"uFP,{DAY};"
    assert offer(broker, "one", place) == "a"
    assert offer(broker, "two", place) == "u one"
    assert offer(broker, "one", place, repeat=True) == "a"
    child = Child(broker)
    (claim,) = child.claim()
    child.settle(claim, "R", delay_ms=0)
    assert offer(broker, "two", place) == "u one"
    while not broker.promote(QUEUE)[0]:
        pass
    drain(broker)
    assert offer(broker, "two", place) == "a"
    assert broker.cancel(QUEUE, "two") == "cancelled"
    assert broker.command("EXISTS", broker.keys.unique(QUEUE, "FP")) == 0


def test_a_unique_lock_taken_over_is_not_released_by_its_old_holder(broker: Broker) -> None:
    """Release compares (protocol 12, A12)."""
    assert offer(broker, "one", f"uFP,{DAY};") == "a"
    broker.command("SET", broker.keys.unique(QUEUE, "FP"), "another")  # its ttl ran out, another task took it
    drain(broker)
    assert broker.command("GET", broker.keys.unique(QUEUE, "FP")) == b"another"


@pytest.mark.parametrize(("letter", "status"), [("S", "succeeded"), ("D", "dead_lettered"), ("C", "cancelled")])
def test_an_idempotency_key_answers_with_the_first_task(broker: Broker, letter: str, status: str) -> None:
    """In progress, then the stored answer, also after the record is gone; another fingerprint is refused (spec §3)."""
    place = f"ikey,F1,{DAY};"
    assert offer(broker, "one", place) == "a"
    assert offer(broker, "one", place, repeat=True) == "a"
    assert offer(broker, "two", place) == "i one"
    assert offer(broker, "two", f"ikey,F2,{DAY};") == "r"
    child = Child(broker)
    child.settle(child.claim()[0], letter)
    broker.command("DEL", broker.keys.task(QUEUE, "one"))
    assert offer(broker, "two", place) == f"d one {status}"
    assert 0 < broker.command("PTTL", broker.keys.idempotency(QUEUE, "key")) <= DAY


def test_an_idempotency_key_whose_task_vanished_is_acquired_anew(broker: Broker) -> None:
    """Processing, but neither live nor recorded (spec §3)."""
    broker.command("SET", broker.keys.idempotency(QUEUE, "key"), "processing F1 ghost")
    assert offer(broker, "two", f"ikey,F1,{DAY};") == "a"
    drain(broker)


def test_retention_zero_keeps_the_idempotent_answer(broker: Broker) -> None:
    """The task is gone, the key still says how it ended (B7)."""
    chunk = Chunk()
    chunk.add_payload("one", head(retention_ms=0), {}, 1000, f"5ikey,F1,{DAY};".encode())
    broker.enqueue(QUEUE, chunk)
    drain(broker)
    assert state(broker, "one") == "0"
    assert offer(broker, "two", f"ikey,F1,{DAY};") == "d one succeeded"


def offer_single(broker: Broker, task_id: str) -> str:
    """Enqueue one plain task as a client does: the short script, and the whole one where that has done nothing."""
    front = broker.front_of_single(QUEUE, b"5")
    assert front is not None
    if broker.enqueue_single(front + pack_args([task_id, head().encode({"i": 0}, 1000)])):
        return "short"
    return offer(broker, task_id, "")


def test_one_plain_task_takes_the_short_way_and_is_the_same(broker: Broker) -> None:
    """The script for one task accepts exactly what the whole one would, and leaves the rest to it."""
    assert offer_single(broker, "first") == "a"  # a new band
    assert offer_single(broker, "second") == "short"
    assert offer_single(broker, "second") == "a"  # a late copy: not twice, and nothing is left of it
    assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == 2
    broker.listen(QUEUE, 0.0)  # a listener that is gone again
    assert offer_single(broker, "third") == "a"
    assert offer_single(broker, "fourth") == "short"
    assert drain(broker) == ["first", "second", "third", "fourth"]
    assert offer_single(broker, "second") == "a"  # a late copy, its task has ended
    assert drain(broker) == []
    assert broker.command("HGET", broker.keys.meta(QUEUE), "submitted") == b"4"


def test_a_late_copy_of_a_task_is_nothing_for_a_waiting_child(broker: Broker, wait_until: WaitUntil) -> None:
    """Its entry is deleted where it was made, and whoever waits for entries is told of none."""
    assert offer_single(broker, "first") == "a"
    (claim,) = Child(broker).claim()
    reader = broker.reader("waiting")
    reader.start([(QUEUE, 5)], 30_000)
    with contextlib.closing(broker.transport.client()) as client:
        wait_until(lambda: client.info("clients")["blocked_clients"], 10, "the read stands")
    assert offer_single(broker, claim.id) == "a"
    assert offer_single(broker, "second") == "short"
    while not (entries := reader.receive().entries):
        reader.start([(QUEUE, 5)], 30_000)
    assert [task_id for _, _, _, task_id in entries] == [b"second"]
    reader.abandon()


@pytest.mark.parametrize(("place", "max_queue_depth"), [(b"5", 1), (b"5t1000;", 0)])
def test_depth_caps_and_options_go_no_short_way(
    clean_server: PrivateServer, place: bytes, max_queue_depth: int
) -> None:
    settings = Settings(redis_url=clean_server.url, max_queue_depth=max_queue_depth)
    with contextlib.closing(Broker(settings)) as broker:
        assert broker.front_of_single(QUEUE, place) is None


def test_what_was_sent_is_there_for_the_repeat(broker: Broker) -> None:
    """Whatever bytes the envelope has: 2,573 ms are the end of a line."""
    made = EnvelopeHead("noop", 5, 3, 0x0A0D, 0)
    envelope = made.encode({"i": "\r\n"}, 1000)
    assert b"\r\n" in envelope
    front = broker.front_of_single(QUEUE, b"5")
    assert front is not None
    _, command = made.pack_task(front, 1, bytes(10), {"i": "\r\n"}, 1000)
    assert broker.envelope_of_single(front, command) == envelope


def test_a_late_copy_of_a_chunk_whose_tasks_ended_runs_nothing(broker: Broker) -> None:
    """The first copy is applied after its repeat has run: the records stand, nothing runs again (protocol 11)."""
    ids = enqueue(broker, 3)
    assert drain(broker) == ids
    enqueue(broker, ids=ids)
    assert drain(broker) == []
