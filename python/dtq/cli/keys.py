"""Keys that are pressed while a screen is shown: `q` leaves."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

from dtq.clock import SYSTEM


class Keys:
    """Hears each key at once while it is entered, where standard input is a terminal; Ctrl-C works as ever."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def quit_within(self, seconds: float) -> bool:
        """Wait so long; True at once when `q` is pressed. Other keys are swallowed."""
        until = SYSTEM.monotonic() + seconds
        while (left := until - SYSTEM.monotonic()) > 0:
            if self._before is None:
                SYSTEM.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                pressed = os.read(sys.stdin.fileno(), 64)
                if b"q" in pressed.lower() or not pressed:
                    return True
        return False
