"""`dtq top`: queues, rates, workers and children on one live screen."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.figures import Figures, Look
from dtq.cli.keys import Keys
from dtq.cli.manual import COUNT_FIELDS, WORKER_FIELDS, Manual, exits, within
from dtq.cli.output import console
from dtq.cli.timings import TYPE_FIELDS

if TYPE_CHECKING:
    from rich.live import Live

MANUAL = Manual(
    ["dtq top", "dtq top --interval 5", "dtq top --json --count 2 | tail -1 | jq .queues"],
    exits("ended by q or Ctrl-C, or after --count looks", interrupted=""),
    {
        "at": "when, by the clock of this host; an object a line",
        "seconds": "since the look before; 0 for the first one",
        "queues": "the known queues, by name",
        "workers": "those that are alive, by id",
        **within(
            "queues",
            {
                **COUNT_FIELDS,
                "rates": "tasks a second since the look before: submitted, succeeded, failed (or dead), retried",
            },
        ),
        "slowest": "task types of the busiest queues, those with the longest runs first",
        **within("workers", WORKER_FIELDS),
        **within("slowest", TYPE_FIELDS),
    },
)


def top(
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1, max=3600)] = 1.0,
    count: Annotated[
        int | None, typer.Option(help="Leave after so many looks; default: never on a terminal, else 2.", min=1)
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show queues with rates, workers, children, what runs, and the slowest types, on a screen drawn anew each second.

    q or Ctrl-C ends it. Into a pipe it prints the last of its looks; with --json an object a line for each.
    """
    use_redis_url(redis_url)
    live = sys.stdout.isatty() and not as_json
    looks = count if count is not None or live or as_json else 2
    with producer() as app:
        look = Look(app)
        try:
            if live:
                return _on_screen(look, interval, looks)
            return _as_text(look, interval, looks, as_json)
        except KeyboardInterrupt:
            return DONE


def _as_text(look: Look, interval: float, looks: int | None, as_json: bool) -> int:
    from dtq.cli.top_screen import draw
    from dtq.clock import SYSTEM

    taken = 0
    while True:
        figures = look.take()
        taken += 1
        last = looks is not None and taken >= looks
        if as_json:
            sys.stdout.write(json.dumps(figures.as_dict()) + "\n")
            sys.stdout.flush()
        elif last:
            console(sys.stdout).print(draw(figures, None))
        if last:
            return DONE
        SYSTEM.sleep(interval)


def _on_screen(look: Look, interval: float, looks: int | None) -> int:
    """Draw until the end. Nothing is drawn by a thread: a resize shows at the next look."""
    from rich.live import Live

    figures = look.take()  # what is wrong from the start ends the command before the screen is taken over
    screen = console(sys.stdout)
    with Keys() as keys, Live(console=screen, screen=True, auto_refresh=False) as live:
        taken, trouble = 1, ""
        while True:
            _show(live, figures, screen.height, trouble)
            if (looks is not None and taken >= looks) or keys.quit_within(interval):
                return DONE
            taken += 1
            figures, trouble = _again(look, figures)


def _again(look: Look, before: Figures) -> tuple[Figures, str]:
    """The next look; the one before, and what is wrong, while the server cannot be reached."""
    from dtq.cli.output import without_secrets
    from dtq.errors import BrokerUnavailable
    from dtq.legible import printable

    try:
        return look.take(), ""
    except BrokerUnavailable as error:
        return before, printable(without_secrets(str(error)))


def _show(live: Live, figures: Figures, height: int, trouble: str) -> None:
    from dtq.cli.top_screen import draw

    live.update(draw(figures, height, trouble), refresh=True)
