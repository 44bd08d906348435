"""Bounds of what a request may hold, checked before reading on: bodies, names, pages, waiting times."""

from __future__ import annotations

from asyncio import timeout
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request

from dtq.api.errors import ApiError
from dtq.errors import PayloadTooLarge
from dtq.listing import MOST
from dtq.settings import QUEUE_NAME

BODY_TIME_S = 30.0
"""How long a body of one task may take."""
IDLE_TIME_S = 60.0
"""How long a stream of tasks may be silent."""
LONGEST_WAIT_S = 60.0
NDJSON = "application/x-ndjson"
"""Lines of JSON, in both directions."""
_ENVELOPE_BYTES = 65_536
"""Room for everything but the payload: options, 4 KiB of metadata, 4 KiB of headers, and spaces."""
_ESCAPED = 4
"""A writer that escapes all but ASCII makes up to three bytes of one; the rest is room for indentation."""

TaskId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,128}$", description="Id of the task.")]
QueueName = Annotated[str, Path(pattern=f"^{QUEUE_NAME.pattern}$", description="Name of the queue.")]
TaskType = Annotated[str, Path(max_length=255, description="Task type.")]
Text = Annotated[str | None, Query(max_length=255)]
SomeQueue = Annotated[
    str | None,
    Query(pattern=f"^{QUEUE_NAME.pattern}$", description="Queue; without it all known ones are asked."),
]
PageSize = Annotated[int, Query(ge=1, le=MOST, description="Most items of a page.")]
Cursor = Annotated[str | None, Query(max_length=512, description="`cursor` of the page before.")]
Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False, description="Seconds to wait for the end of the task."),
]


def body_limit(max_payload_bytes: int) -> int:
    """How many bytes the JSON of one task may take."""
    return _ESCAPED * max_payload_bytes + _ENVELOPE_BYTES


def too_large(limit: int, what: str = "body") -> PayloadTooLarge:
    """What is larger than the limit; nothing more of it is read."""
    return PayloadTooLarge(f"{what}: larger than the limit of {limit} bytes; store the data elsewhere")


def require_json(request: Request, *more: str) -> None:
    """Refuse other content types, which pages of other sites may send without asking, and compressed bodies.

    more: content types that are accepted too.
    """
    headers = request.headers
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and given not in more and not given.endswith("+json"):
        names = " or ".join(("application/json", *more[:1]))
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", f"Content-Type: send {names}", {"field": "Content-Type"})
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            415, "UNSUPPORTED_MEDIA_TYPE", "Content-Encoding: send the body as it is", {"field": "Content-Encoding"}
        )


async def read_body(request: Request, limit: int) -> bytes:
    """A whole body of at most `limit` bytes.

    Raises PayloadTooLarge before reading what is too much, ApiError 408 where it takes longer than BODY_TIME_S.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large(limit)
    body = b""
    try:
        async with timeout(BODY_TIME_S):
            async for piece in request.stream():
                body = body + piece if body else piece
                if len(body) > limit:
                    raise too_large(limit)
    except TimeoutError:
        raise _too_slow(BODY_TIME_S) from None
    return body


async def pieces(request: Request, seconds: float) -> AsyncGenerator[bytes]:
    """A body as it comes; ApiError 408 where the next piece takes longer than `seconds`."""
    stream = request.stream()
    while True:
        try:
            async with timeout(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            raise _too_slow(seconds) from None
        if piece is None:
            return
        if piece:
            yield piece


def _too_slow(seconds: float) -> ApiError:
    return ApiError(408, "REQUEST_TIMEOUT", f"body: it did not come within {seconds:g} s; send it again")
