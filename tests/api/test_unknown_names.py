"""What a route does not know, parameter or field, is refused by name: no act hits more than was meant."""

from __future__ import annotations

import re
import time
from itertools import islice, product
from string import ascii_lowercase
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dtq.api import create_app
from dtq.app import App
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child

QUEUE = "/api/v1/queues/default"


def operations() -> list[tuple[str, str, bool]]:
    """Method and path of every route of the description, and whether it takes a body."""
    description = create_app(App("redis://127.0.0.1:1/0")).openapi()
    return [
        (method.upper(), path, "requestBody" in operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


ROUTES = [(method, path) for method, path, _ in operations() if path.startswith("/api/")]
BODILESS = [(method, path) for method, path, body in operations() if path.startswith("/api/") and not body]
OTHERS = [path for _, path, _ in operations() if not path.startswith("/api/")]


def request(server: ApiServer, method: str, path: str, **more: Any) -> Any:
    return server.client.request(method, re.sub(r"\{[a-z_]+\}", "default", path), **more)


def test_there_are_routes_of_every_kind() -> None:
    assert ("GET", "/api/v1/tasks") in BODILESS
    assert ("POST", "/api/v1/tasks") in {*ROUTES} - {*BODILESS}
    assert len(ROUTES) > 25
    assert len(BODILESS) > 20


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_refuses_a_parameter_it_does_not_know(server: ApiServer, method: str, path: str) -> None:
    answer = request(server, method, f"{path}?colour=blue")
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["details"]["field"] == "colour"
    assert answer.json()["message"].startswith("colour: there is no such parameter; ")
    assert "blue" not in answer.text


@pytest.mark.parametrize(("method", "path"), BODILESS)
def test_every_route_without_a_body_refuses_fields(server: ApiServer, method: str, path: str) -> None:
    answer = request(server, method, path, json={"colour": "blue"})
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["details"]["field"] == "colour"
    assert "takes no body" in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/api/v1/tasks?tasktype=mail", "task_type"),
        ("/api/v1/tasks?taskType=mail", "task_type"),
        ("/api/v1/tasks?queues=mail", "queue"),
        (f"{QUEUE}/dead-letters?older_than=5", "older_than_seconds"),
        ("/api/v1/events?type=TASK_FAILED", "types"),
    ],
)
def test_the_name_that_may_be_meant(server: ApiServer, path: str, meant: str) -> None:
    message = server.client.get(path).json()["message"]
    assert message.endswith(f": there is no such parameter; {meant} may be meant")


def test_without_a_likely_name_the_known_ones_are_told(server: ApiServer) -> None:
    answer = server.client.get("/api/v1/audit?colour=blue")
    assert answer.json()["message"] == "colour: there is no such parameter; known are cursor, limit"
    answer = server.client.post(f"{QUEUE}/pause?colour=blue")
    assert answer.json()["message"] == "colour: there is no such parameter; this route takes none"


def test_all_of_them_are_told(server: ApiServer) -> None:
    answer = server.client.get("/api/v1/tasks?queue=default&colour=blue&size=3")
    assert [problem["field"] for problem in answer.json()["details"]["problems"]] == ["colour", "size"]


@pytest.mark.parametrize("query", ["status=queued&status=failed", "status=queued&limit=1&status=queued"])
def test_a_parameter_that_stands_twice(server: ApiServer, query: str) -> None:
    # The last was taken, the others were not looked at: a list without what was asked for, and without a word.
    answer = server.client.get(f"/api/v1/tasks?{query}")
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["message"] == "status: it stands twice; give one"
    assert len(answer.json()["details"]["problems"]) == 1


@pytest.mark.parametrize(
    ("field", "meant"),
    [("delay", "delay_seconds"), ("prioritty", "priority"), ("taskId", "task_id"), ("args", None)],
)
def test_a_field_of_a_task(server: ApiServer, field: str, meant: str | None) -> None:
    answer = server.submit(**{field: 1})
    assert refusal(answer) == (422, "INVALID_TASK")
    assert answer.json()["details"] == {"field": field}
    told = f"{meant} may be meant" if meant else "known are task_type, payload, queue, "
    assert answer.json()["message"].startswith(f"{field}: there is no such field; {told}")


def test_a_batch_has_no_key_of_its_own(server: ApiServer) -> None:
    # It was not looked at: who sent the batch again under the same key had every task twice.
    answer = server.client.post("/api/v1/tasks/batch", json=[{"task_type": "mail"}], headers={"Idempotency-Key": "k"})
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["details"]["field"] == "Idempotency-Key"
    assert server.app.queue_names() == []


