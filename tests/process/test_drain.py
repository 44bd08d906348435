"""Workers end to end: a batch is drained, a burst ends, a stop is warm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.conftest import WaitUntil
from tests.process.harness import Stage, now
from tests.servers import PrivateServer


def test_a_batch_is_drained(stage: Stage) -> None:
    """Every task runs, and a burst worker leaves with code 0 when nothing is left."""
    counts = stage.app.enqueue_many("noop", ({"i": i} for i in range(5000))).run()
    assert counts.accepted == 5000
    worker = stage.worker(burst=True, ready=False)
    assert worker.wait() == 0, worker.log
    totals = stage.app.broker.queue_counts("default")
    assert (totals.waiting, totals.running, totals.totals["succeeded"]) == (0, 0, 5000)


def test_a_burst_waits_for_retries(stage: Stage) -> None:
    """A task that is to be retried keeps a burst worker alive until it has ended."""
    handle = stage.app.enqueue("second_time", {"name": "t"})
    worker = stage.worker(burst=True, ready=False)
    assert worker.wait() == 0, worker.log
    task = handle.task()
    assert (task.status, task.attempt, task.result) == ("succeeded", 2, "t")


def test_async_handlers_run_together(stage: Stage) -> None:
    """One child runs many async handlers at a time."""
    handles = [stage.app.enqueue("async_sleep", {"name": f"t{i}", "seconds": 0.5}) for i in range(20)]
    stage.worker(children=1)
    begun = stage.started("t0").at
    for handle in handles:
        assert stage.ended(handle).result is not None
    assert max(e.at for e in stage.effects("end")) - begun < 2.0


def test_async_outcomes_are_settled_beside_a_sync_handler(stage: Stage) -> None:
    """An async task that ends while a sync handler keeps the child's main thread busy is settled at once."""
    stage.worker(children=1)
    quick = stage.app.enqueue("async_sleep", {"name": "quick", "seconds": 0.5})
    stage.started("quick")
    stage.app.enqueue("sleep", {"name": "long", "seconds": 5})
    stage.started("long")
    stage.ended(quick, 3)
    assert not stage.effects("end", "long")


def test_async_outcomes_are_settled_when_they_come_between_two_sync_handlers(open_stage: Callable[..., Stage]) -> None:
    """An async task that ends just before the next sync handler of a batch begins does not wait for that one's end."""
    stage = open_stage(claim_budget_s=60)
    stage.worker(children=1)
    waiting = stage.app.enqueue("wait_for_gate", {"name": "gate"})
    stage.started("gate")
    stage.app.enqueue("sleep", {"name": "busy", "seconds": 0.3})
    stage.started("busy")
    stage.app.enqueue("open_gate", {})
    stage.app.enqueue("sleep", {"name": "long", "seconds": 4})
    stage.started("long")
    stage.ended(waiting, 3)
    assert not stage.effects("end", "long")


def test_what_a_leaving_child_has_read_goes_elsewhere_at_once(stage: Stage) -> None:
    """A task that reaches a waiting child together with the order to leave does not wait for its async handlers."""
    first = stage.worker(children=1)
    stage.app.enqueue("async_sleep", {"name": "long", "seconds": 8})
    (child,) = first.live_pids()
    begun = stage.started("long")
    assert begun.pid == child

    def is_waiting() -> bool:
        clients = stage.app.broker.command("CLIENT", "LIST").decode()
        return "cmd=xreadgroup" in clients

    stage.wait_until(is_waiting, 5, "a standing read")
    os.kill(child, signal.SIGSTOP)
    task = stage.app.enqueue("mark", {"name": "t"})
    first.signal(signal.SIGTERM)
    stage.wait_until(lambda: "no new tasks" in first.log, 5, "the drain")
    stage.worker(children=1)
    os.kill(child, signal.SIGCONT)
    stage.ended(task, 4)
    assert stage.effects("start", "t")[0].pid != child
    assert not stage.effects("end", "long")


def test_a_stop_is_warm(stage: Stage) -> None:
    """SIGTERM: what runs ends, what waits stays queued, the exit code is 0, and the worker's lease is gone."""
    worker = stage.worker()
    running = [stage.app.enqueue("sleep", {"name": f"r{i}", "seconds": 1}) for i in range(2)]
    for i in range(2):
        stage.started(f"r{i}")
    waiting = stage.app.enqueue("mark", {"name": "later"})
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == 0, worker.log
    assert [handle.task().status for handle in running] == ["succeeded"] * 2
    assert {e.attempt for e in stage.effects("end")} == {1}
    assert waiting.task().status == "queued"
    assert stage.app.broker.workers() == []
    assert "again to stop now" in worker.log


def test_a_signal_to_the_group_is_warm(stage: Stage) -> None:
    """A terminal's Ctrl-C reaches the whole foreground group, and still nothing is lost."""
    worker = stage.worker()
    running = stage.app.enqueue("sleep", {"name": "r", "seconds": 1})
    stage.started("r")
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait(5) == 0, worker.log
    assert (running.task().status, running.task().attempt) == ("succeeded", 1)


