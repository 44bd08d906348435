"""The messages between supervisor and children: from signal handlers, and to a child that takes nothing any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from dtq.worker.channel import Channel, ChannelClosed, Message, Unnested


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two connected ends."""
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_long_message_arrives_whole(ends: tuple[Channel, Channel]) -> None:
    """Longer than a packet: it travels in pieces."""
    ours, theirs = ends
    message = {"say": "manifest", "text": "x" * 150_000}
    ours.send(message)
    assert theirs.receive() == message
    assert theirs.receive() is None


def test_a_signal_handler_receives_what_the_interrupted_code_does_not(ends: tuple[Channel, Channel]) -> None:
    """Every message arrives once and whole, whoever receives it; each comes with a signal, as to a child."""
    ours, theirs = ends
    count = 20_000
    heard: list[Message] = []

    def hear() -> None:
        while (message := theirs.receive()) is not None:
            heard.append(message)

    unnested = Unnested(hear)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        unnested()

    before = signal.signal(signal.SIGUSR1, on_signal)
    receiver, sender = os.getpid(), os.fork()
    if sender == 0:
        try:
            for number in range(count):
                ours.send({"say": "interrupt", "number": number})
                os.kill(receiver, signal.SIGUSR1)
        finally:
            os._exit(0)
    try:
        while os.waitid(os.P_PID, sender, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            hear()
        hear()
    finally:
        os.kill(sender, signal.SIGKILL)
        os.waitpid(sender, 0)
        signal.signal(signal.SIGUSR1, before)
    assert sorted(message["number"] for message in heard) == list(range(count))


def test_what_finds_no_room_is_not_waited_for(ends: tuple[Channel, Channel]) -> None:
    """A frozen child must not freeze its supervisor."""
    ours, theirs = ends
    sent = 0
    while ours.send({"say": "interrupt", "place": sent}, wait=False):
        sent += 1
    assert sent > 100
    assert theirs.receive() == {"say": "interrupt", "place": 0}
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send({"say": "leave"}, wait=False)
