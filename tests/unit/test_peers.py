"""bench/peers: what its figures rest on. Handlers' records, their layout in other languages, and pinned adapters."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from bench.peers import record
from bench.peers.entrant import DEFAULTS
from bench.peers.environments import PROGRAMS, load_adapters
from bench.peers.record import KINDS, Record, ended, latencies, started, tally
from bench.peers.table import markdown

NOOP, STAMP, ONCE = (KINDS.index(kind) for kind in ("noop", "stamp", "once"))


def in_killed_child(directory: Path, numbers: list[int], notes: Record) -> None:
    """A forked process notes these tasks, starts one more, and is killed."""
    pid = os.fork()
    if not pid:
        for number in numbers:
            notes.started(number)
            notes.ended(ONCE, number, 10.0 + number)
        notes.started(numbers[-1] + 1)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_records_outlive_a_kill_and_add_up(tmp_path: Path) -> None:
    notes = Record(str(tmp_path))
    notes.ended(NOOP, 0, 1.0)
    in_killed_child(tmp_path, [0, 1], notes)
    in_killed_child(tmp_path, [1, 2], notes)
    assert tally(tmp_path, "once").ran == 4
    assert tally(tmp_path, "once").first_start == 10.0
    assert tally(tmp_path, "noop").ran == 1
    assert ended(tmp_path, 4) == [2, 2, 1, 0]
    assert started(tmp_path, 4) == [1, 2, 2, 1]


def test_latencies_are_of_their_kind(tmp_path: Path) -> None:
    notes = Record(str(tmp_path))
    notes.ended(STAMP, 0, 7.25, sent=7.0)
    notes.ended(KINDS.index("load"), 0, 9.5, sent=9.0)
    assert latencies(tmp_path, "stamp") == [0.25]
    assert latencies(tmp_path, "load") == [0.5]


@pytest.mark.parametrize("program", ["asynq/*.go", "bullmq/bullmq.js"])
def test_other_languages_keep_the_layout(program: str) -> None:
    text = "\n".join(path.read_text() for path in sorted(PROGRAMS.glob(program)))
    numbers = re.findall(r"(\w+)\s*=\s*([\d_]+)\b", text)
    constants = {name.lower().replace("_", ""): int(value) for name, value in numbers}
    expected = {"latencies": record.LATENCIES, "ids": record.IDS, "first": record.FIRST, "stampsat": record.STAMPS_AT}
    assert {name: constants.get(name) for name in expected} == expected
    kinds = re.search(r"(?i)\bkinds = .*", text)
    assert kinds is not None
    assert re.findall(r"""["'](\w+)["']""", kinds.group()) == list(KINDS)


def test_adapters_pin_what_they_install_and_fit_the_records() -> None:
    for adapter in load_adapters().values():
        assert adapter.tuning, f"{adapter.name} does not say how it is tuned"
        assert [each for each in adapter.requirements if "==" not in each] == []
        for name, sizes in adapter.entrants.items():
            assert set(sizes) <= {*DEFAULTS, "drain", "nap"}, name
            assert max(sizes.values()) < record.IDS, name


def test_a_figure_that_is_missing_stands_as_a_dash() -> None:
    machine = dict.fromkeys(("date", "revision", "rounds", "cpus", "cpu", "system", "redis"), "x")
    entrant = {"handlers": "1", "nap_handlers": "1", "versions": {}, "tuning": "none"}
    runs = [
        {"entrant": "one", "round": number, "figures": {"drain_per_s": rate}, "problems": []}
        for number, rate in enumerate((1000.0, 3000.0, 2000.0))
    ]
    text = markdown({"machine": machine, "entrants": {"one": entrant}, "runs": runs, "skipped": {"two": "gone"}})
    assert "| one | 2,000 | – |" in text
    assert "| two | gone |" in text


def test_dtq_is_compared_with_the_best_peer_and_not_with_the_ceiling() -> None:
    machine = dict.fromkeys(("date", "revision", "rounds", "cpus", "cpu", "system", "redis"), "x")
    entrant = {"handlers": "1", "nap_handlers": "1", "versions": {}, "tuning": "none"}
    figures = {
        "dtq": {"drain_per_s": 900.0, "pick_up_p99_ms": 0.5},
        "slow": {"drain_per_s": 100.0, "pick_up_p99_ms": 0.4},
        "fast": {"drain_per_s": 300.0, "pick_up_p99_ms": 2.0},
        "bare": {"drain_per_s": 5000.0, "pick_up_p99_ms": 0.1},
    }
    runs = [{"entrant": name, "round": 0, "figures": each, "problems": []} for name, each in figures.items()]
    text = markdown({"machine": machine, "entrants": dict.fromkeys(figures, entrant), "runs": runs, "skipped": {}})
    assert "| drain/s | 900 | 300 (fast) | 3.00 | 5,000 |" in text
    assert "| pick-up, idle, p99 ms | 0.50 | 0.40 (slow) | 1.25 | 0.10 |" in text
