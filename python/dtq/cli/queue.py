"""`dtq queue`: list queues, look at one, pause, resume or purge it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from dtq.bodies import queue_body
from dtq.cli.confirm import Yes, confirmed, whole_steps
from dtq.cli.connection import AsJson, RedisUrl, complete_queue, producer, use_redis_url
from dtq.cli.exit_codes import DONE, NOT_FOUND, REFUSED
from dtq.cli.manual import COUNT_FIELDS, Manual, command, exits, within
from dtq.cli.output import print_error, print_fields, print_json, print_line, print_table
from dtq.cli.progress import followed
from dtq.cli.timings import ROW, TYPE_FIELDS, hour, slowest_first
from dtq.history import COUNTS
from dtq.legible import age

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.broker import QueueCounts

commands = typer.Typer(help="List queues, look at one, pause, resume or purge it.", no_args_is_help=False)

Name = Annotated[
    str, typer.Argument(help="Name of the queue.", metavar="QUEUE", autocompletion=complete_queue, show_default=False)
]
TaskType = Annotated[str | None, typer.Option("--type", help="Only this task type.", metavar="TASK_TYPE")]
_SWITCHED = {
    "queue": "its name",
    "task_type": "the task type, or null for the whole queue",
    "paused": "how it stands now",
    "changed": "false where it stood so before",
}


@command(
    commands,
    "queue list",
    Manual(
        ["dtq queue list", "dtq queue list --json"],
        exits("listed"),
        {"queues": "the known queues, by name", **within("queues", COUNT_FIELDS)},
    ),
)
def list_(redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """List the queues with what waits, runs and is dead in each."""
    use_redis_url(redis_url)
    with producer() as app:
        counts = app.queue_counts()
    if as_json:
        print_json({"queues": [queue_body(one) for one in counts]})
    elif not counts:
        print_line("no queue yet; the first task or worker makes one")
    else:
        print_queues("", counts)
    return DONE


def print_queues(title: str, queues: Iterable[QueueCounts]) -> None:
    """Write a table of queues."""
    print_table(
        title,
        ["queue", "waiting", "running", "scheduled", "dead", "oldest"],
        [[named(one), one.waiting, one.running, one.scheduled, one.dead, duration_ms(one.oldest_ms)] for one in queues],
        numbers=(1, 2, 3, 4, 5),
    )


def named(queue: QueueCounts) -> str:
    """A queue's name, with what of it is paused."""
    if queue.paused:
        return f"{queue.queue} (paused)"
    types = ", ".join(queue.paused_types)
    return f"{queue.queue} (paused: {types})" if types else queue.queue


def duration_ms(milliseconds: int | None) -> str:
    """A duration for people; "-" for none."""
    return "-" if milliseconds is None else age(milliseconds / 1000)


@command(
    commands,
    "queue stats",
    Manual(
        ["dtq queue stats mail", "dtq queue stats mail --json"],
        exits("printed", not_found="no such queue"),
        {
            **COUNT_FIELDS,
            "task_types": "the types seen in it, and those that are paused",
            "types": "how long their attempts took since the queue exists, the slowest first",
            "hour": "the last hour: counts by what happened; wait and execution as of a type",
            **within("types", TYPE_FIELDS),
        },
    ),
)
def stats(name: Name, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print all figures of one queue: what stands, its task types and their times, and the last hour."""
    use_redis_url(redis_url)
    with producer() as app:
        if unknown(app, name):
            return NOT_FOUND
        queue = app.queue(name)
        counts, types = queue.counts(), queue.task_types()
        slowest, last = slowest_first(name, queue.timings()), hour(queue.history())
    if as_json:
        timed = [one.as_dict() for one in slowest]
        print_json({**queue_body(counts), "task_types": types, "types": timed, "hour": last})
        return DONE
    print_fields(
        [
            ("queue", named(counts)),
            *((field, getattr(counts, field)) for field in ("waiting", "running", "scheduled", "retrying", "dead")),
            ("oldest", duration_ms(counts.oldest_ms)),
            ("next due in", duration_ms(counts.next_due_ms)),
            ("task types", ", ".join(types) or "-"),
        ]
    )
    if slowest:
        rows = [one.row() for one in slowest]
        print_table("Types, since the queue exists", ROW, rows, numbers=range(1, len(ROW)))
    print_table("Last hour", ["what", "tasks"], [(name, last[name]) for name in COUNTS], numbers=(1,))
    if counts.totals:
        print_table("Since the queue exists", ["what", "tasks"], sorted(counts.totals.items()), numbers=(1,))
    return DONE


@command(
    commands,
    "queue pause",
    Manual(
        ["dtq queue pause mail", "dtq queue pause mail --type send_mail"],
        exits("it is paused", not_found="no such queue"),
        _SWITCHED,
    ),
)
def pause(name: Name, task_type: TaskType = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Start nothing more from a queue, or of one task type in it, until it is resumed; what runs goes on."""
    return _switch("pause", name, task_type, redis_url, as_json)


@command(
    commands,
    "queue resume",
    Manual(
        ["dtq queue resume mail", "dtq queue resume mail --type send_mail"],
        exits("it is not paused (any more)", not_found="no such queue"),
        _SWITCHED,
    ),
)
def resume(name: Name, task_type: TaskType = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Start tasks of a queue, or of one task type in it, again."""
    return _switch("resume", name, task_type, redis_url, as_json)


def _switch(action: str, name: str, task_type: str | None, redis_url: str | None, as_json: bool) -> int:
    use_redis_url(redis_url)
    with producer() as app:
        if unknown(app, name):
            return NOT_FOUND
        queue = app.queue(name)
        changed = queue.pause(task_type) if action == "pause" else queue.resume(task_type)
    what = f"queue {name}" if task_type is None else f"task type {task_type} in queue {name}"
    if as_json:
        print_json({"queue": name, "task_type": task_type, "paused": action == "pause", "changed": changed})
    else:
        already = "was paused already" if action == "pause" else "was not paused"
        print_line(f"{what}: {f'{action}d' if changed else already}")
    return DONE


@command(
    commands,
    "queue purge",
    Manual(
        ["dtq queue purge mail", "dtq queue purge mail --yes --json"],
        exits("purged", not_found="no such queue", refused="not confirmed", interrupted="interrupted; it says how far"),
        {"queue": "its name", "purged": "how many tasks were ended"},
    ),
)
def purge(name: Name, yes: Yes = False, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """End all waiting tasks of a queue as cancelled, without records; what runs goes on.

    Ctrl-C stops between two slices; the rest waits on, and can be purged again.
    """
    use_redis_url(redis_url)
    purged = 0
    with producer() as app:
        if unknown(app, name):
            return NOT_FOUND
        queue = app.queue(name)
        counts = queue.counts()
        question = f"End {counts.waiting} waiting and {counts.scheduled} scheduled tasks of queue {name}?"
        if not confirmed(question, yes):
            return REFUSED
        total = counts.waiting + counts.scheduled
        try:
            for step in followed(whole_steps(queue.purge_steps()), f"purge of {name}", total, int):
                purged += step
        finally:
            if as_json:
                print_json({"queue": name, "purged": purged})
            else:
                print_line(f"queue {name}: {purged} tasks purged")
    return DONE


def unknown(app: App, name: str) -> bool:
    """Whether nobody knows this queue; says so."""
    known = app.queue_names()
    if name in known:
        return False
    print_error(f"queue: {name!r} is not known; known are {', '.join(known) or 'none'}")
    return True
