"""Tasks that wait for their time start when it has come: the leader sleeps until then, and is told of earlier ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.process.harness import Stage

LARGE = 250_000
"""Bytes of a payload of which few fit into one look at the schedule."""


def test_large_tasks_that_fall_due_together_start_together(stage: Stage) -> None:
    """A look reads a bounded number of bytes; what it left lies there, due, and is taken by the next one at once."""
    stage.worker()
    due_at = datetime.now(UTC) + timedelta(seconds=1.5)
    tasks = [stage.app.enqueue("swallow", {"data": "x" * LARGE}, run_at=due_at) for _ in range(12)]
    for handle in tasks:
        stage.ended(handle)
    late = [(started - due_at).total_seconds() for handle in tasks if (started := handle.task().started_at) is not None]
    assert len(late) == 12
    assert max(late) < 1.5
