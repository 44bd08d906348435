"""Throughput: how fast tasks are enqueued and worked off, what that costs Redis and memory, beside bare clients.

python bench/throughput.py --json                        the figures of a no-op task of 150 bytes
python bench/throughput.py --retention 0 --json          the same, nothing kept of a success
python bench/throughput.py --handler spin --json         handlers that burn CPU, beside bare processes
python bench/throughput.py --backlog --json              a large backlog beside a small one
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import bare, machine
from bench.drain import Drained, drain
from bench.report import show
from bench.servers import Server, open_server
from bench.workload import Workload, payload

IN_FLIGHT = 100
ONE_BY_ONE = 2000


def main() -> int:
    """Run what the arguments say; 1 when a task did not end exactly once."""
    options = _arguments()
    with open_server(options.server) as server:
        figures: dict[str, Any] = {
            "server": server.name,
            "server_version": server.version,
            "machine": machine.describe(server.version),
            "cpus": os.cpu_count(),
        }
        if options.backlog:
            figures |= backlog(server, options)
        elif options.handler == "spin":
            figures |= spin(server, options)
        else:
            figures |= noop(server, options)
    show(figures, as_json=options.json)
    return 0 if figures["correct"] else 1


def noop(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of a task that does nothing."""
    work = _workload(server)
    producing = producers(server, work, options.repeats)
    task = work.noop.options(retention=options.retention)
    runs: dict[int, list[tuple[Drained, float, float]]] = {children: [] for children in options.children}
    for _ in range(options.repeats):
        for children in options.children:
            run = drain(
                server, work.app, task, map(payload, range(options.tasks)), children, kept=options.retention > 0
            )
            server.clear()
            runs[children].append((run, *bare.drain(server, options.tasks, children)))
    best = max(runs, key=lambda children: _median(run.per_s for run, _, _ in runs[children]))
    chosen = [run for run, _, _ in runs[best]]
    every = [run for each in runs.values() for run, _, _ in each]
    drain_per_s, ceiling = _median(run.per_s for run in chosen), _median(rate for _, rate, _ in runs[best])
    problems = sorted({problem for run in every for problem in run.problems})
    work.app.close()
    return {
        "tasks": options.tasks,
        "retention_s": options.retention,
        "children": best,
        "repeats": options.repeats,
        "drain_per_s": drain_per_s,
        "ceiling_per_s": ceiling,
        "fraction_of_ceiling": drain_per_s / ceiling,
        "drain_per_s_by_children": {str(k): _median(run.per_s for run, _, _ in each) for k, each in runs.items()},
        "ceiling_per_s_by_children": {str(k): _median(rate for _, rate, _ in each) for k, each in runs.items()},
        "enqueue_bulk_per_s": _median(run.enqueue_per_s for run in every),
        **producing,
        "redis_us_per_task": _median(run.enqueue_cpu_us + run.drain_cpu_us for run in chosen),
        "redis_enqueue_us_per_task": _median(run.enqueue_cpu_us for run in chosen),
        "redis_drain_us_per_task": _median(run.drain_cpu_us for run in chosen),
        "bare_redis_us_per_task": _median(cpu for _, _, cpu in runs[best]),
        "child_cpu_us_per_task": _median(run.child_cpu_us for run in chosen),
        "others_busy": _median(run.others_busy for run in every),
        "redis_busy": _median(run.redis_busy for run in chosen),
        "queued_bytes_per_task": _median(run.queued_bytes for run in every),
        "child_private_mb": max(run.private_mb for run in chosen),
        "child_private_mb_early": max(run.private_mb_early for run in chosen),
        **import_times(options.repeats),
        "correct": not problems,
        "problems": problems,
    }


