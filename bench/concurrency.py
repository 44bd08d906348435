"""Many async handlers at a time in one child: how near their rate comes to what their waits allow.

    python bench/concurrency.py --json

A backlog of tasks, each of which only waits (`await asyncio.sleep(seconds)`), drained by one child that runs
`--concurrency` of them at a time. Ideal is concurrency / seconds; `fraction_of_ideal` is the rate over it, from the
first claim to the last settle, ramp and tail included. `bare_fraction_of_ideal` is the same for a bare uvloop program
that starts as many sleeping coroutines, without a queue: what the event loop itself costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.drain import drain
from bench.report import show
from bench.servers import open_server
from bench.workload import Waiting


def main() -> int:
    """Run what the arguments say; 1 when a task did not end exactly once."""
    options = _arguments()
    ideal = options.concurrency / options.seconds
    rates: list[float] = []
    bare: list[float] = []
    others: list[float] = []
    problems: list[str] = []
    with open_server(options.server) as server:
        work = Waiting(url=server.url, prefix=server.prefix)
        for _ in range(options.repeats):
            run = drain(
                server,
                work.app,
                work.wait.options(retention=options.retention),
                ({"i": index, "seconds": options.seconds} for index in range(options.tasks)),
                1,
                kept=options.retention > 0,
                environment={"DTQ_CONCURRENCY": str(options.concurrency)},
                application="bench.workload:waiting",
            )
            rates.append(run.per_s)
            others.append(run.others_busy)
            problems += run.problems
            bare.append(_bare(options))
        work.app.close()
        figures: dict[str, Any] = {
            "server": server.name,
            "server_version": server.version,
            "machine": machine.describe(server.version),
            "cpus": os.cpu_count(),
            "concurrency": options.concurrency,
            "seconds": options.seconds,
            "tasks": options.tasks,
            "repeats": options.repeats,
            "per_s": statistics.median(rates),
            "ideal_per_s": ideal,
            "fraction_of_ideal": statistics.median(rates) / ideal,
            "bare_fraction_of_ideal": statistics.median(bare) / ideal,
            "others_busy": statistics.median(others),
            "correct": not problems,
            "problems": problems[:10],
        }
    show(figures, as_json=options.json)
    return 0 if not problems else 1


def _bare(options: argparse.Namespace) -> float:
    """Tasks a second of as many coroutines that only sleep, `concurrency` of them at a time."""
    import uvloop

    async def lane(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(options.seconds)

    async def every() -> float:
        started = time.monotonic()
        share, rest = divmod(options.tasks, options.concurrency)
        await asyncio.gather(*(lane(share + (number < rest)) for number in range(options.concurrency)))
        return options.tasks / (time.monotonic() - started)

    return uvloop.run(every())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50_000, help="tasks of one drain (50 000)")
    parser.add_argument("--concurrency", type=int, default=5_000, help="handlers at a time (5 000)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each waits (1)")
    parser.add_argument("--retention", type=float, default=604_800, help="seconds a success is kept (a week)")
    parser.add_argument("--repeats", type=int, default=3, help="drains (3)")
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
