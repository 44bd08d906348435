"""`ardiq run --workers 2` with concurrency 128 (default 16); async tasks; msgpack.

Results kept: 300 s (default). Not kept: `result_ttl_ms=0`.
"""

from __future__ import annotations

from typing import Any

from ardiq import Ardiq

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("ardiq==1.2.0",)
PYTHON = "3.12"
RECOVERY = "an idle time-out, 60 s"
ENTRANTS = {"ardiq": {"drain": 50_000, "nap": 15_000, "bulk": 100_000}}
HANDLERS = "2 processes x 128"
NAP_HANDLERS = "2 processes x 128"

_options: dict[str, Any] = {} if RESULTS else {"result_ttl_ms": 0}
app = Ardiq(redis_url=URL, queue_name="bench", concurrency=128, **_options)
TASKS = {kind: app.task(name=kind)(function) for kind, function in handlers.ASYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command starts the processes."""
    return [["ardiq", "run", "bench.peers.adapters.ardiq:app", "-q", "--workers", str(processes)]]


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await TASKS[kind].enqueue(**payload)


async def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk."""
    task = TASKS[kind]
    await app.enqueue_many([task.prepare(**payload) for payload in payloads])
