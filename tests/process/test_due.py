"""Tasks that wait for their time start when it has come: the leader sleeps until then, and is told of earlier ones."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from dtq.broker import Broker
from dtq.settings import Settings
from dtq.worker.scheduler import Leadership, Scheduler
from tests.broker.driver import QUEUE, enqueue
from tests.conftest import WaitUntil
from tests.process.harness import Stage
from tests.servers import PrivateServer

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


def test_a_worker_that_leads_again_looks_at_every_schedule_at_once(
    clean_server: PrivateServer, wait_until: WaitUntil
) -> None:
    """What it knew is old: others were told of earlier tasks and new queues while it did not lead."""
    with closing(Broker(Settings(redis_url=clean_server.url))) as broker:
        mine, other = (Leadership(broker, broker.settings, f"host-0000000{number}") for number in (1, 2))
        scheduler = Scheduler(broker, mine, lambda: True)
        mine.run()
        scheduler.run()
        broker.command("DEL", broker.keys.leader())
        other.run()
        mine.run()
        scheduler.hurry(QUEUE)
        scheduler.run()
        assert not mine.leads
        broker.prepare_queue(QUEUE)
        enqueue(broker, place="w1;")
        wait_until(lambda: broker.run("due", QUEUE, 1, 1)[2:], 5, "the task is due")
        other.give_up()
        mine.run()
        scheduler.run()
        assert mine.leads
        assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0
