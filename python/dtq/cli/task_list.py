"""`dtq task list`: tasks page by page, filtered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from dtq.bodies import task_body
from dtq.cli.connection import AsJson, RedisUrl, complete_queue, complete_status, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import TASK_FIELDS, Manual, exits, within
from dtq.cli.output import print_json, print_line, print_table
from dtq.cli.payload import read_time
from dtq.models import Task

_PAGE = 1000


MANUAL = Manual(
    [
        "dtq task list",
        "dtq task list --queue mail --status dead_lettered --type send_mail --limit 200",
        "dtq task list --created-after 2030-12-31T00:00:00+00:00 --json",
    ],
    exits("listed", usage="a filter or cursor that cannot be"),
    {
        "tasks": "the tasks, live ones first",
        "cursor": "to go on with --cursor; null at the end",
        "partial": "true where a list of ended tasks is full, so that older ones are known by id only",
        **within("tasks", TASK_FIELDS),
    },
)


def list_(
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Only of this queue.", autocompletion=complete_queue)
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only in this status.", metavar="STATUS", autocompletion=complete_status)
    ] = None,
    task_type: Annotated[str | None, typer.Option("--type", help="Only this task type.", metavar="TASK_TYPE")] = None,
    created_after: Annotated[
        str | None, typer.Option(help="Only those made at this time or later: ISO 8601 with an offset.", metavar="TIME")
    ] = None,
    created_before: Annotated[
        str | None, typer.Option(help="Only those made before this time.", metavar="TIME")
    ] = None,
    worker_id: Annotated[str | None, typer.Option("--worker", help="Only of this worker.", metavar="ID")] = None,
    batch_id: Annotated[str | None, typer.Option("--batch", help="Only of this batch.", metavar="ID")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=100_000)] = 50,
    cursor: Annotated[
        str | None, typer.Option(help="Go on behind an earlier listing with the same filters.", metavar="CURSOR")
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """List tasks: running ones first, then queued, waiting, and ended ones, the newest first.

    Of ended tasks the newest DTQ_RECENT (10 000) of each queue and status are listed; it says where there are others.
    """
    use_redis_url(redis_url)
    filters: dict[str, Any] = {
        "status": status,
        "task_type": task_type,
        "created_after": read_time("created_after", created_after),
        "created_before": read_time("created_before", created_before),
        "worker_id": worker_id,
        "batch_id": batch_id,
    }
    found: list[Task] = []
    partial = False
    with producer() as app:
        while True:  # a page may come back short where a filter matches little
            page = app.tasks(queue, limit=min(limit - len(found), _PAGE), cursor=cursor, **filters)
            found += page.tasks
            cursor, partial = page.cursor, partial or page.partial
            if cursor is None or len(found) >= limit:
                break
    if as_json:
        print_json({"tasks": [task_body(task) for task in found], "cursor": cursor, "partial": partial})
        return DONE
    if found:
        columns = ["task", "queue", "status", "type", "attempt", "created", "worker", "error"]
        print_table(
            "", columns, [_row(task) for task in found], numbers=(4,), whole=(0, 2, 5, 6), spare=(6, 5, 4, 1, 3)
        )
    print_line(_summary(len(found), cursor, partial))
    return DONE


def _summary(shown: int, cursor: str | None, partial: bool) -> str:
    text = f"showing {shown}" if cursor is None else f"showing {shown}, there are more; go on with --cursor {cursor}"
    return f"{text} (of ended tasks the newest are listed, older ones are known by id only)" if partial else text


def _row(task: Task) -> tuple[object, ...]:
    error = f"{task.error_class}: {task.error}" if task.error_class else task.error or task.cause or ""
    return (
        *(task.id, task.queue, task.status.value, task.task_type, f"{task.attempt}/{task.max_attempts}"),
        *(_moment(task.created_at), task.worker_id or "", error[:100]),
    )


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(timespec="seconds")
