"""The supervisor's signals, turned into something that a selector can wait for."""

from __future__ import annotations

import contextlib
import signal
import socket
from types import FrameType
from typing import Any


class Signals:
    """Turns SIGTERM, SIGINT and SIGCHLD into something a selector can wait for."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        theirs.setblocking(False)
        self._theirs = theirs
        self.stops: list[int] = []
        self.child_ended = False
        self._before: dict[int, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            self._before[number] = signal.signal(number, self._note)
        self._wakeup_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            self.child_ended = True
        else:
            self.stops.append(number)

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        """Wake the selector; safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"\0")

    def clear(self) -> None:
        """Take what woke the selector."""
        with contextlib.suppress(BlockingIOError):
            while self._ours.recv(4096):
                pass

    def restore(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ours.close()
        self._theirs.close()
