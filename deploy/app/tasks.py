"""The application that the files of this folder deploy: put your own in its place."""

from __future__ import annotations

import time

import dtq

app = dtq.App()


@app.task(max_attempts=3, timeout=30)
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}"


@app.task(timeout=60)
def nap(seconds: float) -> float:
    """Take some time: `nap` a few hundred times, and watch the workers grow."""
    time.sleep(seconds)
    return seconds
