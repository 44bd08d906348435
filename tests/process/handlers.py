"""The app that the process tests run: handlers that leave a line in the file EFFECTS names when they start and end."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import subprocess
import time
from typing import Any

import dtq

app = dtq.App()


def effect(word: str, name: str, attempt: int = 0) -> None:
    """Append one line, atomically: word, name, attempt, pid, wall clock."""
    line = f"{word} {name} {attempt} {os.getpid()} {time.time():.6f}\n"
    descriptor = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.task(name="noop")
def noop(i: int = 0) -> int:
    """Nothing."""
    return i


@app.task(name="swallow")
def swallow(data: str) -> None:
    """Nothing, with a payload of any size."""


@app.task(name="mark")
def mark(context: dtq.Context, name: str) -> str:
    """One line and no time."""
    effect("start", name, context.attempt)
    return name


@app.task(name="sleep")
def sleep(context: dtq.Context, name: str, seconds: float) -> str:
    """Block the main thread of the child."""
    effect("start", name, context.attempt)
    time.sleep(seconds)
    effect("end", name, context.attempt)
    return name


@app.task(name="until")
def until(context: dtq.Context, name: str) -> str:
    """Block the main thread of the child until the test lets it go (`Scene.go`)."""
    effect("start", name, context.attempt)
    while not os.path.exists(f"{os.environ['EFFECTS']}.{name}"):
        time.sleep(0.005)
    effect("end", name, context.attempt)
    return name


@app.task(name="linger")
def linger(context: dtq.Context, name: str) -> str:
    """The same, but some milliseconds at least: so long that a settle is sent ahead of it."""
    time.sleep(0.005)
    return until(context, name)


@app.task(name="async_until")
async def async_until(context: dtq.Context, name: str) -> str:
    """The same in the loop."""
    effect("start", name, context.attempt)
    while not os.path.exists(f"{os.environ['EFFECTS']}.{name}"):  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.005)
    effect("end", name, context.attempt)
    return name


@app.task(name="slow", backoff=0.1)
def slow(context: dtq.Context, name: str, seconds: float) -> None:
    """The same, with a short way to its retry."""
    effect("start", name, context.attempt)
    time.sleep(seconds)


@app.task(name="async_sleep")
async def async_sleep(context: dtq.Context, name: str, seconds: float) -> str:
    """Wait in the loop."""
    effect("start", name, context.attempt)
    await asyncio.sleep(seconds)
    effect("end", name, context.attempt)
    return name


_gates: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []


@app.task(name="wait_for_gate")
async def wait_for_gate(context: dtq.Context, name: str) -> None:
    """Wait in the loop until a sync handler of the same child opens the gate."""
    gate = asyncio.Event()
    _gates.append((asyncio.get_running_loop(), gate))
    effect("start", name, context.attempt)
    await gate.wait()


@app.task(name="open_gate")
def open_gate() -> None:
    """Let the waiting handlers end: they do when the main thread next gives way, after this has returned."""
    for loop, gate in _gates:
        loop.call_soon_threadsafe(gate.set)


@app.task(name="charge", backoff=0.05)
def charge(context: dtq.Context, name: str) -> str:
    """A side effect that must not happen twice, in a handler that fails behind it at its first attempt."""

    def effect_once() -> str:
        effect("charge", name, context.attempt)
        return f"receipt of attempt {context.attempt}"

    receipt = dtq.once(f"charge:{name}", 60, effect_once)
    if context.attempt == 1:
        raise ValueError("failed behind the effect")
    return receipt


@app.task(name="acharge", backoff=0.05)
async def acharge(context: dtq.Context, name: str) -> str:
    """The same in the loop."""

    async def effect_once() -> str:
        effect("charge", name, context.attempt)
        return f"receipt of attempt {context.attempt}"

    receipt = await dtq.aonce(f"charge:{name}", 60, effect_once)
    if context.attempt == 1:
        raise ValueError("failed behind the effect")
    return receipt


@app.task(name="deaf")
def deaf(context: dtq.Context, name: str, how: str = "gil") -> None:
    """Never returns to the interpreter: C code that computes, with or without the GIL, or all signals blocked."""
    effect("start", name, context.attempt)
    if how == "gil":
        sum(range(10**12))
    elif how == "no gil":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(60)


@app.task(name="stubborn")
def stubborn(context: dtq.Context, name: str) -> None:
    """Swallow everything that can be raised or caught, and go on working."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    effect("start", name, context.attempt)
    while True:
        try:
            time.sleep(0.05)
            effect("work", name, context.attempt)
        except BaseException:
            effect("swallowed", name, context.attempt)


@app.task(name="async_stubborn")
async def async_stubborn(context: dtq.Context, name: str) -> None:
    """The same in the loop."""
    effect("start", name, context.attempt)
    while True:
        try:
            await asyncio.sleep(0.05)
            effect("work", name, context.attempt)
        except BaseException:
            effect("swallowed", name, context.attempt)


