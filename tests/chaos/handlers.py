"""The app of the chaos runs: each handler leaves a line at its start and at its end, in a file outside Redis."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import dtq
from dtq.backoff import Backoff

app = dtq.App()

QUEUES = ("default", "other")
CANCELLED_IN_BULK = ("slow", "flaky_nap")
"""Task types that the operator cancels by filter; none of them has retention 0."""

_SOON = Backoff(0.05, 0.4, 0.2)


def leave(word: str, context: dtq.Context, n: int) -> None:
    """Append one line by one write: word, id, attempt, n, kind, pid, supervisor's pid, worker id, steady clock."""
    kind = context.task_type
    line = f"{word} {context.task_id} {context.attempt} {n} {kind} {os.getpid()} {os.getppid()} {context.worker_id}"
    descriptor = os.open(os.environ["CHAOS_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line} {time.monotonic():.6f}\n".encode())
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def noted(context: dtq.Context, n: int) -> Iterator[None]:
    """Lines around a handler; the second one says how it ended: `ok`, or the exception's class."""
    leave("start", context, n)
    try:
        yield
    except BaseException as error:
        leave(type(error).__name__, context, n)
        raise
    leave("ok", context, n)


def answer(context: dtq.Context, n: int) -> dict[str, Any]:
    """A result that says which attempt it is of."""
    return {"n": n, "attempt": context.attempt}


@app.task(name="quick")
def quick(context: dtq.Context, n: int) -> dict[str, Any]:
    """No time at all."""
    with noted(context, n):
        return answer(context, n)


@app.task(name="slow")
def slow(context: dtq.Context, n: int, seconds: float) -> dict[str, Any]:
    """Keep the main thread busy."""
    with noted(context, n):
        time.sleep(seconds)
        return answer(context, n)


@app.task(name="nap")
async def nap(context: dtq.Context, n: int, seconds: float) -> dict[str, Any]:
    """Wait in the loop."""
    with noted(context, n):
        await asyncio.sleep(seconds)
        return answer(context, n)


@app.task(name="flaky", backoff=_SOON)
def flaky(context: dtq.Context, n: int, failures: int) -> dict[str, Any]:
    """Fail at the first attempts."""
    with noted(context, n):
        if context.attempt <= failures:
            raise ValueError("not yet")
        return answer(context, n)


@app.task(name="flaky_nap", backoff=_SOON)
async def flaky_nap(context: dtq.Context, n: int, failures: int) -> dict[str, Any]:
    """The same in the loop."""
    with noted(context, n):
        await asyncio.sleep(0.01)
        if context.attempt <= failures:
            raise ValueError("not yet")
        return answer(context, n)


@app.task(name="charge", backoff=_SOON)
def charge(context: dtq.Context, n: int) -> dict[str, Any]:
    """Do something that must not be done twice, and fail sometimes after it."""
    with noted(context, n):
        with contextlib.suppress(dtq.OnceInProgress):  # an attempt died in it: whether it happened, nobody can know
            dtq.once(f"charge {context.task_id}", 3600, lambda: leave("effect", context, n))
        if context.attempt % 2:
            raise ValueError("after the effect")
        return answer(context, n)


@app.task(name="hopeless", backoff=_SOON)
def hopeless(context: dtq.Context, n: int, mended: bool = False) -> dict[str, Any]:
    """Fail at every attempt, until an operator queues it again with a better payload."""
    with noted(context, n):
        if not mended:
            raise ValueError("never")
        return answer(context, n)


@app.task(name="wrong")
def wrong(context: dtq.Context, n: int) -> None:
    """Fail for good."""
    with noted(context, n):
        raise dtq.PermanentError("wrong input")


@app.task(name="discarded")
def discarded(context: dtq.Context, n: int) -> None:
    """Discard itself."""
    with noted(context, n):
        raise dtq.Discard("nobody wants it")


@app.task(name="endless", backoff=_SOON)
def endless(context: dtq.Context, n: int) -> None:
    """Run into its time limit."""
    with noted(context, n):
        time.sleep(30)


@app.task(name="endless_nap", backoff=_SOON)
async def endless_nap(context: dtq.Context, n: int) -> None:
    """The same in the loop."""
    with noted(context, n):
        await asyncio.sleep(30)


@app.task(name="deaf")
def deaf(context: dtq.Context, n: int) -> None:
    """Run into its time limit and hear nothing: its child has to be killed."""
    with noted(context, n):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(30)


@app.task(name="poison")
def poison(context: dtq.Context, n: int, how: str) -> None:
    """Take the whole child along."""
    with noted(context, n):
        if how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(10)
        os._exit(int(how))
