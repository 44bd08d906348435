"""`dtq audit`: who did what that cannot be undone."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dtq.bodies import audit_body
from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.manual import Manual, exits, within
from dtq.cli.output import print_json, print_line, print_table
from dtq.dead_letters import check_entry
from dtq.models import from_ms

MANUAL = Manual(
    ["dtq audit", "dtq audit --limit 200 --json"],
    exits("printed"),
    {
        "entries": "the acts, newest first",
        "cursor": "to go on with --cursor; null at the end",
        **within(
            "entries",
            {
                "entry": "its id",
                "at": "when, by the server's clock",
                "actor": "who acted",
                "action": "cancel, run, delete, requeue, discard, purge, purge_dead_letters, pause or resume",
                "queue": "where",
                "task_id": "of which task; empty for an act on a queue",
                "request_id": "what ties it to a request, and entries of one act together",
                "facts": "what else was kept of it",
            },
        ),
    },
)


def audit(
    limit: Annotated[int, typer.Option(help="How many entries.", min=1, max=10_000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on behind an earlier listing.", metavar="CURSOR")] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Print the newest entries of the audit stream: who did what that cannot be undone, and to what."""
    use_redis_url(redis_url)
    with producer() as app:
        entries = app.audit(limit, None if cursor is None else check_entry("cursor", cursor))
    following = entries[-1].entry if len(entries) == limit else None
    if as_json:
        print_json({"entries": [audit_body(entry) for entry in entries], "cursor": following})
    elif not entries:
        print_line("nothing yet")
    else:
        print_table(
            "",
            ["time", "actor", "action", "queue", "task", "request", "facts"],
            [
                (
                    moment.isoformat(timespec="seconds") if (moment := from_ms(entry.time_ms)) else "",
                    *(entry.actor, entry.action, entry.queue, entry.task_id, entry.request_id),
                    json.dumps(entry.facts) if entry.facts else "",
                )
                for entry in entries
            ],
            whole=(0, 2, 4, 5),
            spare=(5, 6, 1, 3),
        )
    return DONE
