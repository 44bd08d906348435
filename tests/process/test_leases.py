"""Leases in real workers: live work is never taken away, orphans start once, and who lost its lease is not heard."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest
import redis

import dtq
from dtq.keys import GROUP
from tests.process.harness import Stage, WorkerProcess
from tests.servers import PrivateServer

ODD = "tests.process.oddities:app"


def everyone(worker: WorkerProcess) -> list[int]:
    """All processes of a worker."""
    return [worker.pid, *worker.template_pids(), *worker.live_pids()]


def test_waiting_for_longer_than_the_lease_is_no_reason_to_run_twice(open_stage: Callable[..., Stage]) -> None:
    """A delay and a retry of several leases: pending or retrying meanwhile, one start when due (S001, S024)."""
    stage = open_stage(lease_s=0.4, renew_s=0.1)
    for _ in range(2):
        stage.worker(app=ODD)
    delayed = stage.app.enqueue("mark", {"name": "delayed"}, delay=2)
    retried = stage.app.enqueue("raise_later", {"name": "retried", "after": 1.5})
    first = stage.started("retried", 1)
    for _ in range(5):
        time.sleep(0.2)
        assert (delayed.status(), retried.status()) == ("pending", "retrying")
    assert stage.ended(delayed).attempt == 1
    assert stage.ended(retried).attempt == 2
    assert len(stage.effects("start", "delayed")) == 1
    assert [e.attempt for e in stage.effects("start", "retried")] == [1, 2]
    assert 1.45 < stage.effects("start", "retried")[1].at - first.at < 2.2


@pytest.mark.parametrize("kind", ["sleep", "async_sleep"])
def test_slow_work_of_a_live_worker_is_never_taken_away(open_stage: Callable[..., Stage], kind: str) -> None:
    """Handlers of five leases, idle workers beside them: one start and one end each (S002)."""
    stage = open_stage(lease_s=0.6, renew_s=0.1)
    for _ in range(3):
        stage.worker(children=2)
    handles = [stage.app.enqueue(kind, {"name": f"t{i}", "seconds": 3}) for i in range(6)]
    for handle in handles:
        task = stage.ended(handle, 20)
        assert (task.status, task.attempt, task.history) == ("succeeded", 1, ())
    assert (len(stage.effects("start")), len(stage.effects("end"))) == (6, 6)


def test_every_orphan_is_started_once(open_stage: Callable[..., Stage]) -> None:
    """Several workers find the same dead one: each of its tasks starts at exactly one of them (S004)."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    first = stage.worker(app=ODD, children=1)
    handles = [stage.app.enqueue("async_sleep", {"name": f"t{i}", "seconds": 0.8 if i else 30}) for i in range(30)]
    stage.started("t0")
    stage.wait_until(lambda: len(stage.effects("start")) > 10, 10, "a handful of starts")
    for pid in everyone(first):
        os.kill(pid, signal.SIGKILL)
    before = len(stage.effects("start"))
    held = {e.name for e in stage.effects("start")} - {e.name for e in stage.effects("end")}
    assert len(held) > 5
    for _ in range(4):
        stage.worker(children=1, ready=False)
    for handle in handles[1:]:
        assert stage.ended(handle, 20).status == "succeeded"
    again = stage.started("t0", 2)
    starts = [e.name for e in stage.effects("start")[before:]]
    assert len(starts) == len(set(starts))
    assert held <= set(starts)
    assert again.attempt == 2


