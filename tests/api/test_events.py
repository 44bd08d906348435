"""Events over a websocket and as server-sent events, on real sockets; a client that does not read is sent away."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from dtq.api import events as routes
from dtq.api.event_buffer import EventBuffer
from tests.api.server import ApiServer, refusal
from tests.broker.driver import Child
from tests.servers import PrivateServer


@contextmanager
def websocket(server: ApiServer, query: str = "") -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{server.port}/ws/events{query}", proxy=None) as connection:
        yield connection


@contextmanager
def stream(server: ApiServer, query: str = "") -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """The events of a stream of server-sent events."""
    with httpx.stream("GET", f"{server.url}/api/v1/events{query}", timeout=20) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"

        def told() -> Iterator[tuple[str, dict[str, Any]]]:
            kind = ""
            for line in lines:
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))

        yield told()


def live(server: ApiServer, child: Child) -> str:
    task_id = server.accepted(payload={"secret": 1})
    child.settle(child.claim()[0])
    return task_id


def test_a_websocket_tells_a_tasks_life(server: ApiServer, child: Child) -> None:
    with websocket(server) as connection:
        task_id = live(server, child)
        found = [json.loads(connection.recv(10)) for _ in range(3)]
    assert [event["type"] for event in found] == ["TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED"]
    assert {event["task_id"] for event in found} == {task_id}
    assert found[0]["queue"] == "default"
    assert "payload" not in found[0]


def test_server_sent_events_tell_the_same(server: ApiServer, child: Child) -> None:
    with stream(server) as found:
        task_id = live(server, child)
        events = [next(found) for _ in range(3)]
    assert [kind for kind, _ in events] == ["TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED"]
    assert {event["task_id"] for _, event in events} == {task_id}


def test_each_client_gets_what_it_asked_for(server: ApiServer, child: Child) -> None:
    with (
        websocket(server, "?types=TASK_SUCCEEDED,TASK_FAILED") as ends,
        websocket(server, "?queues=other") as other,
        stream(server, "?queues=default&types=TASK_STARTED") as started,
    ):
        task_id = live(server, child)
        elsewhere = server.accepted(queue="other")
        assert json.loads(ends.recv(10))["type"] == "TASK_SUCCEEDED"
        assert next(started)[1]["task_id"] == task_id
        heard = json.loads(other.recv(10))
        assert (heard["task_id"], heard["queue"]) == (elsewhere, "other")


def test_what_cannot_be_asked_for(server: ApiServer) -> None:
    for query in ("?types=NONSENSE", "?queues=a b"):
        assert refusal(server.client.get(f"/api/v1/events{query}")) == (422, "INVALID_TASK")
        with pytest.raises(InvalidStatus) as raised:
            connect(f"ws://127.0.0.1:{server.port}/ws/events{query.replace(' ', '%20')}", proxy=None)
        assert raised.value.response.status_code == 422


def test_nobody_watches_redis_once_the_last_client_has_left(server: ApiServer, wait_until: Callable[..., Any]) -> None:
    def watchers() -> int:
        with server.app.broker.transport.client() as client:
            return int(client.pubsub_numsub("dtq:events")[0][1])

    for _ in range(3):
        with websocket(server), websocket(server), stream(server):
            assert watchers() == 1
        wait_until(lambda: watchers() == 0)
        wait_until(lambda: not server.api.state.served.events._buffers)


def test_a_client_that_falls_behind_is_told_how_much_it_missed(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtq.api.event_hub.EventBuffer", small_buffers(20))
    with unread(server, WEBSOCKET) as connection:
        (buffer,) = server.api.state.served.events._buffers
        until_it(lambda: buffer.dropped > 0, server)
        assert not buffer.too_slow, "nothing but passing events was sent"
        rest = read_until(connection, b"EVENTS_DROPPED")
    assert int(re.findall(rb'"dropped":(\d+)', rest)[0]) >= 1


@pytest.mark.parametrize("route", ["websocket", "stream"])
def test_a_client_too_slow_for_the_ends_is_sent_away(
    server: ApiServer, child: Child, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    monkeypatch.setattr("dtq.api.event_hub.EventBuffer", small_buffers(20))
    with unread(server, WEBSOCKET if route == "websocket" else STREAM) as connection:
        (buffer,) = server.api.state.served.events._buffers
        until_it(lambda: buffer.too_slow, server, child)
        assert server.client.get("/health").status_code == 200
        if route == "websocket":
            rest = read_until(connection, b"\x03\xf5too slow: ")  # 1013, and the reason
            assert re.search(rb"too slow: \d+ events were dropped", rest)
        else:
            rest = read_until(connection, b"0\r\n\r\n")
            assert b"event: EVENTS_END" in rest
            assert b'"code":1013' in rest
            assert int(re.findall(rb'"dropped":(\d+)', rest)[-1]) > 20


@pytest.mark.parametrize("route", ["websocket", "stream"])
def test_a_client_that_never_reads_is_given_up(
    server: ApiServer,
    child: Child,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    route: str,
) -> None:
    monkeypatch.setattr("dtq.api.event_hub.EventBuffer", small_buffers(20))
    monkeypatch.setattr(routes, "FAREWELL_S", 0.2)
    with unread(server, WEBSOCKET if route == "websocket" else STREAM) as connection:
        hub = server.api.state.served.events
        (buffer,) = hub._buffers

        def transport() -> Any:
            """The server's side of this connection, None once it is closed."""
            here, known = connection.getsockname(), server._server.server_state.connections
            return next((one.transport for one in list(known) if getattr(one, "client", None) == here), None)

        transport().get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        until_it(lambda: transport().get_write_buffer_size() > 65_536, server)  # uvicorn waits from there on
        until_it(lambda: buffer.too_slow, server, child)
        wait_until(lambda: not hub._buffers)
        # The socket goes too, unsent bytes and all: a mere close would wait for a reader.
        wait_until(lambda: transport() is None)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_no_redis_is_refused_before_the_stream_begins() -> None:
    with ApiServer("redis://127.0.0.1:1/0", enqueue_deadline_s=0.3) as server:
        assert refusal(server.client.get("/api/v1/events")) == (503, "REDIS_UNAVAILABLE")
        with pytest.raises(InvalidStatus) as raised:
            connect(f"ws://127.0.0.1:{server.port}/ws/events", proxy=None)
        assert raised.value.response.status_code == 503


