"""Pause, resume, requeue and `once` with real workers."""

from __future__ import annotations

from typing import Any

from tests.process.harness import Stage


def script_calls(stage: Stage) -> int:
    """How many script calls the server has served."""
    client: Any = stage.app.broker.transport.client()
    try:
        return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))
    finally:
        client.close()


def test_a_paused_queue_with_a_backlog_keeps_still(stage: Stage) -> None:
    """No child starts anything or spins over what waits; a resumption is seen within a second."""
    stage.worker()
    queue = stage.app.queue()
    stage.ended(stage.app.enqueue("noop", {}))
    queue.pause()
    handles = [stage.app.enqueue("mark", {"name": f"m{i}"}) for i in range(300)]
    deadline = stage.app.client.clock.monotonic() + 1.5
    before = script_calls(stage)
    stage.wait_until(lambda: stage.app.client.clock.monotonic() > deadline)
    # 2 children x a turn each half second, the leader's rounds (promote each 50 ms), and the looks of this test
    assert script_calls(stage) - before < 100
    assert stage.effects() == []
    assert queue.counts().waiting == 300
    resumed_at = stage.app.client.clock.monotonic()
    queue.resume()
    stage.started("m0", timeout=2)
    assert stage.app.client.clock.monotonic() - resumed_at < 1.0
    for handle in handles:
        stage.ended(handle)
    assert len(stage.effects("start")) == 300
    assert {handle.task().attempt for handle in handles} == {1}


def test_a_paused_queue_does_not_hold_up_the_others(stage: Stage) -> None:
    """Its streams are left out of the read; the other queue's tasks start at once."""
    stage.worker(queues=["one", "two"])
    stage.ended(stage.app.enqueue("noop", {}, queue="one"))
    stage.app.queue("one").pause()
    waiting = stage.app.enqueue("mark", {"name": "paused"}, queue="one")
    for i in range(20):
        stage.ended(stage.app.enqueue("mark", {"name": f"m{i}"}, queue="two"))
    assert stage.effects(name="paused") == []
    stage.app.queue("one").resume()
    stage.ended(waiting, timeout=2)


def test_a_paused_type_waits_beside_running_ones(stage: Stage) -> None:
    """The rest of the queue runs on; a resumption brings it back at once."""
    stage.worker()
    queue = stage.app.queue()
    queue.pause("mark")
    paused = [stage.app.enqueue("mark", {"name": f"m{i}"}) for i in range(30)]
    for handle in [stage.app.enqueue("noop", {"i": i}) for i in range(100)]:
        stage.ended(handle)
    assert stage.effects() == []
    queue.resume("mark")
    for handle in paused:
        stage.ended(handle, timeout=3)
    assert len(stage.effects("start")) == 30


def test_burst_does_not_wait_for_a_paused_queue(stage: Stage) -> None:
    """What waits in it is left."""
    stage.app.queue().pause()
    stage.app.enqueue("mark", {"name": "later"})
    assert stage.worker(burst=True, ready=False).wait() == 0
    assert stage.effects() == []


def test_a_requeued_task_runs_with_its_new_payload(stage: Stage) -> None:
    """From the dead letter to the result."""
    stage.worker()
    handle = stage.app.enqueue("mark", {"wrong": 1})
    assert stage.ended(handle).status == "dead_lettered"
    stage.app.queue().requeue(handle.id, payload={"name": "mended"})
    task = stage.ended(handle)
    assert (task.result, task.attempt, task.metadata) == ("mended", 1, {"previous_attempts": 1})


def test_a_side_effect_happens_once_although_its_task_runs_twice(stage: Stage) -> None:
    """The second attempt gets what the first one's effect gave (spec §7)."""
    stage.worker()
    for task_type in ("charge", "acharge"):
        task = stage.ended(stage.app.enqueue(task_type, {"name": task_type}))
        assert (task.status, task.attempt, task.result) == ("succeeded", 2, "receipt of attempt 1")
        assert len(stage.effects("charge", task_type)) == 1
