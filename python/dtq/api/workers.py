"""The routes of workers: who is alive, with which children, and what each runs since when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from dtq.api.errors import ApiError, Json
from dtq.api.schemas import WorkerDetail, WorkerList, refusals
from dtq.api.served import served_by
from dtq.api.strict_route import StrictRoute

router = APIRouter(tags=["workers"], route_class=StrictRoute)
WorkerId = Annotated[str, Path(max_length=128, description="Id of the worker.")]


@router.get("/workers", summary="List workers", response_model=WorkerList)
async def list_workers(request: Request) -> Response:
    """All that are alive, by id."""
    found = await served_by(request).app.aworkers()
    return Json({"workers": [worker.as_dict() for worker in found]})


@router.get("/workers/{worker_id}", summary="Look at a worker", response_model=WorkerDetail, responses=refusals(404))
async def look(request: Request, worker_id: WorkerId) -> Response:
    """One of them."""
    for worker in await served_by(request).app.aworkers():
        if worker.id == worker_id:
            return Json(worker.as_dict())
    raise ApiError(
        404, "WORKER_NOT_FOUND", f"worker_id: {worker_id!r} is not alive; /api/v1/workers lists those that are"
    )
