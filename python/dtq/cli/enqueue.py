"""`dtq enqueue`: send one task by its type, without its code."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dtq.cli.connection import AsJson, RedisUrl, complete_queue, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import Manual, exits
from dtq.cli.output import print_json, print_line
from dtq.cli.payload import read_payload, read_time

MANUAL = Manual(
    [
        """dtq enqueue send_mail --payload '{"to": "ada@example.org"}' --queue mail""",
        "dtq enqueue report --payload - --delay 3600 <report.json",
    ],
    exits("accepted", usage="the task is not valid", refused="refused: id exists, queue full, key in use"),
    {
        "task_id": "of the task; of the first one, where an idempotency key answers",
        "queue": "its queue",
        "duplicate": "true where an earlier task answers",
        "status": "how that one had ended, or null",
    },
)


def enqueue(
    task_type: Annotated[str, typer.Argument(help="Name under which the handler is registered.", metavar="TASK_TYPE")],
    payload: Annotated[
        str, typer.Option(help="Arguments as a JSON object; - reads standard input.", metavar="JSON")
    ] = "{}",
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Queue; default DTQ_QUEUE, else default.", autocompletion=complete_queue),
    ] = None,
    priority: Annotated[int | None, typer.Option(help="0 (lowest) to 9 (highest).")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds to wait before it may run.")] = None,
    run_at: Annotated[
        str | None, typer.Option(help="Time before which it does not run: ISO 8601 with an offset.", metavar="TIME")
    ] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds within which it must start.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that one attempt may take.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Time after which no attempt starts: ISO 8601 with an offset.", metavar="TIME")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="How often it is tried.")] = None,
    retention: Annotated[float | None, typer.Option(help="Seconds that its record is kept after it ended.")] = None,
    task_id: Annotated[str | None, typer.Option(help="Id of your own, refused when it exists.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key answers with the first task.")] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Send one task and print its id."""
    use_redis_url(redis_url)
    arguments = read_payload(payload)
    given: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay": delay,
        "run_at": read_time("run_at", run_at),
        "ttl": ttl,
        "timeout": timeout,
        "deadline": read_time("deadline", deadline),
        "max_attempts": max_attempts,
        "retention": retention,
        "task_id": task_id,
        "idempotency_key": idempotency_key,
    }
    with producer() as app:
        handle = app.enqueue(
            task_type, arguments, **{name: value for name, value in given.items() if value is not None}
        )
    if as_json:
        status = None if handle.ended_as is None else handle.ended_as.value
        print_json({"task_id": handle.id, "queue": handle.queue, "duplicate": handle.duplicate, "status": status})
    else:
        print_line(handle.id)
    return DONE
