"""How much a child claims at once."""

from __future__ import annotations

from dtq.broker.working import TURN_BYTES
from dtq.worker.pace import Pace

QUICK_NS = 10_000
ROOM = 1_000_000


def grown(pace: Pace, size: int, turns: int = 10) -> int:
    """What is asked for after some turns that brought all they were asked for, of `size` bytes each."""
    for _ in range(turns):
        count = pace.want(ROOM)
        pace.claimed(count, count * size)
        pace.average.ran(QUICK_NS)
    return pace.want(ROOM)


def test_a_claim_starts_with_one_and_grows_to_the_most() -> None:
    pace = Pace(0.02, 100)
    assert pace.want(ROOM) == 1
    assert grown(pace, 200) == 100


def test_slow_handlers_are_claimed_one_by_one() -> None:
    pace = Pace(0.02, 100)
    grown(pace, 200)
    pace.average.ran(1_000_000_000)
    assert pace.want(ROOM) == 1


def test_slow_handlers_share_what_waits_until_the_queue_proves_deep() -> None:
    """Four tasks of 5 ms in one child's hands keep three waiting while its sibling may be free."""
    pace = Pace(0.02, 100)
    asked: list[int] = []
    for _ in range(30):
        asked.append(count := pace.want(ROOM))
        pace.claimed(count, 200 * count)
        for _ in range(count):
            pace.average.ran(5_000_000)
    assert asked[:7] == [1] * 7
    assert asked[-1] == 4, "a deep queue is claimed by the whole budget"
    pace.emptied()
    assert pace.want(ROOM) == 1


def test_a_turn_that_brings_less_than_was_asked_for_shows_a_shallow_queue() -> None:
    pace = Pace(0.02, 1000)
    grown(pace, 200, turns=30)
    for _ in range(60):
        pace.average.ran(1_000_000)
    assert pace.want(ROOM) == 20
    pace.claimed(3, 600)
    assert pace.want(ROOM) == 1


def test_a_turn_that_brings_all_there_is_room_for_is_a_full_one() -> None:
    """In a child with few places for async handlers, or with few tasks left to its life."""
    pace = Pace(0.02, 1000)
    for _ in range(30):
        pace.average.ran(1_000_000)
        assert pace.want(1) == 1
        pace.claimed(1, 200)
    assert pace.want(0) == 0, "for who settles only"
    assert pace.want(3) == 3


def test_no_more_is_asked_for_than_a_turn_carries() -> None:
    """What a turn reads beyond its bound goes to the shelf and is read again: nine of ten tasks of 64 KiB did."""
    pace = Pace(0.02, 100)
    for size in (16 * 1024, 64 * 1024, 900 * 1024):
        want = grown(pace, size)
        assert want == 1 or want * size <= TURN_BYTES
    assert grown(pace, 200, turns=200) == 100, "small payloads are claimed by the hundred again"
