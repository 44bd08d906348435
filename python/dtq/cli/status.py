"""`dtq status`: the queues and the workers as they are now."""

from __future__ import annotations

from dtq.bodies import queue_body
from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import COUNT_FIELDS, WORKER_FIELDS, Manual, exits, within
from dtq.cli.output import print_json, print_line
from dtq.cli.queue import print_queues
from dtq.cli.workers import NONE_ALIVE, print_workers

MANUAL = Manual(
    ["dtq status", "dtq status --json"],
    exits("printed"),
    {
        "queues": "the known queues, by name",
        "workers": "those that are alive, by id",
        **within("queues", COUNT_FIELDS),
        **within("workers", WORKER_FIELDS),
    },
)


def status(redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print what waits, runs and failed in each queue, and the workers that are alive."""
    use_redis_url(redis_url)
    with producer() as app:
        queues = app.queue_counts()
        found = app.workers()
    if as_json:
        print_json(
            {"queues": [queue_body(queue) for queue in queues], "workers": [worker.as_dict() for worker in found]}
        )
        return DONE
    if queues:
        print_queues("Queues", queues)
    else:
        print_line("no queue yet; the first task or worker makes one")
    if found:
        print_workers("Workers", found)
    else:
        print_line(NONE_ALIVE)
    return DONE
