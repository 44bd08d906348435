"""`taskiq worker --workers 2`, 100 async tasks each (default); RedisStreamBroker reads 100 entries at a time
(default); uvloop and orjson installed. Its stream is never trimmed, its default. `consumer_id="0"` instead of `$`, or
it would skip what was enqueued before its first worker.

Results are off by default; kept: RedisAsyncResultBackend, 600 s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = (
    "taskiq==0.13.0",
    "taskiq-redis==1.2.4",
    "redis==8.1.0",
    "hiredis==3.5.0",
    "uvloop==0.23.0",
    "orjson==3.13.0",
)
RECOVERY = "an idle time-out, 10 min"
ENTRANTS = {"taskiq": {"drain": 10_000, "nap": 5_000}}
HANDLERS = "2 processes x 100"
NAP_HANDLERS = "2 processes x 100"

broker = RedisStreamBroker(URL, consumer_id="0")
if RESULTS:
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=600))
TASKS = {kind: broker.task(task_name=kind)(function) for kind, function in handlers.ASYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command starts the processes."""
    return [
        ["taskiq", "worker", "bench.peers.adapters.taskiq:broker", "--workers", str(processes), "--log-level", "ERROR"]
    ]


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Connect the producer."""
    await broker.startup()
    yield


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await TASKS[kind].kiq(**payload)
