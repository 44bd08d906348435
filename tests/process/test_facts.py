"""What `app.workers()` says of real workers: children and memory, running tasks, restarts with their cause, a drain."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from dtq.workers import Worker
from tests.process.harness import Stage


def only(stage: Stage) -> Worker | None:
    """The one worker, or None while it is not there."""
    workers = stage.app.workers()
    return workers[0] if len(workers) == 1 else None


def test_children_and_what_they_run(stage: Stage) -> None:
    """Within seconds of the start; what runs is seen at once, since its claim."""
    worker = stage.worker(children=2)
    told = stage.wait_until(lambda: (seen := only(stage)) and len(seen.children) == 2 and seen, 10, "both children")
    assert (told.pid, told.draining, told.restarts) == (worker.pid, False, ())
    assert {child.pid for child in told.children} == set(worker.live_pids())
    assert all((child.private_bytes or 0) > 100_000 for child in told.children)
    assert "default" in told.queues
    handle = stage.app.enqueue("until", {"name": "slow"})
    pid = stage.started("slow").pid
    seen = only(stage)
    assert seen is not None
    ((child, task),) = [(child, task) for child in seen.children for task in child.tasks]
    assert (child.pid, task.task_id, task.task_type, task.attempt) == (pid, handle.id, "until", 1)
    assert task.since == handle.task().started_at
    stage.wait_until(lambda: (now := only(stage)) and now.leader, 10, "the only worker leads")
    worker.signal(signal.SIGTERM)
    stage.wait_until(lambda: (now := only(stage)) and now.draining, 10, "the drain is told")
    (stage.effects_path.parent / f"{stage.effects_path.name}.slow").touch()
    assert worker.wait() == 0
    assert stage.app.workers() == []


def test_workers_that_come_and_go_are_told(open_stage: Callable[..., Stage]) -> None:
    """Started, stopped, and found dead by another one."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    seen: list[tuple[str, str]] = []

    def heard(kind: str, worker_id: str) -> bool:
        seen.extend((event["type"], event["worker_id"]) for event in events.get(0.2))
        return (kind, worker_id) in seen

    with stage.app.events(types=["WORKER_STARTED", "WORKER_STOPPED", "WORKER_STALE"]) as events:
        events.get(0)
        first, second = stage.worker(children=1), stage.worker(children=1)
        ids = {worker.pid: worker.id for worker in stage.app.workers()}
        for worker in (first, second):
            stage.wait_until(lambda worker=worker: heard("WORKER_STARTED", ids[worker.pid]), 10, "started")
        first.signal(signal.SIGKILL)
        stage.wait_until(lambda: heard("WORKER_STALE", ids[first.pid]), 20, "found dead")
        second.signal(signal.SIGTERM)
        stage.wait_until(lambda: heard("WORKER_STOPPED", ids[second.pid]), 10, "stopped")
    assert len(seen) == 4


def test_restarts_are_told_with_their_cause(open_stage: Callable[..., Stage]) -> None:
    """A kill by its signal, a limit by its name; newest first."""
    stage = open_stage(max_tasks_per_child=3)
    worker = stage.worker(children=1)
    (pid,) = worker.live_pids()
    os.kill(pid, signal.SIGKILL)
    stage.wait_until(lambda: len(worker.ready_pids()) == 2, 10, "a new child")
    for handle in [stage.app.enqueue("noop", {"i": i}) for i in range(3)]:
        stage.ended(handle)
    told = stage.wait_until(
        lambda: (seen := only(stage)) and len(seen.restarts) == 2 and seen, 10, "both restarts are told"
    )
    leave, kill = told.restarts
    assert kill.cause == "signal SIGKILL"
    assert "max_tasks_per_child" in leave.cause
    assert leave.at >= kill.at
    assert {restart.number for restart in told.restarts} == {0}
