"""`dramatiq -p 2 -t 8`, its defaults on 2 CPUs; default middleware; JSON. Fewer threads drained more slowly in a
trial. Naps: `dramatiq-gevent -p 2 -t 100`, its command for I/O-bound actors.

Results are off by default; kept: the Results middleware with its Redis backend, 10 min (default).
"""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0", "gevent==26.9.0")
RECOVERY = "a heartbeat time-out, 60 s, noticed by one command in a thousand"
ENTRANTS = {"dramatiq": {"drain": 10_000, "nap": 3_000}}
HANDLERS = "2 processes x 8 threads"
NAP_HANDLERS = "2 processes x 100 greenlets"

broker = RedisBroker(url=URL)
if RESULTS:
    broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)
_options: dict[str, Any] = {"store_results": True} if RESULTS else {}
ACTORS = {kind: dramatiq.actor(function, actor_name=kind, **_options) for kind, function in handlers.SYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One worker with its processes."""
    program, slots = ("dramatiq-gevent", "100") if naps else ("dramatiq", "8")
    return [[program, "bench.peers.adapters.dramatiq", "-p", str(processes), "-t", slots]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    ACTORS[kind].send(**payload)
