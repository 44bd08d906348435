"""The app that the benchmarks run: handlers that do nothing, burn CPU, or note on a board when they start."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import dtq
from bench.board import Board

PAYLOAD_BYTES = 150
BOARD = "DTQ_BENCH_BOARD"
"""Environment variable: path of the board that `stamp` and `nap` write to."""

_TEXT = "abcdefghij" * 14
_board: Board | None = None


def payload(index: int) -> dict[str, Any]:
    """Keyword arguments of `noop`, 150 bytes as compact JSON for an index of up to six digits."""
    return {"i": index + 100_000, "s": _TEXT[:131]}


def burn(milliseconds: float) -> None:
    """Use this much CPU time of the calling thread in pure Python."""
    end = time.thread_time_ns() + round(milliseconds * 1e6)
    while time.thread_time_ns() < end:
        total = 0
        for number in range(400):
            total += number * number % 7


class Workload:
    """An app and its tasks. settings: keywords of dtq.App, over the DTQ_* environment variables."""

    def __init__(self, **settings: Any) -> None:
        self.app = dtq.App(**settings)

        @self.app.task(name="noop")
        def noop(i: int, s: str) -> None:
            """Nothing."""

        @self.app.task(name="spin")
        def spin(i: int, ms: float) -> None:
            """Burn CPU time."""
            burn(ms)

        @self.app.task(name="stamp")
        def stamp(i: int) -> None:
            """Note when it started."""
            _note(i)

        @self.app.task(name="nap")
        def nap(i: int, seconds: float) -> None:
            """Note when it started, then sleep."""
            _note(i)
            time.sleep(seconds)

        self.noop, self.spin, self.stamp, self.nap = noop, spin, stamp, nap


class Waiting:
    """An app of its own for async handlers: a child that has such claims otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.app = dtq.App(**settings)

        @self.app.task(name="wait")
        async def wait(i: int, seconds: float) -> None:
            """Wait without holding anybody up."""
            await asyncio.sleep(seconds)

        self.wait = wait


def _note(row: int) -> None:
    global _board
    now = time.monotonic_ns()
    if _board is None:
        _board = Board.open(os.environ[BOARD])
    _board.write(row, now)


app = Workload().app
waiting = Waiting().app
