"""Many tasks in one request: read, checked and sent in chunks while they come, one outcome a line, in order."""

from __future__ import annotations

import os
from asyncio import CancelledError, Queue, create_task, sleep
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dtq import _core
from dtq.api.errors import ApiError, as_api_error, invalid_request
from dtq.api.items import Item, items_of
from dtq.api.limits import IDLE_TIME_S, NDJSON, pieces, require_json
from dtq.api.outbox import Outbox
from dtq.api.schemas import BATCH_OUTCOME, TaskSubmission, refusals
from dtq.api.served import Served, served_by
from dtq.api.strict_route import StrictRoute
from dtq.broker import Answer
from dtq.client import CHUNK_BYTES, CHUNK_TASKS
from dtq.errors import DtqError
from dtq.plan import Plan

OTHER_NAMES = ("application/ndjson", "application/jsonl", "application/x-jsonlines")
SPARE_IDS = 50
_PART_BYTES = 16_384
"""So much is split at a time: of nothing but brackets that takes 60 ms, in which nobody else is served."""
_OUTCOMES = {422: "invalid", 413: "invalid", 409: "conflict", 429: "refused"}

router = APIRouter(tags=["tasks"], route_class=StrictRoute)


@dataclass(slots=True)
class _Group:
    """The tasks of a block that go to one queue: their places in the block, in the chunk's order."""

    chunk: _core.Chunk = field(default_factory=_core.Chunk)
    plans: list[Plan] = field(default_factory=list[Plan])
    places: list[int] = field(default_factory=list[int])


