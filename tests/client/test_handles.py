"""Results: when they come, what they mean, and how waiting bears outages."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import dtq
from tests.broker.driver import Child
from tests.servers import PrivateServer
from tests.troubles import confined


def run_all(child: Child, count: int) -> None:
    """Claim and succeed `count` tasks, in batches."""
    left = count
    while left:
        claims = child.claim(min(left, 500))
        for claim in claims:
            child.end(claim)
        left -= len(claims)
    child.turn(0)


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_a_result(app: dtq.App, child: Child) -> None:
    handle = app.enqueue("noop", {"n": 1})
    timer = later(0.1, lambda: run_all(child, 1))
    assert handle.result(timeout=10) == {"ok": 1}
    assert handle.status() is dtq.TaskStatus.SUCCEEDED
    assert handle.task().result == {"ok": 1}
    timer.join()


@pytest.mark.parametrize("letter", ["F", "D"])
def test_a_failure(app: dtq.App, child: Child, letter: str) -> None:
    handle = app.enqueue("noop")
    (claim,) = child.claim()
    child.settle(claim, letter)
    with pytest.raises(dtq.TaskFailed) as caught:
        handle.result(timeout=1)
    assert str(caught.value) == "no"
    assert (caught.value.error_class, caught.value.task_id) == ("ValueError", handle.id)
    assert caught.value.status == {"F": "failed", "D": "dead_lettered"}[letter]
    assert [attempt.error_class for attempt in handle.task().history] == ["ValueError"]


def test_cancelled_and_expired_say_so(app: dtq.App, child: Child) -> None:
    handle = app.enqueue("noop")
    assert handle.cancel() == "cancelled"
    with pytest.raises(dtq.TaskFailed, match=f"^task {handle.id} was cancelled") as caught:
        handle.result(timeout=1)
    assert caught.value.status == "cancelled"
    with pytest.raises(dtq.IllegalTransition, match=r"has ended as cancelled and cannot be cancelled$") as refused:
        handle.cancel()
    assert refused.value.http_status == 410
    late = app.enqueue("noop", ttl=0.001)
    time.sleep(0.01)
    assert child.claim() == []
    with pytest.raises(dtq.TaskFailed, match=f"^task {late.id} expired before it could run"):
        late.result(timeout=1)


def test_a_running_task_is_asked_to_stop(app: dtq.App, child: Child) -> None:
    handle = app.enqueue("noop")
    child.claim()
    assert handle.cancel() == "requested"
    task = handle.task()
    assert (task.status, task.cancel_requested, task.worker_id) == (dtq.TaskStatus.RUNNING, True, child.worker)


def test_time_runs_out(app: dtq.App) -> None:
    handle = app.enqueue("noop")
    started = time.monotonic()
    with pytest.raises(dtq.ResultTimeout, match=r"^timeout: the task had not ended after 0\.2 s, it is queued; wait "):
        handle.result(timeout=0.2)
    assert 0.15 < time.monotonic() - started < 2
    with pytest.raises(dtq.ResultTimeout):
        handle.result(timeout=0)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    with pytest.raises(ValueError, match=r"^timeout: -1 is no waiting time"):
        handle.result(timeout=-1)


def test_what_is_unknown_is_not_waited_for(app: dtq.App) -> None:
    handle = app.handle("made-up")
    for look in (handle.status, handle.task, handle.cancel, lambda: handle.result(timeout=60)):
        with pytest.raises(dtq.TaskNotFound, match=r"^task_id: 'made-up' is not known in queue 'default'; "):
            look()
    with pytest.raises(dtq.InvalidTask, match=r"^task_id: 'a b' is not allowed; use 1 to 128 of "):
        app.handle("a b")
    with pytest.raises(dtq.InvalidTask, match=r"^task_id: "):
        app.get("a b")


def test_retention_0_keeps_no_result(app: dtq.App, child: Child) -> None:
    handle = app.enqueue("noop", retention=0)
    message = f"result: task {handle.id} has retention 0, so its result is not kept; enqueue it with a retention"
    with pytest.raises(dtq.ResultNotKept) as caught:
        handle.result(timeout=60)  # not even while it waits: there will be nothing to wait for
    assert str(caught.value) == message
    run_all(child, 1)
    with pytest.raises(dtq.ResultNotKept):
        handle.result(timeout=60)
    assert list(dtq.as_completed([handle])) == [handle]
    assert [type(outcome) for outcome in dtq.gather([handle], return_exceptions=True)] == [dtq.ResultNotKept]
    with pytest.raises(dtq.TaskNotFound, match=r"it kept no record \(retention 0\)$"):
        handle.status()
    failed = app.enqueue("noop", retention=0)
    (claim,) = child.claim()
    child.settle(claim, "D")
    with pytest.raises(dtq.TaskFailed):
        failed.result(timeout=60)


def test_an_id_alone_is_looked_for_in_every_queue(app: dtq.App) -> None:
    app.enqueue("noop", queue="one", task_id="x")
    assert app.get("x").queue == "one"
    app.enqueue("noop", queue="two", task_id="x")
    with pytest.raises(dtq.AmbiguousTaskId, match=r"^queue: task 'x' exists in one, two; say which one is meant$"):
        app.get("x")
    assert app.get("x", "two").queue == "two"
    app.broker.command("SADD", app.broker.keys.queues(), "damaged")
    app.broker.command("SET", app.broker.keys.live("damaged"), "nonsense")
    app.enqueue("noop", task_id="z")
    assert app.get("z").queue == "default", "what is found needs no other queue"
    with pytest.raises(dtq.BrokerUnavailable, match="WRONGTYPE"):
        app.get("y")
    app.broker.command("DEL", app.broker.keys.live("damaged"))
    with pytest.raises(dtq.TaskNotFound, match=r"^task_id: 'y' is not known in any known queue; "):
        app.get("y")


def test_a_forbidden_queue_is_no_place_where_an_id_is_unknown(app: dtq.App, clean_server: PrivateServer) -> None:
    """Whether it exists there cannot be told: neither "not known" nor the handle of a namesake is answered."""
    app.enqueue("noop", queue="mine", task_id="x")
    app.enqueue("noop", queue="theirs", task_id="y")
    with confined(clean_server, "mine") as url, dtq.App(url) as mine:
        for task_id in ("x", "y", "z"):
            with pytest.raises(dtq.BrokerUnavailable, match=r"(?i)no permissions") as caught:
                mine.get(task_id)
            assert "pw" not in str(caught.value)
        assert mine.get("x", "mine").queue == "mine", "a queue that is named needs no other"
        with pytest.raises(dtq.TaskNotFound):
            mine.get("y", "mine")


def test_as_completed_gives_the_first_to_end_first(app: dtq.App, child: Child) -> None:
    slow = app.enqueue("noop", priority=0)
    quick = app.enqueue("noop", priority=9)
    child.settle(child.claim()[0])
    handles = iter(dtq.as_completed([slow, quick], timeout=10))
    assert next(handles) == quick
    child.settle(child.claim()[0])
    assert list(handles) == [slow]
    assert list(dtq.as_completed([])) == []


def test_gather_keeps_the_order_and_raises_early(app: dtq.App, child: Child) -> None:
    handles = [app.enqueue("noop", {"i": i}) for i in range(5)]
    run_all(child, 4)
    assert dtq.gather(handles[:4], timeout=5) == [{"ok": 1}] * 4
    with pytest.raises(dtq.ResultTimeout, match=r"^timeout: 1 of 5 tasks had not ended"):
        dtq.gather(handles, timeout=0.05)
    (claim,) = child.claim()
    child.settle(claim, "F")
    with pytest.raises(dtq.TaskFailed, match="no"):
        dtq.gather(handles)
    results = dtq.gather([*handles, handles[4]], return_exceptions=True)
    assert [type(result) for result in results] == [dict] * 4 + [dtq.TaskFailed] * 2


def test_a_dead_letter_that_is_queued_again_is_asked_about_anew(app: dtq.App, child: Child) -> None:
    handle = app.enqueue("noop")
    child.settle(child.claim()[0], "R", delay_ms=1)
    with pytest.raises(dtq.ResultTimeout):
        handle.result(timeout=0)
    app.broker.promote("default")


def test_handles_of_two_apps_are_not_mixed(app: dtq.App) -> None:
    other = dtq.App(app.settings.redis_url)
    with pytest.raises(ValueError, match=r"^handles: they belong to more than one App"):
        dtq.gather([app.handle("a"), other.handle("b")])


def test_many_handles_in_flat_time(app: dtq.App, child: Child) -> None:
    count = 20_000
    outcomes = list(app.enqueue_many("noop", ({"i": i} for i in range(count))))
    handles = [outcome.handle for outcome in outcomes if isinstance(outcome, dtq.Accepted)]
    worker = threading.Thread(target=run_all, args=(child, count))
    worker.start()
    before = time.process_time()
    assert dtq.gather(handles, timeout=60) == [{"ok": 1}] * count
    worker.join()
    assert time.process_time() - before < 10


def test_async_waiting_for_many(app: dtq.App, child: Child) -> None:
    async def main() -> None:
        handles = await asyncio.gather(*(app.aenqueue("noop", {"i": i}) for i in range(1500)))
        run_all(child, 1500)
        assert await dtq.agather(handles, timeout=10) == [{"ok": 1}] * 1500
        assert {handle.id async for handle in dtq.as_completed(handles)} == {handle.id for handle in handles}
        assert await handles[0].aresult() == {"ok": 1}

    asyncio.run(main())


@pytest.mark.parametrize("crash", [False, True])
def test_waiting_bears_an_outage(crash: bool) -> None:
    config = {"appendfsync": "always"}
    with PrivateServer("redis", persistence=True, config=config) as server, dtq.App(server.url) as app:
        app.broker.prepare_queue("default")
        child = Child(app.broker, queue="default")
        handle = app.enqueue("noop")
        results: list[object] = []
        waiter = threading.Thread(target=lambda: results.append(handle.result(timeout=20)))
        waiter.start()
        server.kill() if crash else server.stop()
        time.sleep(0.3)  # the outage itself
        assert waiter.is_alive()
        server.start()
        run_all(child, 1)
        waiter.join(20)
        assert results == [{"ok": 1}]


def test_an_outage_longer_than_the_wait_is_said() -> None:
    with PrivateServer("redis") as server, dtq.App(server.url) as app:
        handle = app.enqueue("noop")
        server.kill()
        started = time.monotonic()
        with pytest.raises((dtq.BrokerUnavailable, dtq.ResultTimeout)):
            handle.result(timeout=0.3)
        assert 0.25 < time.monotonic() - started < 5


def test_a_cancel_names_who_did_it(app: dtq.App) -> None:
    """As every act in the audit stream: the actor that was given, or the user of this process (spec §5, §7)."""
    first, second, third = (app.enqueue("noop") for _ in range(3))
    first.cancel(actor="ada")
    asyncio.run(second.acancel(actor="bob"))
    third.cancel()
    default, *given = [(entry.actor, entry.task_id) for entry in app.audit()]
    assert given == [("bob", second.id), ("ada", first.id)]
    assert "@" in default[0]
    app.broker.cancel_many("default", [app.enqueue("noop").id], actor="eve", request_id="r1")
    app.enqueue("noop")
    app.broker.cancel_matching("default", actor="eve", request_id="r2")
    assert [(entry.actor, entry.request_id) for entry in app.audit(2)] == [("eve", "r2"), ("eve", "r1")]
