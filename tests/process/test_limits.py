"""Limits of time: soft with a grace for cleaning up, then hard from outside; ttl, deadline, retention."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dtq
from tests.process.harness import Stage, alive, now

APP = "tests.process.oddities:app"
SLOW_MACHINE = 3
"""Two busy cores shared with the tests: what is promised holds for an idle machine."""


@pytest.mark.parametrize(
    ("kind", "why", "seconds", "cleaned"),
    [
        ("clean_up", "timeout", 0.4, True),
        ("clean_up", "cancel", 20, False),
        ("async_clean_up", "timeout", 20, False),
        ("async_clean_up", "cancel", 0.4, True),
    ],
)
def test_a_handler_has_the_grace_to_clean_up_and_no_more(
    open_stage: Callable[..., Stage], kind: str, seconds: float, cleaned: bool, why: str
) -> None:
    """Soft first: what it does in time is done. Then the child is killed (spec §6)."""
    stage = open_stage(kill_grace_s=1.2)
    worker = stage.worker(app=APP, children=1)
    limit = 0.3 if why == "timeout" else 60
    handle = stage.app.enqueue(kind, {"name": "t", "seconds": seconds}, timeout=limit, max_attempts=1)
    begun = stage.started("t")
    if why == "cancel":
        assert handle.cancel() == "requested"
    task = stage.ended(handle)
    expected = ("dead_lettered", "timeout") if why == "timeout" else ("cancelled", "cancel requested")
    assert (task.status, task.cause) == expected
    assert bool(stage.effects("clean", "t")) == cleaned
    if not cleaned:
        assert not alive(begun.pid)
        assert now() - begun.at < 0.3 + 1.2 + 1.5
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"}), 3).status == "succeeded"
    assert worker.process.poll() is None


@pytest.mark.parametrize("how", ["sleep", "native sleep", "no lock", "computes"])
def test_an_async_handler_that_blocks_its_loop_is_killed_and_its_company_is_not_charged(
    open_stage: Callable[..., Stage], how: str
) -> None:
    """The other handlers of that loop did nothing wrong: they run again, with an attempt to spare."""
    stage = open_stage(kill_grace_s=0.3)
    stage.worker(app=APP, children=1)
    others = [stage.app.enqueue("async_sleep", {"name": f"o{i}", "seconds": 2}, max_attempts=1) for i in range(3)]
    for i in range(3):
        stage.started(f"o{i}")
    handle = stage.app.enqueue("block_loop", {"name": "t", "how": how}, timeout=0.4, max_attempts=1)
    begun = stage.started("t").at
    task = stage.ended(handle)
    assert (task.status, task.cause) == ("dead_lettered", "timeout")
    assert now() - begun < 2.5
    for other in others:
        ended = stage.ended(other)
        assert (ended.status, ended.attempt - ended.released) == ("succeeded", 1)


def test_c_code_that_keeps_the_interpreter_is_killed(open_stage: Callable[..., Stage]) -> None:
    """A long native sleep: no exception reaches it (S058)."""
    stage = open_stage(kill_grace_s=0.3)
    stage.worker(app=APP, children=1)
    handle = stage.app.enqueue("native_sleep", {"name": "t"}, timeout=0.3, max_attempts=1)
    begun = stage.started("t").at
    assert stage.ended(handle).cause == "timeout"
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"}), 2).status == "succeeded"
    assert now() - begun < 2.5


def test_a_broad_except_does_not_swallow_the_limit(stage: Stage) -> None:
    """`TaskTimeout` is no `Exception`."""
    stage.worker(app=APP, children=1)
    task = stage.ended(stage.app.enqueue("broad", {"name": "t"}, timeout=0.3, max_attempts=1), 2)
    assert (task.status, task.cause) == ("dead_lettered", "timeout")
    assert not stage.effects("swallowed")


@pytest.mark.parametrize("limit", [0.001, 0.05, timedelta(milliseconds=50)])
def test_the_shortest_limits_hold(stage: Stage, limit: float | timedelta) -> None:
    """Fractions of a second, as numbers and as timedelta."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("sleep", {"name": "t", "seconds": 10}, timeout=limit, max_attempts=1), 3)
    assert (task.status, task.cause) == ("dead_lettered", "timeout")


def test_expiry_is_looked_at_right_before_the_start(stage: Stage) -> None:
    """What a slow task kept waiting past its ttl or deadline never starts (S102)."""
    soon = datetime.now(UTC) + timedelta(seconds=0.7)
    slow = stage.app.enqueue("sleep", {"name": "slow", "seconds": 1.5})
    late = [stage.app.enqueue("mark", {"name": f"ttl{i}"}, ttl=0.7, max_attempts=6) for i in range(5)]
    late += [stage.app.enqueue("mark", {"name": f"deadline{i}"}, deadline=soon, max_attempts=6) for i in range(5)]
    in_time = stage.app.enqueue("mark", {"name": "in-time"}, ttl=60)
    stage.worker(children=1)
    assert stage.ended(slow).status == "succeeded"
    for handle in late:
        task = stage.ended(handle, 2)
        assert (task.status, task.cause) == ("expired", "ttl" if "ttl" in str(task.payload) else "deadline")
        with pytest.raises(dtq.TaskFailed) as caught:
            handle.result(timeout=1)
        assert caught.value.status == "expired"
    assert stage.ended(in_time).status == "succeeded"
    assert {e.name for e in stage.effects("start")} == {"slow", "in-time"}


