"""The server: where it listens, what it refuses, and how it stops."""

from __future__ import annotations

import gc
import logging
import socket
from ipaddress import ip_address
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI

from dtq.api.application import create_app
from dtq.api.authentication import ApiKeys
from dtq.api.connection import Connection, WebSocketConnection
from dtq.app import App
from dtq.errors import InvalidSettings

_LOGS = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "dtq.logs.formatter"}},
    "filters": {"quiet": {"()": "dtq.api.serving.Quiet"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["quiet"]}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": level}
        for name, level in (("uvicorn", "INFO"), ("dtq", "INFO"), ("nicegui", "WARNING"), ("asyncio", "WARNING"))
    },
}
"""To stderr, one line a record, as text or as JSON (DTQ_LOG_JSON); those of the dashboard and its library too."""
_CHATTER = ('%s - "WebSocket ', "connection open", "connection closed")
GRACE_S = 10
"""How long open requests may go on after SIGTERM; those that wait or listen are ended at once."""


class Quiet(logging.Filter):
    """Leaves out what is said at each websocket, its address with all that stands in it: there is no access log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what is left out."""
        return not (record.levelno == logging.INFO and record.name == "uvicorn.error" and _is_chatter(record.msg))


def _is_chatter(message: object) -> bool:
    return isinstance(message, str) and message.startswith(_CHATTER)


def serve(app: App | None = None, *, host: str | None = None, port: int | None = None, insecure: bool = False) -> None:
    """Serves the HTTP API until SIGTERM or SIGINT.

    app: whose tasks; a new one, of the environment's settings, where none is given. host, port: instead of those of
    DTQ_API_BIND; port 0 takes a free one. insecure: accept an address that others can reach although no key is set.
    Raises InvalidSettings, also for such an address without a key; SystemExit 1 where it cannot listen there.
    """
    own = app is None
    app = App() if app is None else app
    try:
        run(Server(server_config(app, host=host, port=port, insecure=insecure)))
    finally:
        if own:
            app.close()


def run(server: Server) -> None:
    """Serves until SIGTERM or SIGINT. Raises SystemExit 1 where it cannot listen."""
    try:
        server.run()
    except SystemExit as error:  # uvicorn has logged why, as of an address that is taken
        raise SystemExit(1 if error.code else 0) from None


def server_config(app: App, *, host: str | None, port: int | None, insecure: bool) -> uvicorn.Config:
    """What `serve` runs. Raises InvalidSettings."""
    bound_host, bound_port = parse_bind(app.settings.api_bind)
    host, port = host or bound_host, bound_port if port is None else port
    local, locked = is_local(host), bool(ApiKeys.parse(app.settings.api_key))
    if not locked and not local and not insecure:
        raise InvalidSettings(
            [
                f"host: {host} can be reached by others, and no key is asked for; set DTQ_API_KEY (name:key), or say "
                "--insecure"
            ]
        )
    api = create_app(app, local_only=local and not locked and not insecure)
    return uvicorn.Config(
        api,
        host=host,
        port=port,
        loop="uvloop",
        http=Connection,
        ws=WebSocketConnection,
        ws_max_size=65_536,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=_LOGS,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


class Server(uvicorn.Server):
    """Uvicorn's, which tells the routes when it stops."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        # What has been imported stays. Each look of the collector at it would stop all requests for 40 ms: the p99 of
        # single submits by 32 callers was 47 ms, and is 5 ms without.
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal handler."""
        cast(FastAPI, self.config.app).state.served.close()
        super().handle_exit(sig, frame)


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets. Raises InvalidSettings."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidSettings([f"api_bind (DTQ_API_BIND): {text!r} is not host:port; give such as 127.0.0.1:8000"])
    return host, int(port)


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
