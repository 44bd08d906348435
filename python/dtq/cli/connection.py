"""The options every command shares: which Redis, and what is known from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.settings import Settings

URL_VARIABLE = "DTQ_REDIS_URL"

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
