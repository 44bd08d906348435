"""Cancel, against real workers: the handler is told at once, or stopped by force, and nothing else is touched."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from dtq.errors import IllegalTransition
from tests.process.harness import Stage, alive, now
from tests.process.test_deaths import session
from tests.servers import PrivateServer


def cancel(handle: Any) -> str:
    """What `cancel()` answers, `ended` where the task has."""
    try:
        return str(handle.cancel())
    except IllegalTransition:
        return "ended"


@pytest.mark.parametrize("kind", ["sleep", "async_sleep"])
def test_a_running_handler_is_interrupted_at_once(stage: Stage, kind: str) -> None:
    """Cancelled, not failed: no retry, no error in the log, the failed counter as before, the next task runs (S065)."""
    worker = stage.worker(children=1)
    handle = stage.app.enqueue(kind, {"name": "t", "seconds": 60}, max_attempts=4)
    stage.started("t")
    at = now()
    assert handle.cancel() == "requested"
    task = stage.ended(handle)
    assert now() - at < 0.5
    assert (task.status, task.cause, task.attempt, task.result) == ("cancelled", "cancel requested", 1, None)
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"})).status == "succeeded"
    assert len(stage.effects("start", "t")) == 1
    assert not stage.effects("end", "t")
    counts = stage.app.broker.queue_counts("default")
    assert counts.totals["cancelled"] == 1
    assert not {"failed", "dead_lettered", "retried"} & counts.totals.keys()
    assert not [line for line in worker.log.splitlines() if " ERROR " in line or "Traceback" in line]


def test_a_handler_may_clean_up_but_not_succeed(stage: Stage) -> None:
    """TaskCancelled is raised in it; what it returns after that is discarded."""
    stage.worker(children=1)
    handle = stage.app.enqueue("tidy", {"name": "t"})
    stage.started("t")
    handle.cancel()
    task = stage.ended(handle)
    assert (task.status, task.result) == ("cancelled", None)
    assert len(stage.effects("clean", "t")) == 1


@pytest.mark.parametrize("kind", ["stubborn", "async_stubborn", "gil", "no gil", "signals blocked"])
def test_a_handler_that_does_not_end_is_stopped_by_force(open_stage: Callable[..., Stage], kind: str) -> None:
    """After the kill grace its child is killed, whatever it swallows, and replaced; siblings run on (S066)."""
    stage = open_stage(kill_grace_s=0.5)
    worker = stage.worker(children=2)
    sibling = stage.app.enqueue("sleep", {"name": "sibling", "seconds": 2})
    stage.started("sibling")
    if kind.endswith("stubborn"):
        handle = stage.app.enqueue(kind, {"name": "t"})
    else:
        handle = stage.app.enqueue("deaf", {"name": "t", "how": kind})
    pid = stage.started("t").pid
    at = now()
    assert handle.cancel() == "requested"
    task = stage.ended(handle)
    assert now() - at < 1.5
    assert (task.status, task.attempt) == ("cancelled", 1)
    stage.wait_until(lambda: not alive(pid) and len(worker.live_pids()) == 2, 1, "a new child")
    assert not [e for e in stage.effects("work", "t") if e.at > at + 1.5]
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"})).status == "succeeded"
    assert stage.ended(sibling).attempt == 1
    assert " ERROR " not in worker.log


def test_what_runs_beside_a_stubborn_task_goes_elsewhere_uncharged(open_stage: Callable[..., Stage]) -> None:
    """Async handlers of the killed child start again, at no cost; one that is cancelled softly disturbs nobody."""
    stage = open_stage(kill_grace_s=0.3)
    stage.worker(children=1)
    soft, sibling, hard = (
        stage.app.enqueue("async_sleep", {"name": "soft", "seconds": 60}),
        stage.app.enqueue("async_sleep", {"name": "sibling", "seconds": 1.5}, max_attempts=1),
        stage.app.enqueue("async_stubborn", {"name": "hard"}),
    )
    for name in ("soft", "sibling", "hard"):
        stage.started(name)
    soft.cancel()
    assert stage.ended(soft).status == "cancelled"
    assert not [e for e in stage.effects("start", "sibling") if e.attempt > 1]
    hard.cancel()
    assert stage.ended(hard).status == "cancelled"
    task = stage.ended(sibling)
    assert (task.status, task.attempt) == ("succeeded", 2)
    assert task.history[0].cause == "killed beside a cancelled task"


def test_a_cancel_ends_the_whole_family(open_stage: Callable[..., Stage]) -> None:
    """Processes that the handler has started end with it (S059)."""
    stage = open_stage(kill_grace_s=0.3)
    stage.worker(children=1)
    handle = stage.app.enqueue("family", {"name": "t"})
    pid = stage.started("t").pid
    stage.wait_until(lambda: len(session(pid)) == 3, 5, "child, shell and sleeper")
    handle.cancel()
    stage.wait_until(lambda: not session(pid), 3, "nothing left")
    assert stage.ended(handle).status == "cancelled"


@pytest.mark.parametrize("kind", ["sleep", "async_sleep"])
def test_a_worker_finds_the_flag_by_itself(stage: Stage, kind: str) -> None:
    """The word by pub/sub is lost: the flag alone ends the task within two seconds."""
    stage.worker(children=1)
    handle = stage.app.enqueue(kind, {"name": "t", "seconds": 60})
    stage.started("t")
    broker = stage.app.broker
    live = broker.keys.live("default")
    value = broker.command("HGET", live, handle.id)
    at = now()
    broker.command("HSET", live, handle.id, value + b"c")  # what cancel.lua writes, without its PUBLISH
    assert stage.ended(handle).status == "cancelled"
    assert now() - at < 2.5


def test_cancels_are_heard_again_after_a_lost_connection(stage: Stage) -> None:
    """Every pub/sub connection is closed: the next cancel is told at once all the same, or found."""
    stage.worker(children=1)
    client = stage.app.broker.transport.client()
    stage.wait_until(lambda: client.pubsub_channels("dtq:{workers}:cancel:*"), 5, "a listening worker")
    for _ in range(3):
        handle = stage.app.enqueue("sleep", {"name": handle_name(), "seconds": 60})
        stage.wait_until(lambda handle=handle: handle.status() == "running", 5, "running")
        client.client_kill_filter(_type="pubsub")
        handle.cancel()
        assert stage.ended(handle, 5).status == "cancelled"
    stage.wait_until(lambda: client.pubsub_channels("dtq:{workers}:cancel:*"), 5, "a listening worker")
    client.close()


def handle_name() -> str:
    """A name that no other task has."""
    return f"n{random.getrandbits(32)}"


def test_a_claim_that_has_not_begun_never_starts(open_stage: Callable[..., Stage]) -> None:
    """Held behind a handler, or handed back meanwhile: cancelled without a start."""
    stage = open_stage(claim_budget_s=60)
    stage.worker(children=1)
    for handle in [stage.app.enqueue("mark", {"name": f"warm{i}"}) for i in range(50)]:
        stage.ended(handle)
    items = stage.app.enqueue_many("sleep", [{"name": f"t{i}", "seconds": 1 if i == 0 else 0} for i in range(20)])
    handles = [item.handle for item in items]
    stage.started("t0")
    answers = [handle.cancel() for handle in handles[1:]]
    assert set(answers) <= {"cancelled", "requested"}
    assert {stage.ended(handle).status.value for handle in handles[1:]} == {"cancelled"}
    assert stage.ended(handles[0]).status == "succeeded"
    assert {e.name for e in stage.effects("start") if e.name.startswith("t")} == {"t0"}


def test_cancel_against_claim_has_one_winner(stage: Stage) -> None:
    """Tasks are cancelled in random order while they drain: each answer agrees with what ran and the end (S063)."""
    count = 500
    items = stage.app.enqueue_many("sleep", [{"name": f"t{i}", "seconds": 0.02} for i in range(count)])
    handles = [item.handle for item in items]
    order = list(range(count))
    random.Random(11).shuffle(order)
    stage.worker(children=4)
    answers: dict[int, str] = {}
    for index in order:
        answers[index] = cancel(handles[index])
    stage.wait_until(stage.empty, 30, "nothing left")
    started = {e.name for e in stage.effects("start")}
    finished = {e.name for e in stage.effects("end")}
    for index, answer in answers.items():
        name, status = f"t{index}", handles[index].status().value
        if answer == "cancelled":
            assert (status, name in started) == ("cancelled", False), name
        elif answer == "requested":
            assert status == "cancelled", name
        else:
            assert (status, name in finished) == ("succeeded", True), name
    assert {"cancelled", "ended"} <= set(answers.values())
    totals = stage.app.broker.queue_counts("default").totals
    assert totals["cancelled"] + totals["succeeded"] == count
    assert not {"failed", "dead_lettered", "retried"} & totals.keys()


def test_a_burst_of_cancels_of_running_tasks(stage: Stage) -> None:
    """Hundreds of async handlers are cancelled in the moment they start: each ends, none holds its place."""
    stage.worker(children=2)
    handles = [
        item.handle
        for item in stage.app.enqueue_many("async_sleep", [{"name": f"t{i}", "seconds": 30} for i in range(150)])
    ]
    for handle in handles:
        cancel(handle)
    assert {stage.ended(handle).status.value for handle in handles} == {"cancelled"}
    others = [stage.app.enqueue("async_sleep", {"name": f"o{i}", "seconds": 0}) for i in range(20)]
    assert {stage.ended(handle).status.value for handle in others} == {"succeeded"}


def test_cancels_without_a_worker_survive_restarts(tmp_path: Any, wait_until: Any, redis_server: PrivateServer) -> None:
    """Queued, delayed and retrying tasks, cancelled while nobody works, never start (S064)."""
    with PrivateServer(persistence=True, config={"appendfsync": "always"}) as server:
        stage = Stage(server.url, tmp_path, wait_until, backoff_base_s=3, backoff_jitter=0)
        try:
            retrying = [stage.app.enqueue("raise_named", {"name": f"r{i}", "what": "Retry"}) for i in range(10)]
            worker = stage.worker()
            wait_until(lambda: all(h.status() == "retrying" for h in retrying), 10, "in retry wait")
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            before = len(stage.effects("start"))
            queued = [stage.app.enqueue("mark", {"name": f"q{i}"}) for i in range(10)]
            delayed = [stage.app.enqueue("mark", {"name": f"d{i}"}, delay=1) for i in range(10)]
            handles = [*queued, *delayed, *retrying]
            assert {handle.cancel() for handle in handles} == {"cancelled"}
            server.restart()
            stage.worker()
            last = stage.app.enqueue("mark", {"name": "last"}, delay=4)  # due after all of them would have been
            assert stage.ended(last, 15).status == "succeeded"
            assert {handle.status().value for handle in handles} == {"cancelled"}
            assert len(stage.effects("start")) == before + 1
        finally:
            stage.close()


@pytest.mark.parametrize("order", ["frozen first", "cancelled first"])
def test_a_cancel_whose_worker_dies_still_completes(open_stage: Callable[..., Stage], order: str) -> None:
    """The worker is frozen, then killed: the task ends cancelled within its lease and starts nowhere else (S068)."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    first = stage.worker()
    handle = stage.app.enqueue("sleep", {"name": "t", "seconds": 60})
    pid = stage.started("t").pid
    second = stage.worker()
    if order == "frozen first":
        for frozen in (first.pid, pid):
            os.kill(frozen, signal.SIGSTOP)
    assert handle.cancel() == "requested"
    os.kill(first.pid, signal.SIGKILL)
    assert stage.ended(handle, 4).status == "cancelled"
    assert len(stage.effects("start", "t")) == 1
    assert second.process.poll() is None


def test_an_unknown_id_leaves_no_mark(stage: Stage) -> None:
    """A cancel of an id that was never used does not reach the task that gets it later (S062)."""
    stage.worker(children=1)
    assert stage.app.broker.cancel("default", "later") == "unknown"
    assert stage.ended(stage.app.enqueue("mark", {"name": "t"}, task_id="later")).status == "succeeded"


def test_a_drain_ends_a_cancelled_task_cancelled(open_stage: Callable[..., Stage]) -> None:
    """A cancel during the grace of a drain interrupts at once; nothing is released."""
    stage = open_stage(shutdown_grace_s=10)
    worker = stage.worker(children=1)
    handle = stage.app.enqueue("sleep", {"name": "t", "seconds": 60})
    stage.started("t")
    worker.signal(signal.SIGTERM)
    stage.wait_until(lambda: "no new tasks" in worker.log, 5, "drain")
    handle.cancel()
    assert worker.wait(5) == 0
    assert stage.ended(handle).status == "cancelled"
