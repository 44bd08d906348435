"""A background load of real turns that keeps the server half busy."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.servers import Server
from bench.turns import Consumer

GOAL = 0.5
BATCH = 50
WINDOW_S = 0.1
SETTLE_S = 1.5
"""Time to find the right pace before anything is measured beside it."""


@contextmanager
def none() -> Iterator[Callable[[], float]]:
    """No load."""
    yield lambda: 0.0


@contextmanager
def half(server: Server) -> Iterator[Callable[[], float]]:
    """Enqueue, claim and settle in a process of its own, as fast as keeps the server's CPU at GOAL of one core.

    Gives a function that answers how busy the server has been since.
    """
    process = multiprocessing.get_context("fork").Process(target=_work, args=(server,), daemon=True)
    process.start()
    try:
        time.sleep(SETTLE_S)
        cpu, started = server.cpu_us(), time.monotonic()
        yield lambda: (server.cpu_us() - cpu) / 1e6 / (time.monotonic() - started)
        assert process.is_alive(), "the background load has ended by itself"
    finally:
        process.kill()
        process.join()


def _work(server: Server) -> None:
    consumer = Consumer(server, "load")
    pause, cpu, looked = 0.0005, server.cpu_us(), time.monotonic()
    while True:
        consumer.enqueue(BATCH)
        consumer.claim(BATCH)
        consumer.settle()
        if (now := time.monotonic()) - looked > WINDOW_S:
            used = server.cpu_us()
            busy = (used - cpu) / 1e6 / (now - looked)
            pause = min(0.02, max(0.00002, pause * min(2.0, max(0.5, busy / GOAL))))
            cpu, looked = used, now
        time.sleep(pause)
