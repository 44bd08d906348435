"""`dtq api` and `dtq dashboard`: serve the HTTP API, alone or with the dashboard. Both are extras of the package."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Annotated, Any

import typer

from dtq.cli.connection import RedisUrl, use_redis_url
from dtq.cli.exit_codes import DONE, FAILED
from dtq.cli.manual import Manual, exits
from dtq.cli.output import print_error

_EXITS = exits(
    "stopped by SIGTERM or Ctrl-C",
    failed="the extra is not installed, or the address is taken",
    usage="application or setting wrong; an open address without a key",
    interrupted="",
)
API = Manual(
    ["dtq api", "DTQ_API_KEY=ops:s3cret dtq api --host 0.0.0.0 --port 8000", "dtq api my_project.tasks:app"], _EXITS
)
DASHBOARD = Manual(
    ["dtq dashboard", "DTQ_API_KEY=ops:s3cret dtq dashboard --host 0.0.0.0", "dtq dashboard my_project.tasks:app"],
    _EXITS,
)

Application = Annotated[
    str | None,
    typer.Argument(
        help="An application whose settings and task options count; default: those of the environment.",
        metavar="[MODULE:APP]",
        show_default=False,
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on; default that of DTQ_API_BIND.")]
Port = Annotated[
    int | None, typer.Option(help="Port; 0 takes a free one; default that of DTQ_API_BIND.", min=0, max=65_535)
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on an address that others reach although no key is set.")
]


def api(
    application: Application = None,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    redis_url: RedisUrl = None,
) -> int:
    """Serve the HTTP API until SIGTERM or Ctrl-C; its description is at /docs."""
    return _serve("api", "dtq.api", "serve", application, host, port, insecure, redis_url)


def dashboard(
    application: Application = None,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    redis_url: RedisUrl = None,
) -> int:
    """Serve the HTTP API and the dashboard, at /dashboard, until SIGTERM or Ctrl-C."""
    return _serve("dashboard", "dtq.dashboard", "serve_dashboard", application, host, port, insecure, redis_url)


def _serve(
    extra: str,
    module: str,
    function: str,
    application: str | None,
    host: str | None,
    port: int | None,
    insecure: bool,
    redis_url: str | None,
) -> int:
    use_redis_url(redis_url)
    try:
        serve: Any = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        print_error(f"{extra}: it needs {error.name}, which is not installed: pip install 'dtq[{extra}]'")
        return FAILED
    app: Any = None
    if application is not None:
        from dtq.app import load_app

        app = load_app(application)
    # The server hands a signal on once it has stopped in good order; before it listens, one ends the command at once.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(app, host=host, port=port, insecure=insecure)
    except KeyboardInterrupt:
        return DONE
    except SystemExit:  # it could not start, and has said why
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)
    return DONE
