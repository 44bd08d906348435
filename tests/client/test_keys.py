"""Idempotency keys and unique locks at every end of their task: what is free, what answers, and for how long."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dtq
from tests.broker.driver import Child
from tests.client.proxy import Proxy
from tests.conftest import WaitUntil

KEYED: dict[str, Any] = {"idempotency_key": "K", "unique": True}
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def end_running(child: Child, letter: str) -> None:
    child.settle(child.claim()[0], letter)


def retrying(child: Child) -> None:
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)


def due_after(app: dtq.App, child: Child) -> None:
    child.settle(child.claim()[0], "R", delay_ms=1)
    deadline = time.monotonic() + 5
    while not app.broker.promote("default")[0]:
        assert time.monotonic() < deadline


End = Callable[[dtq.App, Child, Any], object]
ENDS: dict[str, tuple[dict[str, Any], End, str]] = {
    "succeeded": ({}, lambda app, child, handle: end_running(child, "S"), "succeeded"),
    "succeeded, retention 0": ({"retention": 0}, lambda app, child, handle: end_running(child, "S"), "succeeded"),
    "dead": ({}, lambda app, child, handle: end_running(child, "D"), "dead_lettered"),
    "failed": ({}, lambda app, child, handle: end_running(child, "F"), "failed"),
    "discarded by its handler": ({}, lambda app, child, handle: end_running(child, "C"), "cancelled"),
    "cancelled, queued": ({}, lambda app, child, handle: handle.cancel(), "cancelled"),
    "cancelled, pending": ({"delay": 3600}, lambda app, child, handle: handle.cancel(), "cancelled"),
    "cancelled, retrying": ({}, lambda app, child, handle: (retrying(child), handle.cancel()), "cancelled"),
    "cancelled, running": (
        {},
        lambda app, child, handle: (claims := child.claim(), handle.cancel(), child.settle(claims[0])),
        "cancelled",
    ),
    "expired, queued": ({"deadline": LONG_AGO}, lambda app, child, handle: child.claim(), "expired"),
    "expired, retrying": (
        {"ttl": 0.05},
        lambda app, child, handle: (due_after(app, child), time.sleep(0.06), child.claim()),
        "expired",
    ),
    "purged, queued": ({}, lambda app, child, handle: app.queue().purge(), "cancelled"),
    "purged, pending": (
        {"delay": 3600},
        lambda app, child, handle: app.queue().purge(),
        "cancelled",
    ),
}


@pytest.mark.parametrize("way", ENDS)
def test_every_end_frees_the_lock_and_closes_the_key(app: dtq.App, child: Child, way: str) -> None:
    """The lock never outlives its task; the key answers with the first task's end, to its own ttl (S069)."""
    options, end, status = ENDS[way]
    first = app.enqueue("noop", {"a": 1}, **KEYED, **options)
    with pytest.raises(dtq.UniqueConflict) as locked:
        app.enqueue("noop", {"a": 1}, unique=True)
    assert locked.value.existing_id == first.id
    with pytest.raises(dtq.IdempotencyInProgress) as taken:
        app.enqueue("noop", {"a": 1}, **KEYED)
    assert taken.value.task_id == first.id
    end(app, child, first)
    again = app.enqueue("noop", {"a": 1}, **KEYED)
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(dtq.IdempotencyKeyReused):
        app.enqueue("noop", {"a": 2}, idempotency_key="K")
    key = app.broker.keys.idempotency("default", "K")
    assert app.broker.command("GET", key).split()[-1].decode() in (status, "purged")
    assert 0 < app.broker.command("PTTL", key) <= 86_400_000
    fresh = app.enqueue("noop", {"a": 1}, unique=True)
    assert (fresh.duplicate, fresh.id == first.id) == (False, False)
    fresh.cancel()
    with app.broker.transport.client() as client:
        assert not list(client.scan_iter("dtq:unique:*"))


@pytest.mark.parametrize("hold", [0.2, timedelta(seconds=0.2)])
def test_a_key_covers_its_window_and_no_more(app: dtq.App, child: Child, wait_until: WaitUntil, hold: Any) -> None:
    """Within it the original id and its result, afterwards a new run; the handle always tells which (S074)."""
    first = app.enqueue("noop", {}, idempotency_key="K", idempotency_ttl=hold)
    child.settle(child.claim()[0])
    again = app.enqueue("noop", {}, idempotency_key="K", idempotency_ttl=hold)
    assert (again.id, again.duplicate, again.result(timeout=0)) == (first.id, True, {"ok": 1})
    assert (first.ended_as, again.ended_as) == (None, dtq.TaskStatus.SUCCEEDED)
    wait_until(lambda: not app.broker.command("EXISTS", app.broker.keys.idempotency("default", "K")), 2)
    later = app.enqueue("noop", {}, idempotency_key="K", idempotency_ttl=hold)
    assert (later.id == first.id, later.duplicate) == (False, False)


