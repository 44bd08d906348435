"""The tasks that the browser tests run."""

from __future__ import annotations

import time
from typing import Any

import dtq

ROOMS = [f"room{number}" for number in range(30)]
"""Queues that the worker of the tests serves; each test takes one of its own."""

app = dtq.App()


@app.task(name="echo", max_attempts=1)
def echo(value: Any) -> Any:
    """Give back what was given."""
    return value


@app.task(name="fail", max_attempts=1)
def fail(text: str) -> None:
    """Fail with this text."""
    raise ValueError(text)


@app.task(name="flaky", max_attempts=3, backoff=0.01)
def flaky(context: dtq.Context) -> str:
    """Fail twice."""
    if context.attempt < 3:
        raise ConnectionError(f"no answer at attempt {context.attempt}")
    return "third time"


@app.task(name="wait", max_attempts=1, timeout=120)
def wait(seconds: float = 60) -> None:
    """Take some time."""
    time.sleep(seconds)