def test_expired_is_the_end(stage: Stage) -> None:
    """However many attempts were allowed, and whatever is tried with it (S103)."""
    queued = stage.app.enqueue("mark", {"name": "queued"}, ttl=0.2, max_attempts=6)
    delayed = stage.app.enqueue("mark", {"name": "delayed"}, delay=0.5, ttl=0.2, max_attempts=6)
    gone = stage.app.enqueue("mark", {"name": "gone"}, deadline=datetime(2001, 1, 1, tzinfo=UTC))
    stage.wait_until(lambda: now() > (queued.task().created_at or datetime.now(UTC)).timestamp() + 0.6, 3)
    stage.worker(children=1)
    for handle in (queued, delayed, gone):
        assert stage.ended(handle).status == "expired"
        with pytest.raises(dtq.IllegalTransition):
            handle.cancel()
        assert handle.status() == "expired"
    stage.wait_until(stage.empty, 2, "nothing waits")
    assert not stage.effects()


def test_a_retry_that_would_start_after_the_ttl_expires(stage: Stage) -> None:
    """The first attempt was in time; the second is not, and its history says what the first one met."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("fail", {"name": "t"}, ttl=0.1, max_attempts=5))
    assert (task.status, task.cause) == ("expired", "ttl")
    assert [line.error_class for line in task.history] == ["ValueError"]
    assert len(stage.effects("start", "t")) == 1


@pytest.mark.parametrize("retention", [0, 0.3, timedelta(seconds=60), 315_360_000, math.inf])
def test_every_retention_answers_its_waiter(stage: Stage, retention: float | timedelta) -> None:
    """A result, or a clear word that it is not kept; the effect happens once either way (S106)."""
    stage.worker(children=1)
    handle = stage.app.enqueue("sleep", {"name": "t", "seconds": 0.3}, retention=retention)
    at = now()
    if retention == 0:
        with pytest.raises(dtq.ResultNotKept):
            handle.result(timeout=10)
    else:
        assert handle.result(timeout=10) == "t"
    assert now() - at < 5
    stage.wait_until(lambda: stage.empty() and stage.effects("end", "t"), 5, "the end")
    assert len(stage.effects("end", "t")) == 1
    record = stage.app.broker.keys.task("default", handle.id)
    left_ms = stage.app.broker.command("PTTL", record)
    if retention == 0.3:
        stage.wait_until(lambda: stage.app.broker.command("EXISTS", record) == 0, 2, "the end of the record")
        with pytest.raises((dtq.ResultNotKept, dtq.TaskNotFound)):
            stage.app.handle(handle.id, "default").result(timeout=10)
    elif retention == 0:
        assert left_ms == -2
    elif retention == math.inf:
        assert left_ms == -1
    else:
        seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
        assert seconds * 1000 - 10_000 < left_ms <= seconds * 1000


@pytest.mark.parametrize("end", ["succeeded", "failed", "dead_lettered", "cancelled", "expired"])
def test_every_end_has_a_bound(open_stage: Callable[..., Stage], end: str) -> None:
    """No record stays for ever unless it was asked to; short ones of unhappy ends last a minute at least (S019)."""
    stage = open_stage(task_retention_s=100, dead_letter=end != "failed")
    kind = "fail" if end in ("failed", "dead_lettered") else "mark"
    due = datetime(2001, 1, 1, tzinfo=UTC) if end == "expired" else datetime(2101, 1, 1, tzinfo=UTC)
    handles = {
        retention: stage.app.enqueue(kind, {"name": "t"}, retention=retention, max_attempts=1, deadline=due)
        for retention in (0, 0.2, math.inf)
    }
    if end == "cancelled":
        for handle in handles.values():
            handle.cancel()
    stage.worker(children=1)
    stage.wait_until(stage.empty, 5, "the end")
    for retention, handle in handles.items():
        left_ms = stage.app.broker.command("PTTL", stage.app.broker.keys.task("default", handle.id))
        if end == "succeeded":
            assert left_ms == {0: -2, math.inf: -1}.get(retention, left_ms)
            assert left_ms <= 200
        elif end in ("failed", "dead_lettered"):
            assert 60_000 < left_ms <= 100_000
        elif retention == math.inf:
            assert left_ms == -1
        else:
            assert 30_000 < left_ms <= 100_000


def test_a_killed_child_is_replaced_within_200_ms(open_stage: Callable[..., Stage]) -> None:
    """By a hard limit as by a signal."""
    stage = open_stage(kill_grace_s=0.1)
    worker = stage.worker(children=2)
    for turn in range(3):
        name = f"t{turn}"
        stage.app.enqueue("deaf", {"name": name, "how": "gil"}, timeout=0.2, max_attempts=1)
        pid, ready = stage.started(name).pid, len(worker.ready_pids())
        stage.wait_until(lambda pid=pid: not alive(pid), 3, "the kill")
        at = now()
        stage.wait_until(lambda ready=ready: len(worker.ready_pids()) > ready, 2, "another child")
        assert now() - at < 0.2 * SLOW_MACHINE
    other = worker.live_pids()[0]
    os.kill(other, signal.SIGKILL)
    at, ready = now(), len(worker.ready_pids())
    stage.wait_until(lambda: len(worker.ready_pids()) > ready, 2, "another child")
    assert now() - at < 0.2 * SLOW_MACHINE
    assert Path(f"/proc/{worker.pid}").exists()
