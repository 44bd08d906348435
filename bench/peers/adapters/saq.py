"""`saq --workers 2` with concurrency 50 (default 10, which drained more slowly in a trial); JSON; uvloop.

Results kept: 600 s (default). Not kept: `ttl=-1`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

# saq 0.26.4 imports typing_extensions without requiring it.
REQUIREMENTS = ("saq[redis,hiredis]==0.26.4", "uvloop==0.23.0", "typing_extensions==4.15.0")
RECOVERY = "a sweep each 60 s, as aborted: one attempt by default"
ENTRANTS = {"saq": {"drain": 8_000, "nap": 3_000}}
HANDLERS = "2 processes x 50"
NAP_HANDLERS = "2 processes x 50"

queue = Queue.from_url(URL)
_options: dict[str, Any] = {} if RESULTS else {"ttl": -1}


def _with_context(
    kind: str, function: Callable[..., Coroutine[Any, Any, int]]
) -> tuple[str, Callable[..., Coroutine[Any, Any, int]]]:
    async def run(context: dict[str, Any], **payload: Any) -> int:
        return await function(**payload)

    return kind, run


settings = {
    "queue": queue,
    "functions": [_with_context(kind, function) for kind, function in handlers.ASYNC.items()],
    "concurrency": 50,
}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command starts the processes."""
    return [["saq", "bench.peers.adapters.saq.settings", "--workers", str(processes), "--quiet"]]


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Connect the producer."""
    await queue.connect()
    yield


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await queue.enqueue(kind, **payload, **_options)
