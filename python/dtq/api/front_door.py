"""What every request passes: its id, its key, where it comes from, security headers, and the answer to a failure."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtq.api.authentication import ApiKeys
from dtq.api.documentation import PAGES
from dtq.api.errors import ApiError, error_response
from dtq.failure import class_name
from dtq.logs import trace_of

log = logging.getLogger("dtq.api")

OPEN = PAGES | {"/health", "/ready"}
"""Paths that need no key: probes, and a page that holds nothing but the question for the key."""
DASHBOARD = "/dashboard"
"""Where the dashboard is mounted, if it is. Everything beneath has a login and a content policy of its own."""
SAFE = frozenset({"GET", "HEAD"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@+=/-]{1,128}")
STRICT_POLICY = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_POLICY = b"content-security-policy"
_HEADERS: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class FrontDoor:
    """ASGI middleware around the whole app.

    keys: who may call. origins: other sites whose pages may call; they get past the check of the Origin header.
    local_only: take only requests that name this machine by an address or `localhost`, so that no page of another
    site can reach a server without keys by a name that it makes point here.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, origins: Collection[str] = (), local_only: bool = False) -> None:
        self._app = app
        self._keys = keys
        self._origins = frozenset(origins)
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given: dict[bytes, bytes] = dict(scope["headers"])
        request_id = given.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = os.urandom(8).hex().encode()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode()
        path: str = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        inside_dashboard = path == DASHBOARD or path.startswith(f"{DASHBOARD}/")
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                begun = True
                headers = message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
                if not inside_dashboard:
                    headers += _HEADERS
                    if not any(name == _POLICY for name, _ in headers):
                        headers += [(_POLICY, STRICT_POLICY), (b"cache-control", b"no-store")]
            await send(message)

        refusal = self._refusal(scope, path, given, state, inside_dashboard)
        if refusal is not None:
            await _answer(refusal, scope, receive, send_on)
            return
        try:
            await self._app(scope, receive, send_on)
        except ClientDisconnect:
            return  # before its request was whole: nothing was done, and nobody is there to be told
        except Exception as error:
            failed = f"request {state['request_id']} failed: {class_name(error)}"
            log.error("%s\n%s", failed, trace_of(error))
            if begun or scope["type"] == "websocket":  # the server ends the connection, and logs what it is told
                raise RuntimeError(failed) from None
            await _answer(
                ApiError(500, "INTERNAL", "the server failed; its log has the reason"), scope, receive, send_on
            )

    def _refusal(
        self, scope: Scope, path: str, given: dict[bytes, bytes], state: dict[str, str], inside_dashboard: bool
    ) -> ApiError | None:
        """Why a request is not passed on; notes who acts otherwise."""
        client = scope.get("client")
        state["actor"] = f"anonymous@{client[0]}" if client else "anonymous"
        key = given.get(b"x-api-key")
        if key is not None and self._keys:
            name = self._keys.name_of(key)
            if name is not None:
                state["actor"] = name
                return None
        host, origin = given.get(b"host", b"").decode("latin-1"), given.get(b"origin")
        if self._local_only and not _names_this_machine(host):
            return ApiError(
                403,
                "FORBIDDEN_HOST",
                "Host: without a key this server answers to localhost and to addresses only; set DTQ_API_KEY",
            )
        reads = scope["type"] == "http" and scope["method"] in SAFE
        if origin is not None and not reads and not self._welcome(origin.decode("latin-1"), host):
            return ApiError(
                403,
                "FORBIDDEN_ORIGIN",
                "Origin: pages of other sites may not call this server; name them in DTQ_API_ORIGINS",
            )
        if inside_dashboard or not self._keys or path in OPEN:
            return None
        if key is None and self._keys.open_reads and (reads or scope["type"] == "websocket"):
            return None
        return ApiError(
            401,
            "UNAUTHORIZED",
            "X-API-Key: it is missing; send one of the keys of this server"
            if key is None
            else "X-API-Key: this key is not known to this server",
        )

    def _welcome(self, origin: str, host: str) -> bool:
        return origin in self._origins or _netloc(origin).lower() == host.lower() != ""


def _netloc(origin: str) -> str:
    """The host and port of an Origin header; '' where it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # an unclosed bracket, say
        return ""


def _names_this_machine(host: str) -> bool:
    """Whether a Host header holds an address or a name that no other site can claim."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or refuse the handshake of a websocket."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    await error_response(error, scope["state"]["request_id"])(scope, receive, send)
