"""One task at a time: what is written, what is refused, and what an answer means."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dtq
from dtq.models import decode_json
from tests.broker.driver import Child
from tests.client.proxy import Proxy
from tests.servers import PrivateServer

ROUND_TRIPS: list[dict[str, Any]] = [
    {},
    {"whole": [0, -1, 2**53 - 1, 2**53 + 1, 123456789012345678, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]},
    {"empty": [[], {}, [[]], {"a": []}, "", None, False, 0, -0.0, 1.0]},
    {"text": 'é\u2028 \U0001f600 \x00 \\ "', "": 1},
    {"real": [0.1, 1e308, 5e-324, 1e22, -1.5]},
]


@pytest.mark.parametrize("payload", ROUND_TRIPS)
@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"task_id": "given"}, {"unique": True}])
def test_payloads_come_back_exactly(
    app: dtq.App, child: Child, payload: dict[str, Any], options: dict[str, Any]
) -> None:
    handle = app.enqueue("noop", payload, **options)
    back = handle.task().payload
    assert repr(back) == repr(payload)
    if "delay" not in options:
        (claim,) = child.claim()
        assert repr(decode_json(claim.payload)) == repr(payload)


def test_tuples_become_lists(app: dtq.App) -> None:
    assert app.enqueue("noop", {"pair": (1, (2,))}).task().payload == {"pair": [1, [2]]}


def test_what_an_enqueue_says_is_what_the_task_shows(app: dtq.App) -> None:
    deadline = datetime(2100, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    handle = app.enqueue(
        "mail.send", {"to": "a@b"}, queue="mail", priority=9, ttl=60, timeout=1.5, deadline=deadline, max_attempts=2,
        retention=0.5, task_id="order:7", headers={"trace": "1"}, metadata={"from": {"x": 1}}, batch_id="b1",
    )  # fmt: skip
    task = handle.task()
    assert (handle.id, handle.queue, handle.duplicate) == ("order:7", "mail", False)
    assert (task.task_type, task.priority, task.max_attempts, task.batch_id) == ("mail.send", 9, 2, "b1")
    assert (task.ttl, task.timeout, task.retention) == (
        timedelta(seconds=60), timedelta(seconds=1.5), timedelta(seconds=0.5)
    )  # fmt: skip
    assert (task.headers, task.metadata, task.deadline) == ({"trace": "1"}, {"from": {"x": 1}}, deadline)
    assert task.created_at is not None
    assert abs(task.created_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert "mail" in app.broker.queues()


def test_registered_options_count_also_by_name(app: dtq.App) -> None:
    @app.task(name="slow", queue="later", priority=1, retention=math.inf)
    def slow() -> None: ...

    for handle in (slow.enqueue(), app.enqueue("slow")):
        task = handle.task()
        assert (task.queue, task.priority, task.retention) == ("later", 1, None)
    assert slow.options(queue="now", priority=2).enqueue().task().queue == "now"


@pytest.mark.parametrize("delay", [0, -0.0, -1, -1e12, -1e18, timedelta(seconds=-1)])
def test_no_delay_is_now(app: dtq.App, delay: Any) -> None:
    assert app.enqueue("noop", delay=delay).status() is dtq.TaskStatus.QUEUED


@pytest.mark.parametrize(
    "run_at", [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime(1970, 1, 1, tzinfo=UTC)]
)
def test_times_in_the_past_are_now(app: dtq.App, run_at: datetime) -> None:
    assert app.enqueue("noop", run_at=run_at).status() is dtq.TaskStatus.QUEUED


def test_one_moment_in_any_zone_and_as_a_delay(app: dtq.App) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    for options in (
        {"run_at": soon},
        {"run_at": soon.astimezone(timezone(timedelta(hours=5, minutes=30)))},
        {"delay": 3600},
        {"delay": timedelta(hours=1)},
    ):
        task = app.enqueue("noop", **options).task()  # type: ignore[arg-type]
        assert task.status is dtq.TaskStatus.PENDING
        assert task.due_at is not None
        assert abs(task.due_at - soon) < timedelta(seconds=5)
        assert task.due_at.utcoffset() == timedelta(0)


def test_a_far_delay_is_shown_and_can_be_cancelled(app: dtq.App) -> None:
    handle = app.enqueue("noop", delay=3e8)
    due = handle.task().due_at
    assert due is not None
    assert abs(due - (datetime.now(UTC) + timedelta(seconds=3e8))) < timedelta(minutes=1)
    assert handle.cancel() == "cancelled"
    assert handle.status() is dtq.TaskStatus.CANCELLED


def test_a_given_id_that_exists_is_a_conflict(app: dtq.App) -> None:
    app.enqueue("noop", {"n": 1}, task_id="x")
    with pytest.raises(dtq.TaskIdConflict) as caught:
        app.enqueue("noop", {"n": 1}, task_id="x")
    assert str(caught.value) == "task_id: 'x' exists already in queue 'default'; choose another one"
    assert app.enqueue("noop", {"n": 1}, task_id="x", queue="other").task().queue == "other"


def test_idempotency_keys(app: dtq.App, child: Child) -> None:
    first = app.enqueue("noop", {"a": 1, "b": [1.5]}, idempotency_key="order 7")
    with pytest.raises(dtq.IdempotencyInProgress) as caught:
        app.enqueue("noop", {"b": (1.5,), "a": 1}, idempotency_key="order 7")
    assert caught.value.task_id == first.id
    for name, payload in (("noop", {"a": 2}), ("other", {"a": 1, "b": [1.5]})):
        with pytest.raises(dtq.IdempotencyKeyReused):
            app.enqueue(name, payload, idempotency_key="order 7")
    (claim,) = child.claim()
    child.settle(claim)
    again = app.enqueue("noop", {"b": [1.5], "a": 1}, idempotency_key="order 7")
    assert (again.id, again.duplicate) == (first.id, True)
    assert again.result(timeout=0) == {"ok": 1}


def test_unique_tasks(app: dtq.App, child: Child) -> None:
    first = app.enqueue("noop", {"a": 1}, unique=True)
    with pytest.raises(dtq.UniqueConflict) as caught:
        app.enqueue("noop", {"a": 1}, unique=True)
    assert caught.value.existing_id == first.id
    assert app.enqueue("noop", {"a": 1}, unique=True, conflict="return_existing") == first
    assert app.enqueue("noop", {"a": 2}, unique=True) != first
    keyed = app.enqueue("noop", {"a": 1}, unique="my key")
    with pytest.raises(dtq.UniqueConflict):
        app.enqueue("other", {"z": 9}, unique="my key")
    for claim in child.claim(3):
        child.settle(claim)
    assert app.enqueue("noop", {"a": 1}, unique=True).duplicate is False
    assert app.enqueue("noop", {"a": 1}, unique="my key") != keyed


def test_full_queues_refuse(clean_server: PrivateServer) -> None:
    with dtq.App(clean_server.url, max_queue_depth=2, max_scheduled=1) as app:
        app.enqueue("noop")
        app.enqueue("noop")
        with pytest.raises(dtq.QueueFull) as caught:
            app.enqueue("noop")
        assert str(caught.value) == ("queue: 'default' holds its limit of 2 tasks (DTQ_MAX_QUEUE_DEPTH); try again")
        assert caught.value.retry_after > 0
        app.enqueue("noop", delay=60)
        with pytest.raises(dtq.QueueFull, match=r"limit of 1 scheduled tasks \(DTQ_MAX_SCHEDULED\)"):
            app.enqueue("noop", delay=60)


def test_a_payload_that_is_too_large(clean_server: PrivateServer) -> None:
    with dtq.App(clean_server.url, max_payload_bytes=20) as app:
        app.enqueue("noop", {"text": "x" * 9})
        with pytest.raises(dtq.PayloadTooLarge, match=r"^payload: .* 20 bytes .*: 21 bytes"):
            app.enqueue("noop", {"text": "x" * 10})
        assert app.broker.queue_counts("default").waiting == 1


@pytest.mark.parametrize("options", [{}, {"task_id": "mine"}, {"idempotency_key": "k"}, {"unique": True}])
def test_a_lost_reply_makes_one_task(proxy: Proxy, options: dict[str, Any]) -> None:
    with dtq.App(proxy.url) as app:
        app.enqueue("noop", {"first": 1})
        proxy.drop = 2
        handle = app.enqueue("noop", {"n": 1}, **options)
        assert proxy.dropped == 2
        assert app.broker.queue_counts("default").waiting == 2
        assert (handle.task().payload, handle.duplicate) == ({"n": 1}, False)
        if "task_id" in options:
            with pytest.raises(dtq.TaskIdConflict):
                app.enqueue("noop", {"n": 1}, **options)


def test_a_task_has_the_payload_that_it_was_enqueued_with(proxy: Proxy) -> None:
    """Also if that is changed, by another thread, while the answer is lost: it is not read again for the repeat."""
    with dtq.App(proxy.url) as app:
        app.enqueue("noop")
        payload: dict[str, object] = {"n": 1}
        proxy.drop, proxy.meanwhile = 1, lambda: payload.update(n=object())
        handle = app.enqueue("noop", payload)
        assert payload["n"] != 1
        assert handle.task().payload == {"n": 1}
        assert app.broker.queue_counts("default").waiting == 2


@pytest.mark.parametrize("losses", [1, 1000])
def test_a_lost_answer_leaves_nothing_behind(proxy: Proxy, losses: int) -> None:
    """No cycle that waits for the garbage collector with the payload in it, whether the repeat is answered or not."""

    class Payload(dict[str, Any]):
        pass

    payload = Payload(n=1)
    alive = weakref.ref(payload)
    with dtq.App(proxy.url, enqueue_deadline_s=0.2) as app:
        app.enqueue("noop")
        gc.disable()
        try:
            proxy.drop = losses
            with contextlib.suppress(dtq.BrokerUnavailable):
                app.enqueue("noop", payload)
            assert proxy.dropped > 0
            del payload
            assert alive() is None
        finally:
            gc.enable()
            proxy.drop = 0


def test_an_unreachable_server_is_said_before_the_deadline_is_long_over() -> None:
    with dtq.App("unix:///nowhere/at/all", enqueue_deadline_s=0.2) as app:
        started = time.monotonic()
        with pytest.raises(dtq.BrokerUnavailable):
            app.enqueue("noop")
        assert time.monotonic() - started < 1


def test_a_server_that_never_answers_does_not_hang_the_caller() -> None:
    with PrivateServer("redis") as server, dtq.App(server.url, enqueue_deadline_s=0.5) as app:
        app.enqueue("noop")
        server.freeze()
        started = time.monotonic()
        with pytest.raises(dtq.BrokerUnavailable):
            app.enqueue("noop")
        assert time.monotonic() - started < 2
        server.thaw()
        app.enqueue("noop")


def test_a_restart_in_between_is_not_noticed(wait_until: Any) -> None:
    with PrivateServer("redis", persistence=True) as server, dtq.App(server.url) as app:
        app.enqueue("noop")
        server.restart()
        app.enqueue("noop")
        assert app.broker.queue_counts("default").waiting == 2


def test_a_fork_enqueues_on_its_own(app: dtq.App) -> None:
    app.enqueue("noop", {"from": "parent"})
    child = os.fork()
    if child == 0:
        try:
            app.enqueue("noop", {"from": "child"})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    app.enqueue("noop", {"from": "parent"})
    assert app.broker.queue_counts("default").waiting == 3


def test_one_key_from_many_threads_makes_one_task(app: dtq.App) -> None:
    def enqueue(number: int) -> tuple[str, bool]:
        key = f"key {number % 5}"
        try:
            return app.enqueue("noop", {"key": key}, idempotency_key=key).id, True
        except dtq.IdempotencyInProgress as error:
            return error.task_id, False

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(enqueue, range(200)))
    assert len({task_id for task_id, _ in answers}) == 5
    assert sum(first for _, first in answers) == 5
    assert app.broker.queue_counts("default").waiting == 5
