"""observe.lua: what children tell is added up, by task type within a bound and by minute within an hour."""

from __future__ import annotations

import itertools
import struct
import threading

import pytest

from dtq.broker import Broker
from dtq.broker.counting import MOST_TYPES
from dtq.errors import BrokerUnavailable
from dtq.history import COUNTS, OTHER, Minute
from dtq.keys import BANDS
from tests.broker.driver import QUEUE, Child, enqueue
from tests.metrics.cells import cell


def now_minute(broker: Broker) -> int:
    return int(broker.command("TIME")[0]) // 60


def slot(broker: Broker, minute: int) -> bytes:
    found: bytes = broker.command("HGET", broker.keys.minutes(QUEUE), minute % 64)
    return found


def put(broker: Broker, minute: int, *, submitted: int) -> None:
    """What an earlier observation would have left for a minute."""
    packed = struct.pack("<Q" + "I" * 7 + 2 * ("I" * 19 + "Q"), minute, submitted, *[0] * 6, *[0] * 40)
    broker.command("HSET", broker.keys.minutes(QUEUE), minute % 64, packed)


def test_cells_add_up(broker: Broker) -> None:
    """Of several children, also where the server has lost its scripts in between."""
    broker.observe({QUEUE: cell(count=2)})
    broker.command("SCRIPT", "FLUSH")
    broker.observe({QUEUE: [*cell(took_ms=30), *cell("mail")], "second": cell("other")})
    first, second = broker.timings([QUEUE, "second"])
    assert (sorted(first), sorted(second)) == (["mail", "noop"], ["other"])
    noop = first["noop"]
    assert noop.attempts == {
        "succeeded": 3, "retried": 0, "failed": 0, "dead_lettered": 0, "cancelled": 0, "released": 0
    }  # fmt: skip
    assert (noop.execution.count, noop.execution.total_seconds) == (3, pytest.approx(0.13))
    assert (noop.wait.count, noop.wait.total_seconds) == (3, pytest.approx(0.15 + 0.15 + 0.17))
    assert (noop.duration.count, noop.duration.total_seconds) == (3, pytest.approx(3 * 0.323))
    assert broker.task_types(QUEUE) == ["mail", "noop"]


def test_many_children_tell_at_once(broker: Broker) -> None:
    told = cell(count=3)
    threads = [threading.Thread(target=lambda: [broker.observe({QUEUE: told}) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broker.timings([QUEUE])[0]["noop"].execution.count == 600


def test_task_types_are_bounded(broker: Broker) -> None:
    """The first 200 have their own; the rest are summed, whatever they are called."""
    names = [f"type{number}" for number in range(MOST_TYPES + 30)]
    told = [part for name in names for part in cell(name)]
    broker.observe({QUEUE: told[:150]})
    broker.observe({QUEUE: told[150:]})
    broker.observe({QUEUE: told})
    (found,) = broker.timings([QUEUE])
    assert set(found) == {*names[:MOST_TYPES], OTHER}
    assert found["type7"].execution.count == 2
    assert found[OTHER].execution.count == 60
    assert broker.task_types(QUEUE) == sorted(names[:MOST_TYPES])


def test_a_cell_of_another_version_gives_way(broker: Broker) -> None:
    keys = broker.keys
    broker.command("HSET", keys.timings(QUEUE), "noop", b"of old", "mail", b"of old")
    broker.command("HSET", keys.minutes(QUEUE), now_minute(broker) % 64, b"of old", "last", b"of old")
    assert broker.timings([QUEUE]) == [{}]
    broker.observe({QUEUE: cell()})
    assert broker.timings([QUEUE])[0]["noop"].execution.count == 1
    assert broker.minutes(QUEUE, 1)[0].execution.count == 1


def test_a_minute_has_what_happened_in_it(broker: Broker) -> None:
    """The growth of the counters since the last look, whoever made it, and the times of all task types."""
    child = Child(broker)
    enqueue(broker, 4)
    for letter in "SRDC":
        (claim,) = child.claim()
        child.settle(claim, letter)
    broker.observe({QUEUE: [*cell(), *cell("mail")]})
    enqueue(broker, 3)
    last = broker.minutes(QUEUE, 2)
    total = Minute(last[0].at, **{name: sum(getattr(minute, name) for minute in last) for name in COUNTS})
    assert total == Minute(
        last[0].at, submitted=7, succeeded=1, retried=1, dead_lettered=1, cancelled=1, failed=0, expired=0
    )
    assert sum(minute.execution.count for minute in last) == 2
    broker.observe({QUEUE: cell()})
    assert sum(minute.submitted for minute in broker.minutes(QUEUE, 2)) == 7, "growth is counted once"


def test_a_minute_takes_the_place_of_an_old_one(broker: Broker) -> None:
    """So an hour is kept, in a bounded hash."""
    minute = now_minute(broker)
    for before in range(1, 64):
        put(broker, minute - before, submitted=before)
    put(broker, minute - 64, submitted=1000)
    put(broker, minute + 1 - 64, submitted=1000)
    enqueue(broker, 2)
    broker.observe({QUEUE: cell()})
    history = broker.minutes(QUEUE, 60)
    assert len(history) == 60
    assert {(later.at - earlier.at).total_seconds() for earlier, later in itertools.pairwise(history)} == {60.0}
    assert history[-1].submitted == 2
    # the clock may just have gone on to the next minute
    assert [entry.submitted for entry in history[-5:-1]] in ([4, 3, 2, 1], [3, 2, 1, 0])
    assert broker.command("HLEN", broker.keys.minutes(QUEUE)) <= 65


def test_counters_that_went_back_count_nothing(broker: Broker) -> None:
    """Somebody has deleted keys by hand."""
    enqueue(broker, 5)
    broker.observe({QUEUE: cell()})
    broker.command("HSET", broker.keys.meta(QUEUE), "submitted", 1)
    broker.observe({QUEUE: cell()})
    assert sum(minute.submitted for minute in broker.minutes(QUEUE, 2)) == 5


def test_damaged_keys_are_an_error_of_their_queue(broker: Broker) -> None:
    broker.command("SET", broker.keys.timings("bad"), "x")
    broker.command("SET", broker.keys.minutes("worse"), "x")
    for queue in ("bad", "worse"):
        with pytest.raises(BrokerUnavailable, match="WRONGTYPE") as caught:
            broker.observe({queue: cell()})
        assert caught.value.damaged
    with pytest.raises(BrokerUnavailable, match="worse"):
        broker.minutes("worse", 1)
    with pytest.raises(BrokerUnavailable, match="bad"):
        broker.task_types("bad")
    broker.command("SET", broker.keys.live("bad"), "x")
    with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
        broker.queue_counts("bad")
    broker.command("DEL", broker.keys.live("bad"))
    assert broker.timings(["bad", QUEUE]) == [{}, {}]
    broker.command("DEL", broker.keys.timings("bad"), broker.keys.minutes("worse"))


def test_nothing_is_kept_of_a_queue_that_does_nothing(broker: Broker) -> None:
    broker.observe({})
    assert broker.minutes(QUEUE, 1)[0].submitted == 0
    assert {key.decode() for key in broker.command("KEYS", "*")} == {
        broker.keys.queues(), broker.keys.layout(), *(broker.keys.stream(QUEUE, band) for band in BANDS)
    }  # fmt: skip
