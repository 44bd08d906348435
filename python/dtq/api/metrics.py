"""The route of metrics: what Redis holds, as Prometheus text."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dtq.api.schemas import refusals
from dtq.api.served import served_by
from dtq.metrics import CONTENT_TYPE, render
from dtq.off_loop import in_thread

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refusals(401, 403, 503)},
)
async def metrics(request: Request) -> Response:
    """The same whichever process is asked. Needs a key where keys are set, unless DTQ_API_READ=open."""
    return Response(await in_thread(render, served_by(request).app), media_type=CONTENT_TYPE)
