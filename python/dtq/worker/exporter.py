"""Serves `/metrics` from a worker's supervisor, in threads of its own: neither children nor duties wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any, ClassVar, cast

from dtq.errors import DtqError, InvalidSettings
from dtq.metrics import CONTENT_TYPE
from dtq.worker.journal import LOGGER

MOST_REQUESTS = 4
"""So many at a time; further ones are closed at once."""


class Exporter:
    """An HTTP server that answers GET /metrics with what `render` makes.

    Raises:
        InvalidSettings: it cannot listen there.
    """

    def __init__(self, host: str, port: int, render: Callable[[], bytes]) -> None:
        if find_spec("prometheus_client") is None:
            raise InvalidSettings(['metrics_port: it needs prometheus-client; pip install "dtq[metrics]"'])
        try:
            self._server = _Server((host, port), render)
        except OSError as error:
            where = f"metrics_port: cannot listen on {host}:{port}: {error.strerror or error}"
            raise InvalidSettings([f"{where}; choose another port or host"]) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/metrics"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="dtq-metrics", daemon=True).start()
        LOGGER.info("metrics: %s", self.url)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], render: Callable[[], bytes]) -> None:
        self._render = render
        self._rendering = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def render_one(self) -> bytes:
        """One after the other: they cost the same processor."""
        with self._rendering:
            return self._render()

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, where there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread's work."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to tell of."""


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float | None] = 5.0
    server_version, sys_version = "dtq", ""

    def do_GET(self) -> None:
        """Answer /metrics."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"only /metrics is here\n", "text/plain; charset=utf-8")
            return
        try:
            text = cast("_Server", self.server).render_one()
        except DtqError as error:
            self._answer(503, f"{error}\n".encode(), "text/plain; charset=utf-8")
            return
        except Exception:
            LOGGER.exception("rendering metrics failed; this is a bug in dtq")
            self._answer(500, b"the worker failed; its log has the reason\n", "text/plain; charset=utf-8")
            return
        self._answer(200, text, CONTENT_TYPE)

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """A scrape is no event."""
