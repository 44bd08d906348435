"""Listing tasks: every status, filters, cursors that stay true while tasks move, and pages of bounded cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dtq
from dtq import listing
from dtq._core import new_ids
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.listing import TaskFilter, TaskPage, list_tasks
from dtq.models import STATUSES, TaskStatus
from dtq.settings import Settings
from tests.broker.driver import QUEUE, Child, enqueue
from tests.broker.test_moves import Story

S = TaskStatus


def pages(app: dtq.App, queue: str | None = QUEUE, **options: Any) -> Iterator[TaskPage]:
    """Every page of a listing."""
    page = app.tasks(queue, **options)
    yield page
    while page.cursor is not None:
        page = app.tasks(queue, cursor=page.cursor, **options)
        yield page


def walk(app: dtq.App, queue: str | None = QUEUE, **options: Any) -> list[str]:
    """The ids of all pages."""
    return [task.id for page in pages(app, queue, **options) for task in page.tasks]


def end(broker: Broker, count: int, letter: str = "S", **options: Any) -> list[str]:
    """Tasks that have ended, the oldest end first."""
    ids: list[str] = []
    child = Child(broker, queue=options.get("queue", QUEUE))
    for _ in range(count):
        ids += enqueue(broker, **options)
        assert child.settle(child.claim()[0], letter) == "d"
    return ids


def end_running(stories: list[Story]) -> None:
    for story in stories:
        if story.claim is not None:
            story.child.settle(story.claim)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_is_listed(broker: Broker, app: dtq.App, status: TaskStatus) -> None:
    """Each by itself, as the whole task; and no other task with it."""
    story = Story(broker, status, overdue=False)
    if status is not S.QUEUED:
        Story(broker, S.QUEUED, overdue=False)
    page = app.tasks(QUEUE, status=status)
    assert [(task.id, task.status) for task in page.tasks] == [(story.id, status)]
    assert page.tasks[0] == app.get(story.id).task()
    assert (page.cursor, page.partial) == (None, False)
    assert app.tasks(QUEUE, status=status.value) == page
    end_running([story] if status is S.RUNNING else [])


def test_all_of_them_in_their_order(broker: Broker, app: dtq.App) -> None:
    """Live ones first, then what has ended; page by page as at once."""
    ended = [Story(broker, status, overdue=False) for status in (S.SUCCEEDED, S.FAILED, S.DEAD_LETTERED, S.CANCELLED)]
    retrying, running = Story(broker, S.RETRYING, overdue=False), Story(broker, S.RUNNING, overdue=False)
    pending, queued = Story(broker, S.PENDING, overdue=False), Story(broker, S.QUEUED, overdue=False)
    succeeded, failed, dead, cancelled = (story.id for story in ended)
    waiting = [task.decode() for task in broker.command("ZRANGE", broker.keys.schedule(QUEUE), 0, -1)]
    assert sorted(waiting) == sorted([retrying.id, pending.id])
    everything = [running.id, queued.id, *waiting, dead, failed, cancelled, succeeded]
    assert walk(app) == walk(app, None) == everything
    for limit in (1, 2, 3, 7):
        assert walk(app, limit=limit) == everything
        assert max(len(page.tasks) for page in pages(app, limit=limit)) == limit
    end_running([running])


def test_queued_tasks_come_newest_first_over_all_bands(broker: Broker, app: dtq.App) -> None:
    """Bells and running ones are left out."""
    broker.register([QUEUE], "somebody.0.1")
    ids = [enqueue(broker, band=band)[0] for band in (5, 9, 0, 5, 9, 3, 5)]
    child = Child(broker)
    (claim,) = child.claim()
    waiting = [task for task in reversed(ids) if task != claim.id]
    entries = {task: broker.command("HGET", broker.keys.live(QUEUE), task).split(b":")[3] for task in waiting}
    times = [tuple(map(int, entries[task].split(b"-"))) for task in walk(app, status="queued", limit=2)]
    assert times == sorted(times, reverse=True)
    assert sorted(walk(app, status="queued", limit=2)) == sorted(waiting)
    child.settle(claim)


def test_equal_entries_of_two_bands_come_once_each(broker: Broker, app: dtq.App) -> None:
    """An entry's id is unique within its stream only."""
    ids = enqueue(broker, 40)
    other = enqueue(broker, 40, band=2)
    for one, two in zip(ids, other, strict=True):  # the same entry ids in both streams
        live = broker.command("HGET", broker.keys.live(QUEUE), one)
        entry = live.split(b":")[3]
        old = broker.command("HGET", broker.keys.live(QUEUE), two).split(b":")[3]
        fields = broker.command("XRANGE", broker.keys.stream(QUEUE, 2), old, old)[0][1]
        broker.command("XDEL", broker.keys.stream(QUEUE, 2), old)
        broker.command("HSET", broker.keys.live(QUEUE), two, live)
        broker.command("XADD", "copy", entry, *fields)
    broker.command("RENAME", "copy", broker.keys.stream(QUEUE, 2))
    broker.prepare_queue(QUEUE)
    for limit in (1, 7, 100):
        assert sorted(walk(app, status="queued", limit=limit)) == sorted(ids + other)


