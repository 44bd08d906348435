"""Lists of tasks: every status, filters, pages that stay true, and nothing large in them."""

from __future__ import annotations

from typing import Any

import pytest

from dtq.models import TaskStatus
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child


def walk(server: ApiServer, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = server.client.get("/api/v1/tasks", params=query)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found += body["tasks"]
        if body["cursor"] is None:
            return found
        query["cursor"] = body["cursor"]


def test_every_status_is_listed(server: ApiServer, child: Child) -> None:
    expected: dict[str, str] = {}
    for letter, status in (("S", "succeeded"), ("F", "failed"), ("D", "dead_lettered"), ("R", "retrying")):
        expected[server.accepted()] = status
        child.settle(child.claim()[0], letter, delay_ms=60_000)
    expected[server.accepted()] = "running"
    child.claim()
    expected[server.accepted(delay_seconds=60)] = "pending"
    cancelled = server.accepted()
    server.client.post(f"/api/v1/tasks/{cancelled}/cancel")
    expected[cancelled] = "cancelled"
    expected[server.accepted()] = "queued"
    for status in TaskStatus:
        ids = {task["task_id"] for task in walk(server, status=status.value)}
        assert ids == {task_id for task_id, known in expected.items() if known == status.value}, status
    assert {task["task_id"]: task["status"] for task in walk(server, limit=3)} == expected
    assert refusal(server.client.get("/api/v1/tasks?status=nonsense")) == (422, "INVALID_REQUEST")


def test_filters(server: ApiServer) -> None:
    first = server.accepted("mail", batch_id="b1")
    created = server.client.get(f"/api/v1/tasks/{first}").json()["created_at"]
    second = server.accepted("noop", queue="other")

    def ids(**query: str) -> set[str]:
        return {task["task_id"] for task in walk(server, **query)}

    assert ids(task_type="mail") == {first}
    assert ids(batch_id="b1") == {first}
    assert ids(queue="other") == {second}
    assert ids(created_after="2020-01-01T00:00:00Z") == {first, second}
    assert ids(created_before=created) == set()
    assert ids(created_after="2034-01-01T00:00:00+01:00") == set()
    assert ids(worker_id="nobody") == set()
    # A plus sign that nobody has encoded.
    answer = server.client.get("/api/v1/tasks?created_after=2020-01-01T00:00:00+01:00")
    assert len(answer.json()["tasks"]) == 2


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_at_the_end_of_all_years_hides_no_other_task(server: ApiServer, time: str) -> None:
    first = server.accepted("one", deadline=time)
    second = server.accepted("two")
    assert {task["task_id"] for task in walk(server)} == {first, second}
    assert server.client.get(f"/api/v1/tasks/{first}").status_code == 200
    for query in ("created_after", "created_before"):
        assert server.client.get("/api/v1/tasks", params={query: time}).status_code == 200


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00", "1700000000", ""])
def test_times_without_a_zone_are_refused(server: ApiServer, time: str) -> None:
    answer = server.client.get("/api/v1/tasks", params={"created_after": time})
    assert refusal(answer) == (422, "INVALID_TASK")
    assert answer.json()["details"]["field"] == "created_after"


@pytest.mark.parametrize("path", ["tasks?task_type=", "tasks?task_type=a%20b", "queues/default/task-types/a%20b/pause"])
def test_a_task_type_that_cannot_be_is_named_as_the_parameter_is(server: ApiServer, path: str) -> None:
    server.accepted()
    answer = server.client.request("POST" if path.endswith("pause") else "GET", f"/api/v1/{path}")
    assert refusal(answer) == (422, "INVALID_TASK")
    assert answer.json()["details"] == {"field": "task_type"}
    assert answer.json()["message"].startswith("task_type: ")


def test_a_list_holds_nothing_large(server: ApiServer) -> None:
    server.accepted(payload={"x": "y" * 200_000})
    answer = server.client.get("/api/v1/tasks")
    assert len(answer.content) < 2000
    assert "payload" not in answer.json()["tasks"][0]


def test_pages_stay_true_while_tasks_come_and_go(server: ApiServer, child: Child) -> None:
    still = {server.accepted(delay_seconds=100 + n) for n in range(30)}
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 7, "status": "pending"}
    while True:
        body = server.client.get("/api/v1/tasks", params=query).json()
        seen += [task["task_id"] for task in body["tasks"]]
        server.accepted()
        gone = server.accepted(delay_seconds=50)
        server.client.post(f"/api/v1/tasks/{gone}/cancel")
        if body["cursor"] is None:
            break
        query["cursor"] = body["cursor"]
    assert sorted(task for task in seen if task in still) == sorted(still)
    assert refusal(server.client.get("/api/v1/tasks", params={**query, "status": "queued"})) == (422, "INVALID_TASK")