def spin(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """Handlers that burn CPU time, beside as many bare processes that burn the same."""
    work = _workload(server)
    task = work.spin.options(retention=options.retention)
    children, tasks, milliseconds = options.children[0], options.tasks, options.spin_ms
    runs: list[Drained] = []
    ideal: list[float] = []
    for _ in range(options.repeats):
        payloads = ({"i": index, "ms": milliseconds} for index in range(tasks))
        runs.append(drain(server, work.app, task, payloads, children, kept=options.retention > 0))
        ideal.append(bare.spin(tasks, milliseconds, children))
    work.app.close()
    problems = sorted({problem for run in runs for problem in run.problems})
    return {
        "handler": "spin",
        "spin_ms": milliseconds,
        "tasks": tasks,
        "children": children,
        "repeats": options.repeats,
        "spin_per_s": _median(run.per_s for run in runs),
        "bare_spin_per_s": _median(ideal),
        "spin_fraction": _median(run.per_s / rate for run, rate in zip(runs, ideal, strict=True)),
        "correct": not problems,
        "problems": problems,
    }


def backlog(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """A large backlog beside a small one: does the rate depend on how much waits?"""
    work = _workload(server)
    task = work.noop.options(retention=options.retention)
    runs: dict[int, list[Drained]] = {tasks: [] for tasks in options.backlog}
    for _ in range(options.repeats):
        for tasks, each in runs.items():
            each.append(
                drain(
                    server, work.app, task, map(payload, range(tasks)), options.children[0], kept=options.retention > 0
                )
            )
    work.app.close()
    small, large = (_median(run.per_s for run in each) for each in runs.values())
    problems = sorted({problem for each in runs.values() for run in each for problem in run.problems})
    return {
        "backlogs": options.backlog,
        "retention_s": options.retention,
        "children": options.children[0],
        "repeats": options.repeats,
        "drain_per_s_small": small,
        "drain_per_s_large": large,
        "large_over_small": large / small,
        "queued_bytes_per_task": [_median(run.queued_bytes for run in each) for each in runs.values()],
        "child_private_mb": [max(run.private_mb for run in each) for each in runs.values()],
        "correct": not problems,
        "problems": problems,
    }


def producers(server: Server, work: Workload, repeats: int) -> dict[str, float]:
    """One at a time beside bare XADD, in turns; and 100 async calls in flight, on uvloop and on asyncio's own loop."""
    import uvloop

    work.noop.enqueue(**payload(0))  # connects, loads the script
    rates: dict[str, list[float]] = {name: [] for name in ("dtq", "bare", "uvloop", "asyncio")}
    for _ in range(max(5, repeats)):
        rates["dtq"].append(_one_by_one(work, ONE_BY_ONE))
        rates["bare"].append(bare.xadd_one(server, ONE_BY_ONE))
        server.clear()
        rates["uvloop"].append(uvloop.run(_in_flight(work.noop.aenqueue, 20_000)))
        server.clear()
        rates["asyncio"].append(asyncio.run(_in_flight(work.noop.aenqueue, 10_000)))
        server.clear()
    return {
        "enqueue_one_per_s": _median(rates["dtq"]),
        "xadd_one_per_s": _median(rates["bare"]),
        "enqueue_one_over_xadd_one": _median(a / b for a, b in zip(rates["dtq"], rates["bare"], strict=True)),
        "aenqueue_per_s": _median(rates["uvloop"]),
        "aenqueue_asyncio_per_s": _median(rates["asyncio"]),
    }


def _one_by_one(work: Workload, count: int) -> float:
    payloads = [payload(index) for index in range(count)]
    enqueue = work.noop.enqueue
    started = time.perf_counter()
    for item in payloads:
        enqueue(**item)
    return count / (time.perf_counter() - started)


async def _in_flight(aenqueue: Callable[..., Awaitable[Any]], count: int) -> float:
    """Tasks a second from IN_FLIGHT callers, each of which waits for one answer before its next call."""
    payloads = iter([payload(index) for index in range(count + IN_FLIGHT)])

    async def caller(calls: int) -> None:
        for _ in range(calls):
            await aenqueue(**next(payloads))

    await asyncio.gather(*(caller(1) for _ in range(IN_FLIGHT)))
    started = time.perf_counter()
    await asyncio.gather(*(caller(count // IN_FLIGHT) for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - started)


def import_times(repeats: int) -> dict[str, float]:
    """Whole run times of a Python that imports dtq, and of one that does nothing, in turns."""
    times: dict[str, list[float]] = {"import dtq": [], "pass": []}
    for _ in range(max(11, repeats)):
        for program, measured in times.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, cwd="/")
            measured.append((time.perf_counter() - started) * 1000)
    return {"import_ms": _median(times["import dtq"]), "bare_python_ms": _median(times["pass"])}


def _workload(server: Server) -> Workload:
    work = Workload(url=server.url, prefix=server.prefix)
    work.app.broker.prepare_queue("default")
    return work


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, help="tasks of one run (200 000; 2 000 for spin)")
    parser.add_argument(
        "--children", default="auto", help="children of the worker, or `auto`: the best of 1, cpus, cpus + 1"
    )
    parser.add_argument(
        "--retention", type=float, default=604_800, help="seconds a success is kept (a week); 0: not at all"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind; medians are reported (3)")
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--handler", choices=("noop", "spin"), default="noop")
    parser.add_argument("--spin-ms", type=float, default=5.0, help="CPU time of a spin handler (5)")
    parser.add_argument(
        "--backlog", type=int, nargs="*", metavar="TASKS", help="compare two backlogs (100 000 and 1 000 000)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    cpus = os.cpu_count() or 1
    if options.children != "auto":
        options.children = [int(options.children)]
    elif options.handler == "spin" or options.backlog is not None:
        options.children = [cpus]
    else:
        options.children = sorted({1, cpus, cpus + 1})
    if options.tasks is None:
        options.tasks = 2_000 if options.handler == "spin" else 200_000
    if options.backlog is not None:
        options.backlog = options.backlog or [100_000, 1_000_000]
        if len(options.backlog) != 2:
            parser.error("--backlog takes two numbers of tasks, or none")
    return options


if __name__ == "__main__":
    sys.exit(main())
