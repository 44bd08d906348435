"""Whether a loop of calls waits for its replies awake: what is faster where it runs."""

from __future__ import annotations

from collections.abc import Callable

from dtq.clock import Clock
from dtq.spin import BLOCK, LOOP_S, PERIOD, Spin

ASLEEP_S, AWAKE_S = 0.000110, 0.000055


class Hands(Clock):
    """A steady clock that is set by hand."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def loop(spin: Spin, clock: Hands, calls: int, takes: Callable[[bool], float]) -> float:
    """The share of calls that waited awake, where a call takes what `takes` says of its mode."""
    awake = 0
    for _ in range(calls):
        mode = spin.awake()
        awake += mode
        clock.now_s += takes(mode)
    return awake / calls


def halved(awake: bool) -> float:
    return AWAKE_S if awake else ASLEEP_S


def doubled(awake: bool) -> float:
    return ASLEEP_S if awake else AWAKE_S


def test_a_loop_waits_awake_where_that_is_faster() -> None:
    clock = Hands()
    spin = Spin(clock)
    assert loop(spin, clock, BLOCK - 1, halved) == 0, "how long it takes asleep is to be known first"
    assert loop(spin, clock, 50 * BLOCK, halved) > 0.95


def test_a_loop_sleeps_where_awake_takes_longer_or_as_long() -> None:
    """One CPU, or others that want all of them; a network that takes longer than anybody would spin."""
    for takes in (doubled, lambda _: ASLEEP_S, lambda awake: 0.9 * ASLEEP_S if awake else ASLEEP_S):
        clock = Hands()
        assert loop(Spin(clock), clock, 50 * BLOCK, takes) <= 2 / PERIOD


def test_a_hiccup_changes_nothing() -> None:
    clock = Hands()
    spin = Spin(clock)
    loop(spin, clock, 4 * BLOCK, halved)
    clock.now_s += LOOP_S
    assert loop(spin, clock, 10 * BLOCK, halved) > 0.99


def test_what_was_faster_is_dropped_once_it_is_not() -> None:
    clock = Hands()
    spin = Spin(clock)
    assert loop(spin, clock, 4 * BLOCK, halved) > 0.4
    assert loop(spin, clock, 20 * BLOCK, doubled) < 0.5
    assert loop(spin, clock, 50 * BLOCK, doubled) <= 2 / PERIOD
    assert loop(spin, clock, 2 * PERIOD * BLOCK, halved) > 0.4, "a mode that was dropped is tried again"


def test_a_lone_call_sleeps() -> None:
    """Even one that falls into a trial, and one behind a loop that waited awake."""
    clock = Hands()
    spin = Spin(clock)
    loop(spin, clock, 4 * BLOCK, halved)
    clock.now_s += 2 * LOOP_S
    assert loop(spin, clock, 3 * PERIOD * BLOCK, lambda _: 2 * LOOP_S) == 0


def test_calls_that_stall_now_and_then_count_as_slow() -> None:
    """Where both CPUs are wanted, a call that spins may lose its CPU for milliseconds: more than a loop's calls."""
    clock = Hands()
    spin = Spin(clock)
    calls = 0

    def takes(awake: bool) -> float:
        nonlocal calls
        calls += 1
        return 3 * LOOP_S if awake and calls % 10 == 0 else halved(awake)

    assert loop(spin, clock, 50 * BLOCK, takes) <= 3 / PERIOD
