"""Whether the process lives, and whether it can do work."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dtq.api.errors import ApiError, Json, error_response, request_id_of
from dtq.api.schemas import Health, Ready, refusals
from dtq.api.served import served_by

router = APIRouter(tags=["health"])


@router.head("/health", include_in_schema=False)
@router.get("/health", summary="Is the process alive", response_model=Health)
async def health() -> Response:
    """Looks at nothing but the process, and needs no key."""
    return Json({"status": "ok"})


@router.head("/ready", include_in_schema=False)
@router.get("/ready", summary="Can work be done", response_model=Ready, responses=refusals(503))
async def ready(request: Request) -> Response:
    """Redis answers, has a version that dtq knows, runs its scripts and takes writes. Needs no key.

    Queues whose keys something else has written are counted in `degraded`, and named to those who may read.
    """
    served = served_by(request)
    finding = await served.readiness.find()
    if finding.problem is None:
        names = list(finding.degraded) if served.keys.open_to(request.headers.get("x-api-key")) else None
        body = {"status": "ok", "server": finding.server, "queues": finding.queues}
        return Json({**body, "degraded": len(finding.degraded), "degraded_queues": names})
    code = finding.problem.code if finding.problem.http_status == 503 else "NOT_READY"
    return error_response(ApiError(503, code, str(finding.problem)), request_id_of(request))
