"""`dtq task cancel`: by id, or by filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dtq.cli.confirm import Yes, confirmed
from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE, REFUSED
from dtq.cli.manual import Manual, exits
from dtq.cli.output import print_json, print_line
from dtq.cli.progress import progress
from dtq.cli.task import ANSWER_FIELDS, WHY_FIELDS, Queue, checked_id, each

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.models import TaskStatus

_FILTER = "by filter: cancelled, requested (they run, their workers are told), ended (while it went on), dry_run"


MANUAL = Manual(
    [
        "dtq task cancel 0356fVwnYBJV2FGLkq1cfQ",
        "dtq task cancel --queue mail --type newsletter --dry-run",
        "dtq task cancel --queue mail --status retrying,pending --yes",
    ],
    exits(
        "cancelled or asked for",
        not_found="an id was not found",
        refused="one has ended already, or not confirmed",
    ),
    {
        **ANSWER_FIELDS,
        "outcome": "cancelled, requested (it runs, its worker is told), not found, refused",
        **WHY_FIELDS,
        "cancelled": _FILTER,
    },
)


def cancel(
    task_ids: Annotated[list[str] | None, typer.Argument(help="Ids of the tasks.", metavar="ID")] = None,
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
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Cancel tasks, by id or by filter: at once while they wait, by interrupting the handler while they run.

    A filter (--type, --status, --all) works on one queue, named by --queue, else the default one, and asks first.
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
            words = {"requested": "cancel requested; its worker has been told"}
            checked = [checked_id(task_id) for task_id in task_ids]
            return each(app, checked, queue, lambda handle: handle.cancel(), as_json, words)
        return _cancel_matching(app, queue, task_type, status, dry_run, yes, as_json)


def _cancel_matching(
    app: App, queue: str | None, task_type: str | None, status: str | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    from dtq.broker import WAITING
    from dtq.options import check_queue

    name = check_queue(app.settings.queue if queue is None else queue)
    statuses = list(WAITING) if status is None else _statuses(status)
    what = f"{task_type} tasks" if task_type is not None else "tasks"
    named = ", ".join(status.value for status in statuses)
    if not dry_run and not confirmed(f"Cancel the {what} of queue {name} that are {named}?", yes):
        return REFUSED
    with progress(f"cancel in {name}") as advance:
        counts = app.broker.cancel_matching(
            name, task_type=task_type, statuses=statuses, dry_run=dry_run, looked=advance
        )
    if as_json:
        print_json({"queue": name, "dry_run": dry_run, **asdict(counts)})
        return DONE
    if dry_run:
        print_line(f"{name}: would cancel {counts.cancelled}, and ask the workers of {counts.requested} running")
    else:
        print_line(f"{name}: cancelled {counts.cancelled}, asked the workers of {counts.requested} running")
    return DONE


def _statuses(text: str) -> list[TaskStatus]:
    from dtq.broker import LIVE
    from dtq.models import TaskStatus

    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {status.value: status for status in TaskStatus}
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise ValueError(f"status: {shown} is no status; give pending, queued, retrying, running, with commas between")
    if ended := [name for name in names if known[name] not in LIVE]:
        raise ValueError(f"status: a task that is {ended[0]} has ended; give pending, queued, retrying, running")
    return [known[name] for name in names]