def test_a_late_answer_changes_nothing(open_stage: Callable[..., Stage]) -> None:
    """A worker is frozen as a whole; another one ends the task; what the first one says then is refused."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    frozen = stage.worker(app=ODD, children=1)
    handle = stage.app.enqueue("which_attempt", {"name": "t", "seconds": 0.5})
    pid = stage.started("t").pid
    family = everyone(frozen)
    for each in family:
        os.kill(each, signal.SIGSTOP)
    other = stage.worker(app=ODD, children=1)
    assert stage.started("t", 2, 15).pid != pid
    task = stage.ended(handle)
    assert (task.status, task.result, task.attempt) == ("succeeded", "attempt 2", 2)
    for each in reversed(family):  # the supervisor, once awake, ends the others
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)
    stage.wait_until(lambda: "starts" in frozen.log and "under another id" in frozen.log, 5, "the loss of its lease")
    stage.wait_until(lambda: len(stage.app.broker.workers()) == 2, 5, "both workers")
    again = handle.task()
    assert (again.status, again.result, again.attempt) == ("succeeded", "attempt 2", 2)
    totals = stage.app.broker.queue_counts("default").totals
    assert (totals["succeeded"], totals.get("retried", 0)) == (1, 0)
    assert len(stage.effects("start", "t")) == 2
    assert other.process.poll() is None
    assert stage.ended(stage.app.enqueue("noop")).status == "succeeded"


def test_a_key_waits_for_the_recovery_of_its_task(open_stage: Callable[..., Stage]) -> None:
    """A killed worker leaves no key that blocks its own task, and none that lets a second one in (S070)."""
    stage = open_stage(lease_s=0.8, renew_s=0.2)
    keyed = {"idempotency_key": "t", "unique": "t"}
    worker = stage.worker(app=ODD, children=1)
    first = stage.app.enqueue("slow", {"name": "t", "seconds": 0.5}, **keyed)
    stage.started("t")
    for pid in everyone(worker):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(dtq.IdempotencyInProgress) as caught:
        stage.app.enqueue("slow", {"name": "t", "seconds": 0.5}, **keyed)
    assert caught.value.task_id == first.id
    stage.worker(app=ODD, children=1)
    stage.started("t", 2)
    with pytest.raises(dtq.UniqueConflict):
        stage.app.enqueue("slow", {"name": "t", "seconds": 0.5}, unique="t")
    assert stage.ended(first).status == "succeeded"
    again = stage.app.enqueue("slow", {"name": "t", "seconds": 0.5}, **keyed)
    assert (again.id, again.duplicate) == (first.id, True)
    assert len(stage.effects("start", "t")) == 2


@pytest.mark.parametrize(("settings", "lease"), [({}, "30 s"), ({"lease_s": 2.5, "renew_s": 1}, "2.5 s")])
def test_a_worker_says_how_long_it_is_believed_alive(
    open_stage: Callable[..., Stage], settings: dict[str, float], lease: str
) -> None:
    """Minutes at most by default, and printed at the start (S010)."""
    worker = open_stage(**settings).worker(children=1, log_level=10)
    assert f"go elsewhere {lease} after" in worker.log


def test_consumers_do_not_pile_up(open_stage: Callable[..., Stage], clean_server: PrivateServer) -> None:
    """Workers come and go, by signal and by force: what they were called is forgotten (S011, S016)."""
    stage = open_stage(lease_s=0.6, renew_s=0.1)
    for turn in range(4):
        worker = stage.worker(app=ODD, children=1)
        handle = stage.app.enqueue("slow", {"name": f"t{turn}", "seconds": 0.2})
        stage.started(f"t{turn}")
        worker.signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
        worker.wait()
        assert handle.task().status in ("running", "succeeded")
    last = stage.worker(app=ODD, children=1)
    stage.wait_until(stage.empty, 15, "everything done")
    with clean_server.client() as client:

        def consumers() -> list[bytes]:
            return [c["name"] for c in client.xinfo_consumers("dtq:stream:{default}:p5", "workers")]

        stage.wait_until(lambda: len(consumers()) <= 3, 10, "few consumers")
        stage.wait_until(lambda: client.scard("dtq:{workers}") == 1, 10, "one worker")
        assert client.hlen("dtq:queue:{default}:sends") <= 2
    assert last.process.poll() is None


@pytest.mark.parametrize("kind", ["until", "async_until"])
def test_what_a_late_read_brings_does_not_wait_until_its_child_is_idle(stage: Stage, kind: str) -> None:
    """A read that was given up is carried out late. Nobody else looks for what it got, and its child is never idle."""
    worker = stage.worker(children=1)
    stage.app.enqueue(kind, {"name": "first"})
    stage.started("first")
    if kind == "async_until":
        # beside the first, until the child has handlers in all places and reads no more
        stage.app.enqueue("sleep", {"name": "busy", "seconds": 1.0})
        stage.started("busy")
    keys = stage.app.broker.keys
    (consumer,) = [name for name in stage.app.broker.consumers("default") if name != "shelf"]
    stray = stage.app.enqueue("mark", {"name": "stray"})
    with redis.Redis.from_url(stage.environment["DTQ_REDIS_URL"]) as client:
        got = client.xreadgroup(GROUP, consumer, {keys.stream("default", 5): ">"}, count=1)
    assert got, worker.log
    for i in range(200):
        stage.app.enqueue("sleep", {"name": f"before-{i}", "seconds": 0.002})
    (stage.directory / "effects.first").touch()
    i = 0
    until = time.monotonic() + 8
    while not stage.effects("start", "stray") and time.monotonic() < until:
        if stage.app.broker.queue_counts("default").waiting < 100:
            for _ in range(100):
                stage.app.enqueue("sleep", {"name": f"behind-{i}", "seconds": 0.002})
                i += 1
        time.sleep(0.02)
    assert stage.effects("start", "stray"), "it waits for as long as the child has other work"
    assert stage.ended(stray).attempt == 1
