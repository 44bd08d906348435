"""`rq`: `rq worker-pool -n 2`, the default worker, which forks for each job. `rq-simple`: 2 `SimpleWorker`, which
its "Notes on Performance" allow for trusted jobs of single-digit milliseconds. Pickle, its default.

Results kept: 500 s (default). Not kept: `result_ttl=0`.
"""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue

from bench.peers import handlers
from bench.peers.adapters import ENTRANT, HOST, PORT, RESULTS, URL

REQUIREMENTS = ("rq==3.0.0", "redis==8.1.0", "hiredis==3.5.0")
RECOVERY = "a registry check each 10 min, as failed: one attempt by default"
ENTRANTS = {
    "rq": {"drain": 400, "nap": 300, "burn": 250, "enqueue": 1_000, "bulk": 2_000},
    "rq-simple": {"drain": 1_500, "nap": 400, "enqueue": 1_000, "bulk": 2_000},
}
HANDLERS = "2 processes"
NAP_HANDLERS = "2 processes"

queue = Queue("bench", connection=Redis(host=HOST, port=PORT))
_options: dict[str, Any] = {} if RESULTS else {"result_ttl": 0}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """A pool of forking workers, or workers that do not fork."""
    common = ["-u", URL, "-P", ".", "-q"]
    if ENTRANT == "rq":
        return [["rq", "worker-pool", "-n", str(processes), *common, "bench"]]
    return [["rq", "worker", "-w", "rq.worker.SimpleWorker", *common, "bench"] for _ in range(processes)]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    queue.enqueue_call(handlers.SYNC[kind], kwargs=payload, **_options)


def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk."""
    function = handlers.SYNC[kind]
    queue.enqueue_many([Queue.prepare_data(function, kwargs=payload, **_options) for payload in payloads])
