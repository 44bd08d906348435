"""One short run of one kind, for bench/compare.py: the figures of whichever dtq this Python imports, as JSON.

    python bench/sample.py drain_kept --quick

Both trees of a comparison are measured by the same file, the newer one's, so that the ruler is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import dtq
from bench.drain import drain
from bench.latency import start_latency, time_claims
from bench.report import percentile
from bench.servers import Server, open_server
from bench.workload import Workload, payload

KEPT_S = 604_800.0


def main() -> int:
    """Run one kind; an AssertionError when a task did not end exactly once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--quick", action="store_true", help="a fraction of the work")
    options = parser.parse_args()
    with open_server("redis") as server:
        figures = KINDS[options.kind](server, options.quick)
    print(json.dumps({"dtq": dtq.__file__, "figures": figures}))
    return 0


def drain_kept(server: Server, quick: bool) -> dict[str, float]:
    """Bulk enqueue and drain of no-ops with results."""
    return _drain(server, quick, KEPT_S)


def drain_retention_0(server: Server, quick: bool) -> dict[str, float]:
    """The same with nothing kept of a success."""
    return _drain(server, quick, 0.0)


def _drain(server: Server, quick: bool, retention: float) -> dict[str, float]:
    work = _workload(server)
    task = work.noop.options(retention=retention)
    payloads = map(payload, range(20_000 if quick else 100_000))
    run = drain(server, work.app, task, payloads, os.cpu_count() or 1, kept=retention > 0)
    work.app.close()
    assert not run.problems, run.problems
    return {
        "drain_per_s": run.per_s,
        "enqueue_bulk_per_s": run.enqueue_per_s,
        "redis_us_per_task": run.enqueue_cpu_us + run.drain_cpu_us,
    }


def enqueue_one(server: Server, quick: bool) -> dict[str, float]:
    """`task.enqueue` in a loop."""
    work = _workload(server)
    enqueue = work.noop.enqueue
    enqueue(**payload(0))  # connects, loads the script
    payloads = [payload(index) for index in range(1_000 if quick else 4_000)]
    started = time.perf_counter()
    for item in payloads:
        enqueue(**item)
    seconds = time.perf_counter() - started
    work.app.close()
    return {"enqueue_one_per_s": len(payloads) / seconds}


def start(server: Server, quick: bool) -> dict[str, float]:
    """Enqueue call to handler start on an idle worker."""
    figures = start_latency(server, 50 if quick else 200, 2)
    assert figures["correct"], figures["problems"]
    return {"start_p50_us": figures["p50_us"], "start_p95_us": figures["p95_us"]}


def claim(server: Server, quick: bool) -> dict[str, float]:
    """A turn that claims one task, and one that claims a hundred."""
    turns = 100 if quick else 400
    return {f"claim_{size}_p50_us": percentile(time_claims(server, size, turns)[0], 50) for size in (1, 100)}


def _workload(server: Server) -> Workload:
    work = Workload(url=server.url, prefix=server.prefix)
    work.app.broker.prepare_queue("default")
    return work


KINDS: dict[str, Callable[[Server, bool], dict[str, float]]] = {
    run.__name__: run for run in (drain_kept, drain_retention_0, enqueue_one, start, claim)
}

if __name__ == "__main__":
    sys.exit(main())
