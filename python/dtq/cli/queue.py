"""`dtq queue`: pause, resume or purge a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtq.cli.confirm import Yes, confirmed, whole_steps
from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE, NOT_FOUND, REFUSED
from dtq.cli.output import print_error, print_json, print_line

if TYPE_CHECKING:
    from dtq.app import App

commands = typer.Typer(help="Pause, resume or purge a queue.", no_args_is_help=False)

Name = Annotated[str, typer.Argument(help="Name of the queue.", metavar="QUEUE")]
TaskType = Annotated[str | None, typer.Option("--type", help="Only this task type.", metavar="TASK_TYPE")]


@commands.command("pause")
def pause(name: Name, task_type: TaskType = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Start nothing more from a queue, or of one task type in it, until it is resumed; what runs goes on.

    Exit codes: 0 it is paused, 2 usage, 3 Redis unavailable, 4 no such queue.
    """
    return _switch("pause", name, task_type, redis_url, as_json)


@commands.command("resume")
def resume(name: Name, task_type: TaskType = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Start tasks of a queue, or of one task type in it, again.

    Exit codes: 0 it is not paused (any more), 2 usage, 3 Redis unavailable, 4 no such queue.
    """
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


@commands.command("purge")
def purge(name: Name, yes: Yes = False, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """End all waiting tasks of a queue as cancelled, without records; what runs goes on.

    Ctrl-C stops between two slices; the rest waits on, and can be purged again.

    Exit codes: 0 purged, 2 usage, 3 Redis unavailable, 4 no such queue, 5 not confirmed, 130 interrupted.
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
        try:
            for step in whole_steps(queue.purge_steps()):
                purged += step
        finally:
            if as_json:
                print_json({"queue": name, "purged": purged})
            else:
                print_line(f"queue {name}: {purged} tasks purged")
    return DONE


def unknown(app: App, name: str) -> bool:
    """Whether nobody knows this queue; says so."""
    known = app.broker.queues()
    if name in known:
        return False
    print_error(f"queue: {name!r} is not known; known are {', '.join(known) or 'none'}")
    return True
