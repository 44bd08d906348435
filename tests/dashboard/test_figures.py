"""Figures that are kept for all open pages: for how long."""

from __future__ import annotations

import asyncio
import threading

import pytest

import dtq
from dtq.clock import Clock
from dtq.dashboard.figures import KEEP_S, LONGEST_REST_S, REST, Figures


class Watch(Clock):
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("took", "kept"), [(0.0, KEEP_S), (0.2, 0.2 * REST), (60.0, LONGEST_REST_S)], ids=["quick", "slow", "an outage"]
)
def test_how_long_figures_are_kept(monkeypatch: pytest.MonkeyPatch, took: float, kept: float) -> None:
    """A look that has waited out an outage of a minute was kept for nine."""
    watch, looks = Watch(), threading.Semaphore(0)
    with dtq.App("redis://127.0.0.1:1") as app:

        def look(names: object = None) -> list[object]:
            watch.now += took
            looks.release()
            return []

        monkeypatch.setattr(app, "queue_counts", look)
        figures = Figures(app, watch)
        asyncio.run(figures.queues())
        assert looks.acquire(blocking=False)
        watch.now += kept - 0.01
        asyncio.run(figures.queues())
        assert not looks.acquire(blocking=False)
        watch.now += 0.02
        asyncio.run(figures.queues())
        assert looks.acquire(blocking=False)
