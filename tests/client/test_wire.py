"""The wire under stress: signals, and replies that drip."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import dtq
from dtq._core import pack_command
from tests.forwarder import Forwarder
from tests.servers import PrivateServer

DEADLINE_S = 1.0
SLACK_S = 0.4
PING = pack_command(["PING"])
STRAY = b"+STRAY\r\n"


class Answers(Forwarder):
    """Forwards as it comes, but answers.

    piece: so many bytes of them at a time; 0: as they come. pause_s: between two pieces. extra: sent behind the next.
    """

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self.piece, self.pause_s, self.extra = 0, 0.0, b""

    def speak(self, data: bytes) -> None:
        """Say something that nobody has asked for, on every connection that stands."""
        for client in self._sockets[1::2]:
            with contextlib.suppress(OSError):
                client.sendall(data)

    def _connected(self, client: socket.socket, server: socket.socket) -> None:
        self._start(self._pass_on, client, server, False)
        self._start(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers:
                    data, self.extra = data + self.extra, b""
                piece = self.piece if answers and self.piece else len(data)
                for at in range(0, len(data), piece):
                    sink.sendall(data[at : at + piece])
                    if answers and self.pause_s:
                        time.sleep(self.pause_s)
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def answers(clean_server: PrivateServer) -> Iterator[Answers]:
    assert clean_server.socket_path is not None
    with Answers(clean_server.socket_path) as between:
        yield between


@contextlib.contextmanager
def alarms(handler: Callable[[int, FrameType | None], object], first_s: float, every_s: float) -> Iterator[None]:
    """SIGALRM for this process, handled so."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- time-outs


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
@pytest.mark.parametrize("size", [1, 250_000], ids=["waiting for the reply", "waiting for room to send"])
def test_signals_prolong_no_wait(tcp: bool, size: int) -> None:
    """A call that a signal interrupts is made anew with all of its time; a signal that keeps coming is no way out."""
    came = 0

    def alarm(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came > 5 * DEADLINE_S / 0.05:
            raise AssertionError("the wait does not end")

    with PrivateServer(tcp=tcp) as server, dtq.App(server.url, enqueue_deadline_s=DEADLINE_S) as app:
        app.enqueue("noop")
        server.freeze()
        try:
            started = time.monotonic()
            with alarms(alarm, 0.05, 0.05), pytest.raises(dtq.BrokerUnavailable, match="did not answer in time"):
                app.enqueue("noop", {"fill": "x" * size})
            assert time.monotonic() - started < DEADLINE_S + SLACK_S
            assert came > 5
        finally:
            server.thaw()


WAYS: dict[str, Callable[[dtq.App], object]] = {
    "sync": lambda app: app.enqueue("noop", {}),
    "async": lambda app: asyncio.run(app.aenqueue("noop", {})),
    "many at once": lambda app: app.broker.run_each("states", ["default"] * 60, "some-id"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_reply_that_drips_is_waited_for_no_longer_than_one_that_does_not_come(answers: Answers, way: str) -> None:
    with dtq.App(answers.url, enqueue_deadline_s=DEADLINE_S) as app:
        WAYS[way](app)
        answers.piece, answers.pause_s = 1, 0.4 if way != "many at once" else 0.05
        started = time.monotonic()
        with pytest.raises(dtq.BrokerUnavailable, match="did not answer in time"):
            WAYS[way](app)
        assert time.monotonic() - started < DEADLINE_S + SLACK_S
