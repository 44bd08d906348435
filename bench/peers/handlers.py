"""The task bodies, the same for every peer written in Python."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.peers.record import FIRST, KINDS, Record

BURN_S = 0.005
NAP_S = 0.010
_TEXT = ("abcdefghij" * 14)[:131]
NOOP, BURN, NAP, STAMP, LOAD, ONCE = range(len(KINDS))
monotonic = time.monotonic
_record = Record(os.environ.get("BENCH_RECORD", "."))


def payload(number: int) -> dict[str, Any]:
    """Keyword arguments of a task, 150 bytes as compact JSON."""
    return {"i": FIRST + number, "s": _TEXT}


def noop(i: int, s: str) -> int:
    """Nothing."""
    _record.ended(NOOP, i - FIRST, monotonic())
    return i


def burn(i: int, s: str) -> int:
    """5 ms of this thread's CPU time, in pure Python."""
    start = monotonic()
    _burn()
    _record.ended(BURN, i - FIRST, start)
    return i


def nap(i: int, s: str) -> int:
    """10 ms of waiting, for peers without async handlers."""
    start = monotonic()
    time.sleep(NAP_S)
    _record.ended(NAP, i - FIRST, start)
    return i


async def async_nap(i: int, s: str) -> int:
    """10 ms of waiting."""
    start = monotonic()
    await asyncio.sleep(NAP_S)
    _record.ended(NAP, i - FIRST, start)
    return i


def stamp(i: int, s: str, t: float) -> int:
    """Note how long it took from `t`, the enqueue call."""
    _record.ended(STAMP, i - FIRST, monotonic(), t)
    return i


def load(i: int, s: str, t: float) -> int:
    """The same, and then 5 ms of CPU time."""
    start = monotonic()
    _burn()
    _record.ended(LOAD, i - FIRST, start, t)
    return i


def once(i: int, s: str) -> int:
    """5 ms of CPU time; start and end are counted, for the test that kills the worker."""
    start = monotonic()
    _record.started(i - FIRST)
    _burn()
    _record.ended(ONCE, i - FIRST, start)
    return i


def _asynchronous(function: Callable[..., int]) -> Callable[..., Coroutine[Any, Any, int]]:
    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> int:
        return function(*args, **kwargs)

    return run


SYNC: dict[str, Callable[..., int]] = {
    "noop": noop, "burn": burn, "nap": nap, "stamp": stamp, "load": load, "once": once,
}  # fmt: skip
async_nap.__name__ = async_nap.__qualname__ = "nap"
ASYNC = {**{kind: _asynchronous(function) for kind, function in SYNC.items()}, "nap": async_nap}


def _burn() -> None:
    end = time.thread_time() + BURN_S
    while time.thread_time() < end:
        total = 0
        for number in range(400):
            total += number * number % 7
