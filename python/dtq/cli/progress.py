"""How far long work has come: a bar on a terminal, a line now and then elsewhere, nothing where it is quickly over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from dtq.cli.output import console
from dtq.clock import SYSTEM
from dtq.legible import printable

T = TypeVar("T")

_PATIENCE_S = 0.5
"""Work that is over by then shows nothing."""
_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.1

Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int | None = None) -> Generator[Advance]:
    """Give a function to call with how much more has been done; what it shows goes to stderr.

    what: a word or two. total: how much there is, None where nobody knows.
    """
    shown = _Bar(what, total) if sys.stderr.isatty() else _Lines(what, total)
    try:
        yield shown.advance
    finally:
        shown.close()


def followed(
    items: Iterable[T], what: str, total: int | None = None, size: Callable[[T], int] = lambda _: 1
) -> Generator[T]:
    """The same items, with the progress. size: how much an item counts."""
    with progress(what, total) as advance:
        for item in items:
            yield item
            advance(size(item))


class _Lines:
    """A line each few seconds, for logs and pipes."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._done = 0
        self._next = SYSTEM.monotonic() + _LINE_EVERY_S

    def advance(self, count: int) -> None:
        self._done += count
        if SYSTEM.monotonic() >= self._next:
            self._next = SYSTEM.monotonic() + _LINE_EVERY_S
            of = "" if self._total is None else f" of {self._total}"
            sys.stderr.write(f"dtq: {printable(self._what)}: {self._done}{of}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Nothing to undo."""


class _Bar:
    """A bar that is gone in the end. Drawn by `advance`, by no thread: an interrupt finds nothing half done."""

    def __init__(self, what: str, total: int | None) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        of = "{task.completed:.0f}" if total is None else "{task.completed:.0f} of {task.total:.0f}"
        self._progress = Progress(
            SpinnerColumn() if total is None else BarColumn(),
            TextColumn(printable(what), markup=False),
            TextColumn(of, markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            console=console(sys.stderr),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, rate="")
        self._began = SYSTEM.monotonic()
        self._next = self._began + _PATIENCE_S
        self._done = 0
        self._started = False

    def advance(self, count: int) -> None:
        self._done += count
        now = SYSTEM.monotonic()
        if now < self._next:
            return
        if not self._started:
            self._started = True
            self._progress.start()
        self._next = now + _DRAW_EVERY_S
        self._progress.update(self._task, completed=self._done, rate=f"{self._done / (now - self._began):.0f}/s")
        self._progress.refresh()

    def close(self) -> None:
        if self._started:
            self._progress.stop()
