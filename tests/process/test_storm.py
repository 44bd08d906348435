"""Many kills in the middle of a batch: every task ends, no attempt number runs twice, nothing is stuck."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

from tests.process.harness import Stage, now


def test_children_and_template_are_killed_all_the_time(open_stage: Callable[..., Stage]) -> None:
    """400 tasks, a kill every 50 ms: each ends succeeded, and its starts have attempt numbers that only grow."""
    stage = open_stage()
    dice = random.Random(7)
    items = stage.app.enqueue_many(
        "sleep", ({"name": f"t{i}", "seconds": dice.choice([0, 0, 0.01, 0.1])} for i in range(400)), max_attempts=10
    )
    handles = [item.handle for item in items]
    worker = stage.worker(children=3, overrides={"claim_budget_s": 0.2})
    until = now() + 4
    while now() < until:
        victims = [*worker.live_pids(), worker.template_pids()[-1]]
        victim = dice.choice(victims)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        time.sleep(0.05)  # the pace of the storm, not a hope
    stage.wait_until(stage.empty, 30, "nothing left")
    tasks = [handle.task() for handle in handles]
    assert Counter(task.status.value for task in tasks) == {"succeeded": 400}
    starts: dict[str, list[int]] = {}
    for effect in stage.effects("start"):
        starts.setdefault(effect.name, []).append(effect.attempt)
    assert len(starts) == 400
    for name, attempts in starts.items():
        assert attempts == sorted(set(attempts)), name
