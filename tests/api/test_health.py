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
    assert (body["status"], body["queues"], body["degraded"], body["degraded_queues"]) == ("ok", 1, 0, [])
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


@pytest.mark.parametrize("part", ["schedule", "live"])
@pytest.mark.parametrize("damaged", ["default", "mail"])
def test_a_queue_with_damaged_keys_takes_no_others_away(server: ApiServer, damaged: str, part: str) -> None:
    """A load balancer that took the process away would take all queues away, and no other process helps the one."""
    for queue in ("default", "mail", "web"):
        server.accepted(queue=queue)
    key = getattr(server.app.broker.keys, part)(damaged)
    with server.app.broker.transport.client() as client:
        kept = client.dump(key)
        client.set(key, "garbage")
        answer = server.client.get("/ready")
        assert answer.status_code == 200
        body = answer.json()
        assert (body["status"], body["queues"], body["degraded"], body["degraded_queues"]) == ("ok", 3, 1, [damaged])
        assert server.submit(queue="web").status_code == 202
        client.delete(key)
        if kept:
            client.restore(key, 0, kept)
    assert server.client.get("/ready").json()["degraded"] == 0


def test_names_of_queues_are_told_to_those_who_may_read(clean_server: PrivateServer) -> None:
    """/ready needs no key; everybody is told that something is wrong, and those with a key where."""
    for read, told_without in (("key", None), ("open", ["mail"])):
        with ApiServer(clean_server.url, api_key="ops:k3y", api_read=read) as server:
            server.app.enqueue("noop", {}, queue="mail")
            with server.app.broker.transport.client() as client:
                client.set(server.app.broker.keys.schedule("mail"), "garbage")
            for headers, names in (({}, told_without), ({"X-API-Key": "k3y"}, ["mail"]), ({"X-API-Key": "no"}, None)):
                body = server.client.get("/ready", headers=headers).json()
                assert (body["status"], body["degraded"]) == ("ok", 1)
                assert body["degraded_queues"] == names, (read, headers)


def test_a_user_who_may_not_look_at_queues(clean_server: PrivateServer) -> None:
    """What is wrong with all queues is no damage of one."""
    with ApiServer(clean_server.url) as server:
        server.accepted()
    with clean_server.client() as client:
        client.acl_setuser("half", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-xlen"])
    with ApiServer(clean_server.url.replace("unix://", "unix://half:pw@")) as server:
        assert refusal(server.client.get("/ready")) == (503, "REDIS_UNAVAILABLE")


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


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_that_ask_for_the_head_only(server: ApiServer, path: str) -> None:
    answer, whole = server.client.head(path), server.client.get(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(whole.content))
    assert server.client.put(path).headers["allow"] == "GET, HEAD"
