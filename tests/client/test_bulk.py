"""Bulk enqueue: one outcome per item in order, whatever the others are."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

import dtq
from tests.broker.driver import Child
from tests.client.proxy import Proxy
from tests.servers import PrivateServer


def waiting(app: dtq.App) -> int:
    return app.broker.queue_counts("default").waiting


def test_one_bad_item_sinks_no_other(app: dtq.App) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    items: list[Any] = [{"a": 1}, {"b": 2}, {"a": math.nan}, 5, {"a": 1, "b": 2}, {"a": 1, "c": 2}, {"a": 2}]
    outcomes = list(add.enqueue_many(items))
    assert [outcome.index for outcome in outcomes] == list(range(7))
    assert [outcome.ok for outcome in outcomes] == [True, False, False, False, True, False, True]
    assert [str(outcome.error) for outcome in outcomes if isinstance(outcome, dtq.Invalid)] == [
        "payload.a: add needs it; give a",
        "payload.a: NaN is not JSON; use None or a string",
        "payload: must be a dict, not int",
        "payload.c: add takes no such argument; known are a, b",
    ]
    accepted = [outcome for outcome in outcomes if isinstance(outcome, dtq.Accepted)]
    assert [outcome.handle.task().payload for outcome in accepted] == [{"a": 1}, {"a": 1, "b": 2}, {"a": 2}]


def test_order_over_many_chunks(app: dtq.App) -> None:
    outcomes = list(app.enqueue_many("noop", ({"i": i} for i in range(3000))))
    ids = [outcome.id for outcome in outcomes if isinstance(outcome, dtq.Accepted)]
    assert len(ids) == 3000
    found = app.broker.inspect("default", [ids[0], ids[1234], ids[2999]])
    assert [app.get(task_id).task().payload for task_id in (ids[0], ids[1234], ids[2999])] == [
        {"i": 0}, {"i": 1234}, {"i": 2999}
    ]  # fmt: skip
    assert all(found)
    assert waiting(app) == 3000


def test_counts(app: dtq.App, child: Child) -> None:
    first = app.enqueue("noop", {"i": 0}, unique=True)
    outcomes = list(app.enqueue_many("noop", [{"i": 0}, {"i": 1}, {"i": 1}], unique=True, conflict="return_existing"))
    assert [type(outcome) for outcome in outcomes] == [dtq.Duplicate, dtq.Accepted, dtq.Duplicate]
    assert outcomes[0].handle == first  # type: ignore[attr-defined]
    counts = app.enqueue_many("noop", [{"i": 0}, {"i": 2}, {"i": math.inf}], unique=True).run()
    assert (counts.accepted, counts.conflict, counts.invalid, counts.total) == (1, 1, 1, 3)
    assert isinstance(counts.first_error, dtq.UniqueConflict)


def test_a_full_queue_refuses_the_rest(clean_server: PrivateServer) -> None:
    with dtq.App(clean_server.url, max_queue_depth=100) as app:
        counts = app.enqueue_many("noop", ({"i": i} for i in range(250))).run()
        assert (counts.accepted, counts.refused) == (100, 150)
        assert isinstance(counts.first_error, dtq.QueueFull)


def test_large_items_are_split_into_smaller_chunks(app: dtq.App, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    send = app.client.send
    monkeypatch.setattr(
        app.client,
        "send",
        lambda queue, chunk, *more: (sizes.append((len(chunk), chunk.byte_size)), send(queue, chunk, *more))[1],
    )
    texts = [i % 7 * 30_000 for i in range(200)]
    counts = app.enqueue_many("noop", ({"text": "x" * size} for size in texts)).run()
    assert counts.accepted == 200
    assert all(count <= 500 and size <= 1024 * 1024 for count, size in sizes)
    assert sum(count for count, _ in sizes) == 200


def test_outcomes_do_not_wait_for_a_slow_iterable(app: dtq.App) -> None:
    """The next chunk is read while the server works, but only what comes quickly: here a few items, not 192."""
    taken = 0

    def items() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for index in range(300):
            if index >= 64:
                time.sleep(0.001)
            taken += 1
            yield {"i": index}

    outcomes = iter(app.enqueue_many("noop", items()))
    assert [next(outcomes).index for _ in range(64)] == list(range(64))
    assert 64 < taken <= 64 + 3
    assert len(list(outcomes)) == 300 - 64


def test_an_iterable_that_fails_while_it_is_read_ahead_loses_nothing(app: dtq.App) -> None:
    """The outcomes of what was sent come first, then those of what it gave before it failed, then its error."""

    def items() -> Iterator[dict[str, Any]]:
        yield from ({"i": i} for i in range(100))
        raise OSError("the file ended")

    outcomes = iter(app.enqueue_many("noop", items()))
    assert [next(outcomes).index for _ in range(100)] == list(range(100))
    with pytest.raises(OSError, match="the file ended"):
        next(outcomes)
    assert waiting(app) == 100


def test_what_an_iterable_gave_before_it_failed_is_enqueued(app: dtq.App) -> None:
    def items() -> Iterator[dict[str, Any]]:
        yield from ({"i": i} for i in range(100))
        raise OSError("the file ended")

    seen: list[dtq.BulkOutcome] = []
    with pytest.raises(OSError, match="the file ended"):
        seen.extend(app.enqueue_many("noop", items()))
    assert (len(seen), waiting(app)) == (100, 100)


def test_nothing_at_all(app: dtq.App) -> None:
    assert list(app.enqueue_many("noop", [])) == []


def test_items_are_read_only_as_the_outcomes_are_taken(app: dtq.App) -> None:
    """But for those of one chunk, which are read while the server works on the one before."""
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        while True:
            read += 1
            yield {"i": read}

    outcomes = app.enqueue_many("noop", endless())
    for _ in range(600):
        assert next(outcomes).ok
    assert waiting(app) <= 1200
    assert waiting(app) <= read <= waiting(app) + 500


def test_memory_stays_flat(app: dtq.App) -> None:
    app.enqueue_many("noop", ({"i": i} for i in range(1000))).run()
    tracemalloc.start()
    try:
        app.enqueue_many("noop", ({"text": "x" * 1000} for _ in range(20_000))).run()
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_lost_replies_make_no_twins(proxy: Proxy) -> None:
    with dtq.App(proxy.url) as app:
        app.enqueue("noop")
        proxy.drop = 2
        counts = app.enqueue_many("noop", ({"i": i} for i in range(1000))).run()
        assert (proxy.dropped, counts.accepted, waiting(app)) == (2, 1000, 1001)
