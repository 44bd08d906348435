"""The census while it runs: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from dtq.cli.output import console
from dtq.clock import SYSTEM
from dtq.legible import age

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WINDOW_S = 3.0
_PLAIN_EVERY_S = 1.0


class Display(Protocol):
    """What shows the progress; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, done: int, failed: int, total: int) -> None:
        """Show these figures."""
        ...

    def note(self, text: str) -> None:
        """Show one line for good, above what changes."""
        ...


class Rate:
    """Tasks per second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, done: int) -> float:
        """Take in how many are done now; return tasks per second."""
        now = SYSTEM.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[0][0] < now - _WINDOW_S:
            self._seen.popleft()
        first, before = self._seen[0]
        return (done - before) / (now - first) if now > first else 0.0


def _time_left(remaining: int, rate: float) -> str:
    return age(remaining / rate) if rate > 0 else "?"


class PlainDisplay:
    """One line per second on stderr, for logs and pipes."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._next = SYSTEM.monotonic() + _PLAIN_EVERY_S
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to undo."""

    def show(self, done: int, failed: int, total: int) -> None:
        """Write a line when the last one is a second old, or when all is done."""
        rate = self._rate.add(done)
        now = SYSTEM.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + _PLAIN_EVERY_S
        line = f"census: {done} of {total} done, {failed} failed, {rate:.0f} tasks/s"
        if done < total:
            line += f", {_time_left(total - done, rate)} left"
        self.note(line)

    def note(self, text: str) -> None:
        """Write the line."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class BarDisplay:
    """The live bar: done, failed, tasks per second, time left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._rate = Rate()
        # Drawn by `show` and by nobody else: no thread lives in a process that starts others.
        screen = console(sys.stderr)
        bar = (TextColumn("census", markup=False), BarColumn(bar_width=None)) if screen.width >= 72 else ()
        self._progress: Progress = Progress(
            *bar,
            TextColumn("{task.completed:.0f} of {task.total:.0f} done", markup=False),
            TextColumn("{task.fields[failed]} failed", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
            console=screen,
            auto_refresh=False,
            expand=True,
        )
        self._task: TaskID = self._progress.add_task("census", total=1, failed=0, rate="", left="", visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, done: int, failed: int, total: int) -> None:
        """Draw the bar anew."""
        rate = self._rate.add(done)
        left = "" if done == total else f"{_time_left(total - done, rate)} left"
        self._progress.update(
            self._task, completed=done, total=total, failed=failed, rate=f"{rate:.0f} tasks/s", left=left, visible=True
        )
        self._progress.refresh()

    def note(self, text: str) -> None:
        """Print the line above the bar."""
        self._progress.console.print(text)


def display(plain: bool) -> Display:
    """Return the bar where stderr is a terminal, else lines. plain: lines in any case."""
    return PlainDisplay() if plain or not sys.stderr.isatty() else BarDisplay()
