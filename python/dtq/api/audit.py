"""The route of the audit stream: who did what that cannot be undone."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dtq.api.errors import Json
from dtq.api.limits import Cursor, PageSize
from dtq.api.schemas import AuditPage
from dtq.api.served import served_by
from dtq.api.strict_route import StrictRoute
from dtq.bodies import audit_body
from dtq.dead_letters import check_entry

router = APIRouter(tags=["audit"], route_class=StrictRoute)


@router.get("/audit", summary="Read the audit", response_model=AuditPage)
async def read(request: Request, limit: PageSize = 100, cursor: Cursor = None) -> Response:
    """Newest first; the newest 10 000 acts are kept."""
    behind = None if cursor is None else check_entry("cursor", cursor)
    entries = await served_by(request).app.aaudit(limit, behind)
    following = entries[-1].entry if len(entries) == limit else None
    return Json({"entries": [audit_body(entry) for entry in entries], "cursor": following})
