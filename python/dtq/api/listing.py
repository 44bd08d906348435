"""The route that lists tasks, page by page."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from dtq.api.errors import Json
from dtq.api.limits import Cursor, PageSize, SomeQueue, Text
from dtq.api.schemas import Status, TaskPage
from dtq.api.served import served_by
from dtq.api.strict_route import StrictRoute
from dtq.api.submission import moment
from dtq.bodies import task_summary

router = APIRouter(tags=["tasks"], route_class=StrictRoute)
Time = Annotated[
    str | None,
    Query(
        max_length=64,
        description="ISO 8601 with an offset.",
        json_schema_extra={"format": "date-time"},
        examples=["2030-12-31T23:59:00Z"],
    ),
]


@router.get("/tasks", summary="List tasks", response_model=TaskPage)
async def list_tasks(
    request: Request,
    queue: SomeQueue = None,
    status: Status | None = None,
    task_type: Text = None,
    created_after: Time = None,
    created_before: Time = None,
    worker_id: Text = None,
    batch_id: Text = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> Response:
    """Every status, by any filter; each task that does not change meanwhile comes exactly once.

    A page looks at 2000 tasks at most, so it may come back short, or empty, with a cursor. Of ended tasks the newest
    of each queue and status are listed (DTQ_RECENT); `partial` says where there may be older ones.
    """
    page = await served_by(request).app.atasks(
        queue,
        status=status,
        task_type=task_type,
        created_after=_time("created_after", created_after),
        created_before=_time("created_before", created_before),
        worker_id=worker_id,
        batch_id=batch_id,
        limit=limit,
        cursor=cursor,
    )
    return Json({"tasks": [task_summary(task) for task in page.tasks], "cursor": page.cursor, "partial": page.partial})


def _time(field: str, text: str | None) -> datetime | None:
    # A plus sign that was not encoded comes as a space.
    return None if text is None else moment(field, text.strip().replace(" ", "+"))
