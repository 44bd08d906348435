"""Looking at tasks, waiting for results, cancelling."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child
from tests.conftest import WaitUntil


def result(server: ApiServer, task_id: str, **query: object) -> tuple[int, dict[str, object]]:
    answer = server.client.get(f"/api/v1/tasks/{task_id}/result", params=query)  # type: ignore[arg-type]
    return answer.status_code, answer.json()


def test_an_unknown_task_is_not_pending(server: ApiServer) -> None:
    for path in ("", "/result", "/result?wait=5"):
        started = time.monotonic()
        assert refusal(server.client.get(f"/api/v1/tasks/nobody{path}")) == (404, "TASK_NOT_FOUND")
        assert time.monotonic() - started < 2
    assert refusal(server.client.get("/api/v1/tasks/nobody?queue=default")) == (404, "TASK_NOT_FOUND")
    assert refusal(server.client.post("/api/v1/tasks/nobody/cancel")) == (404, "TASK_NOT_FOUND")
    assert refusal(server.client.get("/api/v1/tasks/no%20id")) == (422, "INVALID_REQUEST")


def test_an_id_that_two_queues_hold(server: ApiServer) -> None:
    for queue in ("one", "two"):
        server.accepted(task_id="same", queue=queue)
    assert refusal(server.client.get("/api/v1/tasks/same")) == (409, "AMBIGUOUS_ID")
    assert server.client.get("/api/v1/tasks/same?queue=two").json()["queue"] == "two"


def test_a_result(server: ApiServer, child: Child) -> None:
    task_id = server.accepted()
    assert result(server, task_id) == (202, {"task_id": task_id, "queue": "default", "status": "queued"})
    claim = child.claim()[0]
    assert result(server, task_id)[1]["status"] == "running"
    child.settle(claim)
    expected = {"task_id": task_id, "queue": "default", "status": "succeeded", "result": {"ok": 1}, "error": None}
    assert result(server, task_id) == (200, expected)
    body = server.client.get(f"/api/v1/tasks/{task_id}").json()
    assert (body["status"], body["result"]) == ("succeeded", {"ok": 1})


def test_a_failure_is_an_answer_too(server: ApiServer, child: Child) -> None:
    task_id = server.accepted()
    child.settle(child.claim()[0], "D")
    status, body = result(server, task_id)
    assert (status, body["status"], body["result"]) == (200, "dead_lettered", None)
    assert body["error"] == {
        "code": "TASK_FAILED", "message": "no", "error_class": "ValueError", "cause": "error", "traceback": None,
    }  # fmt: skip
    cancelled = server.accepted(delay_seconds=100)
    server.client.post(f"/api/v1/tasks/{cancelled}/cancel")
    assert result(server, cancelled)[1]["status"] == "cancelled"


def test_a_result_that_is_not_kept(server: ApiServer, child: Child) -> None:
    task_id = server.accepted(retention_seconds=0)
    for query in ({}, {"wait": 5}):
        answer = server.client.get(f"/api/v1/tasks/{task_id}/result", params=query)  # type: ignore[arg-type]
        assert refusal(answer) == (410, "RESULT_NOT_KEPT")
    child.settle(child.claim()[0])
    assert refusal(server.client.get(f"/api/v1/tasks/{task_id}/result")) == (404, "TASK_NOT_FOUND")


def test_a_long_poll_answers_when_the_task_ends(server: ApiServer, child: Child, wait_until: WaitUntil) -> None:
    ids = [server.accepted() for _ in range(3)]
    claims = {claim.id: claim for claim in child.claim(want=3)}
    ended: dict[str, float] = {}
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(result, server, task_id, wait=20, queue="default") for task_id in ids for _ in range(2)]
        wait_until(lambda: len(server.api.state.served.waiting._open.get("default", ())) == 3)
        for task_id in ids:
            child.settle(claims[task_id])
            ended[task_id] = time.monotonic()
        answers = [wait.result(5) for wait in waits]
        assert time.monotonic() - max(ended.values()) < 1
    assert [status for status, _ in answers] == [200] * 6
    assert [body["task_id"] for _, body in answers] == [task_id for task_id in ids for _ in range(2)]
    assert not server.api.state.served.waiting._open


def test_a_long_poll_ends_in_time_and_asks_little(server: ApiServer) -> None:
    task_id = server.accepted()
    with server.app.broker.transport.client() as client:
        client.config_resetstat()
        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: result(server, task_id, wait=1, queue="default"), range(20)))
        elapsed = time.monotonic() - started
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert {status for status, _ in answers} == {202}
    assert 0.9 < elapsed < 3
    # Each request looks once before and twice after its wait; in between one look serves all, some ten a second.
    assert calls < 20 * 5 + 40


def test_waits_out_of_bounds(server: ApiServer) -> None:
    task_id = server.accepted()
    for wait in ("-1", "61", "nan", "inf", "x", "1e18"):
        answer = server.client.get(f"/api/v1/tasks/{task_id}/result?wait={wait}")
        assert refusal(answer) == (422, "INVALID_REQUEST")
        assert answer.json()["details"]["field"] == "wait"


def test_a_long_poll_lives_through_a_short_outage(server: ApiServer, child: Child, wait_until: WaitUntil) -> None:
    task_id = server.accepted()
    claim = child.claim()[0]
    with ThreadPoolExecutor() as pool, server.app.broker.transport.client() as client:
        wait = pool.submit(result, server, task_id, wait=20, queue="default")
        wait_until(lambda: server.api.state.served.waiting._open)
        for _ in range(5):
            client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.02)
        child.settle(claim)
        assert wait.result(5)[0] == 200


def test_a_cancel_says_what_it_did(server: ApiServer, child: Child) -> None:
    def cancel(task_id: str) -> tuple[int, str]:
        answer = server.client.post(f"/api/v1/tasks/{task_id}/cancel")
        return (answer.status_code, answer.json()["status"]) if answer.status_code == 202 else refusal(answer)

    queued, pending, running, ended = (server.accepted(task_id=name) for name in ("queued", "pending", "run", "ended"))
    assert cancel(queued) == (202, "cancelled")
    assert cancel(queued) == (410, "ALREADY_TERMINAL")
    assert cancel(pending) == (202, "cancelled")
    claims = {claim.id: claim for claim in child.claim(want=2)}
    child.settle(claims[ended])
    assert cancel(ended) == (410, "ALREADY_TERMINAL")
    assert cancel(running) == (409, "CANCEL_REQUESTED")
    assert child.settle(claims[running]) == "c"
    assert cancel(running) == (410, "ALREADY_TERMINAL")
    assert cancel("nobody") == (404, "TASK_NOT_FOUND")


def test_ten_cancels_of_one_task_at_once_have_one_winner(server: ApiServer) -> None:
    task_id = server.accepted()
    barrier = threading.Barrier(10)

    def cancel(_: int) -> int:
        barrier.wait()
        return server.client.post(f"/api/v1/tasks/{task_id}/cancel").status_code

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(cancel, range(10))) == [202] + [410] * 9
