"""`huey_consumer -k process -w 2`, RedisHuey (a list; pickle). Naps: `-k greenlet -w 100` in each of 2 consumers: its
guide has processes for CPU-bound and greenlets for I/O-bound tasks.

Results kept: its default. Not kept: `results=False`.
"""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from bench.peers import handlers
from bench.peers.adapters import HOST, PORT, RESULTS

REQUIREMENTS = ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0", "gevent==26.9.0")
RECOVERY = "nothing"
ENTRANTS = {"huey": {"drain": 10_000, "nap": 4_000}}
HANDLERS = "2 processes"
NAP_HANDLERS = "2 processes x 100 greenlets"

huey = RedisHuey("bench", host=HOST, port=PORT, results=RESULTS)
TASKS = {kind: huey.task(name=kind)(function) for kind, function in handlers.SYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One consumer with its processes; for naps as many consumers with greenlets."""
    base = ["huey_consumer", "bench.peers.adapters.huey.huey", "-q"]
    if naps:
        return [[*base, "-k", "greenlet", "-w", "100"] for _ in range(processes)]
    return [[*base, "-k", "process", "-w", str(processes)]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind](**payload)
