"""Asking before what cannot be undone, and stopping it between two steps."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from dtq.legible import printable

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(question: str, yes: bool) -> bool:
    """Whether to go on: `--yes`, or the answer typed (else no). ValueError where nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ValueError("yes: nobody can be asked here; give --yes")
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def whole_steps(steps: Iterable[int]) -> Generator[int]:
    """The steps one by one; Ctrl-C raises KeyboardInterrupt behind the one that is under way, a second one at once."""
    asked = False

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    with _interrupts(on_interrupt):
        for step in steps:
            yield step
            if asked:
                raise KeyboardInterrupt


@contextmanager
def _interrupts(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
