"""Puts the dashboard onto an API: its pages at /dashboard, behind its gate; and serves both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from socket import socket

from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui

from dtq.api.front_door import DASHBOARD
from dtq.api.served import Served
from dtq.api.serving import Server, run, server_config
from dtq.app import App
from dtq.dashboard.access import Access
from dtq.dashboard.audit import Audit
from dtq.dashboard.bulk import BulkActs
from dtq.dashboard.dead_letters import DeadLetters
from dtq.dashboard.events import Events
from dtq.dashboard.feed import Feed
from dtq.dashboard.figures import Figures
from dtq.dashboard.gate import Gate
from dtq.dashboard.layout import FILES, add_page
from dtq.dashboard.overview import Overview
from dtq.dashboard.page import Desk, Page
from dtq.dashboard.queues import Queues
from dtq.dashboard.task import OneTask
from dtq.dashboard.tasks import Tasks
from dtq.dashboard.workers import Workers

RECONNECT_S = 20.0
"""A page whose connection was lost for longer is loaded anew, without what was selected in it."""
LARGEST_MESSAGE = 2 * 1024 * 1024
"""Bytes of one message from a page: an edited payload, with its quotes escaped twice."""

_log = logging.getLogger("uvicorn.error")  # beside the lines of the server itself


def mount_dashboard(api: FastAPI) -> None:
    """Adds the dashboard to an API that `dtq.api.create_app` made; once in a process.

    Each key of the API opens the dashboard too, and names who acts in the audit. The API must be served at the root of
    its host, or by a proxy that says where (X-Forwarded-Prefix).
    """
    served: Served = api.state.served
    app, clock = served.app, served.app.client.clock
    desk = Desk(app, Access(served.keys, clock), Figures(app, clock), BulkActs(), Feed(app))
    pages_of: tuple[tuple[str, str, Callable[[Page], object], str], ...] = (
        ("/", "Overview", Overview, ""),
        ("/tasks", "Tasks", Tasks, ""),
        ("/task", "Task", OneTask, "Tasks"),
        ("/queues", "Queues", Queues, ""),
        ("/workers", "Workers", Workers, ""),
        ("/dead-letters", "Dead letters", DeadLetters, ""),
        ("/events", "Events", Events, ""),
        ("/audit", "Audit", Audit, ""),
    )
    for path, title, build, under in pages_of:
        add_page(desk, path, title, build, under=under)
    for name in ("style.css", "icon.svg"):
        pages.add_static_file(local_file=FILES / name, url_path=f"/{name}")
    # The library types callables without their parameters.
    pages.on_shutdown(desk.bulk.close)  # pyright: ignore[reportUnknownMemberType]
    pages.on_shutdown(desk.feed.close)  # pyright: ignore[reportUnknownMemberType]
    ui.run_with(  # pyright: ignore[reportUnknownMemberType]
        api,
        mount_path=DASHBOARD,
        title="dtq",
        favicon=FILES / "icon.svg",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
        reconnect_timeout=RECONNECT_S,
    )
    # Added last, so it stands before all that the library adds.
    pages.add_middleware(Gate, access=desk.access)


class _Server(Server):
    """That of the API, which also says where the pages are."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Called once, before requests are served."""
        await super().startup(sockets)
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                _log.info("The dashboard is at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, DASHBOARD)


def serve_dashboard(
    app: App | None = None, *, host: str | None = None, port: int | None = None, insecure: bool = False
) -> None:
    """Serves the HTTP API and the dashboard until SIGTERM or SIGINT; all as for `dtq.api.serve`.

    Raises InvalidSettings; SystemExit 1 where it cannot listen.
    """
    own = app is None
    app = App() if app is None else app
    try:
        config = server_config(app, host=host, port=port, insecure=insecure)
        config.ws_max_size = LARGEST_MESSAGE
        mount_dashboard(config.app)  # type: ignore[arg-type]
        run(_Server(config))
    finally:
        if own:
            app.close()
