"""One connection of a client: what comes before a request is bounded, and who reads nothing can be given up."""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, sleep
from typing import Any, cast

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from dtq.api.errors import ApiError, error_response

MOST_HEAD_BYTES = 65_536
"""So much may come that is neither a whole head (request line and headers) nor part of a body, a piece more or less."""
HEAD_TIME_S = 30.0
"""How long a head may take from its first byte, and the first head of a connection from its beginning."""
_ABANDON = "dtq.abandon"
"""Extension of a scope: closes its connection at once, unsent bytes and all."""


async def abandon(scope: Scope) -> None:
    """Give up a client that reads nothing: an ordinary close would wait for it as long as it lives.

    Does nothing under a server that is not `dtq api`.
    """
    close = scope.get("extensions", {}).get(_ABANDON)
    if close is not None:
        close()
        await sleep(0)  # the server learns of it


class Connection(HttpToolsProtocol):
    """Uvicorn's, which keeps whatever comes until a head is whole, and waits for it for ever."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._pending_bytes = 0
        self._within_head = self._begun = False
        self._head_timer = self.loop.call_later(HEAD_TIME_S, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._head_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        was_within = self._within_head
        self._pending_bytes += len(data)
        super().data_received(data)
        if not self._within_head:
            self._head_timer.cancel()
        elif not was_within:
            self._head_timer.cancel()
            self._head_timer = self.loop.call_later(HEAD_TIME_S, self._head_is_late)
        if self._pending_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(
                ApiError(
                    431,
                    "HEAD_TOO_LARGE",
                    f"headers: with the path they are larger than the limit of {MOST_HEAD_BYTES} bytes; send less",
                )
            )

    def on_message_begin(self) -> None:
        """A request begins."""
        self._within_head = True
        super().on_message_begin()
        cast(Scope, self.scope)["extensions"] = {_ABANDON: self.transport.abort}

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._within_head, self._pending_bytes = False, 0
        super().on_headers_complete()
        self._begun = True

    def on_body(self, body: bytes) -> None:
        """A piece of its body has come."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._pending_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What has come is no HTTP."""
        self._refuse(ApiError(400, "BAD_REQUEST", "request: it is not valid HTTP/1.1; it was not looked at"))

    def _head_is_late(self) -> None:
        if self._within_head:
            problem = f"headers: they did not come within {HEAD_TIME_S:g} s; send the request again"
            self._refuse(ApiError(408, "REQUEST_TIMEOUT", problem))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Answer, unless another answer is under way, and close."""
        if not self._begun or self.cycle.response_complete:
            request_id = os.urandom(8).hex()
            answer = error_response(error, request_id)
            head = [b"HTTP/1.1 %d \r\n" % error.status, b"x-request-id: %b\r\n" % request_id.encode()]
            head += [b"%b: %b\r\n" % header for header in answer.raw_headers]
            self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", bytes(answer.body))))
        self.transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Uvicorn's, which can be given up."""

    def handle_connect(self, event: Request) -> None:
        """A client asks for a websocket."""
        super().handle_connect(event)
        if not self.close_sent:
            cast(Scope, self.scope)["extensions"][_ABANDON] = self.transport.abort
