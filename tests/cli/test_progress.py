"""Long work says on stderr how far it has come: lines in a pipe, a bar on a terminal, nothing where it is soon over."""

from __future__ import annotations

import io
import sys

import pytest

from dtq.cli import progress
from dtq.cli.progress import followed
from dtq.clock import Clock


class Hand(Clock):
    """A clock that goes on by a second each time it is read."""

    at = 0.0

    def monotonic(self) -> float:
        self.at += 1.0
        return self.at


class Terminal(io.StringIO):
    """What is drawn on a terminal."""

    def isatty(self) -> bool:
        return True


def captured(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]) -> io.StringIO:
    """What the command writes on stderr from now on."""
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    return stream


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]) -> None:
    stderr = captured(monkeypatch, kind)
    assert list(followed(range(1000), "walk", 1000)) == list(range(1000))
    assert stderr.getvalue() == ""


def test_lines_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """One each few seconds, whole and without an escape."""
    stderr = captured(monkeypatch, io.StringIO)
    monkeypatch.setattr(progress, "SYSTEM", Hand())
    assert sum(followed([10] * 20, "purge of \x1bmail", 200, int)) == 200
    lines = stderr.getvalue().splitlines()
    assert 2 <= len(lines) <= 5
    assert lines[0] == "dtq: purge of \\x1bmail: 50 of 200"
    before = len(stderr.getvalue())
    list(followed(range(20), "walk"))
    assert " of " not in stderr.getvalue()[before:]


@pytest.mark.parametrize("total", [200, None])
def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    """It tells what, how much and how fast; an interrupt leaves the terminal as it was."""
    stderr = captured(monkeypatch, Terminal)
    monkeypatch.setattr(progress, "SYSTEM", Hand())

    def interrupted() -> None:
        for done, _ in enumerate(followed([10] * 20, "purge [red]", total, int)):
            if done == 15:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    drawn = stderr.getvalue()
    assert "purge [red]" in drawn
    assert ("of 200" in drawn) == (total is not None)
    assert "/s" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1  # the cursor is there again
