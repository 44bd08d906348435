"""The gate before every page: lets nobody in without a session, serves the sign-in page, and sets the headers.

It is plain ASGI around the pages' own application, so that neither a page, nor a file, nor the socket of the pages is
reached around it. The sign-in page is plain HTML with no script at all.
"""

from __future__ import annotations

import html
import logging
import math
import re
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtq.dashboard.access import COOKIE, SESSION_S, Access, TooSoon

OPEN_PATHS = frozenset({"/login", "/style.css", "/icon.svg"})
"""What is served without a session."""
LONGEST_FORM = 4096
"""Bytes of a sign-in form that are read."""
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""The library of the pages needs inline scripts and eval; nothing comes from, or goes to, another place."""
LOGIN_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_TARGET = re.compile(r"[a-z-]{0,20}(\?[A-Za-z0-9._~%=&:+-]{0,500})?")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,100}){1,5}")
_log = logging.getLogger("dtq.dashboard")


class Gate:
    """The ASGI application in front of the pages."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers by itself, or hands over."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        path = _path(scope)
        visitor = self._access.visitor(connection.cookies)
        if scope["type"] == "websocket":
            if visitor is None:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": "sign in first"})
                return
            await self._app(scope, receive, send)
            return
        answer: ASGIApp
        if path == "/login":
            answer = await self._login(Request(scope, receive), signed_in=visitor is not None)
        elif path == "/logout" and scope["method"] == "POST":
            if visitor is not None:
                self._access.sign_out(visitor)
            answer = RedirectResponse("login", 303)
            answer.delete_cookie(COOKIE, path=_home(scope), httponly=True, samesite="lax")
        elif visitor is None and path not in OPEN_PATHS:
            answer = _turned_away(path, scope)
        else:
            answer = self._app
        await answer(scope, receive, _with_headers(send, LOGIN_POLICY if path == "/login" else POLICY))

    async def _login(self, request: Request, *, signed_in: bool) -> Response:
        target = _target(request.query_params.get("next", ""))
        if request.method in ("GET", "HEAD"):
            return RedirectResponse(target, 303) if signed_in else _page(target)
        if request.method != "POST":
            return PlainTextResponse("use GET or POST", 405)
        key = _key_of((await _bounded_body(request)).decode("utf-8", "replace"))
        address = request.client.host if request.client is not None else ""
        try:
            cookie = self._access.sign_in(key, address)
        except TooSoon as error:
            seconds = math.ceil(error.wait_s)
            again = f"Too many wrong keys came from your address. Try again in {seconds} s."
            return _page(target, again, 429, {"Retry-After": str(seconds)})
        if cookie is None:
            _log.warning("sign-in refused: wrong key, from %s", address)
            return _page(target, "This is not one of the API keys. Check it, or ask who runs this server.", 401)
        answer = RedirectResponse(target, 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, cookie, SESSION_S, path=_home(request.scope), httponly=True, samesite="lax", secure=secure
        )
        return answer


def _path(scope: Scope) -> str:
    """The path behind the place where the dashboard is mounted."""
    root, path = str(scope.get("root_path", "")), str(scope["path"])
    return path[len(root) :] if root and path.startswith(root) else path


def _home(scope: Scope) -> str:
    """The path that browsers know the dashboard by: a proxy may serve it at another place."""
    prefix = Headers(scope=scope).get("x-forwarded-prefix", "")
    return (prefix if _PREFIX.fullmatch(prefix) else "") + str(scope.get("root_path", "")) or "/"


def _target(wanted: str) -> str:
    """Where to go after the sign-in: a page of the dashboard, nothing else."""
    return wanted if wanted and _TARGET.fullmatch(wanted) else "./"


def _turned_away(path: str, scope: Scope) -> Response:
    if scope["method"] not in ("GET", "HEAD") or path.startswith("/_nicegui"):
        return PlainTextResponse("sign in first", 401)
    query = scope["query_string"].decode("latin-1")
    wanted = path.lstrip("/") + (f"?{query}" if query else "")
    up = "../" * (path.count("/") - 1)  # relative, so that a proxy may serve all this at another place
    return RedirectResponse(f"{up}login?next={quote(wanted)}" if wanted else "login", 303)


def _key_of(form: str) -> str:
    try:
        return "".join(parse_qs(form, max_num_fields=8).get("key", []))
    except ValueError:
        return ""


async def _bounded_body(request: Request) -> bytes:
    """The body, as far as a form may reach; the rest is not read."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_FORM:
            return b""
    return body


def _with_headers(send: Send, policy: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = policy
            headers["X-Content-Type-Options"] = "nosniff"
            headers["X-Frame-Options"] = "DENY"
            headers["Referrer-Policy"] = "same-origin"
        await send(message)

    return sending


def _page(target: str, problem: str = "", status: int = 200, headers: dict[str, Any] | None = None) -> Response:
    note = f'<p class="login-problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    content = _LOGIN.format(
        target=html.escape(quote(target, safe="")) if target != "./" else "",
        note=note,
    )
    return HTMLResponse(content, status, {"Cache-Control": "no-store", **(headers or {})})


_LOGIN = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · dtq</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="style.css">
</head>
<body class="login">
<main>
<h1 class="brand"><img src="icon.svg" alt="" width="28" height="28"> dtq</h1>
<form method="post" action="login?next={target}">
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
{note}
<button type="submit">Sign in</button>
</form>
<p class="hint">One of the keys in DTQ_API_KEY on the server. What you do here is audited under its name.</p>
</main>
</body>
</html>
"""