def test_many_of_one_millisecond_in_the_schedule(broker: Broker, app: dtq.App) -> None:
    """Each once, although the one a cursor names has left; what is due next comes first."""
    ids = enqueue(broker, 300, place="a4000000000000;")
    first, last = enqueue(broker, place="a3900000000000;")[0], enqueue(broker, place="a4100000000000;")[0]
    assert walk(app, status="pending", limit=7) == [first, *sorted(ids), last]
    page = app.tasks(QUEUE, status="pending", limit=101)
    broker.cancel(QUEUE, page.tasks[-1].id)
    rest = [task.id for task in app.tasks(QUEUE, status="pending", limit=1000, cursor=page.cursor).tasks]
    assert rest == [*sorted(ids)[100:], last]


def test_pages_stay_true_while_tasks_come_and_go(broker: Broker, app: dtq.App) -> None:
    """Every task that does not change comes exactly once (S132)."""
    ended, queued = end(broker, 60), enqueue(broker, 60)
    pending = enqueue(broker, 60, place="w3600000;")
    for status, standing in (("succeeded", ended), ("queued", queued), ("pending", pending)):
        seen: list[str] = []
        for page in pages(app, status=status, limit=7):
            seen += [task.id for task in page.tasks]
            if status == "succeeded":
                end(broker, 3, band=9)
            elif status == "queued":
                enqueue(broker, 3)
            else:
                enqueue(broker, 3, place="w1800000;")
        assert [task for task in seen if task in standing] == [
            *(reversed(standing) if status != "pending" else sorted(standing))
        ]
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize("deleted", [1, 2, 3, 4])
def test_a_cursor_survives_that_what_it_names_is_deleted(broker: Broker, app: dtq.App, deleted: int) -> None:
    """Of the last ones some are deleted, and others end meanwhile: what follows comes, none is left out."""
    ids = end(broker, 40)[::-1]
    page = app.tasks(QUEUE, status="succeeded", limit=10)
    assert [task.id for task in page.tasks] == ids[:10]
    for task in ids[10 - deleted : 10]:
        app.handle(task).delete()
    end(broker, 2)
    rest = walk_from(app, page, status="succeeded", limit=10)
    assert [task for task in rest if task in ids[10:]] == ids[10:]
    if deleted < 3:
        assert rest == ids[10:]


def walk_from(app: dtq.App, page: TaskPage, **options: Any) -> list[str]:
    """The ids of all pages behind one."""
    ids: list[str] = []
    while page.cursor is not None:
        page = app.tasks(QUEUE, cursor=page.cursor, **options)
        ids += [task.id for task in page.tasks]
    return ids


def test_who_dies_twice_is_listed_once(broker: Broker, app: dtq.App) -> None:
    """A requeue takes its mention away; an id used again is mentioned twice and listed once."""
    (task, *_), child = end(broker, 3, "D"), Child(broker)
    app.queue(QUEUE).requeue(task)
    assert task not in walk(app, status="dead_lettered")
    child.settle(child.claim()[0], "D")
    assert walk(app, status="dead_lettered").count(task) == 1
    assert walk(app, status="dead_lettered")[0] == task
    for _ in range(2):
        enqueue(broker, ids=["order-1"], place="g;")
        child.settle(child.claim()[0])
        end(broker, 2)
        last = broker.command("GET", broker.keys.task(QUEUE, "order-1"))
        broker.command("DEL", broker.keys.task(QUEUE, "order-1"))
    broker.command("SET", broker.keys.task(QUEUE, "order-1"), last)
    for limit in (1, 2, 100):
        assert walk(app, status="succeeded", limit=limit).count("order-1") == 1


