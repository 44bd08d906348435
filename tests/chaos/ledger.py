"""Writes the ledger: a line before a call is made and one when it is answered; a kill -9 in between shows."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any


class LedgerWriter:
    """Appends lines to the file CHAOS_LEDGER; each is one write, so nothing of it is lost or torn by a kill."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._me = os.urandom(6).hex()
        self._numbers = itertools.count()

    def ask(self, all_facts: Iterable[dict[str, Any]]) -> list[str]:
        """Write down calls that are about to be made; a name for each."""
        lines: list[str] = []
        names: list[str] = []
        for facts in all_facts:
            names.append(f"{self._me}.{next(self._numbers)}")
            lines.append(json.dumps({"call": names[-1], "asked": time.monotonic(), **facts}) + "\n")
        if lines:
            os.write(self._file, "".join(lines).encode())
        return names

    def answer(self, name: str, answer: str, **facts: Any) -> None:
        """Write down what a call was answered."""
        line = json.dumps({"call": name, "answer": answer, "answered": time.monotonic(), **facts})
        os.write(self._file, line.encode() + b"\n")

    def done(self, what: str, queue: str, task_id: str, asked: float) -> None:
        """Write down one of many things that a call, made at `asked`, has done to a task."""
        (name,) = self.ask([{"what": what, "queue": queue, "id": task_id}])
        self.answer(name, "done", asked=asked)


def until_stopped(run: Callable[[Callable[[], bool]], None]) -> None:
    """Call `run` with a function that says whether SIGTERM has come."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    run(lambda: bool(stopped))
