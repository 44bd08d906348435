"""Operating by HTTP: run now, delete, queues, task types, dead letters, audit; all in the caller's name."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from dtq.models import TaskStatus
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child
from tests.servers import PrivateServer

DEAD = "/api/v1/queues/default/dead-letters"


def dead_letter(server: ApiServer, child: Child, **fields: Any) -> str:
    """A task that died at once; its id."""
    task_id = server.accepted(**fields)
    child.settle(child.claim()[0], "D")
    return task_id


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


# --- tasks -----------------------------------------------------------------------------------------------------------


def test_run_now(server: ApiServer, child: Child) -> None:
    later = server.accepted(delay_seconds=3600)
    answer = server.client.post(f"/api/v1/tasks/{later}/run")
    assert (answer.status_code, answer.json()) == (202, {"task_id": later, "queue": "default", "status": "queued"})
    assert server.app.handle(later).status() is TaskStatus.QUEUED
    assert refusal(server.client.post(f"/api/v1/tasks/{later}/run")) == (409, "ILLEGAL_TRANSITION")
    child.settle(child.claim()[0])
    assert refusal(server.client.post(f"/api/v1/tasks/{later}/run")) == (410, "ALREADY_TERMINAL")
    dead = dead_letter(server, child)
    assert server.client.post(f"/api/v1/tasks/{dead}/run?queue=default").status_code == 202
    assert server.app.handle(dead).status() is TaskStatus.QUEUED
    assert refusal(server.client.post("/api/v1/tasks/nobody/run")) == (404, "TASK_NOT_FOUND")


def test_delete(server: ApiServer, child: Child) -> None:
    task_id = server.accepted()
    assert refusal(server.client.delete(f"/api/v1/tasks/{task_id}")) == (409, "ILLEGAL_TRANSITION")
    child.settle(child.claim()[0])
    answer = server.client.delete(f"/api/v1/tasks/{task_id}", headers={"X-Request-ID": "request-9"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert refusal(server.client.delete(f"/api/v1/tasks/{task_id}")) == (404, "TASK_NOT_FOUND")
    entry = server.client.get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["task_id"], entry["request_id"]) == ("delete", task_id, "request-9")
    assert entry["actor"] == "anonymous@127.0.0.1"


# --- queues ----------------------------------------------------------------------------------------------------------


def test_queues_in_figures(server: ApiServer, child: Child) -> None:
    server.accepted()
    server.accepted()
    server.accepted(queue="other", delay_seconds=60)
    child.claim()
    body = server.client.get("/api/v1/queues").json()
    assert [queue["queue"] for queue in body["queues"]] == ["default", "other"]
    default, other = body["queues"]
    assert (default["waiting"], default["running"], default["scheduled"]) == (1, 1, 0)
    assert default["oldest_age_seconds"] >= 0
    assert (other["waiting"], other["scheduled"], other["oldest_age_seconds"]) == (0, 1, None)
    assert 50 < other["next_due_seconds"] <= 60
    assert server.client.get("/api/v1/queues/other").json()["scheduled"] == 1


def test_queues_page_by_page(server: ApiServer) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        server.accepted(queue=name)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        body = server.client.get("/api/v1/queues", params=query).json()
        seen += [queue["queue"] for queue in body["queues"]]
        if (cursor := body["cursor"]) is None:
            break
    assert seen == names


def test_a_queue_whose_keys_something_else_has_written_hides_no_other(server: ApiServer) -> None:
    server.accepted(queue="broken")
    server.accepted()
    with server.app.broker.transport.client() as client:
        client.set(server.app.broker.keys.schedule("broken"), "garbage")
    answer = server.client.get("/api/v1/queues")
    assert answer.status_code == 200, answer.text
    assert [queue["queue"] for queue in answer.json()["queues"]] == ["default"]
    assert refusal(server.client.get("/api/v1/queues/broken")) == (503, "REDIS_UNAVAILABLE")


@pytest.mark.parametrize("act", ["pause", "resume", "purge", "task-types/noop/pause", "dead-letters/purge"])
def test_a_queue_that_is_not_known(server: ApiServer, act: str) -> None:
    assert refusal(server.client.post(f"/api/v1/queues/nobody/{act}")) == (404, "QUEUE_NOT_FOUND")
    assert server.app.queue_names() == []


def test_names_of_queues_are_refused_or_found(server: ApiServer) -> None:
    for name in ("a%20b", "a+b", "a%23b", "%7Bx%7D", "x" * 65, "%2A", "%C3%A9"):
        assert refusal(server.client.get(f"/api/v1/queues/{name}")) == (422, "INVALID_REQUEST")
    for name in ("a/b", "a%2Fb", ".."):
        assert refusal(server.client.get(f"/api/v1/queues/{name}"))[0] in (404, 422)


def test_pause_and_resume(server: ApiServer, child: Child) -> None:
    server.accepted()
    answer = server.client.post("/api/v1/queues/default/pause").json()
    assert answer == {"queue": "default", "task_type": None, "paused": True, "changed": True}
    assert server.client.post("/api/v1/queues/default/pause").json()["changed"] is False
    assert server.client.get("/api/v1/queues/default").json()["paused"] is True
    assert child.claim() == []
    assert server.client.post("/api/v1/queues/default/resume").json()["paused"] is False
    assert len(child.claim()) == 1


def test_pause_and_resume_a_task_type(server: ApiServer) -> None:
    server.accepted("mail.send")
    assert server.client.post("/api/v1/queues/default/task-types/mail.send/pause").json()["task_type"] == "mail.send"
    body = server.client.get("/api/v1/queues/default/task-types").json()
    assert (body["task_types"], body["paused"]) == (["mail.send"], ["mail.send"])
    assert server.client.post("/api/v1/queues/default/task-types/mail.send/resume").json()["changed"] is True
    assert server.client.get("/api/v1/queues/default").json()["paused_types"] == []
    answer = server.client.post("/api/v1/queues/default/task-types/a%20b/pause")
    assert refusal(answer) == (422, "INVALID_TASK")


def test_purge(server: ApiServer, child: Child) -> None:
    for _ in range(3):
        server.accepted()
    server.accepted(delay_seconds=60)
    child.claim()
    assert server.client.post("/api/v1/queues/default/purge").json() == {"queue": "default", "purged": 3}
    counts = server.app.queue().counts()
    assert (counts.waiting, counts.scheduled, counts.running) == (0, 0, 1)


# --- dead letters ----------------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_and_shown(server: ApiServer, child: Child) -> None:
    ids = [dead_letter(server, child, task_type="mail" if n % 2 else "noop", payload={"n": n}) for n in range(5)]
    body = server.client.get(DEAD).json()
    assert [letter["task_id"] for letter in body["dead_letters"]] == ids[::-1]
    assert (body["cursor"], body["count"]) == (None, 5)
    first = body["dead_letters"][0]
    assert (first["error_class"], first["error"], first["task_type"]) == ("ValueError", "no", "noop")
    mails = server.client.get(DEAD, params={"task_type": "mail"}).json()["dead_letters"]
    assert [letter["task_id"] for letter in mails] == [ids[3], ids[1]]
    assert server.client.get(DEAD, params={"error_class": "KeyError"}).json()["dead_letters"] == []
    assert server.client.get(DEAD, params={"older_than_seconds": 3600}).json()["dead_letters"] == []
    assert len(server.client.get(DEAD, params={"newer_than_seconds": 3600}).json()["dead_letters"]) == 5
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        body = server.client.get(DEAD, params=query).json()
        seen += [letter["task_id"] for letter in body["dead_letters"]]
        if body["cursor"] is None:
            break
        query["cursor"] = body["cursor"]
    assert seen == ids[::-1]
    for name in (ids[0], first["entry"]):
        shown = server.client.get(f"{DEAD}/{name}").json()
        assert shown["task"]["payload"] == {"n": 0 if name == ids[0] else 4}
    assert refusal(server.client.get(f"{DEAD}/nobody")) == (404, "TASK_NOT_FOUND")
    assert refusal(server.client.get(f"{DEAD}/99999999999999999999-0"))[0] in (404, 422)
    alive = server.accepted()
    assert refusal(server.client.get(f"{DEAD}/{alive}")) == (409, "ILLEGAL_TRANSITION")


def test_requeue_one(server: ApiServer, child: Child) -> None:
    task_id = dead_letter(server, child, payload={"n": 1})
    answer = server.client.post(f"{DEAD}/{task_id}/requeue", json={"payload": {"n": 2}})
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert server.app.handle(task_id).task().payload == {"n": 2}
    assert refusal(server.client.post(f"{DEAD}/{task_id}/requeue")) == (409, "ILLEGAL_TRANSITION")
    child.settle(child.claim()[0], "D")
    assert server.client.post(f"{DEAD}/{task_id}/requeue").status_code == 202
    entry = server.client.get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["task_id"]) == ("requeue", task_id)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"payload": {"a": 1, "a": 2}}', "INVALID_TASK"),
        (b'{"payload": {"a": 18446744073709551616}}', "INVALID_TASK"),
        (b'{"payload": []}', "INVALID_REQUEST"),
        (b'{"deadline": "2034-01-01T00:00:00"}', "INVALID_REQUEST"),
        (b'{"nonsense": 1}', "INVALID_REQUEST"),
        (b"[]", "INVALID_REQUEST"),
        (b"{", "INVALID_TASK"),
    ],
)
def test_requeues_that_are_not_valid(server: ApiServer, child: Child, body: bytes, code: str) -> None:
    task_id = dead_letter(server, child)
    path, headers = f"{DEAD}/{task_id}/requeue", {"Content-Type": "application/json"}
    assert refusal(server.client.post(path, content=body, headers=headers)) == (422, code)
    assert refusal(server.client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}))[0] == 415
    assert server.app.handle(task_id).status() is TaskStatus.DEAD_LETTERED


def test_discard_one(server: ApiServer, child: Child) -> None:
    task_id = dead_letter(server, child)
    assert server.client.post(f"{DEAD}/{task_id}/discard").json()["task_id"] == task_id
    assert server.client.get(DEAD).json()["count"] == 0
    assert server.client.get(f"/api/v1/tasks/{task_id}").json()["metadata"]["discarded"] is True
    assert refusal(server.client.post(f"{DEAD}/{task_id}/discard")) == (410, "ALREADY_TERMINAL")


def test_requeue_many(server: ApiServer, child: Child) -> None:
    ids = [dead_letter(server, child, task_type="mail" if n % 2 else "noop", payload={"n": n}) for n in range(6)]
    dry = lines(server.client.post(f"{DEAD}/requeue", json={"task_type": "mail", "dry_run": True}))
    assert [line["outcome"] for line in dry] == ["requeued"] * 3 + ["finished"]
    assert dry[-1] == {"outcome": "finished", "dry_run": True, "requeued": 3, "refused": 0}
    assert server.client.get(DEAD).json()["count"] == 6
    done = lines(server.client.post(f"{DEAD}/requeue", json={"where": {"n": 3}}))
    assert [line.get("task_id") for line in done] == [ids[3], None]
    started = time.monotonic()
    rest = lines(server.client.post(f"{DEAD}/requeue", json={"rate": 10}))
    assert time.monotonic() - started >= 0.3
    assert [line.get("task_id") for line in rest[:-1]] == [*ids[:3], *ids[4:]]
    assert server.client.get(DEAD).json()["count"] == 0
    assert refusal(server.client.post(f"{DEAD}/requeue", json={"rate": 0})) == (422, "INVALID_REQUEST")
    assert refusal(server.client.post(f"{DEAD}/requeue", json={"where": {"a[": 1}})) == (422, "INVALID_TASK")


def test_a_bulk_requeue_says_what_is_refused(clean_server: PrivateServer) -> None:
    with ApiServer(clean_server.url, max_queue_depth=2) as server:
        server.app.broker.prepare_queue("default")
        child = Child(server.app.broker, queue="default")
        for _ in range(3):
            dead_letter(server, child)
        found = lines(server.client.post(f"{DEAD}/requeue"))
    assert [line["outcome"] for line in found] == ["requeued", "requeued", "refused", "finished"]
    assert found[2]["code"] == "QUEUE_FULL"


def test_whoever_leaves_stops_a_bulk_requeue(server: ApiServer, child: Child, wait_until: Any) -> None:
    for _ in range(30):
        dead_letter(server, child)
    with server.client.stream("POST", f"{DEAD}/requeue", json={"rate": 20}) as answer:
        next(answer.iter_lines())
    wait_until(lambda: any("not_done" in entry.facts for entry in server.app.audit()))
    assert 20 < server.app.queue().dead_letter_count() < 30


def test_discard_many_and_purge(server: ApiServer, child: Child) -> None:
    for n in range(4):
        dead_letter(server, child, payload={"n": n})
    found = lines(server.client.post(f"{DEAD}/discard", json={"where": {"n": 2}}))
    assert [line["outcome"] for line in found] == ["discarded", "finished"]
    assert server.client.post(f"{DEAD}/purge").json() == {"queue": "default", "purged": 3}
    assert server.client.get(DEAD).json()["count"] == 0


# --- audit -----------------------------------------------------------------------------------------------------------


def test_the_audit_page_by_page(server: ApiServer) -> None:
    server.accepted()
    for act in ("pause", "resume", "pause", "resume", "purge"):
        server.client.post(f"/api/v1/queues/default/{act}", headers={"X-Request-ID": f"id-{act}"})
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        body = server.client.get("/api/v1/audit", params=query).json()
        seen += [entry["action"] for entry in body["entries"]]
        assert {entry["request_id"] for entry in body["entries"]} <= {"id-pause", "id-resume", "id-purge"}
        if body["cursor"] is None:
            break
        query["cursor"] = body["cursor"]
    assert seen == ["purge", "resume", "pause", "resume", "pause"]


@pytest.mark.parametrize("path", ["/api/v1/audit", DEAD, "/api/v1/tasks"])
def test_cursors_that_nobody_gave(server: ApiServer, path: str) -> None:
    server.accepted()
    for cursor in ("x", "1-1-1", "99999999999999999999-0", "0-0", "-", "é", "0" * 600):
        answer = server.client.get(path, params={"cursor": cursor})
        status, code = refusal(answer)
        assert (status, code) in ((422, "INVALID_TASK"), (422, "INVALID_REQUEST")), (cursor, code)


@pytest.mark.parametrize("path", ["/api/v1/audit", DEAD, "/api/v1/tasks", "/api/v1/queues"])
def test_page_sizes_out_of_bounds(server: ApiServer, path: str) -> None:
    for limit in ("0", "-1", "1000000000", "x", "NaN", "1.5", ""):
        answer = server.client.get(path, params={"limit": limit})
        assert refusal(answer) == (422, "INVALID_REQUEST"), limit
        assert answer.json()["details"]["field"] == "limit"