@app.task(name="tidy")
def tidy(context: dtq.Context, name: str) -> str:
    """Clean up when interrupted, then return as if nothing had been."""
    effect("start", name, context.attempt)
    try:
        time.sleep(30)
    except (dtq.TaskCancelled, dtq.TaskTimeout):
        effect("clean", name, context.attempt)
    return name


@app.task(name="die")
def die(context: dtq.Context, name: str, how: str) -> None:
    """Take the whole child along."""
    effect("start", name, context.attempt)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(10)
    os._exit(int(how))


@app.task(name="async_die")
async def async_die(context: dtq.Context, name: str) -> None:
    """The same in the loop, beside whatever else runs there by then."""
    effect("start", name, context.attempt)
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="fail", backoff=0.2)
def fail(context: dtq.Context, name: str) -> None:
    """Raise, every time."""
    effect("start", name, context.attempt)
    raise ValueError(f"{name} fails")


@app.task(name="second_time", backoff=0.2)
def second_time(context: dtq.Context, name: str) -> str:
    """Succeed at the second attempt."""
    effect("start", name, context.attempt)
    if context.attempt == 1:
        raise ValueError("not yet")
    return name


@app.task(name="raise_named", backoff=0.05)
def raise_named(context: dtq.Context, name: str, what: str) -> Any:
    """Raise or return something that a handler should not."""
    effect("start", name, context.attempt)
    if what == "generator":
        return (item for item in range(3))
    if what == "coroutine":
        return asyncio.sleep(0)
    error: type[Exception] = getattr(dtq, what)
    raise error(reason="as asked") if error is dtq.Retry else error("as asked")


@app.task(name="family")
def family(context: dtq.Context, name: str) -> None:
    """Start a shell that starts a sleeper, and block."""
    effect("start", name, context.attempt)
    subprocess.run(["/bin/sh", "-c", "sleep 611; true"], check=False)


@app.task(name="randomness")
def randomness() -> float:
    """A random number."""
    return random.random()


@app.task(name="pid")
def pid() -> int:
    """Who ran it."""
    return os.getpid()


@app.task(name="scheduling")
def scheduling() -> int:
    """How the kernel schedules the thread that runs it."""
    return os.sched_getscheduler(0)


@app.task(name="hoard")
def hoard(megabytes: int, seconds: float) -> None:
    """Use private memory for a while."""
    held = bytearray(megabytes * 1024 * 1024)
    for at in range(0, len(held), 4096):
        held[at] = 1
    time.sleep(seconds)


if os.environ.get("HANDLERS_FAIL_IN_CHILD") and os.getsid(0) == os.getpid():
    raise RuntimeError("not in a child")


def fork_and_leave(how: str) -> str:
    """Fork; the copy leaves the handler in its own way, its parent waits for it."""
    pid = os.fork()
    if pid == 0:
        if how == "exit":
            raise SystemExit(0)
        if how == "raise":
            raise ValueError("raised in the copy")
        return "the copy's result"
    _, status = os.waitpid(pid, 0)
    return f"exit {os.waitstatus_to_exitcode(status)}"


@app.task(name="fork")
def fork(how: str) -> str:
    """A copy of this process leaves the handler as well."""
    return fork_and_leave(how)


@app.task(name="async_fork")
async def async_fork(how: str) -> str:
    """The same in the loop's thread."""
    return fork_and_leave(how)


@app.task(name="wreck")
def wreck(context: dtq.Context, name: str) -> None:
    """End well and leave a child behind that cannot go on: every descriptor is closed."""
    effect("start", name, context.attempt)
    os.closerange(3, 4096)


@app.task(name="raise_interruption")
def raise_interruption(context: dtq.Context, name: str) -> None:
    """Raise what only the worker has a reason to raise."""
    effect("start", name, context.attempt)
    raise dtq.TaskReleased("by myself")


@app.task(name="retry_after")
def retry_after(after: float) -> None:
    """Ask for a retry at a given time."""
    raise dtq.Retry(after=after)


@app.task(name="again_after")
def again_after(context: dtq.Context, name: str, seconds: float) -> str:
    """Succeed at the second attempt, a given time after the first."""
    effect("start", name, context.attempt)
    if context.attempt == 1:
        raise dtq.Retry(after=seconds)
    return name


@app.task(name="fail_while_young")
def fail_while_young(context: dtq.Context, name: str) -> str:
    """Fail for as long as the test has not said `Scene.go("old")`."""
    effect("start", name, context.attempt)
    if not os.path.exists(f"{os.environ['EFFECTS']}.old"):
        raise ValueError("too young")
    return name


@app.task(name="orphan")
def orphan() -> None:
    """Leave a process behind that ends by itself, and that nobody here waits for."""
    subprocess.run(["/bin/sh", "-c", "true &"], check=True)


@app.task(name="talk")
def talk(name: str) -> str:
    """Write to stdout and stderr, whether or not anybody listens."""
    print("x" * 5000, flush=True)
    os.write(2, b"y" * 5000)
    return name
