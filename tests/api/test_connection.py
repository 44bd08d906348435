"""What comes before a request is one: refused as JSON, bounded in bytes and in time."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from dtq.api import connection
from tests.api.server import ApiServer

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def answer_to(server: ApiServer, pieces: Iterable[bytes], seconds: float = 10) -> bytes:
    """All that the server sends until it closes, whatever becomes of the pieces."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as client:
        received = b""
        try:
            for piece in pieces:
                client.sendall(piece)
            while found := client.recv(65_536):
                received += found
        except ConnectionError:
            pass
        return received


def refusal_in(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    found = json.loads(body)
    assert found.keys() == {"code", "message", "request_id", "details"}
    assert b"x-request-id: " + found["request_id"].encode() in head
    assert b"content-type: application/json" in head
    status = re.match(rb"HTTP/1\.1 (\d+) ", head)
    assert status is not None
    return int(status.group(1)), found["code"]


@pytest.mark.parametrize(
    "given",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n",
        CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_as_json(server: ApiServer, given: bytes) -> None:
    assert refusal_in(answer_to(server, [given])) == (400, "BAD_REQUEST")


def test_a_client_that_leaves_before_its_body_is_whole_is_no_failure(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dtq.api")
    for path in (b"/api/v1/tasks", b"/api/v1/tasks/batch"):
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(head + b'Content-Length: 99\r\n\r\n{"task_type": "noop"}')
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    assert server.client.get("/api/v1/tasks").json()["tasks"] == []
    assert [record for record in caplog.records if record.name == "dtq.api"] == []


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (GET + b"X-Long: ", 65_536 * b"x"),
        (GET, b"".join(b"X-%d: y\r\n" % number for number in range(5000))),
        (b"GET /", 65_536 * b"x"),
        (CHUNKED + b"0\r\n", b"".join(b"X-%d: y\r\n" % number for number in range(5000))),
        (CHUNKED + b"5;", 65_536 * b"x"),
    ],
    ids=["one header", "many headers", "path", "trailers", "chunk extension"],
)
def test_a_head_without_an_end_takes_no_memory_and_stops_nobody(
    server: ApiServer, beginning: bytes, piece: bytes
) -> None:
    before, sent = resident_bytes(), 0

    def pieces() -> Iterable[bytes]:
        nonlocal sent
        yield beginning
        for _ in range(800):  # 50 MB
            yield piece
            sent += len(piece)

    answer = answer_to(server, pieces())
    assert sent < 10 * 1024 * 1024  # what fits into the buffers between the two
    assert resident_bytes() - before < 30 * 1024 * 1024
    if answer:  # a reset may overtake it
        assert refusal_in(answer) == (431, "HEAD_TOO_LARGE")
    started = time.monotonic()
    assert server.client.get("/health").status_code == 200
    assert time.monotonic() - started < 1


def test_a_head_that_is_too_large_is_told_to_who_waits(server: ApiServer) -> None:
    assert refusal_in(answer_to(server, [GET, b"X-Long: ", 70_000 * b"x"])) == (431, "HEAD_TOO_LARGE")


def test_heads_within_the_bound_and_bodies_behind_them_pass(server: ApiServer) -> None:
    assert server.client.get("/health", headers={"X-Long": 60_000 * "x"}).status_code == 200
    for _ in range(3):  # on one connection
        assert server.submit(payload={"x": 200_000 * "y"}).status_code == 202


def test_a_head_that_does_not_come_is_not_waited_for(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIME_S", 0.3)
    assert answer_to(server, []) == b""
    assert refusal_in(answer_to(server, [GET])) == (408, "REQUEST_TIMEOUT")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(GET + b"\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        time.sleep(0.5)  # longer than a head may take: an open connection is no head
        client.sendall(GET + b"\r\n" + GET)
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        assert client.recv(65_536).startswith(b"HTTP/1.1 408")
