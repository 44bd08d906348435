"""The routes of events: a websocket, and a stream of server-sent events; a client that is too slow is sent away."""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, create_task, timeout, wait
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from dtq.api.connection import abandon
from dtq.api.errors import ApiError, as_api_error, error_response
from dtq.api.event_buffer import EventBuffer
from dtq.api.served import served_by
from dtq.api.strict_route import StrictRoute, refuse_unknown_parameters
from dtq.errors import DtqError

TOO_SLOW = 1013
"""Code of the websocket's end for a client that is too slow: try again later."""
GOING_AWAY = 1001
FAREWELL_S = 10.0
"""How long a client that is too slow may take to read why it is sent away."""
PING_S = 15.0
MOST_AT_ONCE = 100

router = APIRouter(tags=["events"], route_class=StrictRoute)
websocket_router = APIRouter()
Names = Annotated[str | None, Query(max_length=4000, description="Names with commas between; all unless given.")]


@router.get(
    "/events",
    summary="Listen to events",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events as they happen."}
    },
)
async def listen(request: Request, queues: Names = None, types: Names = None) -> Response:
    """Server-sent events: `event` is the type, `data` the event as JSON.

    `EVENTS_DROPPED` tells how many were dropped because they were not read in time, `EVENTS_INTERRUPTED` that Redis was
    away. A client too slow for the ends of tasks gets `EVENTS_END` with code 1013, and the stream ends.
    """
    stack = AsyncExitStack()
    buffer = await stack.enter_async_context(served_by(request).events.listen(queues, types))
    return _Stream(buffer, stack)


class _Stream(StreamingResponse):
    """Events as they happen, until the client leaves, is too slow, or the server stops."""

    def __init__(self, buffer: EventBuffer, stack: AsyncExitStack) -> None:
        super().__init__(_server_sent(buffer), media_type="text/event-stream")
        self._buffer = buffer
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            sending = create_task(super().__call__(scope, receive, send))
            overflow = create_task(self._buffer.overflow())
            try:
                await wait({sending, overflow}, return_when=FIRST_COMPLETED)
                if not sending.done():
                    await wait({sending}, timeout=FAREWELL_S)
                if sending.done():
                    sending.result()
                else:
                    await abandon(scope)
            finally:
                overflow.cancel()
                sending.cancel()


async def _server_sent(buffer: EventBuffer) -> AsyncGenerator[bytes]:
    yield b"retry: 2000\n\n"
    while True:
        try:
            async with timeout(PING_S):
                found = await buffer.take(MOST_AT_ONCE)
        except TimeoutError:
            yield b": ping\n\n"
            continue
        if not found:
            code, reason = _farewell(buffer)
            told = orjson.dumps({"type": "EVENTS_END", "code": code, "reason": reason, "dropped": buffer.dropped})
            yield b"event: EVENTS_END\ndata: %b\n\n" % told
            return
        yield b"".join(b"event: %b\ndata: %b\n\n" % (kind.encode(), told) for kind, told in found)


@websocket_router.websocket("/ws/events")
async def websocket(websocket: WebSocket, queues: Names = None, types: Names = None) -> None:
    """The same events, a message each; what the client sends is not looked at."""
    async with AsyncExitStack() as stack:
        try:
            refuse_unknown_parameters(websocket, ("queues", "types"))
            buffer = await stack.enter_async_context(served_by(websocket).events.listen(queues, types))
        except (DtqError, ApiError) as error:
            made = as_api_error(error) if isinstance(error, DtqError) else error
            await websocket.send_denial_response(error_response(made, str(websocket.state.request_id)))
            return
        await websocket.accept()
        leaving = create_task(_until_it_leaves(websocket))
        tasks = {leaving, create_task(_send(websocket, buffer)), create_task(buffer.overflow())}
        try:
            await wait(tasks, return_when=FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await wait(tasks)
        if [task for task in tasks if not task.cancelled() and task.exception() is not None] or not leaving.cancelled():
            return  # it has left
        try:
            async with timeout(FAREWELL_S):
                await websocket.close(*_farewell(buffer))
                if buffer.too_slow:
                    await _until_it_leaves(websocket)
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await abandon(websocket.scope)


async def _send(websocket: WebSocket, buffer: EventBuffer) -> None:
    while found := await buffer.take(MOST_AT_ONCE):
        for _, told in found:
            await websocket.send_text(told.decode())


async def _until_it_leaves(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _farewell(buffer: EventBuffer) -> tuple[int, str]:
    if buffer.too_slow:
        return TOO_SLOW, f"too slow: {buffer.dropped} events were dropped"
    return GOING_AWAY, "the server stops"