def test_a_lock_whose_time_runs_out_lets_the_next_in(app: dtq.App, wait_until: WaitUntil) -> None:
    """`unique_ttl` bounds a lock even where its task never ends; the old task's end leaves the new lock alone."""
    first = app.enqueue("noop", {}, unique="L", unique_ttl=0.2)
    with pytest.raises(dtq.UniqueConflict):
        app.enqueue("noop", {}, unique="L")

    def second() -> Any:
        try:
            return app.enqueue("noop", {}, unique="L")
        except dtq.UniqueConflict:
            return None

    next_one = wait_until(second, 2)
    assert first.cancel() == "cancelled"
    with pytest.raises(dtq.UniqueConflict) as caught:
        app.enqueue("noop", {}, unique="L")
    assert caught.value.existing_id == next_one.id


def _enqueue_keys(url: str, number: int, answers: Any) -> None:
    found: list[tuple[int, str, bool]] = []
    with dtq.App(url) as app:
        for key in range(20):
            try:
                found.append((key, app.enqueue("noop", {"key": key}, idempotency_key=f"key {key}").id, True))
            except dtq.IdempotencyInProgress as error:
                found.append((key, error.task_id, False))
    answers.put(found)


def test_one_key_from_many_processes_makes_one_task(app: dtq.App) -> None:
    """Every caller is told the same id; one of them made the task (S071)."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [
        context.Process(target=_enqueue_keys, args=(app.settings.redis_url, number, answers)) for number in range(8)
    ]
    for process in processes:
        process.start()
    found = [answer for _ in processes for answer in answers.get(timeout=30)]
    for process in processes:
        process.join(10)
    for key in range(20):
        mine = [(task_id, made) for number, task_id, made in found if number == key]
        assert len(mine) == 8
        assert len({task_id for task_id, _ in mine}) == 1
        assert sum(made for _, made in mine) == 1
    assert app.broker.queue_counts("default").waiting == 20


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": [1.5, "x"]}, {"b": [1.5, "x"], "a": 1}, True),
        ({"a": (1, 2)}, {"a": [1, 2]}, True),
        ({}, {}, True),
        ({"a": {"c": 1, "b": {"z": 0, "y": 1}}}, {"a": {"b": {"y": 1, "z": 0}, "c": 1}}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": 2**63}, {"a": 2**63 + 1}, False),
    ],
)
def test_same_key_other_work(app: dtq.App, first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    """The order of keys is no difference, every other one is, and is said (S072)."""
    handle = app.enqueue("noop", first, idempotency_key="K")
    expected: type[dtq.DtqError] = dtq.IdempotencyInProgress if same else dtq.IdempotencyKeyReused
    with pytest.raises(expected):
        app.enqueue("noop", second, idempotency_key="K")
    app.enqueue("noop", first, unique=True)
    if same:
        with pytest.raises(dtq.UniqueConflict):
            app.enqueue("noop", second, unique=True)
    else:
        app.enqueue("noop", second, unique=True)
    assert handle.task().payload == {key: list(v) if isinstance(v, tuple) else v for key, v in first.items()}


@pytest.mark.parametrize("kind", ["one by one", "in bulk", "later"])
def test_every_reply_lost_once(proxy: Proxy, kind: str) -> None:
    """Explicit ids and keys: as many tasks as calls, each told as its own or as the first one's (S073)."""
    with dtq.App(proxy.url) as app:
        app.enqueue("noop", {"first": 1})
        options = {"delay": 60} if kind == "later" else {}
        if kind == "in bulk":
            proxy.drop = 2
            outcomes = list(app.enqueue_many("noop", [{"i": i} for i in range(1200)]))
            assert all(isinstance(outcome, dtq.Accepted) for outcome in outcomes)
            count = 1200
        else:
            count = 40
            for i in range(count):
                proxy.drop = 1
                named = {"task_id": f"id{i}"} if i % 2 else {"idempotency_key": f"key{i}"}
                handle = app.enqueue("noop", {"i": i}, **named, **options)
                assert not handle.duplicate
                assert handle.task().payload == {"i": i}
            assert proxy.dropped == count
        counts = app.broker.queue_counts("default")
        assert counts.waiting + counts.scheduled == count + 1


BAD = [
    ("idempotency_key", ""), ("idempotency_key", "x" * 256), ("idempotency_key", 7), ("idempotency_key", "a\ud800"),
    ("unique", ""), ("unique", "x" * 256), ("unique", 7), ("unique_ttl", 0), ("unique_ttl", -1), ("unique_ttl", 1e12),
    ("idempotency_ttl", 0), ("idempotency_ttl", float("nan")), ("conflict", "ignore"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_no_key_can_be_is_refused(app: dtq.App, name: str, value: Any) -> None:
    """With the name of the option, and nothing stored."""
    extra = {"unique": True} if name in ("unique_ttl", "conflict") else {}
    extra |= {"idempotency_key": "K"} if name == "idempotency_ttl" else {}
    with pytest.raises(dtq.InvalidTask, match=f"^{name}"):
        app.enqueue("noop", {}, **extra, **{name: value})
    assert app.broker.queue_counts("default").waiting == 0
