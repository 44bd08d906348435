"""Producers in trouble: a typed error within their deadline, nothing half stored, and all is well when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

import dtq
from tests.servers import PrivateServer
from tests.troubles import TROUBLES

DEADLINE_S = 1.0
WORDS = {
    "READONLY": "read only replica",
    "MASTERDOWN": "Link with MASTER is down",
    "OOM": "maxmemory",
    "MISCONF": "RDB snapshots",
    "BUSY": "busy running a script",
    "NOPERM": "permissions",
    "NOAUTH": "user or password",
    "max number of clients": "max number of clients",
    "frozen": "did not answer in time",
    "gone": "cannot be reached",
}
"""What the message says of it."""


def enqueue_many(app: dtq.App) -> object:
    outcomes = list(app.enqueue_many("noop", [{"i": i} for i in range(1200)]))
    refused = [outcome for outcome in outcomes if isinstance(outcome, dtq.Refused)]
    assert len(refused) == len(outcomes) == 1200
    raise refused[0].error


CALLS: dict[str, Callable[[dtq.App], object]] = {
    "enqueue": lambda app: app.enqueue("noop", {"n": 1}),
    "enqueue later": lambda app: app.enqueue("noop", {"n": 1}, delay=60),
    "enqueue by key": lambda app: app.enqueue("noop", {"n": 1}, idempotency_key="key", unique=True),
    "aenqueue": lambda app: asyncio.run(_aenqueue(app)),
    "enqueue_many": enqueue_many,
    "cancel": lambda app: app.handle("standing", "default").cancel(),
}
READS: dict[str, Callable[[dtq.App], object]] = {
    "status": lambda app: app.handle("standing", "default").status(),
    "task": lambda app: app.handle("standing", "default").task(),
    "result": lambda app: app.handle("standing", "default").result(timeout=0.5),
}


async def _aenqueue(app: dtq.App) -> Any:
    return await app.aenqueue("noop", {"n": 1})


@pytest.mark.parametrize("trouble", TROUBLES)
def test_producers_get_a_typed_error_in_time(troubled_server: PrivateServer, trouble: str) -> None:
    """`BrokerUnavailable` from each call, and no task is made that nobody was told of."""
    server = troubled_server
    with server.client() as client:
        client.flushall()
    with dtq.App(server.url, enqueue_deadline_s=DEADLINE_S) as app:
        standing = app.enqueue("noop", task_id="standing")
        with TROUBLES[trouble](server):
            for name, call in CALLS.items():
                begun = time.monotonic()
                with pytest.raises(dtq.BrokerUnavailable) as caught:
                    call(app)
                took = time.monotonic() - begun
                assert took < DEADLINE_S + 1, (name, took)
                assert "S3CRET" not in str(caught.value)
                assert f"127.0.0.1:{server.port}" in str(caught.value), name
                assert WORDS.get(trouble, "") in str(caught.value), name
            for name, call in READS.items():
                begun = time.monotonic()
                with contextlib.suppress(dtq.BrokerUnavailable, dtq.ResultTimeout):
                    call(app)
                assert time.monotonic() - begun < DEADLINE_S + 1, name
        if trouble == "frozen":
            return  # what stood in its buffers is carried out now, as the documents say
        assert standing.status() == "queued"
        counts = app.broker.queue_counts("default")
        assert (counts.waiting, counts.running, counts.scheduled) == (1, 0, 0)
        with server.client() as client:
            assert not list(client.scan_iter("dtq:idempotency:*")) + list(client.scan_iter("dtq:unique:*"))
        assert app.enqueue("noop", {"n": 2}).status() == "queued"
        assert standing.cancel() == "cancelled"
