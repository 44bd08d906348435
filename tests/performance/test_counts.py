"""Counts that noise cannot move stay where bench/counts.json has them, within 5 %.

A change that means to move one renews the record in the same commit: `make bench-counts`.
"""

from __future__ import annotations

import shutil

import pytest
from bench import instructions, record, redis_counts, rust_instructions
from bench.servers import open_server

REMEDY = "; if this change means it, run `make bench-counts` and commit bench/counts.json"


@pytest.fixture
def valgrind() -> None:
    """Callgrind is there."""
    if shutil.which("valgrind") is None:
        pytest.fail("valgrind was not found; apt install valgrind")


def compare(part: str, counts: dict[str, float], tools: dict[str, str], slack: float = record.SLACK) -> None:
    """Fail where a count is off its record; with other tools than the record's say so, and compare nothing."""
    if other := record.other_tools(part, tools):
        assert sorted(counts) == sorted(record.read(part)["counts"])
        pytest.skip(f"counted and not compared: {'; '.join(other)}")
    found = record.differences(part, counts, slack)
    assert not found, "\n".join(found) + REMEDY


def test_redis_is_asked_no_more_than_recorded() -> None:
    """Round trips, and commands with those inside scripts, for each task."""
    with open_server("redis") as server:
        counts = redis_counts.measure(server)
    compare(redis_counts.PART, counts, {})


@pytest.mark.usefixtures("valgrind")
@pytest.mark.timeout(900)  # a first build of the example, on a busy machine
def test_the_rust_modules_take_no_more_instructions_than_recorded() -> None:
    compare(rust_instructions.PART, rust_instructions.measure(), rust_instructions.tools())


@pytest.mark.usefixtures("valgrind")
@pytest.mark.timeout(600)
def test_the_server_takes_no_more_instructions_than_recorded() -> None:
    counts, tools = instructions.measure()
    compare(instructions.PART, counts, tools)


def test_a_count_off_its_record_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """More, fewer, new and gone counts; within the slack there is nothing to say."""
    recorded = {"tools": {"rustc": "1"}, "counts": {"a": 1.0, "b": 100.0, "c": 100.0, "gone": 2.0}}
    monkeypatch.setattr(record, "read", lambda part: recorded)
    assert record.differences("rust", {"a": 1.04, "b": 106.0, "c": 94.0, "new": 1.0}) == [
        "b: 106 a task, recorded 100 (+6.0%)",
        "c: 94 a task, recorded 100 (-6.0%)",
        "gone is recorded and not counted",
        "new is counted and not recorded",
    ]
    assert record.other_tools("rust", {"rustc": "1"}) == []
    assert record.other_tools("rust", {"rustc": "2"}) == ["rustc is 2, recorded with 1"]
