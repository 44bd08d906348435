"""2 workers with `max_jobs=100` and `poll_delay=0.01` (defaults 10 and 0.5 s; with those it drains 205 tasks/s);
pickle.

Results kept: an hour (default). Not kept: `keep_result=0`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings

from bench.peers import handlers
from bench.peers.adapters import HOST, PORT, RESULTS

REQUIREMENTS = ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0")
RECOVERY = "a key that lives for the job's time-out, 310 s"
ENTRANTS = {"arq": {"drain": 5_000, "nap": 3_000}}
HANDLERS = "2 processes x 100"
NAP_HANDLERS = "2 processes x 100"
LOGGING = {"version": 1}

settings = RedisSettings(host=HOST, port=PORT)
_pool: ArqRedis


def _with_context(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., Coroutine[Any, Any, int]]:
    async def run(context: dict[str, Any], **payload: Any) -> int:
        return await function(**payload)

    return run


class WorkerSettings:
    """What arq's command line reads."""

    functions: ClassVar = [func(_with_context(function), name=kind) for kind, function in handlers.ASYNC.items()]
    redis_settings = settings
    max_jobs = 100
    poll_delay = 0.01
    log_results = False
    if not RESULTS:
        keep_result = 0


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One worker is one process."""
    here = "bench.peers.adapters.arq"
    return [["arq", f"{here}.WorkerSettings", "--custom-log-dict", f"{here}.LOGGING"] for _ in range(processes)]


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Connect the producer."""
    global _pool
    _pool = await create_pool(settings)
    yield


async def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    await _pool.enqueue_job(kind, **payload)
