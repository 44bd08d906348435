"""Prefork pool of 2. Prefetch multiplier 64 for many short tasks, as "Optimizing" in its guide says (default 4);
`--without-gossip --without-mingle --without-heartbeat`; JSON. Naps: `-P gevent -c 100` in each of 2 workers, its
guide's pool for I/O-bound tasks. Acknowledged early, its default; `celery-late`, in the kill test
alone, has `acks_late` and `reject_on_worker_lost`, its guide's advice for tasks that may run twice.

Results kept: Redis backend, a day (default). Not kept: `ignore_result`.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from bench.peers import handlers
from bench.peers.adapters import ENTRANT, RESULTS, URL

REQUIREMENTS = ("celery[redis]==5.7.0", "kombu==5.7.0", "hiredis==3.5.0", "gevent==26.9.0")
RECOVERY = "the visibility time-out, 1 h; nothing, if acknowledged early"
ENTRANTS = {"celery": {"drain": 3_000, "nap": 2_000}, "celery-late": {"kill": 2_000}}
HANDLERS = "2 processes"
NAP_HANDLERS = "2 processes x 100 greenlets"

LATE = ENTRANT == "celery-late"
app = Celery("bench.peers.adapters.celery", broker=URL, backend=URL if RESULTS else None)
app.conf.update(
    worker_prefetch_multiplier=64,
    task_ignore_result=not RESULTS,
    task_acks_late=LATE,
    task_reject_on_worker_lost=LATE,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
TASKS = {kind: app.task(name=kind)(function) for kind, function in handlers.SYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One worker with its pool; for naps as many workers with a pool of greenlets."""
    quiet = ["-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    base = ["celery", "-A", "bench.peers.adapters.celery", "worker", *quiet]
    if naps:
        return [[*base, "-P", "gevent", "-c", "100", "-n", f"w{number}@bench"] for number in range(processes)]
    return [[*base, "-P", "prefork", "-c", str(processes), "-n", "w@bench"]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind].apply_async(kwargs=payload)
