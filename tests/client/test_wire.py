"""The wire under stress: signals, replies that drip or come in pieces, data that nobody waits for, lost scripts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

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
    cut: close in place of the next.
    """

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self.piece, self.pause_s, self.extra = 0, 0.0, b""
        self.cut = False

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
            while (data := source.recv(1 << 16)) and not (answers and self.cut):
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
    "awake": lambda app: app.broker.transport.call(PING, awake=True),
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


# --- each reply is that of its own command


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_replies_in_pieces(answers: Answers, piece: int) -> None:
    """However the network cuts them."""
    answers.piece = piece
    with dtq.App(answers.url) as app:
        payloads = [{"i": i, "text": "x" * 100 * i} for i in range(20)]
        handles = [app.enqueue("noop", payload) for payload in payloads]
        assert [handle.task().payload for handle in handles] == payloads
        assert [type(outcome) for outcome in app.enqueue_many("noop", payloads)] == [dtq.Accepted] * 20
        assert asyncio.run(app.aenqueue("noop", {"i": 1})).task().payload == {"i": 1}


@pytest.mark.parametrize("loop", ["none", "asyncio", "uvloop"])
@pytest.mark.parametrize("when", ["behind a reply", "while it is idle"])
def test_data_that_nobody_has_asked_for_answers_nothing(answers: Answers, loop: str, when: str) -> None:
    """What a thing between client and server says on its own, as a proxy may, is not taken for the next reply."""
    with dtq.App(answers.url) as app:
        sync, asynchronous = app.broker.transport, app.broker.async_transport

        def say(i: int) -> None:
            if i == 1 and when == "while it is idle":
                answers.speak(STRAY)
            elif i == 0 and when == "behind a reply":
                answers.extra = STRAY

        async def ask() -> list[object]:
            replies = []
            for i in range(4):
                replies.append(await asynchronous.call(PING))
                say(i)
                await asyncio.sleep(0.05)  # the loop reads what comes, before anybody asks
            await asynchronous.close()
            return replies

        assert app.enqueue("noop").status() == "queued"
        if loop == "none":
            replies: list[object] = []
            for i in range(4):
                replies.append(sync.call(PING))
                say(i)
        else:
            replies = (uvloop.run if loop == "uvloop" else asyncio.run)(ask())
        assert replies == [b"PONG"] * 4


class Stopped(Exception):
    """What a time-out of the application's own raises, from its signal handler."""


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt, dtq.TaskTimeout])
def test_what_a_signal_raises_in_a_wait_goes_on_and_leaves_no_reply_behind(error: type[BaseException]) -> None:
    def alarm(number: int, frame: FrameType | None) -> None:
        raise error("now")

    with PrivateServer() as server, dtq.App(server.url, enqueue_deadline_s=10) as app:
        app.enqueue("noop")
        server.freeze()
        try:
            with alarms(alarm, 0.2, 0), pytest.raises(error, match="now"):
                app.enqueue("noop", task_id="interrupted")
        finally:
            server.thaw()
        assert app.broker.command("ECHO", "mine") == b"mine"
        assert app.enqueue("noop", task_id="next").status() == "queued"


def interrupted(step: int, call: Callable[[], object]) -> bool:
    """Make a call and raise `Stopped` at this step of it in the wire or its transport; False if it has fewer steps."""
    before, left = sys.gettrace(), step

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("dtq/wire.py", "dtq/transport.py")):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise Stopped
        return trace

    sys.settrace(trace)
    try:
        call()
    except Stopped:
        return True
    finally:
        sys.settrace(before)
    return False


def refused(app: dtq.App) -> None:
    with contextlib.suppress(dtq.BrokerUnavailable):
        app.broker.command("NO SUCH COMMAND")


CALLS: dict[str, Callable[[dtq.App], object]] = {
    "a reply": lambda app: app.broker.command("ECHO", "first"),
    "a reply, awake": lambda app: app.broker.transport.call(pack_command(["ECHO", "first"]), awake=True),
    "a refusal": refused,
    "a script to load": lambda app: app.broker.states("default", ["x"]),
    "many": lambda app: app.broker.run_each("states", ["default"] * 3, "x"),
    "begun": lambda app: app.broker.transport.finish(app.broker.transport.begin(PING)),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interruption_at_any_step(clean_server: PrivateServer, name: str) -> None:
    """The next command has its own reply, and what stands idle, for any thread to take, is not closed from outside."""
    with clean_server.client() as client, dtq.App(clean_server.url) as app:
        for step in range(1000):
            app.broker.command("PING")  # connected
            client.script_flush()
            if not interrupted(step, lambda: CALLS[name](app)):
                break
            idle = list(app.broker.transport._idle)
            assert len(set(map(id, idle))) == len(idle)
            assert all(wire._parser is not None for wire in idle), step
            for word in ("a", "b"):
                assert app.broker.command("ECHO", word) == word.encode(), step
        assert step > 15


def test_a_connection_that_is_closed_while_a_call_waits_awake(answers: Answers) -> None:
    with dtq.App(answers.url) as app:
        app.broker.command("PING")
        answers.cut = True
        with pytest.raises(dtq.BrokerUnavailable, match="closed the connection"):
            app.broker.transport.call(PING, awake=True)
        answers.cut = False
        assert app.broker.transport.call(PING, awake=True) == b"PONG"


# --- scripts


@pytest.mark.parametrize("way", ["sync", "async"])
def test_scripts_that_are_flushed_all_the_time(clean_server: PrivateServer, way: str) -> None:
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            client.script_flush()

    with clean_server.client() as client, dtq.App(clean_server.url) as app:
        thread = threading.Thread(target=flush)
        thread.start()
        try:
            if way == "sync":
                assert [app.broker.states("default", ["x"]) for _ in range(300)] == [b"0"] * 300
            else:
                assert asyncio.run(astates(app, 300)) == [b"0"] * 300
        finally:
            over.set()
            thread.join()


async def astates(app: dtq.App, times: int) -> list[bytes]:
    try:
        return [await app.broker.astates("default", ["x"]) for _ in range(times)]
    finally:
        await app.broker.async_transport.close()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_script_that_may_not_be_loaded_is_told_as_that(clean_server: PrivateServer, way: str) -> None:
    with clean_server.client() as client, dtq.App(clean_server.url) as app:
        client.execute_command("ACL", "SETUSER", "default", "-script|load")
        try:
            with pytest.raises(dtq.BrokerUnavailable, match=r"permissions.*script\|load"):
                app.broker.states("default", ["x"]) if way == "sync" else asyncio.run(astates(app, 1))
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
