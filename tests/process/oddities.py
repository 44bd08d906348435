"""The app of the tests about odd handlers: what they return, raise, print and block."""

from __future__ import annotations

import asyncio
import ctypes
import decimal
import hashlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

import dtq
from tests.process.handlers import app, effect

__all__ = ["app"]


@app.task(name="give", backoff=0.05)
def give(context: dtq.Context, name: str, what: str) -> Any:
    """Return something that JSON does not have, or has just so."""
    effect("start", name, context.attempt)
    return _gift(what)


@app.task(name="async_give", backoff=0.05)
async def async_give(context: dtq.Context, name: str, what: str) -> Any:
    """The same in the loop."""
    effect("start", name, context.attempt)
    return _gift(what)


def _gift(what: str) -> Any:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    gifts: dict[str, Any] = {
        "set": {1, 2},
        "bytes": b"x",
        "object": object(),
        "class": dtq.App,
        "file": sys.stdout,
        "endless": endless,
        "deep": deep,
        "nan": float("nan"),
        "infinity": [1.0, {"a": float("-inf")}],
        "decimal": decimal.Decimal("1.5"),
        "surrogate": "a\ud800",
        "number keys": {1: "a"},
        "huge": 2**64,
        "tuple": (1, (2, [])),
        "empty": [[], {}, "", None, False, 0, -0.0, 1.0],
        "whole": [2**53 + 1, 2**63, 2**64 - 1, -(2**63)],
    }
    return gifts[what]


@app.task(name="give_text")
def give_text(length: int) -> str:
    """A result of so many bytes (two of them quotation marks)."""
    return "x" * (length - 2)


@app.task(name="print_much")
def print_much(kibibytes: int) -> str:
    """Write a lot to both outputs."""
    for stream in (sys.stdout, sys.stderr):
        for _ in range(kibibytes):
            stream.write("x" * 1023 + "\n")
        stream.flush()
    return "printed"


class NeedsKeywords(Exception):
    """Cannot be made anew from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


class HoldsThings(Exception):
    """Nothing that pickle could carry."""

    def __init__(self) -> None:
        super().__init__("holds things")
        self.lock = threading.Lock()
        self.ends = socket.socketpair()

    def __del__(self) -> None:
        for end in self.ends:
            end.close()


class NotReduced(Exception):
    """Refuses to be pickled."""

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("not to be pickled")


class BadWords(Exception):
    """Neither str() nor repr() of it works."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class NoWords(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]

    __repr__ = __str__


class EndlessWords(Exception):
    """Its text never ends."""

    def __str__(self) -> str:
        return str(self)

    __repr__ = __str__


@app.task(name="throw", backoff=0.05)
def throw(context: dtq.Context, name: str, what: str) -> None:
    """Raise something odd."""
    effect("start", name, context.attempt)
    _throw(what)


@app.task(name="async_throw", backoff=0.05)
async def async_throw(context: dtq.Context, name: str, what: str) -> None:
    """The same in the loop."""
    effect("start", name, context.attempt)
    _throw(what)


def _throw(what: str) -> None:
    class Inner(Exception):
        pass

    class Base(BaseException):
        pass

    if what == "chain":
        try:
            raise BadWords
        except BadWords as error:
            raise NotReduced("the second") from error
    if what == "group":
        raise ExceptionGroup("several", [ValueError("one"), BadWords()])
    things: dict[str, BaseException] = {
        "keywords": NeedsKeywords(code=4),
        "things": HoldsThings(),
        "not reduced": NotReduced("as it is"),
        "inner": Inner("from inside"),
        "bad words": BadWords(),
        "no words": NoWords(),
        "endless words": EndlessWords(),
        "long": ValueError("é" * 1_000_000),
        "lines": ValueError("one\ntwo\r\x1b[31m\u2028\x85"),
        "surrogate": ValueError("a\ud800"),
        "exit 0": SystemExit(0),
        "exit 3": SystemExit(3),
        "exit text": SystemExit("text"),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "base": Base("own"),
        "stop": StopIteration(1),
        "stop async": StopAsyncIteration(1),
        "async cancelled": asyncio.CancelledError("by itself"),
        "memory": MemoryError(),
        "recursion": RecursionError("deep"),
    }
    raise things[what]


@app.task(name="block_loop")
async def block_loop(context: dtq.Context, name: str, how: str) -> None:
    """Keep the whole loop of a child from its other handlers."""
    effect("start", name, context.attempt)
    await asyncio.sleep(0.1)
    if how == "sleep":
        time.sleep(60)  # noqa: ASYNC251 - this is the mistake
    elif how == "native sleep":
        ctypes.PyDLL(None).sleep(60)  # C code that keeps the interpreter's lock
    elif how == "no lock":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    else:
        sum(range(10**12))


@app.task(name="native_sleep")
def native_sleep(context: dtq.Context, name: str) -> None:
    """C code that sleeps and keeps the interpreter's lock."""
    effect("start", name, context.attempt)
    ctypes.PyDLL(None).sleep(60)


@app.task(name="clean_up")
def clean_up(context: dtq.Context, name: str, seconds: float) -> str:
    """When interrupted, clean up for a while, then let the interruption pass."""
    effect("start", name, context.attempt)
    try:
        time.sleep(30)
    finally:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(left)
        effect("clean", name, context.attempt)
    return name


@app.task(name="async_clean_up")
async def async_clean_up(context: dtq.Context, name: str, seconds: float) -> str:
    """The same in the loop."""
    effect("start", name, context.attempt)
    try:
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(seconds)
        effect("clean", name, context.attempt)
    return name


@app.task(name="broad")
def broad(context: dtq.Context, name: str) -> None:
    """A broad `except Exception` around a loop, as handlers have it."""
    effect("start", name, context.attempt)
    while True:
        try:
            time.sleep(30)
        except Exception:
            effect("swallowed", name, context.attempt)


@app.task(name="daemons")
def daemons(context: dtq.Context, name: str, how: str) -> str:
    """Leave processes behind: ended ones that nobody has reaped, or a running one."""
    effect("start", name, context.attempt)
    if how == "zombies":
        for _ in range(20):
            subprocess.run(["/bin/sh", "-c", "true & true &"], check=True)
    else:
        subprocess.Popen(["/bin/sleep", "612"])
        time.sleep(30)
    return name


@app.task(name="which_attempt")
def which_attempt(context: dtq.Context, name: str, seconds: float) -> str:
    """Take a while, and tell the number of the attempt."""
    effect("start", name, context.attempt)
    time.sleep(seconds)
    return f"attempt {context.attempt}"


@app.task(name="raise_later")
def raise_later(context: dtq.Context, name: str, after: float) -> None:
    """Ask for a second attempt after a while."""
    effect("start", name, context.attempt)
    if context.attempt == 1:
        raise dtq.Retry(after=after)
