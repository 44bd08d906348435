"""Running a waiting task now: what its due time would do, at once (spec §1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import dtq
from dtq.broker import Broker
from dtq.models import STATUSES, TaskStatus
from tests.broker.driver import QUEUE, Child, enqueue, live, state
from tests.broker.test_moves import Story

S = TaskStatus


def server_ms(broker: Broker) -> int:
    """The server's clock."""
    seconds, microseconds = broker.command("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


@pytest.mark.parametrize("status", STATUSES)
def test_only_what_waits_in_the_schedule_is_queued(broker: Broker, status: TaskStatus) -> None:
    """Pending and retrying become queued, as when they fall due; every other task stays as it was."""
    story = Story(broker, status, overdue=False)
    counts = broker.queue_counts(QUEUE)
    verdict, detail = broker.run_now(QUEUE, story.id)
    if status in (S.PENDING, S.RETRYING):
        assert (verdict, state(broker, story.id)) == ("queued", str(S.QUEUED.code))
        attempt = 2 if status is S.RETRYING else 1
        assert live(broker, story.id).startswith(f"q:{attempt}:0:")
        assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0
        assert broker.run_now(QUEUE, story.id) == ("live", "2")
        (claim,) = story.child.claim()
        assert (claim.id, claim.attempt) == (story.id, attempt)
        assert story.child.settle(claim) == "d"
    else:
        assert (verdict, detail) == ("ended" if status.terminal else "live", str(status.code))
        assert state(broker, story.id) == str(status.code)
        assert broker.queue_counts(QUEUE).totals == counts.totals
        if story.claim is not None and status is S.RUNNING:
            story.child.settle(story.claim)


def test_unknown_and_damaged_ones(broker: Broker) -> None:
    """Nothing is written for either."""
    assert broker.run_now(QUEUE, "nobody") == ("unknown", "")
    (task,) = enqueue(broker, place="w3600000;")
    key = broker.keys.task(QUEUE, task)
    whole = broker.command("GET", key)
    broker.command("SET", key, whole[:40])
    assert broker.run_now(QUEUE, task) == ("damaged", "")
    assert broker.command("GET", key) == whole[:40]
    broker.command("SET", key, whole)
    assert broker.run_now(QUEUE, task) == ("queued", "")


def test_a_task_that_is_too_late_expires(broker: Broker, app: dtq.App) -> None:
    """Its due time would do the same: pending to expired, retrying by way of queued."""
    pending = Story(broker, S.PENDING, overdue=True)
    pending.wait_until_overdue()
    child = Child(broker)
    (retrying,) = enqueue(broker, place="t60;")
    assert child.settle(child.claim()[0], "R", delay_ms=3_600_000) == "d"
    created = app.get(retrying).task().created_at
    assert created is not None
    while server_ms(broker) <= created.timestamp() * 1000 + 60:
        pass
    for task in (pending.id, retrying):
        with pytest.raises(dtq.IllegalTransition, match=r"the ttl of task .* has passed") as refusal:
            app.handle(task).run(actor="ada")
        assert refusal.value.terminal
        assert app.get(task).task().status == "expired"
    assert [(entry.action, entry.facts) for entry in app.audit()] == [("run", {"expired": "ttl"})] * 2
    assert broker.queue_counts(QUEUE).retrying == 0


def test_many_at_once_make_one_run(broker: Broker) -> None:
    """One of them queues it, the others are told that it is queued (S109)."""
    (task,) = enqueue(broker, place="w3600000;")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: broker.run_now(QUEUE, task), range(50)))
    assert answers.count(("queued", "")) == 1
    assert answers.count(("live", "2")) == 49


def test_handles_run_by_their_status_and_each_act_is_audited(broker: Broker, app: dtq.App) -> None:
    """Pending, retrying, dead; refused otherwise, with the status."""
    pending = Story(broker, S.PENDING, overdue=False)
    retrying = Story(broker, S.RETRYING, overdue=False)
    dead = Story(broker, S.DEAD_LETTERED, overdue=False)
    for story in (pending, retrying, dead):
        assert app.handle(story.id).run(actor="ada", request_id="r1") == "queued"
        with pytest.raises(dtq.IllegalTransition, match="is queued; only pending, retrying and dead-lettered"):
            app.handle(story.id).run()
    acts = [(entry.action, entry.task_id, entry.actor, entry.request_id) for entry in reversed(app.audit())]
    assert acts == [
        ("run", pending.id, "ada", "r1"),
        ("run", retrying.id, "ada", "r1"),
        ("requeue", dead.id, "ada", "r1"),
    ]
    with pytest.raises(dtq.TaskNotFound):
        app.handle("nobody").run()
    assert len(app.audit()) == 3


def test_a_listener_hears_of_it(broker: Broker) -> None:
    """TASK_QUEUED for a pending task, TASK_RETRIED for a retrying one."""
    retrying, pending = Story(broker, S.RETRYING, overdue=False), Story(broker, S.PENDING, overdue=False)
    subscription = broker.subscribe()
    broker.listen(QUEUE, 30.0)
    broker.run_now(QUEUE, retrying.id)
    broker.run_now(QUEUE, pending.id)
    events: list[dict[str, object]] = []
    while len(events) < 2:
        events += subscription.get(5.0)
    subscription.close()
    told = [(event["type"], event["task_id"], event["attempt"]) for event in events]
    assert told == [("TASK_RETRIED", retrying.id, 2), ("TASK_QUEUED", pending.id, 1)]


def test_the_depth_limit_is_that_of_enqueues(broker: Broker, app: dtq.App) -> None:
    """A task that was accepted as scheduled is queued when its time comes, also in a full queue; so it is now."""
    (task,) = enqueue(broker, place="w3600000;")
    enqueue(broker)
    with dtq.App(broker.settings.redis_url, queue=QUEUE, max_queue_depth=1) as full:
        assert full.handle(task).run() == "queued"
    child = Child(broker)
    assert {claim.id for claim in child.claim(5)} >= {task}
    child.outcomes.clear()
    broker.hand_back(QUEUE, child.consumer, 0, 1000)
