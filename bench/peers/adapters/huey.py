"""`huey_consumer -k process -w 2`, which its guide recommends for CPU-bound work; RedisHuey (a list; pickle). Naps:
`-k thread -w 100`, its guide's way to run I/O-bound tasks without gevent.

Results kept: its default. Not kept: `results=False`.
"""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from bench.peers import handlers
from bench.peers.adapters import HOST, PORT, RESULTS

REQUIREMENTS = ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0")
ENTRANTS = {"huey": {"drain": 10_000, "nap": 4_000}}
HANDLERS = "2 processes"
NAP_HANDLERS = "1 process x 100 threads"

huey = RedisHuey("bench", host=HOST, port=PORT, results=RESULTS)
TASKS = {kind: huey.task(name=kind)(function) for kind, function in handlers.SYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One consumer."""
    kind = ["-k", "thread", "-w", "100"] if naps else ["-k", "process", "-w", str(processes)]
    return [["huey_consumer", "bench.peers.adapters.huey.huey", *kind, "-q"]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind](**payload)