def test_an_outage_is_told() -> None:
    with (
        PrivateServer(tcp=True) as redis,
        ApiServer(redis.url, enqueue_deadline_s=1.0) as server,
        websocket(server) as connection,
    ):
        redis.restart(crash=True)
        assert json.loads(connection.recv(20))["type"] == "EVENTS_INTERRUPTED"
        found = ""
        until = time.monotonic() + 20
        while found != "TASK_QUEUED" and time.monotonic() < until:
            server.accepted()
            with suppress(TimeoutError):
                found = json.loads(connection.recv(0.3))["type"]
        assert found == "TASK_QUEUED"


def test_a_server_that_stops_says_so(clean_server: PrivateServer, wait_until: Callable[..., Any]) -> None:
    with ApiServer(clean_server.url) as server, websocket(server) as connection, stream(server) as found:
        task_id = server.accepted()
        waiting = threading.Thread(target=server.client.get, args=(f"/api/v1/tasks/{task_id}/result?wait=30",))
        waiting.start()
        wait_until(lambda: server.api.state.served.waiting._open)
        started = time.monotonic()
        server.api.state.served.close()
        assert drain(connection) == 1001
        *_, (kind, last) = found
        assert (kind, last["code"]) == ("EVENTS_END", 1001)
        waiting.join(5)
        assert time.monotonic() - started < 5


# --- how -------------------------------------------------------------------------------------------------------------


def small_buffers(limit: int) -> Callable[..., EventBuffer]:
    return lambda queues=None, types=None: EventBuffer(queues, types, limit)


WEBSOCKET = (
    b"GET /ws/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
STREAM = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def unread(server: ApiServer, request: bytes) -> Iterator[socket.socket]:
    """A connection that listens to events and reads none."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request)
        assert connection.recv(20).split()[1] in (b"101", b"200")
        yield connection


def until_it(condition: Callable[[], bool], server: ApiServer, child: Child | None = None) -> None:
    """Make events, with a child also the ends of tasks, until a condition holds."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the client was never too slow"
        assert server.app.enqueue_many("noop", [{} for _ in range(500)]).run().accepted == 500
        if child is not None:
            for _ in range(5):
                for claim in child.claim(want=100):
                    child.end(claim)
            child.turn(0)


def read_until(connection: socket.socket, what: bytes) -> bytes:
    """All bytes up to these."""
    rest = b""
    while what not in rest[-100_000:]:
        piece = connection.recv(65_536)
        assert piece, f"it ended before {what!r} came; last: {rest[-300:]!r}"
        rest += piece
    return rest


def drain(connection: ClientConnection) -> int:
    """Read on to the end; its code."""
    with suppress(ConnectionClosed):
        while True:
            connection.recv(10)
    assert connection.close_code is not None
    return connection.close_code
