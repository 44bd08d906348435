"""Who may call what: keys, open reads, other sites, other names, and what stays out of answers and logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import dtq
from dtq.api import create_app
from dtq.api.authentication import ApiKeys
from tests.api.server import ApiServer, refusal
from tests.servers import PrivateServer

KEYS = "ci:first-key-of-ci, ops:the-key:of-ops,bare-key"
GOOD = {"X-API-Key": "first-key-of-ci"}


@pytest.fixture(scope="module")
def locked(redis_server: PrivateServer) -> Iterator[ApiServer]:
    with ApiServer(redis_server.url, api_key=KEYS) as server:
        yield server


@pytest.fixture(scope="module")
def readable(redis_server: PrivateServer) -> Iterator[ApiServer]:
    with ApiServer(redis_server.url, api_key=KEYS, api_read="open") as server:
        yield server


def endpoints(server: ApiServer) -> list[tuple[str, str]]:
    """Method and path of every operation, ids filled in."""
    return [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, operations in server.api.openapi()["paths"].items()
        for method in operations
    ]


def call(server: ApiServer, method: str, path: str, **headers: str) -> httpx.Response:
    with server.client.stream(method, path, headers=headers) as answer:
        if answer.status_code != 200 or "event-stream" not in answer.headers.get("content-type", ""):
            answer.read()
        return answer


def test_every_endpoint_but_two_needs_a_key(locked: ApiServer) -> None:
    paths = endpoints(locked)
    assert len(paths) > 6
    for method, path in [
        *paths,
        ("GET", "/docs/other"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing"),
        ("GET", "/metrics"),
    ]:
        for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": ""}, {"X-API-Key": "ci"}):
            answer = call(locked, method, path, **headers)
            if path in ("/health", "/ready"):
                assert answer.status_code == 200
            else:
                assert refusal(answer) == (401, "UNAUTHORIZED"), (method, path)


def test_each_key_opens(locked: ApiServer) -> None:
    for key in ("first-key-of-ci", "the-key:of-ops", "bare-key"):
        assert call(locked, "GET", "/openapi.json", **{"X-API-Key": key}).status_code == 200


def test_open_reads_need_no_key_and_acts_do(readable: ApiServer) -> None:
    for method, path in endpoints(readable):
        answer = call(readable, method, path)
        if method == "GET":
            assert answer.status_code != 401, path
        elif method != "GET":
            assert refusal(answer) == (401, "UNAUTHORIZED"), (method, path)
    assert call(readable, "GET", "/openapi.json", **{"X-API-Key": "wrong"}).status_code == 401


def test_the_name_of_the_key_stands_in_the_audit(locked: ApiServer, clean_server: PrivateServer) -> None:
    task_id = locked.client.post("/api/v1/tasks", json={"task_type": "noop"}, headers=GOOD).json()["task_id"]
    path = f"/api/v1/tasks/{task_id}/cancel"
    given = {"X-API-Key": "the-key:of-ops", "X-Request-ID": "request-7"}
    assert locked.client.post(path, headers=given).status_code == 202
    (entry,) = locked.app.audit(1)
    assert (entry.action, entry.task_id, entry.actor) == ("cancel", task_id, "ops")


def test_keys_and_payloads_stand_in_no_log(
    locked: ApiServer, clean_server: PrivateServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"task_type": "noop", "payload": {"secret": "SECRET-1234"}}
    assert locked.client.post("/api/v1/tasks", json=body, headers=GOOD).status_code == 202
    assert locked.client.post("/api/v1/tasks", json=body, headers={"X-API-Key": "wrong-SECRET-1234"}).status_code == 401
    assert locked.client.post("/api/v1/tasks", content='{"SECRET-1234', headers={**GOOD}).status_code == 415
    said = caplog.text + "".join(capfd.readouterr())
    assert "SECRET-1234" not in said
    assert "first-key-of-ci" not in said
    assert "first-key" not in repr(locked.app.settings)
    assert "first-key" not in repr(ApiKeys.parse(KEYS))


@pytest.mark.parametrize(
    "wrong", ["a b:key", "name:", "name:with space", "ok:fine,,other:key", "x" * 65 + ":key", ":key"]
)
def test_keys_that_cannot_be_read(wrong: str) -> None:
    with pytest.raises(dtq.InvalidSettings, match="DTQ_API_KEY: part") as raised:
        ApiKeys.parse(wrong)
    assert "key of" not in str(raised.value)
    assert "with space" not in str(raised.value)


def test_two_keys_may_have_one_name() -> None:
    keys = ApiKeys.parse("ci:old,ci:new")
    assert keys.name_of(b"old") == keys.name_of(b"new") == "ci"
    assert keys.name_of(b"other") is None
    assert not ApiKeys.parse(None)
    assert not ApiKeys.parse(" ")


# --- pages of other sites -------------------------------------------------------------------------------------------


def test_a_page_of_another_site_changes_nothing(server: ApiServer) -> None:
    task_id = server.accepted()
    path = f"/api/v1/tasks/{task_id}/cancel"
    for origin in ("https://evil.example", "null", "http://[", "", f"http://evil.example:{server.port}"):
        assert refusal(server.client.post(path, headers={"Origin": origin})) == (403, "FORBIDDEN_ORIGIN")
    assert server.client.post(path, headers={"Origin": server.url}).status_code == 202


def test_a_name_that_another_site_makes_point_here_is_refused(server: ApiServer) -> None:
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "localhost.evil.example",
        "",
        "[::1",
        "a]b",
        b"\xbd.example",
    ):
        assert refusal(server.client.get("/health", headers={"Host": host})) == (403, "FORBIDDEN_HOST")
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "dtq.localhost:8000", "10.0.0.1"):
        assert server.client.get("/health", headers={"Host": host}).status_code == 200


def test_with_keys_or_at_ones_own_risk_every_name_is_taken(locked: ApiServer, redis_server: PrivateServer) -> None:
    assert locked.client.get("/health", headers={"Host": "dtq.example"}).status_code == 200
    with ApiServer(redis_server.url, insecure=True) as server:
        assert server.client.get("/health", headers={"Host": "dtq.example"}).status_code == 200


@pytest.mark.parametrize("wrong", ["*", "https://app.example/path", "app.example", "https://ok.example, null"])
def test_origins_that_are_none(redis_server: PrivateServer, wrong: str) -> None:
    with dtq.App(redis_server.url, api_origins=wrong) as app, pytest.raises(dtq.InvalidSettings, match="is no origin"):
        create_app(app)


def test_no_cors_unless_it_is_set(server: ApiServer, redis_server: PrivateServer) -> None:
    question = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    answer = server.client.options("/api/v1/tasks", headers=question)
    assert "access-control-allow-origin" not in answer.headers
    with ApiServer(
        redis_server.url, api_key=KEYS, api_origins="https://app.example, https://b.example/"
    ) as open_server:
        answer = open_server.client.options("/api/v1/tasks", headers=question)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        sent = {"Origin": "https://app.example", **GOOD}
        answer = open_server.client.post("/api/v1/tasks", json={"task_type": "noop"}, headers=sent)
        assert answer.status_code == 202
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        answer = open_server.client.options("/api/v1/tasks", headers={**question, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers


# --- headers ---------------------------------------------------------------------------------------------------------


def test_every_answer_has_its_headers(server: ApiServer) -> None:
    for path in ("/health", "/api/v1/tasks/x", "/nothing", "/openapi.json"):
        headers = server.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors 'none'")
        assert headers["content-type"] == "application/json"
        assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_the_description_names_the_key(server: ApiServer) -> None:
    schema = server.client.get("/openapi.json").json()
    assert schema["components"]["securitySchemes"]["key"]["name"] == "X-API-Key"
    assert schema["paths"]["/health"]["get"]["security"] == []
    assert schema["paths"]["/api/v1/tasks"]["post"]["security"] == [{"key": []}]


def test_request_ids_are_echoed_or_made(server: ApiServer) -> None:
    assert server.client.get("/health", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = {server.client.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for odd in ("a b", "x" * 129, "<script>", "a\tb"):
        assert server.client.get("/health", headers={"X-Request-ID": odd}).headers["x-request-id"] != odd
    answer = server.client.get("/api/v1/tasks/x", headers={"X-Request-ID": "abc-2"})
    assert answer.json()["request_id"] == "abc-2"


def test_what_does_not_exist(server: ApiServer) -> None:
    answer = server.client.get("/nothing")
    assert refusal(answer) == (404, "NOT_FOUND")
    assert answer.json()["message"] == "path: nothing is here; /docs lists the routes"
    answer = server.client.put("/api/v1/tasks")
    assert refusal(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.json()["message"] == "method: PUT is not for this path; the header Allow names those that are"
    assert answer.headers["allow"] == "GET, POST"
    assert server.client.put("/api/v1/tasks/x").headers["allow"] == "DELETE, GET"


def test_what_fails_inside_says_nothing_of_it(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("SECRET" + "-1234")

    monkeypatch.setattr(server.app, "get", fail)
    answer = server.client.get("/api/v1/tasks/x", headers={"X-Request-ID": "failing"})
    assert refusal(answer) == (500, "INTERNAL")
    assert "SECRET-1234" not in answer.text
    records = [record for record in caplog.records if record.name == "dtq.api"]
    assert [record.levelname for record in records] == ["ERROR"]
    assert "request failing failed: RuntimeError" in caplog.text
    assert "SECRET-1234" not in caplog.text


def test_a_websocket_without_a_key_is_refused(locked: ApiServer) -> None:
    with pytest.raises(InvalidStatus) as raised:
        connect(f"ws://127.0.0.1:{locked.port}/ws/events")
    assert raised.value.response.status_code == 401
    assert b"UNAUTHORIZED" in raised.value.response.body


def test_a_websocket_of_another_site_is_refused(server: ApiServer) -> None:
    with pytest.raises(InvalidStatus) as raised:
        connect(f"ws://127.0.0.1:{server.port}/ws/events", origin="https://evil.example")  # type: ignore[arg-type]
    assert raised.value.response.status_code == 403