def test_filters(broker: Broker, app: dtq.App) -> None:
    """By type, worker, batch and time of creation, alone and together."""
    now = SYSTEM.now_ms()
    old = new_ids(now - 7_200_000, os.urandom(30), 3)
    end(broker, 2)
    enqueue(broker, ids=old, task_type="mail")
    (batch,) = enqueue(broker, place="bB1;", extras=b'{"batch_id":"B1"}')
    child = Child(broker, worker="other-00000002")
    claims = child.claim(2)
    child.settle(claims[0], "D")
    assert sorted(walk(app, task_type="mail")) == sorted(old)
    assert walk(app, task_type="mail", status="running") == [old[1]]
    hour_ago = datetime.fromtimestamp(now / 1000, UTC) - timedelta(hours=1)
    assert sorted(walk(app, created_before=hour_ago)) == sorted(old)
    assert set(walk(app, created_after=hour_ago)).isdisjoint(old)
    assert walk(app, batch_id="B1") == [batch]
    assert walk(app, worker_id="other-00000002") == [old[1]]
    assert len(walk(app, worker_id="host")) == 1  # what the driver says of itself when it settles
    assert walk(app, worker_id="other-00000002", task_type="noop") == []
    child.settle(claims[1])


def test_a_filter_that_matches_little_costs_little(
    broker: Broker, app: dtq.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page looks at a bounded number of tasks, and comes back short with a cursor."""
    monkeypatch.setattr(listing, "LOOKS", 100)
    enqueue(broker, 450)
    (rare,) = enqueue(broker, task_type="rare")
    enqueue(broker, 450)
    found = [page.tasks for page in pages(app, task_type="rare")]
    assert [task.id for tasks in found for task in tasks] == [rare]
    assert len(found) >= 9


def test_a_page_is_bounded_in_bytes(broker: Broker, app: dtq.App) -> None:
    """A slice ends behind the task that goes beyond the limit; all come all the same."""
    for i in range(30):
        app.enqueue("noop", {"text": "x" * 200_000, "i": i})
    sizes = [len(broker.browse(QUEUE, "queued", 100).found)]
    assert sizes == [6]
    assert len(walk(app, status="queued")) == 30


def test_many_queues_are_walked_in_order(broker: Broker, app: dtq.App) -> None:
    """By status first, then by name; queues without tasks cost nothing; one that comes or goes hurts nobody."""
    for number in range(30):
        broker.prepare_queue(f"q{number:02}")
    for name in ("q07", "q03", "q11"):
        enqueue(broker, 3, queue=name)
        end(broker, 2, queue=name, band=9)
    names = [task.queue for page in pages(app, None, limit=4) for task in page.tasks]
    assert names == ["q03"] * 3 + ["q07"] * 3 + ["q11"] * 3 + ["q03"] * 2 + ["q07"] * 2 + ["q11"] * 2
    page = app.tasks(limit=4)
    broker.command("SREM", broker.keys.queues(), "q07")
    enqueue(broker, 1, queue="q05")
    broker.prepare_queue("q05")
    assert [task.queue for task in app.tasks(cursor=page.cursor, limit=4).tasks] == ["q11"] * 3 + ["q03"]


def test_a_damaged_queue_hides_no_other(broker: Broker, app: dtq.App) -> None:
    """Its keys have other types: the others are listed, and it is said that something is missing."""
    for name in ("a", "b", "c"):
        broker.prepare_queue(name)
        enqueue(broker, queue=name)
    broker.command("SET", broker.keys.meta("b"), "nonsense")
    broker.command("DEL", broker.keys.stream("b", 5))
    page = app.tasks()
    assert [task.queue for task in page.tasks] == ["a", "c"]
    assert page.partial
    with pytest.raises(dtq.BrokerUnavailable):
        app.tasks("b")


def test_a_full_list_says_that_there_are_more(settings: Settings, broker: Broker) -> None:
    """DTQ_RECENT of each status are listed (S132); 0 lists none, and says so."""
    with closing(Broker(replace(settings, recent=10))) as bounded:
        end(bounded, 9)
        assert list_tasks(bounded, TaskFilter.checked(QUEUE, status="succeeded")).partial is False
        ids = end(bounded, 3)
        page = list_tasks(bounded, TaskFilter.checked(QUEUE, status="succeeded"))
        assert (len(page.tasks), page.partial) == (10, True)
        assert [task.id for task in page.tasks[:3]] == ids[::-1]
    with closing(Broker(replace(settings, recent=0))) as silent:
        end(silent, 1, queue="silent")
        assert list_tasks(silent, TaskFilter.checked("silent", status="succeeded")) == TaskPage((), None, True)


def test_what_was_damaged_by_hand_hides_no_other(broker: Broker, app: dtq.App) -> None:
    """What cannot be read is shown with the reason; what does not even tell its status is left out."""
    ids = end(broker, 4)
    keys = [broker.keys.task(QUEUE, task) for task in ids]
    records = [broker.command("GET", key) for key in keys]
    assert records[1].count(b'{"i":') == 1, "the payload"
    broker.command("SET", keys[1], records[1].replace(b'{"i":', b'{"i"!'))
    broker.command("SET", keys[2], records[2][:20])
    found = {task.id: task for task in app.tasks(QUEUE, status="succeeded").tasks}
    assert found.keys() == {ids[0], ids[1], ids[3]}
    assert (found[ids[0]].error, found[ids[3]].error) == (None, None)
    assert "the envelope is damaged" in str(found[ids[1]].error)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"queue": "no queue"}, "queue"),
        ({"status": "lost"}, "status"),
        ({"task_type": "no type"}, "task type"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"created_after": datetime(2030, 1, 1)}, "created_after"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": "*"}, "cursor"),
        ({"cursor": "WzFd"}, "cursor"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(app: dtq.App, options: dict[str, Any], field: str) -> None:
    with pytest.raises(dtq.InvalidTask) as refusal:
        app.tasks(**{"queue": QUEUE, **options})
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("section", "queue", "place"),
    [
        ("queued", "a b", ""),
        ("nowhere", QUEUE, ""),
        ("queued", QUEUE, "nonsense"),
        ("queued", QUEUE, "99999999999999999999-1 5"),
        ("running", QUEUE, "1-1 5"),
        ("scheduled", QUEUE, "soon x"),
        ("succeeded", QUEUE, "1 a b c d"),
    ],
)
def test_a_forged_cursor_is_refused(app: dtq.App, section: str, queue: str, place: str) -> None:
    """It never reaches Redis; nor does one of another filter."""
    which = TaskFilter.checked(QUEUE)
    cursor = listing._encode(which, listing._Position(section, queue, place))
    with pytest.raises(dtq.InvalidTask):
        app.tasks(QUEUE, cursor=cursor)
    good = listing._encode(which, listing._Position("queued"))
    assert app.tasks(QUEUE, cursor=good).tasks == ()
    with pytest.raises(dtq.InvalidTask, match="another filter"):
        app.tasks(QUEUE, status="queued", cursor=good)


def test_twenty_five_thousand(broker: Broker, app: dtq.App) -> None:
    """Queued and finished ones are walked whole, in pages that take milliseconds (S132)."""
    ids = [task for _ in range(25) for task in enqueue(broker, 1000 // 2)]
    began = SYSTEM.monotonic()
    assert sorted(walk(app, status="queued", limit=1000)) == sorted(ids)
    assert SYSTEM.monotonic() - began < 5
    child, ended = Child(broker), 0
    while claims := child.claim(100):
        for claim in claims:
            child.end(claim)
        ended += len(claims)
    child.turn(0)
    seen = walk(app, status="succeeded", limit=1000)
    assert len(seen) == len(set(seen)) == 10_000
    assert app.tasks(QUEUE, status="succeeded").partial
