"""Waiting for many, without I/O: who is asked when, and for how long is paused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dtq.clock import Clock
from dtq.errors import BrokerUnavailable, ResultTimeout
from dtq.waiting import LONGEST_OUTAGE_S, SLICE, Wait


class FakeClock(Clock):
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Item:
    """Something that ends."""

    number: int
    queue: str = "q"
    ended: bool = False


def look(wait: Wait[Item], clock: FakeClock, cost: float = 0.001) -> list[Item]:
    """One sweep, answered by the items themselves; the sizes of the slices it asked about."""
    found: list[Item] = []
    for _, items in wait.sweep():
        clock.now += cost
        found += wait.note(items, bytes(ord("5" if item.ended else "2") for item in items))
    return found


def test_pauses_double_while_nothing_ends() -> None:
    clock = FakeClock()
    wait = Wait([Item(1)], None, clock)
    pauses: list[float] = []
    for _ in range(8):
        assert look(wait, clock, 0) == []
        pauses.append(wait.pause())
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1]


def test_every_item_is_found_once_wherever_it_stands() -> None:
    clock = FakeClock()
    items = [Item(i, queue=f"q{i % 3}") for i in range(10 * SLICE)]
    wait = Wait(items, None, clock)
    assert look(wait, clock) == []
    found: list[Item] = []
    for last in (9_999, 5_000, 1, 7):
        items[last].ended = True
        for _ in range(1000):
            clock.now += wait.pause()
            if new := look(wait, clock):
                break
        found += new
    assert [item.number for item in found] == [9_999, 5_000, 1, 7]
    assert wait.left == len(items) - 4


def test_a_quick_look_asks_only_about_the_oldest() -> None:
    clock = FakeClock()
    wait = Wait([Item(i) for i in range(50 * SLICE)], None, clock)
    assert sum(1 for _ in wait.sweep()) == 50
    clock.now += 1
    wait = Wait([Item(i) for i in range(50 * SLICE)], None, clock)
    look(wait, clock, cost=0.01)  # half a second
    asked = [len(items) for _, items in wait.sweep() if not wait.note(items, b"2" * len(items))]
    assert asked == [SLICE, SLICE]


def test_a_sweep_that_breaks_off_forgets_nothing_and_repeats_nothing() -> None:
    clock = FakeClock()
    items = [Item(i, ended=i < 1500) for i in range(3000)]
    wait = Wait(items, None, clock)
    sweep = wait.sweep()
    _, first = next(sweep)
    found = wait.note(first, b"5" * len(first))
    del sweep
    found += look(wait, clock)
    assert [item.number for item in found] == list(range(1500))
    assert wait.left == 1500


def test_an_item_can_be_taken_back() -> None:
    clock = FakeClock()
    items = [Item(0, ended=True), Item(1)]
    wait = Wait(items, None, clock)
    for _, part in wait.sweep():
        (ended,) = wait.note(part, b"52")
        wait.reopen(part, ended)
    assert wait.left == 2
    assert look(wait, clock) == [items[0]]


def test_time_runs_out() -> None:
    clock = FakeClock()
    wait = Wait([Item(0), Item(1)], 5, clock)
    look(wait, clock, 0)
    clock.now += 4.999
    assert wait.pause() == pytest.approx(0.001)
    clock.now += 0.001
    with pytest.raises(ResultTimeout) as caught:
        wait.pause()
    assert str(caught.value) == (
        "timeout: 2 of 2 tasks had not ended after 5 s; wait longer, or see in `dtq status` whether a worker works on "
        "queue 'q'"
    )


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        (
            [],
            "the task had not ended after 0 s; wait longer, or see in `dtq status` whether a worker works on queue 'q'",
        ),
        (
            [b"1", b"2"],
            "the task had not ended after 0 s, it is queued; "
            "wait longer, or see in `dtq status` whether a worker works on queue 'q'",
        ),
        ([b"2", b"3"], "the task had not ended after 0 s, it is running; wait longer"),
    ],
)
def test_a_timeout_tells_how_far_a_single_task_came(codes: list[bytes], told: str) -> None:
    """Nobody who forgot the worker is only told to wait longer."""
    wait = Wait([Item(0)], 0, FakeClock())
    for code in codes:
        for _, items in wait.sweep():
            assert wait.note(items, code) == []
    with pytest.raises(ResultTimeout) as caught:
        wait.pause()
    assert str(caught.value) == f"timeout: {told}"


def test_a_timeout_of_several_queues_names_none() -> None:
    wait = Wait([Item(0, "a"), Item(1, "b")], 0, FakeClock())
    with pytest.raises(ResultTimeout, match=r"^timeout: 2 of 2 tasks had .* whether a worker works on their queues$"):
        wait.pause()


def test_outages_are_borne_until_the_limit() -> None:
    clock, error = FakeClock(), BrokerUnavailable("gone")
    limited, open_ended = Wait([Item(0)], 5, clock), Wait([Item(0)], None, clock)
    limited.unreachable(error)
    open_ended.unreachable(error)
    clock.now += 5
    with pytest.raises(BrokerUnavailable):
        limited.unreachable(error)
    open_ended.unreachable(error)
    look(open_ended, clock)  # it answered: the minute begins anew
    open_ended.unreachable(error)
    clock.now += LONGEST_OUTAGE_S - 1
    open_ended.unreachable(error)
    clock.now += 1
    with pytest.raises(BrokerUnavailable):
        open_ended.unreachable(error)
