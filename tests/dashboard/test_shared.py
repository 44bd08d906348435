"""What pages share, without a browser: text made visible, acts that take their time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

import pytest

from dtq.dashboard import text
from dtq.dashboard.bulk import KEPT, MOST, BulkActs
from dtq.errors import InvalidTask, QueueFull

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc", "a\nb\tc"),
        ("a\r\nb", "a\nb"),
        ("\x1b[31m\x00\x7f", r"\x1b[31m\x00\x7f"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\ud800", r"\ud800"),
        ("x" * 5000 + "\x07", "x" * 5000 + r"\x07"),
        ("שלום", "שלום"),
    ],
)
def test_blocks_keep_their_lines_and_hide_nothing(given: str, shown: str) -> None:
    assert text.block(given) == shown


@pytest.mark.parametrize(
    "value", [{"a\u202e": "\x00\n\u2028"}, ["\U000e0041", 1.5, None, True], "plain", {}, 2**64 - 1]
)
def test_json_reads_back_as_it_was_and_shows_everything(value: object) -> None:
    shown = text.as_json(value)
    assert json.loads(shown) == value
    assert all(one == "\n" or one.isprintable() for one in shown)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.000012, "12 µs"),
        (0.0015, "1.5 ms"),
        (0.012, "12 ms"),
        (0.9996, "1000 ms"),
        (1.239, "1.24 s"),
        (200, "3 min 20 s"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_numbers_times_and_sizes() -> None:
    assert text.number(1_234_567) == "1\u202f234\u202f567"
    assert [text.rate(value) for value in (None, 0, 0.01, 9.96, 12_345)] == ["–", "0.0", "0.01", "10.0", "12\u202f345"]
    assert [text.size(value) for value in (None, 10, 5 * 1024, 7 * 1024**2, 3 * 1024**3)] == [
        *("–", "10 B", "5.0 KiB", "7.0 MiB", "3.00 GiB")
    ]
    assert text.plural(1, "task") == "1 task"
    assert text.plural(2, "dead letter") == "2 dead letters"
    moments = [datetime.fromtimestamp(NOW_MS / 1000 + seconds, UTC) for seconds in (-0.2, -12, -200, 65)]
    assert [text.ago(moment, NOW_MS) for moment in moments] == ["now", "12 s ago", "3 min 20 s ago", "in 1 min 5 s"]
    assert text.moment(moments[1]) == "2023-11-14 22:13:08.000 UTC"


def test_times_that_people_type() -> None:
    noon = datetime(2030, 12, 31, 12, tzinfo=UTC)
    for given in ("2030-12-31 12:00", "2030-12-31T12:00:00", " 2030-12-31 14:00+02:00", "2030-12-31T12:00:00Z"):
        assert text.read_moment("deadline", given) == noon
    with pytest.raises(InvalidTask, match="deadline: 'soon' is no time"):
        text.read_moment("deadline", "soon")


async def _steps(count: int, gate: asyncio.Event | None = None) -> AsyncGenerator[tuple[int, str]]:
    for _ in range(count):
        yield 1, ""
    yield 0, "one was refused"
    if gate is not None:
        await gate.wait()


async def _full() -> AsyncGenerator[tuple[int, str]]:
    yield 1, ""
    raise QueueFull("queue: 'q' is full")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- an act tells nobody how far it is
            await asyncio.sleep(0)


def test_bulk_acts_go_on_by_themselves_and_can_be_stopped() -> None:
    async def run() -> None:
        acts, gate = BulkActs(), asyncio.Event()
        first = acts.start("first", "ada", _steps(3))
        failing = acts.start("failing", None, _full())
        await _until(lambda: "running" not in (first.state, failing.state))
        assert (first.state, first.done, first.refused, first.problem) == ("done", 3, 1, "one was refused")
        assert (failing.state, failing.done, failing.problem) == ("failed", 1, "queue: 'q' is full")
        held = [acts.start(f"held {number}", "ada", _steps(1, gate)) for number in range(MOST)]
        await _until(lambda: all(act.done for act in held))
        with pytest.raises(InvalidTask, match="run already"):
            acts.start("one more", "ada", _steps(1))
        acts.stop(held[0].number)
        acts.stop(first.number)  # has ended: nothing happens
        await _until(lambda: held[0].state == "stopped")
        assert [act.state for act in held] == ["stopped", "running", "running"]
        for _ in range(KEPT + 5):
            done = acts.start("short", "ada", _steps(0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert done.task is not None
            await done.task
        assert [act.title for act in acts.all() if act.state == "running"] == ["held 2", "held 1"]
        assert len(acts.all()) == KEPT
        await acts.close()
        assert [act.state for act in held] == ["stopped"] * 3

    asyncio.run(run())
