"""`dtq task`: look tasks up, list, cancel, run now, delete."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtq.bodies import task_body
from dtq.cli.confirm import Yes, confirmed
from dtq.cli.connection import AsJson, RedisUrl, complete_queue, producer, use_redis_url
from dtq.cli.exit_codes import DONE, NOT_FOUND, REFUSED, code_of
from dtq.cli.manual import TASK_FIELDS, Manual, command, exits
from dtq.cli.output import print_error, print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.errors import DtqError
    from dtq.handles import Handle

commands = typer.Typer(help="Look tasks up, list, cancel, run or delete them.", no_args_is_help=False)

_TASK_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

TaskId = Annotated[str, typer.Argument(help="Id of the task.", metavar="ID")]
TaskIds = Annotated[list[str], typer.Argument(help="Ids of the tasks.", metavar="ID")]
Queue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", help="Its queue; default: every known queue is asked.", autocompletion=complete_queue
    ),
]

ANSWER_FIELDS = {
    "task_id": "the task; several ids give a list of such objects",
    "queue": "its queue, or null where it was not found",
}
WHY_FIELDS = {"code": "of the refusal, as in docs/errors.md, or null", "message": "the reason, or null"}


@command(
    commands,
    "task get",
    Manual(
        ["dtq task get 0356fVwnYBJV2FGLkq1cfQ", "dtq task get order-12 --queue shop --json"],
        exits("found", usage="no task id, or more than one queue holds it", not_found="not found"),
        TASK_FIELDS,
    ),
)
def get(task_id: TaskId, queue: Queue = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print everything that is known of one task."""
    use_redis_url(redis_url)
    with producer() as app:
        found = task_body(app.get(checked_id(task_id), queue).task())
    if as_json:
        print_json(found)
    else:
        print_task(found)
    return DONE


@command(
    commands,
    "task run",
    Manual(
        ["dtq task run 0356fVwnYBJV2FGLkq1cfQ", "dtq task run order-12 order-13 --queue shop"],
        exits(
            "queued",
            usage="no task id, or more than one queue holds it",
            not_found="one was not found",
            refused="one is queued already, runs, or has ended otherwise than as a dead letter",
        ),
        {**ANSWER_FIELDS, "outcome": "queued, or why not: not found, refused", **WHY_FIELDS},
    ),
)
def run(task_ids: TaskIds, queue: Queue = None, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Make pending or retrying tasks due now, and queue dead letters again."""
    use_redis_url(redis_url)
    with producer() as app:
        return each(app, task_ids, queue, lambda handle: handle.run(), as_json)


@command(
    commands,
    "task delete",
    Manual(
        ["dtq task delete 0356fVwnYBJV2FGLkq1cfQ", "dtq task delete order-12 order-13 --yes"],
        exits(
            "deleted",
            usage="no task id, or more than one queue holds it",
            not_found="one was not found",
            refused="one has not ended, or not confirmed",
        ),
        {**ANSWER_FIELDS, "outcome": "deleted, or why not: not found, refused", **WHY_FIELDS},
    ),
)
def delete(
    task_ids: TaskIds, queue: Queue = None, yes: Yes = False, redis_url: RedisUrl = None, as_json: AsJson = False
) -> int:
    """Delete what is kept of tasks that have ended: record, result and dead letter."""
    use_redis_url(redis_url)
    for task_id in task_ids:
        checked_id(task_id)
    what = f"task {task_ids[0]}" if len(task_ids) == 1 else f"{len(task_ids)} tasks"
    if not confirmed(f"Delete what is kept of {what}?", yes):
        return REFUSED

    def remove(handle: Handle[Any]) -> str:
        handle.delete()
        return "deleted"

    with producer() as app:
        return each(app, task_ids, queue, remove, as_json)


def each(
    app: App,
    task_ids: Iterable[str],
    queue: str | None,
    act: Callable[[Handle[Any]], str],
    as_json: bool,
    words: Mapping[str, str] | None = None,
) -> int:
    """Act on tasks one by one, and say of each what became of it; the exit code.

    words: what is printed of an outcome where there is one task, instead of the outcome.
    """
    from dtq.errors import DtqError, TaskNotFound

    rows: list[dict[str, str | None]] = []
    codes: set[int] = set()
    for task_id in task_ids:
        found: str | None = queue
        refusal: DtqError | None = None
        try:
            handle = app.get(checked_id(task_id), queue)
            found = handle.queue
            outcome = act(handle)
        except DtqError as error:
            code = code_of(error)
            if code not in (NOT_FOUND, REFUSED):
                raise
            outcome, refusal = "not found" if isinstance(error, TaskNotFound) else "refused", error
            codes.add(code)
        rows.append({"task_id": task_id, "queue": found, "outcome": outcome, **why(refusal)})
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    else:
        for row in rows:
            if row["message"] is not None:
                print_error(row["message"])
            if len(rows) > 1:
                print_line(f"{row['task_id']} {row['outcome']}")
            elif row["message"] is None:
                outcome = str(row["outcome"])
                print_line((words or {}).get(outcome, outcome))
    return min(codes, default=DONE)


def why(refusal: DtqError | None) -> dict[str, str | None]:
    """The code and the message of a refusal, as the HTTP API names them."""
    if refusal is None:
        return {"code": None, "message": None}
    return {"code": refusal.code, "message": str(refusal)}


def checked_id(task_id: str) -> str:
    """The id, where it is one. Raises ValueError."""
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
            "history",
            columns,
            [["" if row[name] is None else row[name] for name in columns] for row in history],
            numbers=(0,),
            whole=(2, 3, 4),
            spare=(4, 3, 5),
        )