@pytest.mark.parametrize("act", ["dead-letters/x/requeue", "dead-letters/requeue", "dead-letters/discard"])
def test_a_field_of_an_act(server: ApiServer, act: str) -> None:
    server.accepted()
    wrong = "payloads" if "/x/" in act else "dry-run"
    answer = server.client.post(f"{QUEUE}/{act}", json={wrong: True})
    assert refusal(answer) == (422, "INVALID_REQUEST")
    meant = "payload" if "/x/" in act else "dry_run"
    assert answer.json()["message"] == f"{wrong}: there is no such field; {meant} may be meant"


def test_who_means_one_task_type_does_not_purge_the_queue(server: ApiServer) -> None:
    server.accepted("mail.send")
    for more in ({"params": {"task_type": "other"}}, {"json": {"task_type": "other"}}):
        assert refusal(server.client.post(f"{QUEUE}/purge", **more))[0] == 422
        assert refusal(server.client.post(f"{QUEUE}/pause", **more))[0] == 422
    counts = server.app.queue().counts()
    assert (counts.waiting, counts.paused) == (1, False)


@pytest.mark.parametrize("field", [{"older_than_seconds": True}, {"newer_than_seconds": "60"}, {"dry_run": "no"}])
def test_a_value_of_another_kind_discards_nothing(server: ApiServer, child: Child, field: dict[str, Any]) -> None:
    """`true` counted as one second."""
    server.accepted()
    child.settle(child.claim()[0], "D")
    answer = server.client.post(f"{QUEUE}/dead-letters/discard", json=field)
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["details"]["field"] == next(iter(field))
    assert server.app.queue().dead_letter_count() == 1


def test_a_letter_is_not_discarded_by_who_wants_a_dry_run(server: ApiServer, child: Child) -> None:
    task = server.accepted()
    child.settle(child.claim()[0], "D")
    assert refusal(server.client.post(f"{QUEUE}/dead-letters/{task}/discard", json={"dry_run": True}))[0] == 422
    assert server.app.queue().dead_letter_count() == 1


@pytest.mark.parametrize("body", [b"[]", b"no json", b"null", b'"' + 200_000 * b"x" + b'"'])
def test_what_is_no_object_is_refused_as_well(server: ApiServer, body: bytes) -> None:
    server.accepted()
    answer = server.client.post(f"{QUEUE}/pause", content=body, headers={"Content-Type": "text/plain"})
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert answer.json()["message"] == "body: this route takes no body; leave it out"


@pytest.mark.parametrize("body", [b"", b" {} "])
def test_an_empty_body_is_none(server: ApiServer, body: bytes) -> None:
    server.accepted()
    for act in ("pause", "resume", "dead-letters/purge"):
        answer = server.client.post(f"{QUEUE}/{act}", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", [*OTHERS, "/docs", "/openapi.json"])
def test_probes_scrapers_and_pages_may_add_what_they_like(server: ApiServer, path: str) -> None:
    assert server.client.get(f"{path}?_=1700000000").status_code == 200


def test_a_websocket_is_refused_as_well(server: ApiServer) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{server.port}/ws/events?queue=mail"):
        pass
    assert refused.value.response.status_code == 422
    assert b"queue: there is no such parameter; queues may be meant" in refused.value.response.body


@pytest.mark.parametrize("act", ["dead-letters/discard", "dead-letters/requeue"])
def test_many_unknown_fields_hold_nobody_up(server: ApiServer, act: str) -> None:
    # To compare each of them with the known names took three seconds, in which no other request was answered.
    server.accepted()
    body = {"".join(name): 0 for name in islice(product(ascii_lowercase, repeat=4), 110_000)}
    started = time.process_time()
    answer = server.client.post(f"{QUEUE}/{act}", json=body)
    assert time.process_time() - started < 1
    assert refusal(answer) == (422, "INVALID_REQUEST")
    assert len(answer.json()["details"]["problems"]) == 20


@pytest.mark.parametrize("act", ["tasks", "queues/default/dead-letters/discard"])
def test_of_a_long_name_the_beginning_is_told(server: ApiServer, act: str) -> None:
    server.accepted()
    answer = server.client.post(f"/api/v1/{act}", json={"task_type": "mail", "aB" * 400_000: 0})
    assert answer.status_code == 422
    assert answer.json()["details"]["field"] == "aB" * 50
    assert len(answer.text) < 2000
