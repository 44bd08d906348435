"""`streaq run -w 2` with concurrency 128 (default 16), silent tasks; pickle, its default.

Results kept: 300 s (default). Not kept: `ttl=0`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from streaq import Worker

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("streaq==7.2.0", "coredis==6.9.0")
RECOVERY = "an idle time-out, 60 s"
ENTRANTS = {"streaq": {"drain": 4_000, "nap": 3_000, "bulk": 10_000}}
HANDLERS = "2 processes x 128"
NAP_HANDLERS = "2 processes x 128"

worker = Worker(redis_url=URL, concurrency=128)
_options: dict[str, Any] = {"silent": True} if RESULTS else {"silent": True, "ttl": 0}
TASKS = {kind: worker.task(name=kind, **_options)(function) for kind, function in handlers.ASYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command starts the processes."""
    return [["streaq", "run", "bench.peers.adapters.streaq:worker", "-w", str(processes)]]


def session() -> AbstractAsyncContextManager[Any]:
    """Connect the producer."""
    return worker


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await TASKS[kind].enqueue(**payload)


async def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk."""
    task = TASKS[kind]
    await worker.enqueue_many([task.enqueue(**payload) for payload in payloads])
