"""Worker processes: a supervisor, a template that forks, and the children that run handlers.

`run_worker` is the way in. Who does what: supervisor.py watches processes and never waits for Redis; steward.py is its
Redis thread (lease.py, scheduler.py); template.py imports the app once; child.py runs handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtq.settings import Settings

__all__ = ["run_worker"]


def run_worker(
    app_path: str,
    settings: Settings | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    queues: Sequence[str] | None = None,
    children: int | None = None,
    burst: bool = False,
    preload: bool = True,
    log_level: int = logging.INFO,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> int:
    """Run one worker in this process, which becomes its supervisor, and return the exit code (see exits.py).

    Call it from the main thread: it takes SIGTERM and SIGINT (the first drains, a second stops at once). It logs to
    stderr through the logger `dtq.worker`.

    app_path: `module:app`, or a module whose app is called `app`. settings: used instead of the app's own. overrides:
    settings by keyword that win over either. queues: those to work on, most important first; default: the queues of
    the app's tasks and its default queue. children: processes that run handlers; default: the setting. burst: leave
    when nothing is queued, running or retrying. preload: import the app once, before forking; otherwise each child
    imports it. metrics_port: serve /metrics there (0: at any free port, which the log tells), on metrics_host.
    """
    from dtq.worker.start import start_worker

    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    return start_worker(app_path, settings, overrides or {}, queues, children, burst, preload, log_level, metrics)
