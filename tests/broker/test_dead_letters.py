"""Dead letters: listing, requeue, discard, purge. A requeue is the operator's named exception of spec §1."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dtq
from dtq.broker import Broker
from dtq.dead_letters import DeadLetterFilter, read_condition, requeue_parts
from dtq.queues import Queue
from dtq.settings import Settings
from tests.broker.driver import QUEUE, Child, enqueue, live, state


@pytest.fixture
def queue(app: dtq.App) -> Queue:
    """The operator's side of the queue."""
    return app.queue(actor="tester")


def die(broker: Broker, count: int = 1) -> None:
    """Let the next tasks of the queue die at their first attempt."""
    child = Child(broker)
    for _ in range(count):
        (claim,) = child.claim()
        assert child.settle(claim, "D") == "d"


def dead_task(broker: Broker, **options: Any) -> str:
    """The id of a task that is dead now."""
    (task,) = enqueue(broker, **options)
    die(broker)
    assert state(broker, task) == "7"
    return task


def test_a_requeued_task_starts_afresh_and_keeps_its_history(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Attempt 1 with the full budget, the old attempts stay, previous_attempts says how many (spec §7, S101)."""
    (task,) = enqueue(broker, max_attempts=1)
    die(broker)
    queue.requeue(task)
    assert live(broker, task).startswith("q:1:0:")
    assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 0
    seen = app.get(task).task()
    assert (seen.attempt, seen.payload, seen.metadata) == (1, {"i": 0}, {"previous_attempts": 1})
    assert [line.cause for line in seen.history] == ["error"]
    die(broker)
    assert len(app.get(task).task().history) == 2
    queue.requeue(task)
    child = Child(broker)
    (claim,) = child.claim()
    assert (claim.attempt, claim.released, claim.payload) == (1, 0, b'{"i":0}')
    assert child.settle(claim) == "d"
    seen = app.get(task).task()
    assert (seen.status, seen.metadata) == ("succeeded", {"previous_attempts": 2})
    assert len(seen.history) == 2


def test_many_requeues_at_once_make_one_run(broker: Broker, queue: Queue) -> None:
    """The dead-letter entry is named and must stand (protocol 12, S109)."""
    task = dead_task(broker)

    def attempt(_: int) -> str:
        try:
            queue.requeue(task)
        except (dtq.IllegalTransition, dtq.TaskNotFound):
            return "refused"
        return "requeued"

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(attempt, range(100)))
    assert answers.count("requeued") == 1
    child = Child(broker)
    (claim,) = child.claim(10)
    child.settle(claim)


def test_a_late_copy_does_not_requeue_the_second_death(broker: Broker, queue: Queue) -> None:
    """B8: the entry of the first death is gone for ever."""
    task = dead_task(broker)
    letter = queue.dead_letter(task)
    envelope, place = requeue_parts(letter.raw, 1000, None, None)
    assert broker.requeue(QUEUE, letter.entry, task, envelope, place) == ("requeued", "")
    assert broker.requeue(QUEUE, letter.entry, task, envelope, place) == ("live", "2")
    die(broker)
    assert broker.requeue(QUEUE, letter.entry, task, envelope, place) == ("gone", "")
    assert state(broker, task) == "7"


def test_tasks_that_are_not_dead_are_refused_with_their_status(broker: Broker, queue: Queue) -> None:
    """S109: queued, running, retrying, pending, ended; nothing runs twice."""
    (retrying,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)
    (ended,) = enqueue(broker)
    child.settle(child.claim()[0])
    (running,) = enqueue(broker)
    (claim,) = child.claim()
    (pending,) = enqueue(broker, place="w3600000;")
    (queued,) = enqueue(broker)
    stands = {"retrying": retrying, "succeeded": ended, "running": running, "pending": pending, "queued": queued}
    for status, task in stands.items():
        for act in (queue.requeue, queue.discard):
            with pytest.raises(dtq.IllegalTransition, match=status):
                act(task)
    with pytest.raises(dtq.TaskNotFound):
        queue.requeue("never-used")
    child.settle(claim)


def test_the_script_refuses_what_the_caller_saw_too_early(broker: Broker, queue: Queue) -> None:
    """The id was given again in between: the new task is not touched."""
    task = dead_task(broker, ids=["mine"])
    letter = queue.dead_letter(task)
    envelope, place = requeue_parts(letter.raw, 1000, None, None)
    broker.command("DEL", broker.keys.task(QUEUE, task))  # its retention is over
    enqueue(broker, ids=["mine"])
    child = Child(broker)
    child.settle(child.claim()[0])
    assert broker.requeue(QUEUE, letter.entry, task, envelope, place) == ("ended", "5")
    assert queue.discard(letter.entry).task_id == task
    assert state(broker, task) == "5"


def test_a_dead_letter_outlives_its_record(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Retention over, dead letter still there: it is found in the stream and runs again."""
    task = dead_task(broker)
    broker.command("DEL", broker.keys.task(QUEUE, task))
    queue.requeue(task)
    assert len(app.get(task).task().history) == 1
    child = Child(broker)
    child.settle(child.claim()[0])


def test_the_payload_can_be_edited(broker: Broker, queue: Queue) -> None:
    """The next attempt gets the new one; what is no valid payload changes nothing."""
    task = dead_task(broker)
    with pytest.raises(dtq.InvalidTask, match=r"payload\.i"):
        queue.requeue(task, payload={"i": float("nan")})
    assert state(broker, task) == "7"
    queue.requeue(task, payload={"i": 2**64 - 1, "e": []})
    child = Child(broker)
    (claim,) = child.claim()
    assert claim.payload == b'{"i":18446744073709551615,"e":[]}'
    child.settle(claim)


def test_ttl_counts_anew_and_a_passed_deadline_is_refused(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Limits count from the requeue; a new deadline is needed where the old one has passed."""
    handle = app.enqueue("noop", {}, ttl=60)
    die(broker)
    handle_late = app.enqueue("noop", {}, deadline=datetime.now(UTC) + timedelta(seconds=0.2))
    die(broker)
    before = broker.command("TIME")[0]
    queue.requeue(handle.id)
    not_after = int(live(broker, handle.id).split(":")[4].split(";")[0].removeprefix("x"))
    assert not_after >= int(before) * 1000 + 60_000
    while datetime.now(UTC) < handle_late.task().deadline:  # type: ignore[operator]
        pass
    with pytest.raises(dtq.InvalidTask, match="deadline"):
        queue.requeue(handle_late.id)
    assert handle_late.status() == "dead_lettered"
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    queue.requeue(handle_late.id, deadline=later)
    assert handle_late.task().deadline == later
    child = Child(broker)
    for claim in child.claim(2):
        child.settle(claim)


def test_the_unique_lock_is_taken_again_by_compare(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Refused while another task holds it; held again after it (protocol 12)."""
    first = app.enqueue("noop", {"a": 1}, unique=True, unique_ttl=600)
    die(broker)
    second = app.enqueue("noop", {"a": 1}, unique=True)
    with pytest.raises(dtq.UniqueConflict) as refused:
        queue.requeue(first.id)
    assert refused.value.existing_id == second.id
    child = Child(broker)
    child.settle(child.claim()[0])
    queue.requeue(first.id)
    with pytest.raises(dtq.UniqueConflict):
        app.enqueue("noop", {"a": 1}, unique=True)
    (key,) = broker.command("KEYS", broker.keys.unique(QUEUE, "*"))
    assert 590_000 < broker.command("PTTL", key) <= 600_000
    child.settle(child.claim()[0])
    assert broker.command("KEYS", broker.keys.unique(QUEUE, "*")) == []


def test_the_idempotency_record_is_processing_again(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """failed -> processing with its ttl, then completed by the success."""
    first = app.enqueue("noop", {"a": 1}, idempotency_key="K")
    die(broker)
    assert app.enqueue("noop", {"a": 1}, idempotency_key="K").duplicate
    queue.requeue(first.id, payload={"a": 2})
    with pytest.raises(dtq.IdempotencyInProgress):
        app.enqueue("noop", {"a": 1}, idempotency_key="K")
    child = Child(broker)
    child.settle(child.claim()[0])
    assert broker.command("GET", broker.keys.idempotency(QUEUE, "K")).startswith(b"completed ")


def test_a_key_that_another_task_holds_refuses(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """The key ran out, and other work took it: that one stands."""
    first = app.enqueue("noop", {"a": 1}, idempotency_key="K")
    die(broker)
    broker.command("DEL", broker.keys.idempotency(QUEUE, "K"))
    second = app.enqueue("noop", {"a": 1}, idempotency_key="K")
    with pytest.raises(dtq.IdempotencyKeyReused, match=second.id):
        queue.requeue(first.id)
    broker.cancel(QUEUE, second.id)
    broker.command("DEL", broker.keys.idempotency(QUEUE, "K"))
    queue.requeue(first.id)
    child = Child(broker)
    child.settle(child.claim()[0])


def test_a_full_queue_refuses(broker: Broker, settings: Settings) -> None:
    """The depth cap is a hard limit, for requeues too; of many the first without room is the last (spec §3, §7)."""
    tasks = enqueue(broker, 4)
    die(broker, 4)
    with dtq.App(settings.redis_url, queue=QUEUE, max_queue_depth=2) as app:
        queue = app.queue()
        *done, last = queue.requeue_all()
        assert [(item.letter.task_id, item.error) for item in done] == [(tasks[0], None), (tasks[1], None)]
        assert last.letter.task_id == tasks[2]
        assert isinstance(last.error, dtq.QueueFull)
        assert [entry.facts for entry in app.audit()] == [
            {"filter": {}, "not_done": tasks[2:]},
            {"filter": {}, "ids": tasks},
        ]
        with pytest.raises(dtq.QueueFull, match="limit of 2"):
            queue.requeue(tasks[3])
        refused, announced = app.audit(2)
        assert (refused.facts["refused"], refused.task_id) == ("QueueFull", tasks[3])
        assert (refused.request_id, refused.facts["entry"]) == (announced.request_id, announced.facts["entry"])
        assert queue.dead_letter_count() == 2
        broker.cancel(QUEUE, tasks[0])
        queue.requeue(tasks[3])


def test_filters(broker: Broker, queue: Queue) -> None:
    """Type, error class, age, payload paths; exact in type."""
    first = dead_task(broker, task_type="mail")
    second = dead_task(broker, task_type="sms")

    def chosen(**options: Any) -> list[str]:
        return [letter.task_id for letter in queue.dead_letters(DeadLetterFilter(**options))]

    assert chosen() == [second, first]
    assert chosen(task_type="mail") == [first]
    assert chosen(error_class="ValueError") == [second, first]
    assert chosen(error_class="KeyError") == []
    assert chosen(where={"i": 0}) == [second, first]
    assert chosen(where={"i": False}) == chosen(where={"i": 1}) == chosen(where={"x.y[0]": 1}) == []
    assert chosen(older_than_s=60) == []
    assert chosen(newer_than_s=60) == [second, first]
    with pytest.raises(dtq.InvalidTask, match="where"):
        DeadLetterFilter(where={"a..b": 1})


def test_requeue_by_filter_goes_oldest_first_at_a_rate(broker: Broker, queue: Queue) -> None:
    """Only what is meant, in the order of deaths, no faster than asked; a dry run changes nothing."""
    tasks = enqueue(broker, 6)
    die(broker, 6)
    other = dead_task(broker, task_type="other")
    which = DeadLetterFilter(task_type="noop")
    assert [item.letter.task_id for item in queue.requeue_all(which, dry_run=True)] == tasks
    assert queue.dead_letter_count() == 7
    started = datetime.now(UTC)
    done = list(queue.requeue_all(which, rate=50))
    assert datetime.now(UTC) - started >= timedelta(seconds=0.1)
    assert [item.error for item in done] == [None] * 6
    child = Child(broker)
    claims = child.claim(10)
    assert [claim.id for claim in claims] == tasks
    for claim in claims:
        child.settle(claim)
    assert [letter.task_id for letter in queue.dead_letters()] == [other]


def test_a_requeue_of_all_goes_past_what_is_refused(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Each refusal is told with its reason, the others run."""
    held = app.enqueue("noop", {"a": 1}, unique=True)
    die(broker)
    other = app.enqueue("noop", {"a": 1}, unique=True)
    free = app.enqueue("noop", {"b": 2}, priority=9)
    die(broker)
    refused = {item.letter.task_id: item.error for item in queue.requeue_all()}
    assert isinstance(refused[held.id], dtq.UniqueConflict)
    assert refused[free.id] is None
    child = Child(broker)
    claims = child.claim(5)
    assert [claim.id for claim in claims] == [free.id, other.id]
    for claim in claims:
        child.settle(claim)


def test_discard_leaves_the_record_and_says_so(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """It stays dead_lettered, metadata.discarded is true, its retention runs on (spec §7)."""
    task = dead_task(broker)
    left = broker.command("PTTL", broker.keys.task(QUEUE, task))
    queue.discard(task)
    seen = app.get(task).task()
    assert (seen.status, seen.metadata, seen.dead_letter_id) == ("dead_lettered", {"discarded": True}, None)
    assert (seen.error, seen.payload) == ("no", {"i": 0})
    assert 0 < broker.command("PTTL", broker.keys.task(QUEUE, task)) <= left
    assert queue.dead_letter_count() == 0
    for act in (queue.discard, queue.requeue):
        with pytest.raises(dtq.IllegalTransition, match="discarded"):
            act(task)


def test_garbage_is_listed_and_discarded(broker: Broker, queue: Queue) -> None:
    """Entries that were no task of ours, and damaged records: shown as bytes, refused a requeue, discarded by entry."""
    broker.command("HSET", broker.keys.meta(QUEUE), "bands", "5")
    broker.command("XADD", broker.keys.stream(QUEUE, 5), "*", "foreign", "stuff", "more", "x")
    assert Child(broker).claim() == []
    broker.command("XADD", broker.keys.dead_letters(QUEUE), "*", "damaged", b"\x01xx")
    damaged, foreign = queue.dead_letters()
    assert (foreign.task, foreign.task_id) == (None, "")
    assert b"stuff" in foreign.raw
    assert (damaged.task, damaged.task_id, damaged.raw) == (None, "damaged", b"\x01xx")
    for letter in (damaged, foreign):
        with pytest.raises(dtq.InvalidTask):
            queue.requeue(letter.entry)
        queue.discard(letter.entry)
    assert queue.dead_letter_count() == 0


def test_a_lost_message_cannot_be_queued_again(broker: Broker, queue: Queue) -> None:
    """Its payload is gone: refused with the reason."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    broker.command("XDEL", broker.keys.stream(QUEUE, 5), claim.entry)
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [], "exit 1")
    assert broker.end_lost(QUEUE) == 1
    with pytest.raises(dtq.InvalidTask, match="lost or damaged"):
        queue.requeue(task)


def test_the_stream_is_bounded_and_what_is_trimmed_is_counted(broker: Broker, settings: Settings) -> None:
    """S099: the newest stay; the counter tells how many went, garbage too."""
    small = Broker(Settings(redis_url=settings.redis_url, dead_letter_max=100))
    tasks = enqueue(small, 350)
    child = Child(small)
    for _ in range(4):
        for claim in child.claim(100):
            child.end(claim, "D")
    child.turn(0)
    stands = small.dead_letter_count(QUEUE)
    assert 100 <= stands <= 250
    assert small.queue_counts(QUEUE).totals["dead_letters_trimmed"] == 350 - stands
    for _ in range(150):
        small.command("XADD", small.keys.stream(QUEUE, 5), "*", "foreign", "stuff", "more", "x")
    Child(small).claim(200)
    assert small.queue_counts(QUEUE).totals["dead_letters_trimmed"] == 500 - small.dead_letter_count(QUEUE)
    with (
        dtq.App(settings.redis_url, queue=QUEUE) as app,
        pytest.raises(dtq.IllegalTransition, match="no longer in the stream"),
    ):
        app.queue().requeue(tasks[0])
    small.close()


def test_purge_takes_all_that_stand_in_slices(broker: Broker, queue: Queue, app: dtq.App) -> None:
    """Counted; the records stay for their retention."""
    tasks = enqueue(broker, 250)
    die(broker, 250)
    steps = list(broker.purge_dead_letters(QUEUE))
    assert (sum(steps), len(steps)) == (250, 3)
    assert app.get(tasks[0]).task().metadata == {"discarded": True}
    assert queue.purge_dead_letters() == 0


def test_paging_gives_each_dead_letter_once(broker: Broker, queue: Queue) -> None:
    """A cursor is stable while others die (S132)."""
    tasks = enqueue(broker, 230)
    die(broker, 230)
    seen: list[str] = []
    before = None
    while page := [letter for letter, _ in zip(queue.dead_letters(before=before), range(50), strict=False)]:
        seen += [letter.task_id for letter in page]
        before = page[-1].entry
        dead_task(broker)
    assert seen == tasks[::-1]


def test_pages_with_a_filter_have_a_bounded_cost(broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at so many and no more, says where to go on, and gives each one that matches once."""
    monkeypatch.setattr("dtq.dead_letter_acts.LOOKS", 20)
    wanted = [dead_task(broker, task_type="rare") for _ in range(2)]
    enqueue(broker, 60)
    die(broker, 60)
    wanted += [dead_task(broker, task_type="rare") for _ in range(3)]
    which = DeadLetterFilter(task_type="rare")
    pages = [queue.dead_letter_page(which, limit=2)]
    while pages[-1].cursor is not None:
        pages.append(queue.dead_letter_page(which, limit=2, cursor=pages[-1].cursor))
    assert [[letter.task_id for letter in page.letters] for page in pages] == [
        [wanted[4], wanted[3]],
        [wanted[2]],
        [],
        [],
        [wanted[1], wanted[0]],
    ]
    assert len(queue.dead_letter_page(limit=65).letters) == 20
    assert queue.dead_letter_page(which, limit=1, cursor="1-1").letters == ()
    with pytest.raises(dtq.InvalidTask, match="cursor: it was not given by a listing"):
        queue.dead_letter_page(cursor="next")


def test_conditions_are_json_or_bare_words() -> None:
    """As people type them: the value is JSON where it can be."""
    assert read_condition("order.id=7") == ("order.id", 7)
    assert read_condition('a=["x"]') == ("a", ["x"])
    assert read_condition("name=Ada=Lovelace") == ("name", "Ada=Lovelace")
    assert read_condition("text=") == ("text", "")
    assert read_condition("odd=\ud800") == ("odd", "\ud800")
    with pytest.raises(dtq.InvalidTask, match=r"where: 'order\.id' has no value"):
        read_condition("order.id")


def test_every_act_is_audited(broker: Broker, app: dtq.App, queue: Queue) -> None:
    """Actor, action, id, queue, time, request id; a bulk act has one request id and names every id (spec §7)."""
    one, two = dead_task(broker), dead_task(broker)
    queue.requeue(one, payload={})
    die(broker)
    queue.discard(two)
    list(queue.requeue_all(DeadLetterFilter(task_type="noop")))
    broker.cancel(QUEUE, one)
    queue.purge_dead_letters()
    entries = app.audit()[::-1]
    assert [(entry.action, entry.task_id) for entry in entries] == [
        ("requeue", one), ("discard", two), ("requeue", ""), ("cancel", one), ("purge_dead_letters", ""),
    ]  # fmt: skip
    assert entries[0].facts["edited"] is True
    assert entries[2].facts == {"filter": {"task_type": "noop"}, "ids": [one]}
    assert {entry.actor for entry in entries if entry.action != "cancel"} == {"tester"}
    assert len({entry.request_id for entry in entries}) == 5
    assert all(entry.queue == QUEUE and entry.time_ms > 1_600_000_000_000 for entry in entries)
    assert app.audit(2)[1] == app.audit(1, before=app.audit(1)[0].entry)[0]
