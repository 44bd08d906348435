"""The API as one ASGI app: its routes, what stands before and behind them, and its OpenAPI description."""

from __future__ import annotations

import re
from asyncio import get_running_loop
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from dtq.api import audit, batch, dead_letters, documentation, events, health, listing, metrics, queues, tasks, workers
from dtq.api.authentication import ApiKeys
from dtq.api.errors import (
    ApiError,
    Json,
    answer_api_error,
    answer_dtq_error,
    answer_http_error,
    answer_invalid_request,
)
from dtq.api.front_door import OPEN, FrontDoor
from dtq.api.schemas import refusals
from dtq.api.served import Served
from dtq.api.threads import Threads
from dtq.app import App
from dtq.errors import DtqError, InvalidSettings
from dtq.off_loop import in_thread
from dtq.release import VERSION

PREFIX = "/api/v1"
THREADS = 40
"""For calls that block: lists, acts of operators, metrics."""
_ORIGIN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_EXPOSED = ("X-Request-ID", "Retry-After", "Location")


def create_app(app: App | None = None, *, local_only: bool = False, mounted: bool = False) -> FastAPI:
    """The HTTP API of an App (a new one, of the environment's settings, where none is given), to serve or to mount.

    local_only: take requests that name this machine by an address or `localhost` only; for a server without keys.
    mounted: leave the threads of the loop alone, which are another application's; that one runs the API's lifespan
    (docs/http.md). What the App keeps open is closed with the API where the API has made it. Raises InvalidSettings.
    """
    own = app is None
    app = App() if app is None else app
    settings = app.settings
    served = Served(app, ApiKeys.parse(settings.api_key, settings.api_read == "open"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        # The loop's own would be a few threads, and whoever queues dead letters again at a rate holds one.
        if not mounted:
            get_running_loop().set_default_executor(Threads(THREADS, settings.enqueue_deadline_s))
        try:
            yield
        finally:
            served.close()
            await in_thread(served.rejections.close)
            if own:
                await served.app.aclose()

    api = _Api(
        title="dtq",
        version=VERSION,
        description="Submit tasks, look at them, wait for them, and operate their queues.",
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
        lifespan=lifespan,
    )
    api.state.served = served
    _add_routes(api)
    for error, answer in _ANSWERS:
        api.exception_handler(error)(answer)
    origins = _origins(settings.api_origins)
    api.add_middleware(FrontDoor, keys=served.keys, origins=origins, local_only=local_only)
    if origins:  # in front of the door: a browser asks without a key whether it may send one
        api.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Content-Type", "X-API-Key", "X-Request-ID", "Idempotency-Key"],
            expose_headers=_EXPOSED,
        )
    return api


_ANSWERS: tuple[tuple[type[Exception], Any], ...] = (
    (DtqError, answer_dtq_error),
    (ApiError, answer_api_error),
    (HTTPException, answer_http_error),
    (RequestValidationError, answer_invalid_request),
)


def _add_routes(api: FastAPI) -> None:
    # Routes are tried in this order. The busiest goes first and past FastAPI's own, which takes half of a submit's time
    # to find and call what needs nothing of it; that one stays for the description.
    api.router.routes.append(Route(f"{PREFIX}/tasks", tasks.submit, methods=["POST"]))
    for part in (tasks, batch, listing, queues, dead_letters, workers, audit, events):
        api.include_router(part.router, prefix=PREFIX, responses=refusals(401, 403, 422, 503))
    for router in (health.router, metrics.router, documentation.router, events.websocket_router):
        api.include_router(router)


class _Api(FastAPI):
    """FastAPI whose description names the key."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        made = self.openapi_schema is None
        schema = super().openapi()
        if made:
            schema.setdefault("components", {})["securitySchemes"] = {
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}
            }
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in OPEN else [{"key": []}]
        return schema


def _origins(text: str | None) -> list[str]:
    origins = [origin.strip().rstrip("/") for origin in (text or "").split(",") if origin.strip()]
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            shown = origin[:100]
            raise InvalidSettings(
                [f"api_origins (DTQ_API_ORIGINS): {shown!r} is no origin; give such as https://app.example"]
            )
    return origins
