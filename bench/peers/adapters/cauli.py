"""`cauli-worker --procs 2 -c 128`, 64 in each process: sync tasks in its thread pool, the naps on its event loop;
msgpack. Its `kind="cpu"` forks children, for work that holds the interpreter for long; 5 ms stay in the threads.

Results kept: an hour (default). Not kept: `store_result=False`.
"""

from __future__ import annotations

from typing import Any

from cauli import Cauli

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("cauli==0.1.0", "redis==8.1.0", "hiredis==3.5.0")
RECOVERY = "a visibility time-out, 60 s"
ENTRANTS = {"cauli": {"drain": 120_000, "nap": 20_000, "bulk": 100_000}}
HANDLERS = "2 processes x 64 threads"
NAP_HANDLERS = "2 processes x 64"

app = Cauli(redis_url=URL, default_queue="bench")
TASKS = {
    kind: app.task(name=kind, store_result=RESULTS)(handlers.async_nap if kind == "nap" else function)
    for kind, function in handlers.SYNC.items()
}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command supervises the processes."""
    common = ["-Q", "bench", "--redis-url", URL, "--log-level", "error"]
    return [["cauli-worker", "-A", "bench.peers.adapters.cauli:app", "-c", "128", "--procs", str(processes), *common]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind].delay(**payload)


def enqueue_many(kind: str, payloads: list[dict[str, Any]]) -> None:
    """Enqueue a chunk."""
    task = TASKS[kind]
    app.enqueue_many([(task, (), payload) for payload in payloads])
