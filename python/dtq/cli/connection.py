"""The options every command shares: which Redis, and what is known from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.settings import Settings

URL_VARIABLE = "DTQ_REDIS_URL"
_COMPLETION_S = 0.5
"""Somebody waits with the finger on the tab key."""

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        help=f"Redis or Valkey to use; default {URL_VARIABLE}, else the embedded store.",
        metavar="URL",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON on stdout.")]


def use_redis_url(url: str | None) -> None:
    """Make `url` the one of this process and of those it starts: the environment is not listed by `ps`."""
    if url is not None:
        os.environ[URL_VARIABLE] = url


def settings(children: int | None = None) -> Settings:
    """Return the settings from the environment, and the option. Raises InvalidSettings, naming all that is wrong."""
    from dtq.settings import Settings

    return Settings.from_environment(children=children)


def producer() -> App:
    """Return an application without handlers, for commands that enqueue and look up."""
    from dtq.app import App

    return App()


def complete_queue(incomplete: str) -> list[str]:
    """Known queues that begin so, for the shell; none where no server is told of or answers at once."""
    if not os.environ.get(URL_VARIABLE):
        return []  # a private server is not started for a tab key
    from dtq.app import App
    from dtq.errors import DtqError

    try:
        with App(enqueue_deadline_s=_COMPLETION_S) as app:
            return [name for name in app.queue_names() if name.startswith(incomplete)]
    except DtqError:
        return []


def complete_status(incomplete: str) -> list[str]:
    """Statuses that begin so, for the shell."""
    from dtq.models import TaskStatus

    return [status.value for status in TaskStatus if status.value.startswith(incomplete)]


def complete_event(incomplete: str) -> list[str]:
    """Events that begin so, for the shell."""
    from dtq.watching import EVENT_TYPES

    return [name for name in EVENT_TYPES if name.startswith(incomplete.upper())]
