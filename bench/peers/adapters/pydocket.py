"""2 workers with concurrency 50 and `minimum_check_interval` 10 ms (defaults 10 and 100 ms; with those it drains 196
tasks/s). A concurrency of 100 meets the limit of its pool of 100 connections. cloudpickle.

Results kept: 15 min (default). Not kept: its tasks return None, so that there is none.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from docket import Docket

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("pydocket==0.27.0", "hiredis==3.5.0", "uvloop==0.23.0")
RECOVERY = "a redelivery time-out, 5 min"
ENTRANTS = {"pydocket": {"drain": 5_000, "nap": 3_000, "bulk": 10_000}}
HANDLERS = "2 processes x 50"
NAP_HANDLERS = "2 processes x 50"

# Its command line takes whole seconds only.
_WORKER = """
import asyncio
from datetime import timedelta
from docket import Worker
asyncio.run(Worker.run(
    docket_name="bench", url={url!r}, name="w{number}", concurrency=50,
    minimum_check_interval=timedelta(milliseconds=10), tasks=["bench.peers.adapters.pydocket:tasks"],
))
"""


def _without_result(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(function)
    async def run(*args: Any, **payload: Any) -> None:
        await function(*args, **payload)

    run.__annotations__ = {**function.__annotations__, "return": None}
    return run


TASKS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    kind: function if RESULTS else _without_result(function) for kind, function in handlers.ASYNC.items()
}
tasks = list(TASKS.values())
_docket: Docket


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One worker is one process."""
    return [["python", "-c", _WORKER.format(url=URL, number=number)] for number in range(processes)]


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Connect the producer."""
    global _docket
    async with Docket(name="bench", url=URL) as _docket:
        for task in tasks:
            _docket.register(task)
        yield


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await _docket.add(TASKS[kind])(**payload)


async def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk."""
    await _docket.add_many([_docket.call(TASKS[kind])(**payload) for payload in payloads])
