"""Counters are kept by whatever script moves a task, and refusals by reason (spec §12)."""

from __future__ import annotations

import threading

import pytest

import dtq
from dtq.broker import Broker
from dtq.broker.counting import REASONS
from dtq.settings import Settings
from tests.broker.driver import QUEUE, Child, enqueue
from tests.servers import PrivateServer


def rejected(broker: Broker, queue: str = QUEUE) -> dict[str, int]:
    """Refusals by reason."""
    totals = broker.queue_counts(queue).totals
    return {name.removeprefix("rejected:"): count for name, count in totals.items() if name.startswith("rejected:")}


@pytest.fixture
def app(clean_server: PrivateServer) -> dtq.App:
    """Two queued tasks, or two scheduled ones, are all that there is room for."""
    return dtq.App(clean_server.url, max_queue_depth=2, max_scheduled=2)


def test_refusals_are_counted_by_reason(app: dtq.App) -> None:
    with app:
        app.enqueue("a", task_id="mine", idempotency_key="k")
        app.enqueue("b", unique=True)
        for options, error in (
            ({"task_id": "mine"}, dtq.TaskIdConflict),
            ({"idempotency_key": "k"}, dtq.IdempotencyKeyReused),
            ({"unique": True}, dtq.UniqueConflict),
        ):
            with pytest.raises(error):
                app.enqueue("b", **options)
        with pytest.raises(dtq.IdempotencyInProgress):
            app.enqueue("a", idempotency_key="k")
        assert rejected(app.broker, "default") == {"conflict": 1, "idempotency": 2, "unique": 1}
        with pytest.raises(dtq.QueueFull):
            app.enqueue("c")
        app.enqueue("c", delay=60)
        app.enqueue("c", delay=60)
        with pytest.raises(dtq.QueueFull):
            app.enqueue("c", delay=60)
        assert rejected(app.broker, "default")["full"] == 2
        assert app.broker.queue_counts("default").totals["submitted"] == 4


def test_refusals_of_a_chunk_are_counted_whole(app: dtq.App) -> None:
    """Plain tasks (the short path of the script), and such with options, in one call each."""
    with app:
        counts = app.enqueue_many("plain", [{"i": i} for i in range(10)]).run()
        assert (counts.accepted, counts.refused) == (2, 8)
        assert rejected(app.broker, "default") == {"full": 8}
        app.enqueue_many("timed", [{"i": i} for i in range(5)], ttl=60).run()
        assert rejected(app.broker, "default") == {"full": 13}


def test_a_wanted_duplicate_is_no_refusal(app: dtq.App) -> None:
    """The holder of the lock answers, as the caller has asked for; a repeat of an ended key does, too."""
    with app:
        first = app.enqueue("a", unique=True)
        again = app.enqueue("a", unique=True, conflict="return_existing")
        assert (again.id, again.duplicate) == (first.id, True)
        keyed = app.enqueue("b", idempotency_key="k")
        child = Child(app.broker, queue="default")
        for claim in child.claim(2):
            child.settle(claim)
        assert app.enqueue("b", idempotency_key="k").id == keyed.id
        assert rejected(app.broker, "default") == {}


def test_what_no_script_sees_is_counted_by_a_verb(broker: Broker) -> None:
    """Also for a queue that nobody knows: the default one's counter takes it, no name from outside becomes a key."""
    broker.prepare_queue("default")
    broker.count_rejected(QUEUE, "invalid")
    broker.count_rejected(QUEUE, "payload", 3)
    for stranger in ("never-seen", "{odd} name", "", "x" * 65, "q\n"):
        broker.count_rejected(stranger, "invalid", 2)
    assert rejected(broker) == {"invalid": 1, "payload": 3}
    assert rejected(broker, "default") == {"invalid": 10}
    assert broker.queues() == ["default", QUEUE]
    assert not list(broker.command("KEYS", "*never*"))
    with pytest.raises(ValueError, match="use one of invalid, payload"):
        broker.count_rejected(QUEUE, "whim")


def test_refusals_while_no_server_answers_are_counted_later(tmp_path: object) -> None:
    """The very reason `unavailable` could not be counted otherwise."""
    with PrivateServer() as server:
        broker = Broker(Settings(redis_url=server.url))
        broker.prepare_queue("default")
        server.kill()
        for reason in REASONS:
            broker.count_rejected("default", reason, 2)
        server.start()
        broker.prepare_queue("default")
        broker.count_rejected("default", "unavailable")
        assert rejected(broker, "default") == {**dict.fromkeys(REASONS, 2), "unavailable": 3}
        broker.close()


def test_threads_count_every_refusal(broker: Broker) -> None:
    def count() -> None:
        for _ in range(50):
            broker.count_rejected(QUEUE, "invalid")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rejected(broker) == {"invalid": 200}


def test_every_way_of_a_claim_is_counted(broker: Broker) -> None:
    """Claims, and what became of them: the counter of starts is their sum, and never goes back."""
    child, started = Child(broker), [0]

    def totals() -> dict[str, int]:
        found = broker.queue_counts(QUEUE).totals
        assert found.get("started", 0) >= started[0]
        started[0] = found.get("started", 0)
        return found

    enqueue(broker, 6)
    claims = child.claim(6)
    assert totals()["started"] == 6
    for claim, letter in zip(claims, "SRDLC", strict=False):
        child.settle(claim, letter)
    broker.cancel(QUEUE, claims[5].id)
    child.settle(claims[5])
    found = totals()
    assert found["started"] == 6
    assert {name: found[name] for name in ("succeeded", "retried", "released", "cancelled", "dead_lettered")} == {
        "succeeded": 1, "retried": 1, "released": 1, "cancelled": 2, "dead_lettered": 1
    }  # fmt: skip
    assert (found["attempts_dead_lettered"], found["attempts_cancelled"]) == (1, 2)
    (again,) = child.claim()  # what was released, the second attempt
    (_, unbegun) = enqueue(broker, 2)
    held = child.claim(2)
    assert totals()["started"] == 9
    broker.hand_back(QUEUE, child.consumer, held[1].seq, held[1].seq + 1)
    assert (totals()["started"], totals()["handed_back"]) == (9, 1)
    broker.hand_over(QUEUE, child.consumer, held[1].seq, [again.seq], "signal SIGKILL")
    assert (totals()["started"], totals()["attempts_lost"]) == (9, 2)
    other = Child(broker)
    first = other.claim()  # redelivered, alone
    assert totals()["started"] == 10
    lost = {again.id, held[0].id} - {first[0].id}
    other.settle(first[0])
    assert broker.cancel(QUEUE, *lost) == "cancelled"
    found = totals()
    assert (found["started"], found["redelivered"], found["ended_unclaimed"]) == (10, 1, 1)
    (last,) = other.claim()
    assert last.id == unbegun
    other.settle(last)
    assert totals()["started"] == 11