def test_an_idle_worker_stops_quickly(stage: Stage) -> None:
    """SIGINT on an idle worker ends it at once, with code 0."""
    worker = stage.worker()
    worker.signal(signal.SIGINT)
    assert worker.wait(2) == 0


def test_unstarted_claims_come_back_at_a_stop(open_stage: Callable[..., Stage]) -> None:
    """What a busy child has claimed and not begun runs elsewhere at once, on its first attempt."""
    stage = open_stage(claim_budget_s=60, claim_max=10)
    worker = stage.worker(children=1)
    handles = [stage.app.enqueue("mark", {"name": f"warm{i}"}) for i in range(50)]
    for handle in handles:
        stage.ended(handle)
    stage.app.enqueue("sleep", {"name": "busy", "seconds": 2})
    stage.started("busy")
    rest = [stage.app.enqueue("mark", {"name": f"rest{i}"}) for i in range(9)]
    worker.signal(signal.SIGTERM)
    at = now()
    stage.worker(children=1)
    for handle in rest:
        assert stage.ended(handle).attempt == 1
    assert max(e.at for e in stage.effects("start") if e.name.startswith("rest")) - at < 3


def test_a_stop_that_runs_out_of_patience_gives_the_task_back(open_stage: Callable[..., Stage]) -> None:
    """After the grace a running task is interrupted and released: queued again, not charged, exit code 6."""
    stage = open_stage(shutdown_grace_s=0.5)
    worker = stage.worker(children=2)
    tasks = [
        stage.app.enqueue("sleep", {"name": "sync", "seconds": 60}),
        stage.app.enqueue("async_sleep", {"name": "async", "seconds": 60}),
    ]
    stage.started("sync")
    stage.started("async")
    worker.signal(signal.SIGTERM)
    assert worker.wait(4) == 6, worker.log
    for handle in tasks:
        task = handle.task()
        assert (task.status, task.attempt, task.released) == ("queued", 2, 1)
        assert [line.cause for line in task.history] == ["released"]


def test_a_second_signal_stops_now(stage: Stage) -> None:
    """The second Ctrl-C ends the grace; the task is released, not failed, and the exit code is 130."""
    worker = stage.worker(children=1)
    task = stage.app.enqueue("sleep", {"name": "long", "seconds": 60})
    stage.started("long")
    worker.signal(signal.SIGINT)
    stage.wait_until(lambda: "again to stop now" in worker.log)
    worker.signal(signal.SIGINT)
    assert worker.wait(2) == 130, worker.log
    assert (task.task().status, task.task().released) == ("queued", 1)


def test_a_deaf_handler_is_killed_at_a_stop(open_stage: Callable[..., Stage]) -> None:
    """A handler that no exception reaches is killed after the kill grace, and its task released."""
    stage = open_stage(shutdown_grace_s=0.2, kill_grace_s=0.3)
    worker = stage.worker(children=1)
    task = stage.app.enqueue("deaf", {"name": "deaf"})
    stage.started("deaf")
    worker.signal(signal.SIGTERM)
    assert worker.wait(3) == 6, worker.log
    assert stage.app.broker.states("default", [task.id]) in (b"2", b"3")
    second = stage.worker(children=1)
    stage.started("deaf", 2)
    second.close()


def test_queues_in_strict_order(stage: Stage) -> None:
    """A worker of several queues takes the first one's tasks first, and waits on all of them."""
    low = [stage.app.enqueue("mark", {"name": f"low{i}"}, queue="low") for i in range(5)]
    high = [stage.app.enqueue("mark", {"name": f"high{i}"}, queue="high") for i in range(5)]
    stage.worker(children=1, queues=["high", "low"])
    for handle in [*low, *high]:
        stage.ended(handle)
    assert [e.name for e in stage.effects()][:5] == [f"high{i}" for i in range(5)]
    late = stage.app.enqueue("mark", {"name": "late"}, queue="low")
    assert stage.ended(late, 1).status == "succeeded"


def test_priorities(stage: Stage) -> None:
    """Higher bands first."""
    handles = [stage.app.enqueue("mark", {"name": f"p{band}"}, priority=band) for band in (1, 9, 5)]
    stage.worker(children=1)
    for handle in handles:
        stage.ended(handle)
    assert [e.name for e in stage.effects()] == ["p9", "p5", "p1"]


def test_a_stop_without_an_answer_from_redis_is_not_a_clean_one(tmp_path: Path, wait_until: WaitUntil) -> None:
    """What has ended could not be settled and runs again: exit code 6, and the last words say why."""
    with PrivateServer() as server:
        stage = Stage(server.url, tmp_path, wait_until, shutdown_grace_s=0.5, kill_grace_s=0.5)
        try:
            worker = stage.worker(children=1)
            stage.app.enqueue("sleep", {"name": "t", "seconds": 0.5})
            stage.started("t")
            server.freeze()
            worker.signal(signal.SIGTERM)
            assert worker.wait(20) == 6, worker.log
            assert "Redis did not answer at the end" in worker.log
        finally:
            server.thaw()
            stage.close()
