"""The routes of single tasks: submit, look, wait for the result, cancel, run now, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from dtq.api.errors import ApiError, Json
from dtq.api.limits import SomeQueue, TaskId, Wait, read_body, require_json
from dtq.api.schemas import Cancelled, NotEnded, Queued, Result, Submitted, TaskDetail, TaskSubmission, refusals
from dtq.api.served import Served, caller_of, served_by
from dtq.api.strict_route import StrictRoute, refuse_unknown_parameters
from dtq.bodies import task_body
from dtq.errors import DtqError, ResultNotKept, ResultTimeout, TaskFailed
from dtq.handles import Handle
from dtq.off_loop import in_thread

router = APIRouter(tags=["tasks"], route_class=StrictRoute)


@router.post(
    "/tasks",
    status_code=202,
    summary="Submit a task",
    response_model=Submitted,
    responses={
        200: {"model": Submitted, "description": "An earlier task answers: same idempotency key, or unique."},
        **refusals(408, 409, 413, 415, 422, 429, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": TaskSubmission.model_json_schema()}},
        },
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "Wins over `idempotency_key` of the body.",
            }
        ],
    },
)
async def submit(request: Request) -> Response:
    """Checked as a Python producer's enqueue is. `Location` leads to the task."""
    refuse_unknown_parameters(request)  # this one is called past its route
    require_json(request)
    served = served_by(request)
    queue = None
    try:
        body = await read_body(request, served.body_limit)
        plan, payload = served.submissions.read(body, request.headers.get("idempotency-key"))
        queue = plan.queue
        handle = await served.app.coalescers.submit(plan, payload)
    except DtqError as error:
        served.rejections.note(error, queue)
        raise
    answer = {"task_id": handle.id, "queue": handle.queue, "duplicate": handle.duplicate}
    if handle.ended_as is not None:
        answer["status"] = handle.ended_as.value
    location = f"{request.scope.get('root_path', '')}/api/v1/tasks/{handle.id}?queue={handle.queue}"
    return Json(answer, 200 if handle.duplicate else 202, {"Location": location})


@router.get("/tasks/{task_id}", summary="Look at a task", response_model=TaskDetail, responses=refusals(404, 409))
async def look(request: Request, task_id: TaskId, queue: SomeQueue = None) -> Response:
    """All that is known of it. Without `queue` all known queues are asked; 409 `AMBIGUOUS_ID` where two hold the id."""
    handle = await find(served_by(request), task_id, queue)
    return Json(task_body(await handle.atask()))


@router.get(
    "/tasks/{task_id}/result",
    summary="Wait for a task's result",
    response_model=Result,
    responses={
        202: {"model": NotEnded, "description": "It had not ended when the time was over; ask again."},
        **refusals(404, 409, 410),
    },
)
async def result(request: Request, task_id: TaskId, queue: SomeQueue = None, wait: Wait = 0.0) -> Response:
    """200 once it has ended, with its `result` or its `error`; 410 where its result is not kept (retention 0)."""
    served = served_by(request)
    handle = await find(served, task_id, queue)
    if (ended := await _ended(handle)) is not None:
        return ended
    task = await handle.atask()
    if task.retention == timedelta(0) and not task.status.terminal:
        raise ResultNotKept(
            f"result: task {task_id} has retention 0, so its result is not kept; submit it with retention_seconds"
        )
    if wait:
        await served.waiting.until_ended(handle, wait)
    if (ended := await _ended(handle)) is not None:
        return ended
    status = (await handle.astatus()).value
    return Json({"task_id": handle.id, "queue": handle.queue, "status": status}, 202)


@router.post(
    "/tasks/{task_id}/cancel",
    status_code=202,
    summary="Cancel a task",
    response_model=Cancelled,
    responses=refusals(404, 409, 410),
)
async def cancel(request: Request, task_id: TaskId, queue: SomeQueue = None) -> Response:
    """202: it will never start. 409 `CANCEL_REQUESTED`: it runs, and its worker has been told. 410: it has ended."""
    handle = await find(served_by(request), task_id, queue)
    caller = caller_of(request)
    if await handle.acancel(actor=caller.actor, request_id=caller.request_id) == "cancelled":
        return Json({"task_id": handle.id, "queue": handle.queue, "status": "cancelled"}, 202)
    raise ApiError(
        409,
        "CANCEL_REQUESTED",
        f"task_id: {task_id!r} runs; its worker interrupts it, look again for how it ended",
        {"task_id": handle.id, "queue": handle.queue},
    )


@router.post(
    "/tasks/{task_id}/run",
    status_code=202,
    summary="Run a task now",
    response_model=Queued,
    responses=refusals(404, 409, 410, 429),
)
async def run(request: Request, task_id: TaskId, queue: SomeQueue = None) -> Response:
    """Makes a pending or retrying task due, and queues a dead letter's task again; 409 and 410 for all others."""
    handle = await find(served_by(request), task_id, queue)
    caller = caller_of(request)
    status = await handle.arun(actor=caller.actor, request_id=caller.request_id)
    return Json({"task_id": handle.id, "queue": handle.queue, "status": status}, 202)


@router.delete("/tasks/{task_id}", status_code=204, summary="Delete a task", responses=refusals(404, 409))
async def delete(request: Request, task_id: TaskId, queue: SomeQueue = None) -> Response:
    """Deletes what is kept of an ended task, its dead letter too; 409 where it has not ended."""
    handle = await find(served_by(request), task_id, queue)
    caller = caller_of(request)
    await handle.adelete(actor=caller.actor, request_id=caller.request_id)
    return Response(status_code=204)


async def find(served: Served, task_id: str, queue: str | None) -> Handle[Any]:
    """The handle of a task; where no queue is named, the known ones are asked. Raises TaskNotFound, AmbiguousTaskId."""
    if queue is not None:
        return served.app.handle(task_id, queue)
    return await in_thread(served.app.get, task_id)


async def _ended(handle: Handle[Any]) -> Response | None:
    """How a task has ended, its result or its error; None where it has not."""
    about = {"task_id": handle.id, "queue": handle.queue}
    try:
        return Json({**about, "status": "succeeded", "result": await handle.aresult(timeout=0), "error": None})
    except ResultTimeout:
        return None
    except TaskFailed as error:
        why = {
            "code": error.code,
            "message": error.error,
            "error_class": error.error_class,
            "cause": error.cause,
            "traceback": error.traceback,
        }
        return Json({**about, "status": error.status, "result": None, "error": why})
