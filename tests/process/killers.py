"""The app of the tests about causes of death: handlers that end their process, or their whole worker."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time

import dtq
from tests.process.handlers import app, effect

__all__ = ["app"]


@app.task(name="end_process", backoff=0.05)
def end_process(context: dtq.Context, name: str, how: str) -> None:
    """End the child in one of many ways."""
    effect("start", name, context.attempt)
    _end_process(how)


@app.task(name="async_end_process", backoff=0.05)
async def async_end_process(context: dtq.Context, name: str, how: str) -> None:
    """The same in the thread of the loop."""
    effect("start", name, context.attempt)
    _end_process(how)


def _end_process(how: str) -> None:
    if how == "null pointer":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "address space":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
        bytearray(1 << 32)
    elif how.startswith("exit "):
        os._exit(int(how.removeprefix("exit ")))
    elif how.startswith("real-time "):
        os.kill(os.getpid(), signal.SIGRTMIN + int(how.removeprefix("real-time ")))
    else:
        os.kill(os.getpid(), getattr(signal, how))
    time.sleep(0.3)


@app.task(name="raise_or_die", backoff=0.05)
def raise_or_die(context: dtq.Context, name: str, ways: list[str]) -> str:
    """One way per attempt: `raise`, `die`, `ok`; the last one again and again."""
    effect("start", name, context.attempt)
    way = ways[min(context.attempt, len(ways)) - 1]
    if way == "raise":
        raise ValueError("as asked")
    if way == "retry":
        raise dtq.Retry(after=0.05)
    if way == "time":
        time.sleep(60)
    if way == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return name


@app.task(name="kill_worker", backoff=0.05)
def kill_worker(context: dtq.Context, name: str) -> None:
    """End the supervisor, and with it everything."""
    effect("start", name, context.attempt)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)
