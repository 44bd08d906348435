"""Submitting single tasks: what is accepted, and every way to be refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from dtq.models import TaskStatus
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child
from tests.servers import PrivateServer

JSON = {"Content-Type": "application/json"}
NESTED: list[Any] = []
"""Deeper than what the writer of JSON takes, and not as deep as what the reader refuses."""
for _ in range(300):
    NESTED = [NESTED]


def post(server: ApiServer, body: str | bytes, **headers: str) -> httpx.Response:
    return server.client.post("/api/v1/tasks", content=body, headers={**JSON, **headers})


def test_a_task_is_accepted_and_named(server: ApiServer) -> None:
    answer = server.submit("mail.send", {"to": "a", "n": 2**64 - 1})
    assert answer.status_code == 202
    body = answer.json()
    assert body == {"task_id": body["task_id"], "queue": "default", "duplicate": False}
    assert server.client.get(answer.headers["location"]).json()["task_id"] == body["task_id"]
    task = server.app.handle(body["task_id"]).task()
    assert (task.task_type, task.payload, task.status) == ("mail.send", {"to": "a", "n": 2**64 - 1}, TaskStatus.QUEUED)


def test_every_option_arrives(server: ApiServer) -> None:
    task_id = server.accepted(
        queue="other", priority=8, delay_seconds=0.25, ttl_seconds=60, timeout_seconds=1.5, max_attempts=2,
        deadline="2034-01-01T00:00:00+01:00", retention_seconds="forever", task_id="mine", headers={"trace": "1"},
        metadata={"a": [1]}, batch_id="b1", unique="lock", unique_ttl_seconds=30, conflict="return_existing",
        idempotency_key="key", idempotency_ttl_seconds=30,
    )  # fmt: skip
    assert task_id == "mine"
    task = server.app.handle("mine", "other").task().as_dict()
    expected = {
        "priority": 8, "ttl": 60.0, "timeout": 1.5, "max_attempts": 2, "deadline": "2033-12-31T23:00:00.000+00:00",
        "retention": None, "headers": {"trace": "1"}, "metadata": {"a": [1]}, "batch_id": "b1", "status": "pending",
    }  # fmt: skip
    assert {name: task[name] for name in expected} == expected


def test_the_answer_shows_durations_in_seconds(server: ApiServer) -> None:
    task_id = server.accepted(run_at="2034-01-01T00:00:00Z", timeout_seconds=2.5, retention_seconds=10)
    body = server.client.get(f"/api/v1/tasks/{task_id}").json()
    assert body["due_at"] == "2034-01-01T00:00:00.000+00:00"
    assert (body["timeout_seconds"], body["retention_seconds"], body["ttl_seconds"]) == (2.5, 10.0, None)


def test_null_is_not_given(server: ApiServer) -> None:
    assert server.submit(queue=None, delay_seconds=None, idempotency_key=None).status_code == 202
    assert post(server, '{"task_type":"noop","payload":null}').status_code == 202


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delay_seconds": "1"}, "delay_seconds"),
        ({"delay_seconds": 1e12}, "delay_seconds"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"run_at": "2034-01-01T00:00:00"}, "run_at"),
        ({"run_at": 2_000_000_000}, "run_at"),
        ({"run_at": "10000-01-01T00:00:00Z"}, "run_at"),
        ({"run_at": "2030-01-01T00:00:00Z", "delay_seconds": 1}, "run_at"),
        ({"deadline": "soon"}, "deadline"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"ttl_seconds": True}, "ttl_seconds"),
        ({"retention_seconds": -1}, "retention_seconds"),
        ({"retention_seconds": "never"}, "retention_seconds"),
        ({"priority": 10}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"queue": "a b"}, "queue"),
        ({"queue": "../x"}, "queue"),
        ({"task_type": "a b"}, "task_type"),
        ({"task_type": None}, "task_type"),
        ({"task_type": ["noop"]}, "task_type"),
        ({"task_type": 7}, "task_type"),
        ({"queue": ["default"]}, "queue"),
        ({"queue": {}}, "queue"),
        ({"task_id": []}, "task_id"),
        ({"conflict": []}, "conflict"),
        ({"unique": {}}, "unique"),
        ({"run_at": {}}, "run_at"),
        ({"task_id": "a/b"}, "task_id"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"unique": 3}, "unique"),
        ({"unique_ttl_seconds": 0}, "unique_ttl_seconds"),
        ({"conflict": "maybe"}, "conflict"),
        ({"headers": {"a": 1}}, "headers.a"),
        ({"metadata": []}, "metadata"),
        ({"payload": []}, "payload"),
        ({"payload": 3}, "payload"),
        ({"delay": 1}, "delay"),
        ({"batch_id": "a b"}, "batch_id"),
        ({"priority": NESTED}, "priority"),
        ({"unique": NESTED}, "unique"),
        ({"task_type": NESTED}, "task_type"),
    ],
)
def test_what_is_not_valid_is_named(server: ApiServer, fields: dict[str, Any], field: str) -> None:
    answer = server.client.post("/api/v1/tasks", json={"task_type": "noop", **fields})
    assert refusal(answer) == (422, "INVALID_TASK")
    assert answer.json()["details"] == {"field": field}
    assert answer.json()["message"].startswith(f"{field}: ")
    assert server.app.broker.queues() == []


def test_a_plan_that_is_kept_takes_nothing_for_something_else(server: ApiServer) -> None:
    """1, 1.0 and true are equal in Python."""
    assert server.submit(priority=1).status_code == 202
    assert refusal(server.submit(priority=True)) == (422, "INVALID_TASK")
    assert refusal(server.submit(priority=1.0)) == (422, "INVALID_TASK")


@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        ('{"task_type":"noop","payload":{"a":1,"a":2}}', "payload", 'the key "a" stands twice'),
        ('{"task_type":"noop","payload":{"a":1,"\\u0061":2}}', "payload", 'the key "a" stands twice'),
        ('{"task_type":"noop","task_type":"other"}', "body", 'the key "task_type" stands twice'),
        ('{"task_type":"noop","payload":{"n":[18446744073709551616]}}', "payload.n[0]", "outside -2**63"),
        ('{"task_type":"noop","payload":{"n":-9223372036854775809}}', "payload.n", "outside -2**63"),
        ('{"task_type":"noop","payload":{"n":1e400}}', "payload.n", "beyond the range of a double"),
        ('{"task_type":"noop","payload":{"n":NaN}}', "body", "no JSON"),
        ('{"task_type":"noop","payload":{"n":"\\ud800"}}', "body", "no JSON"),
        ('{"task_type":"noop"', "body", "no JSON"),
        ("", "body", "no JSON"),
        ("[]", "body", "a JSON object is needed"),
        (b'{"task_type":"\xff"}', "body", "no JSON"),
        ('{"task_type":"noop","payload":' + '{"a":' * 129 + "1" + "}" * 130, "payload", "nested deeper than 128"),
    ],
)
def test_nothing_in_a_body_is_changed_without_a_word(
    server: ApiServer, body: str | bytes, field: str, problem: str
) -> None:
    answer = post(server, body)
    assert refusal(answer) == (422, "INVALID_TASK")
    assert answer.json()["details"]["field"].startswith(field)
    assert problem in answer.json()["message"]


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":9007199254740993,"b":123456789012345678,"c":-9223372036854775808,"d":18446744073709551615}',
        '{"a":[],"b":{},"c":[[]],"d":"","e":null,"f":false,"g":0,"h":1.0,"i":0.1,"j":1e300}',
        '{"\\u0000":"\\u2028<script>","é":"\U0001f600"}',
    ],
)
def test_payloads_arrive_exactly(server: ApiServer, payload: str) -> None:
    answer = post(server, f'{{"task_type":"noop","payload":{payload}}}')
    assert answer.status_code == 202
    found = server.client.get(f"/api/v1/tasks/{answer.json()['task_id']}").json()["payload"]
    assert repr(found) == repr(json.loads(payload))


def test_a_payload_that_is_too_large(server: ApiServer) -> None:
    largest = server.app.settings.max_payload_bytes - len('{"a":""}')
    assert server.submit(payload={"a": "x" * largest}).status_code == 202
    assert refusal(server.submit(payload={"a": "x" * (largest + 1)})) == (413, "PAYLOAD_TOO_LARGE")


def test_a_payload_written_with_escapes_has_as_much_room(server: ApiServer) -> None:
    letters = server.app.settings.max_payload_bytes // 2 - 10
    assert server.submit(payload={"a": "é" * letters}).status_code == 202


def test_the_idempotency_key_of_the_header_wins(server: ApiServer, child: Child) -> None:
    body = json.dumps({"task_type": "noop", "payload": {"a": 1, "b": 2}, "idempotency_key": "of the body"})
    first = post(server, body, **{"Idempotency-Key": "of the header"})
    assert first.status_code == 202
    again = post(server, body, **{"Idempotency-Key": "of the header"})
    assert refusal(again) == (409, "IDEMPOTENCY_IN_PROGRESS")
    assert again.json()["details"] == {"task_id": first.json()["task_id"]}
    child.settle(child.claim()[0])
    late = post(server, '{"payload": {"b": 2, "a": 1}, "task_type": "noop"}', **{"Idempotency-Key": "of the header"})
    assert (late.status_code, late.json()) == (200, {**first.json(), "duplicate": True, "status": "succeeded"})
    assert server.client.delete(f"/api/v1/tasks/{first.json()['task_id']}").status_code == 204
    kept = post(server, '{"payload": {"b": 2, "a": 1}, "task_type": "noop"}', **{"Idempotency-Key": "of the header"})
    assert kept.json() == late.json(), "the key answers after its task's record is gone"
    other = post(server, '{"task_type":"noop","payload":{"a":3}}', **{"Idempotency-Key": "of the header"})
    assert refusal(other) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert post(server, body).status_code == 202  # the body's own key is free


def test_many_requests_with_one_key_make_one_task(server: ApiServer) -> None:
    body = json.dumps({"task_type": "noop", "payload": {"a": 1}, "idempotency_key": "same"})
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: post(server, body), range(100)))
    accepted = [answer.json()["task_id"] for answer in answers if answer.status_code == 202]
    others = {answer.json()["details"]["task_id"] for answer in answers if answer.status_code == 409}
    assert len(accepted) == 1
    assert others == set(accepted)
    assert server.app.queue().counts().waiting == 1


def test_unique_tasks(server: ApiServer) -> None:
    first = server.accepted(payload={"a": 1}, unique=True)
    refused = server.submit(payload={"a": 1}, unique=True)
    assert refusal(refused) == (409, "UNIQUE_CONFLICT")
    assert refused.json()["details"] == {"task_id": first}
    again = server.submit(payload={"a": 1}, unique=True, conflict="return_existing")
    assert (again.status_code, again.json()) == (200, {"task_id": first, "queue": "default", "duplicate": True})


def test_an_id_that_exists(server: ApiServer) -> None:
    server.accepted(task_id="mine")
    assert refusal(server.submit(task_id="mine")) == (409, "TASK_ID_CONFLICT")


def test_a_full_queue_says_when_to_come_back(clean_server: PrivateServer) -> None:
    with ApiServer(clean_server.url, max_queue_depth=1) as server:
        server.accepted()
        refused = server.submit()
        assert refusal(refused) == (429, "QUEUE_FULL")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["details"]["retry_after_seconds"] > 0


def test_no_redis_is_503_in_time() -> None:
    with ApiServer("redis://127.0.0.1:1/0", enqueue_deadline_s=0.3) as server:
        answer = server.submit()
        assert refusal(answer) == (503, "REDIS_UNAVAILABLE")
        assert server.client.get("/health").status_code == 200
        assert refusal(server.client.get("/ready")) == (503, "REDIS_UNAVAILABLE")
        assert refusal(server.client.get("/api/v1/tasks/x")) == (503, "REDIS_UNAVAILABLE")


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_content_is_refused(server: ApiServer, given: str) -> None:
    """What the pages of other sites may send without asking."""
    answer = server.client.post("/api/v1/tasks", content=b'{"task_type":"noop"}', headers={"Content-Type": given})
    assert refusal(answer) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_the_options_of_a_registered_task_count(server: ApiServer) -> None:
    @server.app.task(name="registered", queue="special", priority=7, max_attempts=2)
    def registered() -> None: ...

    answer = server.submit("registered")
    assert answer.json()["queue"] == "special"
    task = server.app.handle(answer.json()["task_id"], "special").task()
    assert (task.priority, task.max_attempts) == (7, 2)
