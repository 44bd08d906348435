"""`dtq task`: look one task up, or cancel it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer

from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.output import print_fields, print_json, print_line, print_table

commands = typer.Typer(help="Look tasks up, or cancel them.", no_args_is_help=False)

_TASK_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

TaskId = Annotated[str, typer.Argument(help="Id of the task.", metavar="ID")]
Queue = Annotated[str | None, typer.Option(help="Its queue; default: every known queue is asked.")]


@commands.command("get")
def get(task_id: TaskId, queue: Queue = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print everything that is known of one task.

    Exit codes: 0 found, 2 no task id or more than one queue holds it, 3 Redis unavailable, 4 not found.
    """
    use_redis_url(redis_url)
    with producer() as app:
        found = app.get(_checked(task_id), queue).task().as_dict()
    if as_json:
        print_json(found)
    else:
        _print(found)
    return DONE


@commands.command("cancel")
def cancel(task_id: TaskId, queue: Queue = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Cancel one task: at once while it waits, by interrupting its handler while it runs.

    Exit codes: 0 cancelled or asked for, 2 usage, 3 Redis unavailable, 4 not found, 5 it has ended already.
    """
    use_redis_url(redis_url)
    with producer() as app:
        handle = app.get(_checked(task_id), queue)
        outcome = handle.cancel()
    if as_json:
        print_json({"id": handle.id, "queue": handle.queue, "outcome": outcome})
    else:
        print_line("cancelled" if outcome == "cancelled" else "cancel requested; its worker has been told")
    return DONE


def _checked(task_id: str) -> str:
    if not _TASK_ID.fullmatch(task_id):
        raise ValueError("task_id: not an id; 1 to 128 of A-Z a-z 0-9 . _ : -")
    return task_id


def _print(task: dict[str, Any]) -> None:
    history = task.pop("history")
    traceback = task.pop("traceback")
    structured = ("payload", "result", "headers", "metadata")
    print_fields(
        (name, json.dumps(value, ensure_ascii=False) if name in structured else value)
        for name, value in task.items()
        if value is not None and value != {}
    )
    if traceback:
        print_line("traceback")
        for line in traceback.splitlines():
            print_line(f"  {line}")
    if history:
        columns = ("attempt", "cause", "started_at", "ended_at", "worker_id", "error_class", "error")
        print_table(
            "history", columns, [["" if row[name] is None else row[name] for name in columns] for row in history]
        )
