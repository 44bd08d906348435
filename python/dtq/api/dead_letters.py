"""The routes of dead letters: list with filters, look, queue again, discard; one, by filter, or all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from dtq.api.errors import Json, as_api_error
from dtq.api.limits import NDJSON, Cursor, PageSize, QueueName, Text
from dtq.api.queues import known
from dtq.api.request_bodies import BulkRequeue, Requeue, Selection, body_of, read_as
from dtq.api.schemas import BULK_OUTCOME, DeadLetterDetail, DeadLetterPage, Purged, Requeued, refusals
from dtq.api.served import served_by
from dtq.api.strict_route import StrictRoute
from dtq.bodies import dead_letter_body, dead_letter_summary
from dtq.dead_letters import DeadLetter, DeadLetterFilter
from dtq.errors import DtqError

router = APIRouter(tags=["dead letters"], route_class=StrictRoute)
Name = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._:-]{1,128}$", description="Id of the task, or of the entry: 1700000000000-0.")
]
Age = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]
_BULK: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON: {"schema": BULK_OUTCOME}}, "description": "A line for each, then one with the sums."},
    **refusals(404, 413, 415),
}


@router.get(
    "/queues/{queue}/dead-letters",
    summary="List dead letters",
    response_model=DeadLetterPage,
    responses=refusals(404),
)
async def list_dead_letters(
    request: Request,
    queue: QueueName,
    task_type: Text = None,
    error_class: Text = None,
    older_than_seconds: Age = None,
    newer_than_seconds: Age = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> Response:
    """Newest first. A page may come back short, with a cursor: it looks at 2000 at most."""
    found = await known(request, queue)
    which = DeadLetterFilter(task_type, error_class, older_than_seconds, newer_than_seconds)
    page = await found.adead_letter_page(which, limit=limit, cursor=cursor)
    count = await found.adead_letter_count()
    shown = [dead_letter_summary(letter) for letter in page.letters]
    return Json({"dead_letters": shown, "cursor": page.cursor, "count": count})


@router.get(
    "/queues/{queue}/dead-letters/{name}",
    summary="Look at a dead letter",
    response_model=DeadLetterDetail,
    responses=refusals(404, 409, 410),
)
async def look(request: Request, queue: QueueName, name: Name) -> Response:
    """With the payload, the error and the attempts. 409 and 410 where the task stands otherwise."""
    return Json(dead_letter_body(await (await known(request, queue)).adead_letter(name)))


@router.post(
    "/queues/{queue}/dead-letters/{name}/requeue",
    status_code=202,
    summary="Queue a dead letter again",
    response_model=Requeued,
    responses=refusals(404, 409, 410, 413, 415, 429),
    openapi_extra=body_of(Requeue),
)
async def requeue(request: Request, queue: QueueName, name: Name) -> Response:
    """Under its id, with all its attempts, and its own payload or the one given; its history stays."""
    found = await known(request, queue)
    body = await read_as(request, Requeue, served_by(request).body_limit)
    handle = await found.arequeue(name, payload=body.payload, deadline=body.deadline)
    return Json({"task_id": handle.id, "queue": handle.queue, "status": "queued"}, 202)


@router.post(
    "/queues/{queue}/dead-letters/{name}/discard",
    summary="Discard a dead letter",
    response_model=DeadLetterDetail,
    responses=refusals(404, 409, 410),
)
async def discard(request: Request, queue: QueueName, name: Name) -> Response:
    """Takes it off the list; its task stays `dead_lettered`, with `discarded` in its metadata."""
    return Json(dead_letter_body(await (await known(request, queue)).adiscard(name)))


@router.post(
    "/queues/{queue}/dead-letters/requeue",
    summary="Queue many dead letters again",
    response_class=Response,
    responses=_BULK,
    openapi_extra=body_of(BulkRequeue),
)
async def requeue_many(request: Request, queue: QueueName) -> Response:
    """All that match, oldest first, at a rate or as fast as it goes. Ends with the first for which there is no room.

    Streams a line for each; whoever closes the connection stops it.
    """
    found = await known(request, queue)
    body = await read_as(request, BulkRequeue, served_by(request).body_limit)
    walk = found.arequeue_all(body.filter(), rate=body.rate, deadline=body.deadline, dry_run=body.dry_run)
    return _stream(_outcomes(walk, lambda one: (one.letter, one.error), "requeued", body.dry_run))


@router.post(
    "/queues/{queue}/dead-letters/discard",
    summary="Discard many dead letters",
    response_class=Response,
    responses=_BULK,
    openapi_extra=body_of(Selection),
)
async def discard_many(request: Request, queue: QueueName) -> Response:
    """All that match, oldest first. Streams a line for each; whoever closes the connection stops it."""
    found = await known(request, queue)
    body = await read_as(request, Selection, served_by(request).body_limit)
    walk = found.adiscard_all(body.filter(), dry_run=body.dry_run)
    return _stream(_outcomes(walk, lambda letter: (letter, None), "discarded", body.dry_run))


@router.post(
    "/queues/{queue}/dead-letters/purge",
    summary="Purge dead letters",
    response_model=Purged,
    responses=refusals(404),
)
async def purge(request: Request, queue: QueueName) -> Response:
    """Discards all that stand now."""
    return Json({"queue": queue, "purged": await (await known(request, queue)).apurge_dead_letters()})


def _stream(lines: AsyncGenerator[bytes]) -> Response:
    return StreamingResponse(lines, media_type=NDJSON)


async def _outcomes(
    walk: AsyncGenerator[Any],
    read: Callable[[Any], tuple[DeadLetter, DtqError | None]],
    done: str,
    dry_run: bool,
) -> AsyncGenerator[bytes]:
    """A line for each dead letter, then the sums, or what ended it before its time."""
    counts = {done: 0, "refused": 0}
    last: dict[str, Any] = {"outcome": "finished", "dry_run": dry_run}
    try:
        async with aclosing(walk):
            async for one in walk:
                letter, error = read(one)
                line: dict[str, Any] = {"outcome": done, "entry": letter.entry, "task_id": letter.task_id}
                if error is not None:
                    made = as_api_error(error)
                    line |= {"outcome": "refused", "code": made.code, "message": made.message}
                counts[line["outcome"]] += 1
                yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except DtqError as error:
        made = as_api_error(error)
        last |= {"outcome": "stopped", "code": made.code, "message": made.message}
    yield orjson.dumps({**last, **counts}, option=orjson.OPT_APPEND_NEWLINE)
