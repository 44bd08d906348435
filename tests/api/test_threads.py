"""Threads for calls that block: nobody waits for one without end."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from dtq.api.threads import Threads
from dtq.errors import BrokerUnavailable
from tests.api.server import ApiServer


@pytest.fixture
def one_thread() -> Iterator[Threads]:
    with Threads(1, patience_s=0.2) as threads:
        yield threads


def test_calls_are_made(one_thread: Threads) -> None:
    assert one_thread.submit(divmod, 7, 2).result(5) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        one_thread.submit(divmod, 7, 0).result(5)


def test_a_call_that_finds_no_thread_in_time_is_not_made(one_thread: Threads) -> None:
    begun, free, made = Event(), Event(), Event()

    def block() -> None:
        begun.set()
        free.wait(10)

    first = one_thread.submit(block)
    assert begun.wait(10)
    waiting = one_thread.submit(made.set)
    assert not free.wait(0.3)  # longer than anybody waits for a thread
    free.set()
    first.result(10)
    with pytest.raises(BrokerUnavailable, match=r"none was free within 0\.2 s"):
        waiting.result(10)
    assert not made.is_set()


def test_the_api_makes_its_calls_in_them(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Threads, "_in_time", lambda *_: refuse())
    assert server.client.get("/api/v1/workers").status_code == 503


def refuse() -> None:
    raise BrokerUnavailable("no thread")
