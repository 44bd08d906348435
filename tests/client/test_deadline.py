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
from tests.servers import PrivateServer

DEADLINE_S = 1.0
SLACK_S = 0.4
WAYS: dict[str, Callable[[dtq.App], object]] = {
    "sync": lambda app: app.enqueue("noop", {}),
    "async": lambda app: asyncio.run(app.aenqueue("noop", {})),
}


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