class _Block:
    """So many items as fit into one chunk, encoded."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        self.groups: dict[str, _Group] = {}
        self.refused: dict[int, DtqError] = {}


class Intake:
    """One batch, from the body of its request to the lines of its answer."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._client = served.app.client
        self._read = served.submissions.read
        self._ids: list[str] = []
        self._now_ms = 0
        self._full_bytes = max(CHUNK_BYTES - self._client.settings.max_payload_bytes - 16_384, CHUNK_BYTES // 4)

    async def outcomes(self, body: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """The lines of the answer, a block at a time.

        Raises what is wrong with the beginning, Redis' absence included, as long as nothing has been answered; later
        trouble ends the answer with a line of its own.
        """
        blocks: Queue[_Block | Exception | None] = Queue(1)
        reading = create_task(self._read_ahead(body, blocks))
        end = 0
        try:
            while (found := await blocks.get()) is not None:
                problem: Exception | None = None
                if isinstance(found, _Block):
                    lines, problem = await self._send(found)
                    if lines:
                        end = found.first + found.size
                        yield lines
                elif isinstance(found, ClientDisconnect):
                    return
                else:
                    problem = found
                if problem is not None:
                    if end == 0 or not isinstance(problem, (DtqError, ApiError)):
                        raise problem
                    yield _stopped(end, problem)
                    return
        finally:
            reading.cancel()

    async def _read_ahead(self, body: AsyncGenerator[bytes], blocks: Queue[_Block | Exception | None]) -> None:
        """Reads and encodes a block while the server works on the one before; ends with None, or with what failed."""
        try:
            async for block in self._blocks(body):
                await blocks.put(block)
        except Exception as error:
            await blocks.put(error)
        else:
            await blocks.put(None)

    async def _blocks(self, body: AsyncGenerator[bytes]) -> AsyncGenerator[_Block]:
        """Whatever has come, in blocks: a client that sends little at a time is answered at once.

        What ends the body before its time is raised behind the last item.
        """
        splitter, block = None, _Block(0)
        try:
            async for piece in body:
                self._ids = []  # an id tells when its task was made
                if splitter is None:
                    if piece.isspace():
                        continue
                    splitter = items_of(piece, self._served.body_limit)
                for at in range(0, len(piece), _PART_BYTES):
                    for item in splitter.feed(piece[at : at + _PART_BYTES]):
                        if self._add(block, item):
                            yield block
                            block = _Block(block.first + block.size)
                    await sleep(0)  # others have their turn
                if block.size:
                    yield block
                    block = _Block(block.first + block.size)
            for item in splitter.finish() if splitter is not None else ():
                if self._add(block, item):
                    yield block
                    block = _Block(block.first + block.size)
        except DtqError:
            if block.size:
                yield block
            raise
        if block.size:
            yield block

    def _add(self, block: _Block, item: Item) -> bool:
        """Adds an item, or why it is refused; true where the block is full."""
        client, place = self._client, block.size
        block.size += 1
        try:
            if isinstance(item, DtqError):
                raise item
            plan, payload = self._read(item)
            group = block.groups.get(plan.queue)
            if group is None:
                group = block.groups[plan.queue] = _Group()
            if not self._ids:
                self._now_ms = client.clock.now_ms()
                self._ids = _core.new_ids(self._now_ms, os.urandom(10 * SPARE_IDS), SPARE_IDS)
                self._ids.reverse()  # taken from the end; they sort by time
            client.add(group.chunk, plan, payload, self._now_ms, self._ids.pop())
        except DtqError as error:
            block.refused[place] = error
            self._served.rejections.note(error)
        else:
            group.plans.append(plan)
            group.places.append(place)
            return block.size == CHUNK_TASKS or group.chunk.byte_size >= self._full_bytes
        return block.size == CHUNK_TASKS

    async def _send(self, block: _Block) -> tuple[bytes, DtqError | None]:
        """Sends a block; the outcome of each of its items as a line, and why no other is sent.

        No lines where nothing at all could be sent of the first block: then the whole request is refused.
        """
        lines: list[bytes] = [b""] * block.size
        problem: DtqError | None = None
        sent = False
        for place, error in block.refused.items():
            lines[place] = _line(block.first + place, error)
        deadline = self._client.clock.monotonic() + self._client.settings.enqueue_deadline_s
        for queue, group in block.groups.items():
            if not group.places:
                continue
            try:
                answers = await self._client.asend(queue, group.chunk, deadline)
            except DtqError as error:
                problem = error
                self._served.rejections.note(error, queue, len(group.places))
                for place in group.places:
                    lines[place] = _line(block.first + place, error, "unknown")
                continue
            sent = True
            self._note(block.first, queue, group, answers, lines)
        if problem is not None and not sent and block.first == 0:
            return b"", problem
        return b"".join(lines), problem

    def _note(self, first: int, queue: str, group: _Group, answers: Sequence[Answer], lines: list[bytes]) -> None:
        end = b'","queue":"%s"' % queue.encode()
        for place, plan, task_id, answer in zip(group.places, group.plans, group.chunk.ids, answers, strict=True):
            outcome, more = b"accepted", b"}\n"
            if answer.code != "a":
                existing = self._client.existing(plan, answer)
                if existing is None:
                    lines[place] = _line(first + place, self._client.refusal(plan, task_id, answer))
                    continue
                task_id, outcome, status = existing, b"duplicate", self._client.ended_as(answer)
                if status is not None:
                    more = b',"status":"%s"}\n' % status.value.encode()
            lines[place] = b'{"index":%d,"outcome":"%s","task_id":"%s%s%s' % (
                first + place, outcome, task_id.encode(), end, more,
            )  # fmt: skip


def _line(index: int, error: DtqError, outcome: str | None = None) -> bytes:
    made = as_api_error(error)
    named = outcome or _OUTCOMES.get(made.status, "refused")
    line: dict[str, Any] = {"index": index, "outcome": named, "code": made.code, "message": made.message}
    return orjson.dumps({**line, "details": made.details}, option=orjson.OPT_APPEND_NEWLINE)


def _stopped(index: int, error: DtqError | ApiError) -> bytes:
    """The last line of an answer that ends before its time."""
    made = as_api_error(error) if isinstance(error, DtqError) else error
    line = {
        "index": index,
        "outcome": "stopped",
        "code": made.code,
        "message": f"{made.message}; from item {index} on nothing was sent",
        "details": made.details,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


@router.post(
    "/tasks/batch",
    summary="Submit many tasks",
    response_class=Response,
    responses={200: {"content": {NDJSON: {"schema": BATCH_OUTCOME}}}, **refusals(408, 413, 415, 422, 503)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                NDJSON: {"schema": {"type": "string", "description": "One task a line."}},
                "application/json": {"schema": {"type": "array", "items": TaskSubmission.model_json_schema()}},
            },
        }
    },
)
async def submit_batch(request: Request) -> Response:
    """A JSON list, or a stream of lines (NDJSON), of any length; its tasks are sent while they come.

    The answer is a line for each task, in order, and begins while the request is still being read: `accepted` or
    `duplicate` with a `task_id`; `invalid`, `conflict` or `refused` with a `code` and a `message`; `unknown` where
    Redis did not answer. An answer that ends early does so with an outcome `stopped`.
    """
    require_json(request, NDJSON, *OTHER_NAMES)
    if "idempotency-key" in request.headers:  # unread, it would let a batch that is sent again run twice
        raise invalid_request([(("Idempotency-Key",), "it is for one task; give each of a batch an idempotency_key")])
    outcomes = Intake(served_by(request)).outcomes(pieces(request, IDLE_TIME_S))
    first = await anext(outcomes, b"")
    return _Answer(_through_outbox(first, outcomes), media_type=NDJSON)


class _Answer(StreamingResponse):
    """A stream that leaves the rest of the request to whoever makes it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


async def _through_outbox(first: bytes, outcomes: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Reads on whether or not the caller reads the answer."""
    outbox = Outbox()
    outbox.put(first)

    async def fill() -> None:
        try:
            async for lines in outcomes:
                outbox.put(lines)
        except Exception as error:
            outbox.end(error)
        else:
            outbox.end()

    filling = create_task(fill())
    try:
        while (piece := await outbox.get()) is not None:
            yield piece
    finally:
        filling.cancel()
        with suppress(CancelledError):
            await filling
        outbox.close()
