"""A worker with nowhere to write, and one that is stopped at any moment of its start."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tests.process.harness import Stage, alive


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_worker_without_standard_streams(stage: Stage, closed: str) -> None:
    """Started with some of them closed, as by a bare init: what handlers write hurts nothing that took the numbers."""
    with stage.command("/bin/sh", "-c", f'exec "$@" {closed}', "sh") as process:
        tasks = [stage.app.enqueue("talk", {"name": f"t{i}"}, max_attempts=1) for i in range(20)]
        ended = [stage.ended(task, 15) for task in tasks]
        assert [task.attempt for task in ended] == [1] * 20
        more = [stage.app.enqueue("mark", {"name": f"m{i}"}) for i in range(20)]
        assert {stage.ended(task).status.value for task in more} == {"succeeded"}
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize("moments", [3, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_sigterm_at_any_moment(stage: Stage, moments: int) -> None:
    """From its first instruction on: it ends at once, nothing survives it, and what it ran is never charged twice."""
    dice, count = random.Random(moments), min(2000, 200 * moments)
    handles = [
        item.handle
        for item in stage.app.enqueue_many("sleep", [{"name": f"t{i}", "seconds": 0.01} for i in range(count)])
    ]
    for _ in range(moments):
        worker = stage.worker(ready=False)
        time.sleep(dice.random() * 1.5)  # the moment
        worker.signal(signal.SIGTERM)
        code = worker.wait(10)
        # Before Python has come to dtq's own first lines, the kernel ends it.
        assert code == 0 or (code == -signal.SIGTERM and not worker.log), f"{code}\n{worker.log}"
        assert "Traceback" not in worker.log
        stage.wait_until(lambda worker=worker: not any(map(alive, [*worker.ready_pids(), *worker.template_pids()])), 2)
    assert stage.app.broker.workers() == []
    stage.worker(burst=True, ready=False).wait(60)
    assert {(task.status.value, task.attempt) for task in (handle.task() for handle in handles)} == {("succeeded", 1)}
    assert {effect.attempt for effect in stage.effects("start")} == {1}
    assert len(stage.effects("start")) == count
