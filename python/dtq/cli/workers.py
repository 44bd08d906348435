"""`dtq workers`: the workers that are alive, their children, and what each runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import WORKER_FIELDS, Manual, exits, within
from dtq.cli.output import print_json, print_line, print_table
from dtq.clock import SYSTEM
from dtq.legible import age, size
from dtq.workers import Child, Worker

NONE_ALIVE = "no worker is alive; start one: dtq worker module:app"
MANUAL = Manual(
    ["dtq workers", "dtq workers --json"],
    exits("printed"),
    {"workers": "those that are alive, by id", **within("workers", WORKER_FIELDS)},
)


def workers(redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print the workers that are alive, their children with private memory, what each runs since when, and restarts."""
    use_redis_url(redis_url)
    with producer() as app:
        found = app.workers()
    if as_json:
        print_json({"workers": [worker.as_dict() for worker in found]})
    elif not found:
        print_line(NONE_ALIVE)
    else:
        print_workers("", found)
        print_table(
            "Children",
            ["worker", "child", "pid", "memory", "running", "task", "since"],
            [row for worker in found for child in worker.children for row in child_rows(worker, child)],
            numbers=(1, 2, 3),
        )
        restarts = [(worker.id, one.number, one.cause, ago(one.at)) for worker in found for one in worker.restarts]
        if restarts:
            print_table("Replaced children", ["worker", "child", "cause", "ago"], restarts, numbers=(1, 3))
    return DONE


def print_workers(title: str, found: Iterable[Worker]) -> None:
    """Write a table of workers."""
    rows = [worker_row(worker) for worker in found]
    print_table(title, ["worker", "state", "children", "running", "memory", "queues", "up"], rows, numbers=(2, 3, 4, 6))


def worker_row(worker: Worker) -> list[object]:
    """One worker as a line."""
    state = ", ".join(word for word, so in (("leader", worker.leader), ("draining", worker.draining)) if so)
    running = sum(len(child.tasks) for child in worker.children)
    private = sum(child.private_bytes or 0 for child in worker.children)
    queues = ", ".join(worker.queues)
    return [worker.id, state, len(worker.children), running, memory(private or None), queues, ago(worker.started_at)]


def child_rows(worker: Worker, child: Child) -> list[list[object]]:
    """One child as lines: one for each task that it runs."""
    head: list[object] = [worker.id, child.number, child.pid, memory(child.private_bytes)]
    if not child.tasks:
        return [[*head, "-", "", ""]]
    return [[*head, f"{task.task_type} ({task.queue})", task.task_id, ago(task.since)] for task in child.tasks]


def memory(private_bytes: int | None) -> str:
    """Bytes for people; "-" where they are not known."""
    return "-" if private_bytes is None else size(private_bytes)


def ago(moment: datetime) -> str:
    """How long ago this was, by the clock of this host."""
    return age(max(0.0, SYSTEM.now_ms() / 1000 - moment.timestamp()))
