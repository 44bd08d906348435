"""The OpenAPI description is true: requests made from it are answered as it says, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dtq.api import create_app
from dtq.app import App
from tests.api.server import ApiServer
from tests.broker.driver import Child

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
ENDLESS = "/api/v1/events"
KNOWN = {
    "/health", "/ready", "/metrics", "/api/v1/tasks", "/api/v1/tasks/batch", "/api/v1/tasks/{task_id}",
    "/api/v1/tasks/{task_id}/result", "/api/v1/tasks/{task_id}/cancel", "/api/v1/tasks/{task_id}/run", ENDLESS,
    "/api/v1/queues", "/api/v1/queues/{queue}", "/api/v1/queues/{queue}/pause", "/api/v1/queues/{queue}/resume",
    "/api/v1/queues/{queue}/purge", "/api/v1/queues/{queue}/task-types", "/api/v1/audit", "/api/v1/workers",
    "/api/v1/queues/{queue}/task-types/{task_type}/pause", "/api/v1/queues/{queue}/task-types/{task_type}/resume",
    "/api/v1/queues/{queue}/dead-letters", "/api/v1/queues/{queue}/dead-letters/{name}", "/api/v1/workers/{worker_id}",
    "/api/v1/queues/{queue}/dead-letters/{name}/requeue", "/api/v1/queues/{queue}/dead-letters/{name}/discard",
    "/api/v1/queues/{queue}/dead-letters/requeue", "/api/v1/queues/{queue}/dead-letters/discard",
    "/api/v1/queues/{queue}/dead-letters/purge",
}  # fmt: skip
schema = schemathesis.openapi.from_dict(create_app(App("redis://127.0.0.1:1/0")).openapi())


@schemathesis.serializer("application/x-ndjson")
def lines(_: object, value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def test_everything_is_described() -> None:
    description = create_app(App("redis://127.0.0.1:1/0")).openapi()
    assert set(description["paths"]) == KNOWN
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert "HTTPValidationError" not in str(operation), (method, path)


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(case: Any, server: ApiServer) -> None:
    if case.operation.path == ENDLESS:
        pytest.skip("it has no end; tests/api/test_events.py reads it")
    case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=20)


def test_real_answers_are_as_described(server: ApiServer, child: Child) -> None:
    """Requests made up find nothing; these find something everywhere."""
    dead = server.accepted(payload={"n": 1}, batch_id="b")
    child.settle(child.claim()[0], "D")
    done = server.accepted()
    child.settle(child.claim()[0])
    later = server.accepted(delay_seconds=60, deadline="2033-01-01T00:00:00Z", ttl_seconds=100)
    queue = "/api/v1/queues/default"
    get = [
        *("/ready", "/health", "/metrics", "/api/v1/tasks", "/api/v1/queues", queue, f"{queue}/task-types"),
        *(f"/api/v1/tasks/{task}{part}" for task in (dead, done, later) for part in ("", "/result")),
        *(f"{queue}/dead-letters", f"{queue}/dead-letters/{dead}", "/api/v1/audit", "/api/v1/workers"),
    ]
    post = [
        *(f"{queue}/pause", f"{queue}/resume", f"{queue}/dead-letters/{dead}/discard", f"{queue}/dead-letters/requeue"),
        *(
            f"/api/v1/tasks/{later}/run",
            f"/api/v1/tasks/{later}/cancel",
            f"{queue}/dead-letters/purge",
            f"{queue}/purge",
        ),
    ]
    gone = ("DELETE", f"/api/v1/tasks/{done}"), ("GET", f"/api/v1/tasks/{done}"), ("GET", "/api/v1/audit")
    requests = [*(("GET", path) for path in get), *(("POST", path) for path in post), *gone]
    for method, path in requests:
        answer = server.client.request(method, path)
        operation = schema[_described(path)][method]
        operation.validate_response(schemathesis.Response.from_httpx(answer, verify=False))


def _described(path: str) -> str:
    """The path of the description that a request's path stands for: the one with the fewest parameters."""
    parts = path.split("/")
    found = [
        known
        for known in KNOWN
        if len(steps := known.split("/")) == len(parts)
        and all(part == step or step.startswith("{") for part, step in zip(parts, steps, strict=True))
    ]
    return min(found, key=lambda known: known.count("{"))
