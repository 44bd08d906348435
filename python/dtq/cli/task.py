"""`dtq task`: look one task up, or cancel it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE, NOT_FOUND, REFUSED
from dtq.cli.output import print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.models import TaskStatus

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
        print_task(found)
    return DONE


@commands.command("cancel")
def cancel(
    task_ids: Annotated[list[str] | None, typer.Argument(help="Ids of the tasks.", metavar="[ID]...")] = None,
    queue: Queue = None,
    task_type: Annotated[
        str | None, typer.Option("--type", help="Cancel by filter: tasks of this type.", metavar="TASK_TYPE")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="Cancel by filter: tasks in these statuses, with commas between; default: all that wait.",
            metavar="queued,retrying,pending,running",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel all that waits in the queue, of every type.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what a filter matches.")] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Cancel tasks, by id or by filter: at once while they wait, by interrupting the handler while they run.

    A filter (--type, --status, --all) works on one queue, named by --queue, else the default one.

    Exit codes: 0 cancelled or asked for, 2 usage, 3 Redis unavailable, 4 an id was not found, 5 one has ended already.
    """
    use_redis_url(redis_url)
    filtered = task_type is not None or status is not None or everything
    if task_ids and (filtered or dry_run):
        raise ValueError("task cancel: give ids, or a filter (--type, --status, --all), not both")
    if not task_ids and not filtered:
        raise ValueError(
            "task cancel: nothing is named; give ids, or a filter: --type, --status, or --all for the queue"
        )
    with producer() as app:
        if task_ids:
            return _cancel_ids(app, [_checked(task_id) for task_id in task_ids], queue, as_json)
        return _cancel_matching(app, queue, task_type, status, dry_run, as_json)


def _cancel_ids(app: App, task_ids: list[str], queue: str | None, as_json: bool) -> int:
    if len(task_ids) == 1:
        handle = app.get(task_ids[0], queue)
        outcome = handle.cancel()
        if as_json:
            print_json({"id": handle.id, "queue": handle.queue, "outcome": outcome})
        else:
            print_line("cancelled" if outcome == "cancelled" else "cancel requested; its worker has been told")
        return DONE
    from dtq.errors import IllegalTransition, TaskNotFound

    rows: list[dict[str, str | None]] = []
    codes: set[int] = set()
    for task_id in task_ids:
        found: str | None = queue
        try:
            handle = app.get(task_id, queue)
            found = handle.queue
            outcome = handle.cancel()
        except TaskNotFound:
            outcome = "not found"
            codes.add(NOT_FOUND)
        except IllegalTransition:
            outcome = "has ended"
            codes.add(REFUSED)
        rows.append({"id": task_id, "queue": found, "outcome": outcome})
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            print_line(f"{row['id']} {row['outcome']}")
    return min(codes, default=DONE)


def _cancel_matching(
    app: App, queue: str | None, task_type: str | None, status: str | None, dry_run: bool, as_json: bool
) -> int:
    from dtq.broker import WAITING
    from dtq.options import check_queue

    name = check_queue(app.settings.queue if queue is None else queue)
    statuses = WAITING if status is None else _statuses(status)
    counts = app.broker.cancel_matching(name, task_type=task_type, statuses=statuses, dry_run=dry_run)
    if as_json:
        print_json({"queue": name, "dry_run": dry_run, **asdict(counts)})
        return DONE
    if dry_run:
        print_line(f"{name}: would cancel {counts.cancelled}, and ask the workers of {counts.requested} running")
    else:
        print_line(f"{name}: cancelled {counts.cancelled}, asked the workers of {counts.requested} running")
    return DONE


def _statuses(text: str) -> list[TaskStatus]:
    from dtq.models import TaskStatus

    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {status.value: status for status in TaskStatus}
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise ValueError(f"status: {shown} is no status; give pending, queued, retrying, running, with commas between")
    return [known[name] for name in names]


def _checked(task_id: str) -> str:
    if not _TASK_ID.fullmatch(task_id):
        raise ValueError("task_id: not an id; 1 to 128 of A-Z a-z 0-9 . _ : -")
    return task_id


def print_task(task: dict[str, Any]) -> None:
    """Write a task's fields, its traceback and its history."""
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
