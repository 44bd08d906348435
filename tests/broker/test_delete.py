"""Deleting what is kept of an ended task: record, recent list, dead letter; nothing that lives (spec §7)."""

from __future__ import annotations

import pytest

import dtq
from dtq.broker import Broker
from dtq.models import STATUSES, TaskStatus
from tests.broker.driver import QUEUE, Child, enqueue, state
from tests.broker.test_moves import Story

S = TaskStatus


@pytest.mark.parametrize("status", STATUSES)
def test_what_has_ended_goes_and_what_lives_stays(broker: Broker, status: TaskStatus) -> None:
    """Record, mention and dead letter are gone; a live task is told by its status, and nothing is written."""
    story = Story(broker, status, overdue=False)
    recent = broker.keys.recent(QUEUE, status.value)
    verdict = broker.delete(QUEUE, story.id)
    if status.terminal:
        assert verdict == ("deleted", "")
        assert state(broker, story.id) == "0"
        assert broker.command("EXISTS", broker.keys.task(QUEUE, story.id), recent) == 0
        assert broker.command("XLEN", broker.keys.dead_letters(QUEUE)) == 0
        assert broker.queue_counts(QUEUE).totals["deleted"] == 1
        assert broker.delete(QUEUE, story.id) == ("unknown", "")
    else:
        assert verdict == ("live", str(status.code))
        assert state(broker, story.id) == str(status.code)
        assert "deleted" not in broker.queue_counts(QUEUE).totals
        if story.claim is not None and status is S.RUNNING:
            story.child.settle(story.claim)


def test_only_its_own_mention_and_dead_letter_go(broker: Broker) -> None:
    """Those of others stay, in their order."""
    ids = enqueue(broker, 3)
    child = Child(broker)
    for claim in child.claim(3):
        child.end(claim, "D")
    child.turn(0)
    assert broker.delete(QUEUE, ids[1]) == ("deleted", "")
    listed = [task.decode() for task in broker.command("LRANGE", broker.keys.recent(QUEUE, "dead_lettered"), 0, -1)]
    assert sorted(listed) == sorted([ids[0], ids[2]])
    assert {task_id.decode() for _, task_id, _ in broker.dead_letter_page(QUEUE, 10)} == {ids[0], ids[2]}


def test_a_late_settle_of_a_deleted_task_is_gone(broker: Broker) -> None:
    """The worker whose reply was lost is told so, and writes nothing (protocol 17)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    assert child.settle(claim) == "d"
    broker.delete(QUEUE, task)
    assert child.settle(claim) == "g"
    assert state(broker, task) == "0"


def test_its_id_may_be_used_again_and_its_key_answers_on(broker: Broker, app: dtq.App) -> None:
    """Nothing of the old task hinders a new one; the idempotency key tells how the old one ended."""
    first = app.enqueue("noop", {}, task_id="order-1", idempotency_key="K")
    first.cancel()
    first.delete()
    assert app.enqueue("noop", {}, task_id="order-1").id == "order-1"
    again = app.enqueue("noop", {}, idempotency_key="K")
    assert (again.id, again.duplicate) == ("order-1", True)


def test_a_record_that_cannot_be_read_is_deleted_too(broker: Broker) -> None:
    """Where it does not stand in the schedule."""
    broker.command("SET", broker.keys.task(QUEUE, "broken"), "nonsense")
    assert broker.delete(QUEUE, "broken") == ("deleted", "")
    (task,) = enqueue(broker, place="w3600000;")
    key = broker.keys.task(QUEUE, task)
    whole = broker.command("GET", key)
    broker.command("SET", key, b"\x01\x01")
    assert broker.delete(QUEUE, task) == ("live", "1")
    broker.command("SET", key, whole)


def test_handles_delete_and_the_act_is_announced(broker: Broker, app: dtq.App) -> None:
    """One audit entry with the status; none for what was refused before anything was tried."""
    ended = Story(broker, S.SUCCEEDED, overdue=False)
    waiting = Story(broker, S.PENDING, overdue=False)
    app.handle(ended.id).delete(actor="ada", request_id="r1")
    with pytest.raises(dtq.TaskNotFound):
        app.handle(ended.id).delete()
    with pytest.raises(dtq.IllegalTransition, match="is pending; only what has ended can be deleted, so cancel it"):
        app.handle(waiting.id).delete()
    (entry,) = app.audit()
    assert (entry.action, entry.task_id, entry.actor, entry.request_id) == ("delete", ended.id, "ada", "r1")
    assert entry.facts == {"status": "succeeded"}


def test_a_requeue_in_between_is_told(broker: Broker, app: dtq.App) -> None:
    """It was dead when it was looked at, and lives when it would be deleted: it stays, and the audit says so."""
    dead = Story(broker, S.DEAD_LETTERED, overdue=False)
    handle, client = app.handle(dead.id), app.client

    class Hurried(Broker):
        """Requeues the task right before it is deleted."""

        def delete(self, queue: str, task_id: str) -> tuple[str, str]:
            app.queue(QUEUE).requeue(task_id)
            return super().delete(queue, task_id)

    hurried = Hurried(broker.settings)
    client._broker = lambda: hurried
    with pytest.raises(dtq.IllegalTransition, match="is queued"):
        handle.delete()
    assert state(broker, dead.id) == "2"
    assert [entry.facts.get("refused") for entry in app.audit() if entry.action == "delete"] == [
        "IllegalTransition",
        None,
    ]
    hurried.close()
