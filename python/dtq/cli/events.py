"""`dtq events`: what becomes of tasks, live."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtq.cli.connection import (
    AsJson,
    RedisUrl,
    complete_event,
    complete_queue,
    producer,
    use_redis_url,
)
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import Manual, exits
from dtq.cli.output import print_error
from dtq.clock import SYSTEM
from dtq.legible import printable

if TYPE_CHECKING:
    from dtq.watching import Events

_AGAIN_S = 1.0
_FIELDS = {
    "event_id": "the same for every watcher",
    "ts": "when, in ms since 1970 by the server's clock",
    "type": "TASK_QUEUED, TASK_STARTED, TASK_SUCCEEDED, TASK_FAILED, TASK_RETRY_SCHEDULED, TASK_RETRIED, "
    "TASK_DEAD_LETTERED, TASK_CANCELLED, TASK_EXPIRED, TASK_DUPLICATE_ABSORBED, TASK_RELEASED, WORKER_STARTED, "
    "WORKER_STOPPED, WORKER_STALE or CONFIGURATION_CHANGED",
    "task_id": "the task, or null",
    "queue": "its queue, or null",
    "task_type": "its type, where it is known",
    "attempt": "number of the attempt, or null",
    "worker_id": "the worker, where there is one",
    "metadata": "of a change of the configuration: paused, task_type; else null",
}
MANUAL = Manual(
    [
        "dtq events",
        "dtq events --queue mail --type TASK_FAILED --type TASK_DEAD_LETTERED",
        "dtq events --json | jq .task_id",
    ],
    exits("ended by Ctrl-C, or after --count events", usage="a queue or type that cannot be", interrupted=""),
    _FIELDS,
)


def events(
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Only of this queue; may be repeated.", autocompletion=complete_queue),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only such events; may be repeated.", metavar="EVENT", autocompletion=complete_event
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(help="Leave after so many events.", min=1)] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Print events as they happen, one a line, until Ctrl-C; with --json an object a line.

    What happens while the server cannot be reached, or before this was started, is not told.
    """
    use_redis_url(redis_url)
    left = count
    with producer() as app, app.events(queues or None, types or None) as watcher:
        watcher.get(0)  # what is wrong from the start ends the command
        try:
            while left is None or left > 0:
                for event in _next(watcher)[:left]:
                    sys.stdout.write(_line(event, as_json) + "\n")
                    left = None if left is None else left - 1
                sys.stdout.flush()
        except KeyboardInterrupt:
            return DONE
    return DONE


def _next(watcher: Events) -> list[dict[str, Any]]:
    """The events of the next message; an outage is told once and waited out."""
    from dtq.errors import BrokerUnavailable

    told = False
    while True:
        try:
            found = watcher.get()
        except BrokerUnavailable as error:
            if not told:
                print_error(f"{error}; waiting for it")
            told = True
            SYSTEM.sleep(_AGAIN_S)
            continue
        if told:
            print_error("connected again; what happened meanwhile is not told")
        return found


def _line(event: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({name: event.get(name) for name in _FIELDS})  # ASCII: it steers no terminal
    at = datetime.fromtimestamp(int(event.get("ts", 0)) / 1000, UTC).isoformat(timespec="milliseconds")
    words = (
        [event.get(name) for name in ("queue", "task_type", "task_id")]
        if event.get("task_id")
        else [event.get("queue")]
    )
    text = " ".join([at, str(event.get("type")), *("-" if word is None else str(word) for word in words)])
    if event.get("metadata"):
        text += f" {json.dumps(event['metadata'])}"
    if event.get("attempt") is not None:
        text += f" attempt {event['attempt']}"
    if event.get("worker_id"):
        text += f" on {event['worker_id']}"
    return printable(text, 2000)
