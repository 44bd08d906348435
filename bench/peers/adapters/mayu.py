"""`mayu worker --mode process --processes 2 --prefetch-multiplier 64` (default 2, with which it drains 10 500
tasks/s); sync tasks; msgpack. On a Python with the GIL, its process mode; its free-threaded mode needs 3.14t.

Results are off by default; kept: `result_ttl=600`.
"""

from __future__ import annotations

from typing import Any

from mayu import App

from bench.peers import handlers
from bench.peers.adapters import RESULTS, URL

REQUIREMENTS = ("mayu==0.2.5",)
PYTHON = "3.13"
RECOVERY = "a visibility time-out, 30 s"
ENTRANTS = {"mayu": {"drain": 80_000, "nap": 600}}
HANDLERS = "2 processes"
NAP_HANDLERS = "2 processes"

_options: dict[str, Any] = {"result_ttl": 600} if RESULTS else {}
app = App(broker=URL, **_options)
TASKS = {kind: app.task(name=kind)(function) for kind, function in handlers.SYNC.items()}


def workers(processes: int, naps: bool) -> list[list[str]]:
    """One command starts the processes."""
    mode = ["--mode", "process", "--processes", str(processes), "--prefetch-multiplier", "64"]
    return [["mayu", "worker", "bench.peers.adapters.mayu:app", *mode, "--log-level", "ERROR"]]


def enqueue(kind: str, payload: dict[str, Any]) -> None:
    """Enqueue one task."""
    TASKS[kind].send(**payload)
