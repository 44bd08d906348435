"""The routes of queues: list, look, pause, resume, purge; and the same of task types."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dtq.api.errors import ApiError, Json
from dtq.api.limits import Cursor, PageSize, QueueName, TaskType
from dtq.api.schemas import Paused, Purged, QueueFigures, QueuePage, TaskTypes, refusals
from dtq.api.served import caller_of, served_by
from dtq.api.strict_route import StrictRoute
from dtq.bodies import queue_body
from dtq.queues import Queue

router = APIRouter(tags=["queues"], route_class=StrictRoute)


@router.get("/queues", summary="List queues", response_model=QueuePage)
async def list_queues(request: Request, limit: PageSize = 100, cursor: Cursor = None) -> Response:
    """The known queues by name, each in figures; one whose keys something else has written is left out."""
    app = served_by(request).app
    names = [name for name in await app.aqueue_names() if cursor is None or name > cursor]
    page = [queue_body(counts) for counts in await app.aqueue_counts(names[:limit])]
    return Json({"queues": page, "cursor": names[limit - 1] if len(names) > limit else None})


@router.get("/queues/{queue}", summary="Look at a queue", response_model=QueueFigures, responses=refusals(404))
async def look(request: Request, queue: QueueName) -> Response:
    """One queue in figures."""
    return Json(queue_body(await (await known(request, queue)).acounts()))


@router.post("/queues/{queue}/pause", summary="Pause a queue", response_model=Paused, responses=refusals(404))
async def pause(request: Request, queue: QueueName) -> Response:
    """Starts nothing more in any worker; what runs goes on, and tasks may still be submitted."""
    return await _switch(request, queue, None, paused=True)


@router.post("/queues/{queue}/resume", summary="Resume a queue", response_model=Paused, responses=refusals(404))
async def resume(request: Request, queue: QueueName) -> Response:
    """Starts tasks again."""
    return await _switch(request, queue, None, paused=False)


@router.post("/queues/{queue}/purge", summary="Purge a queue", response_model=Purged, responses=refusals(404))
async def purge(request: Request, queue: QueueName) -> Response:
    """Ends all waiting tasks as cancelled, without records; what runs goes on. Answers when it is done."""
    return Json({"queue": queue, "purged": await (await known(request, queue)).apurge()})


@router.get(
    "/queues/{queue}/task-types", summary="List a queue's task types", response_model=TaskTypes, responses=refusals(404)
)
async def task_types(request: Request, queue: QueueName) -> Response:
    """The task types seen in a queue, paused ones too."""
    found = await known(request, queue)
    paused = (await found.acounts()).paused_types
    return Json({"queue": queue, "task_types": await found.atask_types(), "paused": list(paused)})


@router.post(
    "/queues/{queue}/task-types/{task_type}/pause",
    summary="Pause a task type",
    response_model=Paused,
    responses=refusals(404),
)
async def pause_type(request: Request, queue: QueueName, task_type: TaskType) -> Response:
    """Starts no task of this type in this queue; others go on."""
    return await _switch(request, queue, task_type, paused=True)


@router.post(
    "/queues/{queue}/task-types/{task_type}/resume",
    summary="Resume a task type",
    response_model=Paused,
    responses=refusals(404),
)
async def resume_type(request: Request, queue: QueueName, task_type: TaskType) -> Response:
    """Starts tasks of this type again."""
    return await _switch(request, queue, task_type, paused=False)


async def known(request: Request, name: str) -> Queue:
    """A queue that exists, acting in the caller's name. Raises ApiError 404."""
    app = served_by(request).app
    if name not in await app.aqueue_names():
        raise ApiError(404, "QUEUE_NOT_FOUND", f"queue: {name!r} is not known; it is once a task was submitted to it")
    caller = caller_of(request)
    return app.queue(name, actor=caller.actor, request_id=caller.request_id)


async def _switch(request: Request, name: str, task_type: str | None, *, paused: bool) -> Response:
    queue = await known(request, name)
    changed = await (queue.apause(task_type) if paused else queue.aresume(task_type))
    return Json({"queue": name, "task_type": task_type, "paused": paused, "changed": changed})
