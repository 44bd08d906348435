"""Timings and minutes as they are read."""

from __future__ import annotations

import bisect
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq.history import BOUNDS_S, BUCKETS, COUNTS, Minute, Timing, read_cell, read_minutes


def timing_of(durations: list[float]) -> Timing:
    buckets = [0] * BUCKETS
    for duration in durations:
        buckets[bisect.bisect_left(BOUNDS_S, duration)] += 1
    return Timing(tuple(buckets), sum(durations))


@given(st.lists(st.floats(0, 3600), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_exact_one(durations: list[float], q: float) -> None:
    told = timing_of(durations).quantile(q)
    exact = sorted(durations)[max(0, min(len(durations) - 1, -(-int(q * len(durations) * 1e9) // 10**9) - 1))]
    place = bisect.bisect_left(BOUNDS_S, exact)
    low, high = (0.0, *BOUNDS_S)[place], BOUNDS_S[place]
    assert low - 1e-9 <= told <= high + 1e-9


def test_what_is_longer_than_the_last_bound_counts_as_that() -> None:
    assert timing_of([7200.0]).quantile(0.5) == BOUNDS_S[-1]
    assert timing_of([0.002, 7200.0]).mean == pytest.approx(3600.001)


def test_nothing_has_no_quantile() -> None:
    assert (Timing().quantile(0.99), Timing().mean, Timing().count) == (0.0, 0.0, 0)
    with pytest.raises(ValueError, match="use 0 to 1"):
        Timing().quantile(99)


def test_timings_add_up() -> None:
    one, other = timing_of([0.002, 5]), timing_of([0.002])
    assert one + other == timing_of([0.002, 5, 0.002])


def test_minutes_of_two_queues_add_up() -> None:
    """Every field of them, those that come later too."""
    at, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    counts = {name: number for number, name in enumerate(COUNTS, 1)}
    one = Minute(at, wait=timing_of([1]), execution=timing_of([2]), **counts)
    both = one + Minute(later, wait=timing_of([3]), execution=timing_of([4]), **counts)
    twice = {name: 2 * number for name, number in counts.items()}
    assert both == Minute(at, wait=timing_of([1, 3]), execution=timing_of([2, 4]), **twice)
    assert {field.name for field in fields(Minute)} == {"at", "wait", "execution", *COUNTS}


def test_minutes_without_anything_are_there() -> None:
    minutes = read_minutes({}, (0,) * len(COUNTS), 1_700_000_000, 3)
    assert minutes == [Minute(datetime.fromtimestamp(minute * 60, UTC)) for minute in range(28333331, 28333334)]


@given(st.dictionaries(st.binary(max_size=3), st.binary(max_size=210), max_size=4))
def test_damaged_minutes_are_left_out(stored: dict[bytes, bytes]) -> None:
    minutes = read_minutes(stored, (0,) * len(COUNTS), 1_700_000_000, 60)
    assert len(minutes) == 60


@given(st.binary(max_size=600))
def test_a_damaged_cell_is_none(cell: bytes) -> None:
    assert (read_cell(cell) is None) == (len(cell) != 528)
