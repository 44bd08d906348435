"""Delays between attempts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq.backoff import LONGEST_DELAY_S, Backoff, constant


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(base=1, max_delay=60, jitter=0)
    assert [backoff.delay_ms(attempt, 0.5) for attempt in range(1, 9)] == [
        1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000
    ]  # fmt: skip


def test_jitter_takes_and_adds_its_part() -> None:
    backoff = Backoff(base=10, max_delay=60, jitter=0.2)
    assert [backoff.delay_ms(1, draw) for draw in (0, 0.5, 1)] == [8000, 10000, 12000]


@given(
    attempt=st.integers(1, 10**30),
    base=st.floats(0, LONGEST_DELAY_S),
    jitter=st.floats(0, 1),
    draw=st.floats(0, 1),
)
def test_no_attempt_number_overflows(attempt: int, base: float, jitter: float, draw: float) -> None:
    delay = Backoff(base=base, max_delay=LONGEST_DELAY_S, jitter=jitter).delay_ms(attempt, draw)
    assert 1 <= delay <= LONGEST_DELAY_S * 2 * 1000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"jitter": 1.5}, "backoff.jitter: 1.5 is out of bounds; give a part from 0 to 1"),
        ({"jitter": -0.1}, "backoff.jitter: -0.1 is out of bounds; give a part from 0 to 1"),
        ({"base": -1}, "backoff.base: -1 is negative; give seconds of 0 or more"),
        ({"base": 61}, "backoff.max_delay: 60.0 is out of bounds; give seconds from base (61) to 315360000 (10 years)"),
        ({"base": float("nan")}, "backoff.base: nan is not a finite number; give seconds"),
        ({"base": True}, "backoff.base: True is not a finite number; give seconds"),
        ({"max_delay": "60"}, "backoff.max_delay: '60' is not a finite number; give seconds"),
        ({"jitter": float("inf")}, "backoff.jitter: inf is not a finite number; give seconds as a part from 0 to 1"),
        ({"max_delay": 1e12}, "backoff.max_delay: 1000000000000.0 is out of bounds; give seconds from base (1) to "
                              "315360000 (10 years)"),
    ],
)  # fmt: skip
def test_bad_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Backoff(**fields)
    assert str(caught.value) == message


def test_a_constant_delay_has_no_jitter() -> None:
    assert {constant(2.5).delay_ms(attempt, draw) for attempt in (1, 7, 99) for draw in (0, 1)} == {2500}


def test_a_delay_is_whole_milliseconds_and_never_none_at_all() -> None:
    """A delay of 0 would be due in the millisecond of the failure, and a fraction is no score of the schedule."""
    assert Backoff(base=0).delay_ms(1, 0.5) == 1
    delay = Backoff(base=0.0026, jitter=0).delay_ms(1, 0.5)
    assert (delay, type(delay)) == (3, int)


def test_it_is_checked_once_and_stays_as_it_is() -> None:
    with pytest.raises(FrozenInstanceError):
        Backoff().base = -1  # type: ignore[misc]


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match=r"^attempt: 0 is out of bounds"):
        Backoff().delay_ms(0, 0.5)
