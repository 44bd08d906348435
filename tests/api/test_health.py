"""Health is of the process, readiness is of the work it can do; both answer in time, whatever Redis does."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.server import ApiServer, refusal
from tests.servers import PrivateServer


def test_ready_names_the_server(server: ApiServer) -> None:
    server.accepted()
    answer = server.client.get("/ready")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["queues"]) == ("ok", 1)
    assert body["server"].startswith(("redis ", "valkey "))
    with server.app.broker.transport.client() as client:
        assert client.exists("dtq:{workers}") == 0, "a probe must not look like a worker"


def test_a_user_who_may_not_write(clean_server: PrivateServer) -> None:
    with clean_server.client() as client:
        client.acl_setuser(
            "reader", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@read", "+@connection"],
            commands=["+info", "+time", "+config|get"],
        )  # fmt: skip
    with ApiServer(clean_server.url.replace("unix://", "unix://reader:pw@")) as server:
        answer = server.client.get("/ready")
        assert refusal(answer) == (503, "REDIS_UNAVAILABLE")
        assert "set" in answer.json()["message"].lower()
        assert "pw" not in answer.json()["message"]
        assert server.client.get("/health").json() == {"status": "ok"}


def test_a_key_that_something_else_has_written(server: ApiServer) -> None:
    server.accepted()
    with server.app.broker.transport.client() as client:
        schedule = server.app.broker.keys.schedule("default")
        client.set(schedule, "garbage")
        assert refusal(server.client.get("/ready"))[0] == 503
        client.delete(schedule)
    assert server.client.get("/ready").status_code == 200


def test_a_server_that_is_too_old(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtq.broker.calls.MINIMUM", {"redis": (99, 0), "valkey": (99, 0)})
    answer = server.client.get("/ready")
    assert refusal(answer) == (503, "UNSUPPORTED_SERVER")
    assert "too old" in answer.json()["message"]


def test_a_frozen_redis_keeps_nobody_waiting(wait_until: Any) -> None:
    with PrivateServer() as redis, ApiServer(redis.url) as server:
        assert server.client.get("/ready").status_code == 200
        redis.freeze()
        try:
            started = time.monotonic()
            with ThreadPoolExecutor(12) as pool:
                ready = [pool.submit(server.client.get, "/ready") for _ in range(10)]
                healthy = pool.submit(server.client.get, "/health")
                assert healthy.result().status_code == 200
                assert time.monotonic() - started < 1
                assert {refusal(answer.result())[0] for answer in ready} == {503}
            assert time.monotonic() - started < 2
        finally:
            redis.thaw()
        wait_until(lambda: server.client.get("/ready").status_code == 200)
