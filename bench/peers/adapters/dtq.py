"""Defaults: one child more than there are CPUs, as each waits for Redis between batches; sync handlers in the child,
async ones (the naps) 100 at a time. Nothing is tuned; it logs warnings only, as the others do. Its bulk call takes an
iterable of any length and cuts it into chunks itself.

Results kept: a record with its result for a week. Not kept: `retention=0`. JSON.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import dtq
from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

CHUNK = 1_000_000
RECOVERY = "its worker's lease, 30 s"
ENTRANTS = {"dtq": {"drain": 250_000, "nap": 30_000, "bulk": 200_000}}
HANDLERS = "3 processes"
NAP_HANDLERS = "3 processes x 100"

app = dtq.App(redis_url=URL)
_options: dict[str, Any] = {} if RESULTS else {"retention": 0}
TASKS = {
    kind: app.task(name=kind, **_options)(handlers.async_nap if kind == "nap" else function)
    for kind, function in handlers.SYNC.items()
}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One worker; its number of children is the default, where the number of CPUs is asked for."""
    children = [] if processes == os.cpu_count() else ["--children", str(processes + 1)]
    return [
        [sys.executable, "-m", "dtq", "worker", "bench.peers.adapters.dtq:app", "--log-level", "warning", *children]
    ]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind].enqueue(**payload)


def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue all of them."""
    TASKS[kind].enqueue_many(payloads).run()
