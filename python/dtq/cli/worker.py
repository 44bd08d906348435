"""`dtq worker`: run the handlers of an application."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Annotated

import typer

from dtq.cli.connection import RedisUrl
from dtq.cli.manual import Manual

MANUAL = Manual(
    ["dtq worker my_project.tasks:app", "dtq worker my_project.tasks:app --children 8 --queues critical,default"],
    {
        0: "a clean stop",
        1: "its processes cannot run",
        2: "application or setting wrong",
        3: "Redis unavailable at the start",
        6: "the grace was exceeded and running tasks were given back",
        130: "stopped at once by a second SIGINT",
        143: "stopped at once by a second SIGTERM",
    },
)


class LogLevel(StrEnum):
    """How much a worker tells."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def worker(
    context: typer.Context,
    application: Annotated[str, typer.Argument(help="Where the App is.", metavar="MODULE:APP")],
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queues",
            "-q",
            help="Queues to work on, in order; repeat or separate by commas. Default: those of its tasks.",
        ),
    ] = None,
    children: Annotated[
        int | None, typer.Option(help="Processes that run handlers; default one more than CPUs.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Async handlers that one process runs at a time.")] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Leave when nothing is queued, running or retrying.")] = False,
    max_tasks_per_child: Annotated[int | None, typer.Option(help="Replace a process after so many tasks.")] = None,
    shutdown_grace: Annotated[float | None, typer.Option(help="Seconds that handlers may go on after SIGTERM.")] = None,
    preload: Annotated[bool, typer.Option(help="Import the application once, before the processes are forked.")] = True,
    log_level: Annotated[
        LogLevel,
        typer.Option(help="From which level on it logs; every outcome is one line at info.", envvar="DTQ_LOG_LEVEL"),
    ] = LogLevel.INFO,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics at this port.", min=0, max=65535)
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address that the metrics are served at; anybody who reaches it may read them.")
    ] = "127.0.0.1",
    redis_url: RedisUrl = None,
) -> int:
    """Run tasks until SIGTERM or Ctrl-C, which let handlers finish; a second one ends them at once."""
    overrides = {
        "redis_url": redis_url or context.obj,  # an option wins over what the application says itself
        "concurrency": concurrency,
        "max_tasks_per_child": max_tasks_per_child,
        "shutdown_grace_s": shutdown_grace,
    }
    named = [name.strip() for part in queues or [] for name in part.split(",") if name.strip()]

    from dtq.worker import run_worker

    return run_worker(
        application,
        overrides={name: value for name, value in overrides.items() if value is not None},
        queues=named if queues else None,
        children=children,
        burst=burst,
        preload=preload,
        log_level=getattr(logging, log_level.name),
        metrics_port=metrics_port,
        metrics_host=metrics_host,
    )
