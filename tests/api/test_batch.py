"""Batches: lists and streams, one outcome a line, answers while the request is still being read, flat memory."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import resource
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dtq._core import id_time_ms
from dtq.api.batch import Intake
from dtq.clock import SYSTEM
from dtq.errors import InvalidTask
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child
from tests.servers import PrivateServer

PATH = "/api/v1/tasks/batch"
NDJSON = {"Content-Type": "application/x-ndjson"}


def outcomes(server: ApiServer, body: Any, content_type: str = "application/x-ndjson") -> list[dict[str, Any]]:
    answer = server.client.post(PATH, content=body, headers={"Content-Type": content_type})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def lines(*tasks: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(task).encode() + b"\n" for task in tasks)


def noop(i: int, **fields: Any) -> dict[str, Any]:
    return {"task_type": "noop", "payload": {"i": i}, **fields}


@pytest.mark.parametrize("form", ["list", "lines", "indented list", "carriage returns"])
def test_every_form_makes_the_same_tasks(server: ApiServer, form: str) -> None:
    tasks = [noop(i) for i in range(1200)]
    body, kind = {
        "list": (json.dumps(tasks).encode(), "application/json"),
        "lines": (lines(*tasks), "application/x-ndjson"),
        "indented list": (json.dumps(tasks, indent=2).encode(), "application/json"),
        "carriage returns": (lines(*tasks).replace(b"\n", b"\r\n\r\n"), "application/jsonl"),
    }[form]
    found = outcomes(server, body, kind)
    assert [line["index"] for line in found] == list(range(1200))
    assert {line["outcome"] for line in found} == {"accepted"}
    assert len({line["task_id"] for line in found}) == 1200
    assert server.app.handle(found[777]["task_id"]).task().payload == {"i": 777}
    assert server.app.queue().counts().waiting == 1200


def test_nothing_makes_nothing(server: ApiServer) -> None:
    for body in (b"", b"\n \n", b"[]", b" [ ] "):
        assert outcomes(server, body) == []


def test_one_bad_item_hides_no_other(server: ApiServer, child: Child) -> None:
    server.accepted(payload={"k": 1}, idempotency_key="key")
    child.settle(child.claim()[0])
    running = server.accepted(payload={"k": 2}, idempotency_key="runs")
    body = lines(
        noop(0),
        noop(1, priority=99),
        {"task_type": "noop", "payload": {"k": 1}, "idempotency_key": "key"},
        {"task_type": "noop", "payload": {"k": 2}, "idempotency_key": "runs"},
        noop(4, queue="elsewhere"),
        noop(5, task_id="mine"),
        noop(6, task_id="mine"),
    )
    body += b'{"task_type":"noop","payload":{"a":1,"a":2}}\nno json\n[1]\n' + lines(noop(10))
    found = outcomes(server, body)
    assert [(line["index"], line["outcome"], line.get("code")) for line in found] == [
        (0, "accepted", None),
        (1, "invalid", "INVALID_TASK"),
        (2, "duplicate", None),
        (3, "conflict", "IDEMPOTENCY_IN_PROGRESS"),
        (4, "accepted", None),
        (5, "accepted", None),
        (6, "conflict", "TASK_ID_CONFLICT"),
        (7, "invalid", "INVALID_TASK"),
        (8, "invalid", "INVALID_TASK"),
        (9, "invalid", "INVALID_TASK"),
        (10, "accepted", None),
    ]
    assert found[1]["details"] == {"field": "priority"}
    assert found[2]["status"] == "succeeded"
    assert found[3]["details"] == {"task_id": running}
    assert found[4]["queue"] == "elsewhere"
    assert found[5]["task_id"] == "mine"


def test_a_queue_that_fills_up(clean_server: PrivateServer) -> None:
    with ApiServer(clean_server.url, max_queue_depth=3) as server:
        found = outcomes(server, lines(*map(noop, range(5))))
    assert [line["outcome"] for line in found] == ["accepted"] * 3 + ["refused"] * 2
    assert found[3]["code"] == "QUEUE_FULL"
    assert found[3]["details"]["retry_after_seconds"] > 0


def test_large_and_small_tasks_fit_into_chunks(server: ApiServer) -> None:
    sizes = [200_000, 10, 250_000, 250_000, 250_000, 10, 262_000, 250_000, 10]
    tasks = [{"task_type": "noop", "payload": {"x": "y" * size}} for size in sizes]
    assert [line["outcome"] for line in outcomes(server, lines(*tasks))] == ["accepted"] * 9
    assert [line["outcome"] for line in outcomes(server, json.dumps(tasks))] == ["accepted"] * 9


def test_an_item_that_is_too_large_is_not_read_to_its_end(server: ApiServer) -> None:
    huge = b'{"task_type":"noop","payload":{"x":"' + b"y" * 3_000_000 + b'"}}\n'
    found = outcomes(server, lines(noop(0)) + huge + huge + lines(noop(3)))
    assert [line["outcome"] for line in found] == ["accepted", "invalid", "invalid", "accepted"]
    assert {line["code"] for line in found[1:3]} == {"PAYLOAD_TOO_LARGE"}
    found = outcomes(server, b"[" + lines(noop(0)).strip() + b"," + huge + b"]", "application/json")
    assert [line["outcome"] for line in found] == ["accepted", "stopped"]
    assert found[1]["code"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b'[{"task_type":"noop"}', "has no end"),
        (b'[{"task_type":"noop"},', "has no end"),
        (b'[{"task_type":"noop"}] x', "behind the end"),
        (b'[{"task_type":"noop"}][]', "behind the end"),
        (b'[{"task_type":"noop"},"', "has no end"),
    ],
)
def test_a_list_that_breaks_off_says_where(server: ApiServer, body: bytes, wrong: str) -> None:
    answer = server.client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    if answer.status_code == 422:
        assert wrong in answer.json()["message"]
        return
    *whole, last = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["outcome"] for line in whole] == ["accepted"]
    assert (last["index"], last["outcome"], last["code"]) == (1, "stopped", "INVALID_TASK")
    assert wrong in last["message"]


def test_commas_without_items(server: ApiServer) -> None:
    found = outcomes(server, b'[{"task_type":"noop"},,{"task_type":"noop"},]', "application/json")
    assert [line["outcome"] for line in found] == ["accepted", "invalid", "accepted", "invalid"]


def test_the_answer_comes_while_the_request_goes_on(server: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        reader = connection.makefile("rb")
        for index in range(5):
            line = lines(noop(index))
            connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
            if index == 0:
                assert reader.readline().split()[1] == b"200"
                while reader.readline().strip():
                    pass
            size = int(reader.readline(), 16)
            outcome = json.loads(reader.read(size + 2))
            assert (outcome["index"], outcome["outcome"]) == (index, "accepted")
        connection.sendall(b"0\r\n\r\n")
        assert reader.readline() == b"0\r\n"


def test_a_task_of_a_slow_stream_was_made_when_it_came(server: ApiServer, wait_until: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        line = lines(noop(0))
        connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        first = id_time_ms(json.loads(answer.readline())["task_id"])
        assert first is not None
        wait_until(lambda: SYSTEM.now_ms() > first + 100)
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(line), line))
        second = id_time_ms(json.loads(answer.readline())["task_id"])
    assert second is not None
    assert second > first + 100


def test_who_reads_nothing_before_the_end_gets_all_the_same(server: ApiServer) -> None:
    """Most clients send a whole body first; 200 000 answers fit into no buffer of a connection."""
    count = 200_000
    piece = b"".join(b'{"task_type":"noop","retention_seconds":0,"payload":{"i":1}}\n' for _ in range(1000))

    def body() -> Iterator[bytes]:
        for _ in range(count // 1000):
            yield piece

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.request("POST", PATH, body(), headers=NDJSON, encode_chunked=True)
    answer = connection.getresponse()
    found = 0
    for line in answer:
        assert line.startswith(b'{"index":%d,"outcome":"accepted"' % found)
        found += 1
    connection.close()
    assert found == count
    assert server.app.queue().counts().waiting == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "memory grew (KiB)"


def test_a_long_batch_keeps_nobody_waiting(server: ApiServer) -> None:
    body = b"".join(b'{"task_type":"noop","payload":{"i":%d}}\n' % number for number in range(50_000))
    slowest, probes = 0.0, 0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(outcomes, server, body)
        while not sending.done():
            started = time.monotonic()
            assert server.client.get("/health").status_code == 200
            slowest, probes = max(slowest, time.monotonic() - started), probes + 1
        assert len(sending.result()) == 50_000
    assert probes > 5
    assert slowest < 1


def test_a_body_that_takes_long_to_split_leaves_others_their_turn(server: ApiServer) -> None:
    turns = 0

    async def piece() -> AsyncGenerator[bytes]:
        yield 500_000 * b"["

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def split() -> None:
        going = asyncio.create_task(others())
        with pytest.raises(InvalidTask, match="the list has no end"):
            async for _ in Intake(server.api.state.served).outcomes(piece()):
                pass
        going.cancel()

    asyncio.run(split())
    assert turns > 30


def batches_under_way() -> int:
    gc.collect()
    return sum(isinstance(found, Intake) for found in gc.get_objects())


def test_a_client_that_leaves_stops_its_batch(server: ApiServer, wait_until: Any) -> None:
    """The batch ends with its request, and what of it was not whole is no task."""
    begun = lines(noop(0)) + lines(noop(1)).rstrip()  # the second line has not ended, although it could
    assert batches_under_way() == 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(begun), begun)
        )
        wait_until(lambda: server.app.queue().counts().waiting == 1)
        assert batches_under_way() == 1
    wait_until(lambda: batches_under_way() == 0)
    assert server.app.queue().counts().waiting == 1
    assert [line["outcome"] for line in outcomes(server, lines(noop(2)))] == ["accepted"]


def test_no_redis_at_the_beginning_is_503() -> None:
    with ApiServer("redis://127.0.0.1:1/0", enqueue_deadline_s=0.2) as server:
        answer = server.client.post(PATH, content=lines(noop(0)), headers=NDJSON)
        assert refusal(answer) == (503, "REDIS_UNAVAILABLE")


def test_redis_that_goes_away_in_the_middle_ends_the_answer(wait_until: Any) -> None:
    with (
        PrivateServer() as redis,
        ApiServer(redis.url, enqueue_deadline_s=0.5) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection,
    ):
        connection.sendall(
            b"POST /api/v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        line = lines(noop(0))
        connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert json.loads(answer.readline())["outcome"] == "accepted"
        redis.kill()
        connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
        assert json.loads(answer.readline())["outcome"] == "unknown"
        last = json.loads(answer.readline())
        assert (last["index"], last["outcome"], last["code"]) == (2, "stopped", "REDIS_UNAVAILABLE")
        assert answer.readline() == b""


def test_other_content_is_refused(server: ApiServer) -> None:
    for headers in ({"Content-Type": "text/plain"}, {**NDJSON, "Content-Encoding": "gzip"}):
        answer = server.client.post(PATH, content=lines(noop(0)), headers=headers)
        assert refusal(answer) == (415, "UNSUPPORTED_MEDIA_TYPE")
