"""Short and long chaos runs as tests; `python -m tests.chaos` tries more seeds and tells every act."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.run import Report, chaos

SOAK_S = float(os.environ.get("CHAOS_SOAK_S", "0"))


def told(report: Report) -> str:
    """The report as one text: the faults, then the figures and the seed."""
    return "\n".join([*report.faults, *(f"noted: {line}" for line in report.noted), report.line])


@pytest.mark.timeout(240)
def test_half_a_minute(tmp_path: Path) -> None:
    """Every accepted task ends as it must, each repeated execution has a cause, and nothing is left in Redis."""
    report = chaos(tmp_path, 30, seed=1)
    print(report.line)
    assert not report.faults, told(report)


@pytest.mark.slow
@pytest.mark.parametrize(("act", "fault"), [("sabotage_away", "lost: "), ("sabotage_twice", "attempt 1 started twice")])
def test_sabotage_is_found(tmp_path: Path, act: str, fault: str) -> None:
    """The judge of a real run sees what it must never see."""
    report = chaos(tmp_path, 10, seed=1, only=act)
    assert any(fault in line for line in report.faults), told(report)


@pytest.mark.slow
@pytest.mark.skipif(not SOAK_S, reason="set CHAOS_SOAK_S to a number of seconds; `make soak` does")
@pytest.mark.timeout(SOAK_S * 2 + 300)
def test_soak(tmp_path: Path) -> None:
    """The same for as long as CHAOS_SOAK_S says, with the seed CHAOS_SEED."""
    report = chaos(tmp_path, SOAK_S, seed=int(os.environ.get("CHAOS_SEED", "1")), pause_s=0.04)
    print(report.line)
    assert not report.faults, told(report)
