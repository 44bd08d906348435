"""What comes in is bounded before it is read on."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator

import pytest

from dtq.api import limits
from tests.api.server import ApiServer, refusal

JSON = {"Content-Type": "application/json"}


def test_a_body_that_says_it_is_too_large_is_not_read(server: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 500000000\r\n\r\n"
        )
        assert connection.makefile("rb").readline().split()[1] == b"413"


def test_a_body_without_a_length_ends_at_the_limit(server: ApiServer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def body() -> Iterator[bytes]:
        for _ in range(400):
            yield b"x" * 250_000

    answer = server.client.post("/api/v1/tasks", content=body(), headers=JSON)
    assert refusal(answer) == (413, "PAYLOAD_TOO_LARGE")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_body_that_does_not_come(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_TIME_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        assert connection.makefile("rb").readline().split()[1] == b"408"


def test_a_body_that_trickles_is_given_up_as_a_whole(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_TIME_S", 0.3)
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        connection.settimeout(0.05)
        answer = b""
        while not answer and time.monotonic() - started < 5:
            connection.sendall(b"1\r\n \r\n")
            try:
                answer = connection.recv(4096)
            except TimeoutError:
                continue
    assert answer.split()[1] == b"408"
    assert time.monotonic() - started < 3


def test_compressed_bodies_are_refused(server: ApiServer) -> None:
    answer = server.client.post("/api/v1/tasks", content=b"{}", headers={**JSON, "Content-Encoding": "gzip"})
    assert refusal(answer) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_many_headers_do_no_harm(server: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        headers = b"".join(b"X-Header-%d: %d\r\n" % (number, number) for number in range(10_000))
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
        assert connection.makefile("rb").readline().split()[1] in (b"200", b"400", b"431")
    assert server.client.get("/health").status_code == 200
