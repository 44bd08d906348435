"""The enqueue deadline holds wherever the way to the server is blocked (spec §3)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dtq
from tests.forwarder import Forwarder
from tests.servers import PrivateServer

DEADLINE_S = 1.0
SLACK_S = 0.4
WAYS: dict[str, Callable[[dtq.App], object]] = {
    "sync": lambda app: app.enqueue("noop", {}),
    "async": lambda app: asyncio.run(app.aenqueue("noop", {})),
}


class Late(Forwarder):
    """Forwards answers when they are late_s old."""

    late_s = 0.0

    def _connected(self, client: socket.socket, server: socket.socket) -> None:
        self._start(self._pass_on, client, server, False)
        self._start(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.late_s if answers else 0)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The URL of a host that answers no connection: its backlog is full, and nobody accepts."""
    with contextlib.ExitStack() as opened, socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        while True:
            caller = opened.enter_context(socket.socket())
            caller.settimeout(0.1)
            try:
                caller.connect(address)
            except TimeoutError:
                break
        yield f"redis://{address[0]}:{address[1]}"


def took(call: Callable[[], Any]) -> float:
    """How long the call needs to say that the server is unavailable."""
    started = time.monotonic()
    with pytest.raises(dtq.BrokerUnavailable):
        call()
    return time.monotonic() - started


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_answers_no_connection(black_hole: str, way: str) -> None:
    with dtq.App(black_hole, enqueue_deadline_s=DEADLINE_S) as app:
        assert took(lambda: WAYS[way](app)) < DEADLINE_S + SLACK_S


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_hangs_late(way: str) -> None:
    """What was spent on refused connections is not spent again on one that is accepted and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        late = threading.Timer(0.6 * DEADLINE_S, listener.listen)
        late.start()
        with dtq.App(f"redis://{address[0]}:{address[1]}", enqueue_deadline_s=DEADLINE_S) as app:
            assert took(lambda: WAYS[way](app)) < DEADLINE_S + SLACK_S
        late.join()


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_freezes_under_a_known_queue(way: str) -> None:
    with PrivateServer("redis") as server, dtq.App(server.url, enqueue_deadline_s=DEADLINE_S) as app:
        app.enqueue("noop", {})
        app.broker.transport.close()
        server.freeze()
        try:
            assert took(lambda: WAYS[way](app)) < DEADLINE_S + SLACK_S
        finally:
            server.thaw()


NEEDS_TWO: dict[str, Callable[[dtq.App], object]] = {
    "a listener": lambda app: app.broker.listen("default", 60),
    "a script that is gone": lambda app: app.broker.command("SCRIPT", "FLUSH"),
}
"""What makes an enqueue ask twice."""


@pytest.mark.parametrize("needs_two", NEEDS_TWO)
@pytest.mark.parametrize("way", WAYS)
def test_a_second_question_has_what_the_first_has_left(clean_server: PrivateServer, way: str, needs_two: str) -> None:
    assert clean_server.socket_path is not None
    with Late(clean_server.socket_path) as late, dtq.App(late.url, enqueue_deadline_s=DEADLINE_S) as app:
        app.enqueue("noop", {})
        app.enqueue("noop", {})
        with asyncio.Runner() as runner:
            enqueue = (
                (lambda: runner.run(app.aenqueue("noop", {}))) if way == "async" else (lambda: app.enqueue("noop"))
            )
            enqueue()  # connects
            NEEDS_TWO[needs_two](app)
            late.late_s = 0.8 * DEADLINE_S
            assert took(enqueue) < DEADLINE_S + SLACK_S
            late.late_s = 0.0
