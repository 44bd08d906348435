"""What many queues, and many bands, cost: the rate of a drain, an idle worker, and the start of a task on one of many.

    python bench/queues.py --json

The same tasks lie in one queue or in ten, in one band or in ten, in alternating runs: `ratio_queues` and `ratio_bands`
are what a task costs Redis, `time_ratio_*` what a drain takes, ten over one. The idle worker is looked at with 1, 10
and 1 000 queues: its CPU, all processes, and what INFO commandstats counts, calls inside scripts included.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.board import Board
from bench.pool import Pool
from bench.report import percentile, show
from bench.servers import Server, open_server
from bench.workload import Workload, payload
from dtq.keys import BANDS, Keys

KINDS = {"one": (1, 1), "ten_queues": (10, 1), "ten_bands": (1, 10)}
"""Name of a drain -> number of queues, number of bands in use."""
STALL_S = 60.0


def main() -> int:
    """Run what the arguments say; 1 when a task did not end exactly once."""
    options = _arguments()
    with open_server(options.server) as server:
        figures: dict[str, Any] = {
            "server": server.name,
            "server_version": server.version,
            "machine": machine.describe(server.version),
            "cpus": os.cpu_count(),
            "children": options.children,
            "tasks": options.tasks,
            "retention_s": options.retention,
        }
        if options.tasks:
            figures |= drains(server, options)
        figures["idle"] = {str(count): idle(server, count, options) for count in options.queues}
        if options.samples:
            figures |= start_latency(server, max(options.queues), options)
    show(figures, as_json=options.json)
    return 0 if figures.get("correct", True) else 1


def drains(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """Redis' time and the drain's for each task, for every kind in turns; medians, and ratios of the pairs."""
    cpu_us: dict[str, list[float]] = {kind: [] for kind in KINDS}
    wall_us: dict[str, list[float]] = {kind: [] for kind in KINDS}
    problems: list[str] = []
    for number in range(options.repeats):
        for kind in sorted(KINDS, reverse=number % 2 == 1):
            cpu, wall, wrong = drain(server, *KINDS[kind], options)
            cpu_us[kind].append(cpu)
            wall_us[kind].append(wall)
            problems += wrong
    return {
        "repeats": options.repeats,
        "drain_per_s": {kind: 1e6 / statistics.median(walls) for kind, walls in wall_us.items()},
        "redis_us_per_task": {kind: statistics.median(cpus) for kind, cpus in cpu_us.items()},
        "ratio_queues": _ratio(cpu_us, "ten_queues"),
        "ratio_bands": _ratio(cpu_us, "ten_bands"),
        "time_ratio_queues": _ratio(wall_us, "ten_queues"),
        "time_ratio_bands": _ratio(wall_us, "ten_bands"),
        "correct": not problems,
        "problems": problems[:10],
    }


def _ratio(runs: dict[str, list[float]], kind: str) -> float:
    return statistics.median(many / one for many, one in zip(runs[kind], runs["one"], strict=True))


def drain(
    server: Server, queue_count: int, band_count: int, options: argparse.Namespace
) -> tuple[float, float, list[str]]:
    """Work one backlog off; Redis' microseconds and the drain's for each task, and what is wrong with the counts."""
    server.clear()
    work = Workload(url=server.url, prefix=server.prefix)
    names, bands = queue_names(queue_count), list(BANDS)[-band_count:] if band_count > 1 else [5]
    share = options.tasks // (queue_count * band_count)
    for queue in names:
        for band in bands:
            task = work.noop.options(queue=queue, priority=band, retention=options.retention)
            for outcome in task.enqueue_many(map(payload, range(share))):
                assert outcome.id
    work.app.close()
    total = share * queue_count * band_count
    with Pool(server, options.children, queues=names) as pool:
        seconds, cpu_us = _until_done(server, pool, names, total)
        pool.check_alive()
    keys = Keys(server.prefix)
    wrong = [
        f"{queue} has {left} live values left" for queue in names if (left := server.client.hlen(keys.live(queue)))
    ]
    return cpu_us / total, seconds * 1e6 / total, wrong


def _until_done(server: Server, pool: Pool, queues: Sequence[str], total: int) -> tuple[float, float]:
    """Seconds and Redis' microseconds from the first claim to the last settle."""
    metas = [Keys(server.prefix).meta(queue) for queue in queues]
    first = last_change = time.monotonic()
    cpu_us, begun, last_ended = server.cpu_us(), False, 0
    while True:
        pipeline = server.client.pipeline(transaction=False)
        for meta in metas:
            pipeline.hmget(meta, "succeeded", "running")
        found = pipeline.execute()
        ended, running = (sum(int(each[place] or 0) for each in found) for place in (0, 1))
        now = time.monotonic()
        if not begun:
            begun, first, cpu_us = bool(ended or running), now, server.cpu_us()
        if ended >= total:
            return now - first, server.cpu_us() - cpu_us
        if ended != last_ended:
            last_ended, last_change = ended, now
        if now - last_change > STALL_S:
            raise RuntimeError(f"nothing has changed for {STALL_S:.0f} s; {ended} of {total} tasks have ended")
        pool.check_alive()
        left_s = (total - ended) * (now - first) / ended if ended else 0.0
        time.sleep(0.002 if left_s < 0.1 else min(0.05, left_s / 2))


def idle(server: Server, queue_count: int, options: argparse.Namespace) -> dict[str, float]:
    """CPU and Redis commands of a worker that has nothing to do, and how long it took until it waited."""
    server.clear()
    started = time.monotonic()
    with Pool(server, options.children, queues=queue_names(queue_count)) as pool:
        pool.wait_until_up(120.0)
        up_s = time.monotonic() - started
        time.sleep(options.settle_s)
        calls, cpu_s, redis_us, begun = _calls(server), pool.whole_cpu_s(), server.cpu_us(), time.monotonic()
        time.sleep(options.idle_s)
        seconds = time.monotonic() - begun
        used = {name: count - calls.get(name, 0) for name, count in _calls(server).items()}
        used["info"] = 0  # this program's own
        cpu_percent = 100 * (pool.whole_cpu_s() - cpu_s) / seconds
        redis_percent = (server.cpu_us() - redis_us) / seconds / 1e4
    by_name = sorted(used.items(), key=lambda item: -item[1])
    return {
        "up_s": up_s,
        "cpu_percent": cpu_percent,
        "redis_cpu_percent": redis_percent,
        "commands_per_s": sum(used.values()) / seconds,
        **{f"{name}_per_s": count / seconds for name, count in by_name[:5] if count},
    }


def _calls(server: Server) -> dict[str, int]:
    return {name.removeprefix("cmdstat_"): facts["calls"] for name, facts in server.client.info("commandstats").items()}


def start_latency(server: Server, queue_count: int, options: argparse.Namespace) -> dict[str, Any]:
    """From the enqueue call to the start of the handler, each time in another queue, the worker idle."""
    server.clear()
    names = queue_names(queue_count)
    chosen = random.Random(queue_count).choices(names, k=options.samples)
    with (
        Board.create(2 * options.samples) as board,
        Pool(server, options.children, board=board.path, queues=names) as pool,
    ):
        work = Workload(url=server.url, prefix=server.prefix)
        pool.wait_until_up(120.0)
        times: list[float] = []
        for number, queue in enumerate(chosen + chosen):  # a producer's first task of a queue prepares it
            task = work.stamp.options(queue=queue)
            sent = time.monotonic_ns()
            task.enqueue(i=number)
            times.append((board.wait(number).started_ns - sent) / 1000)
            time.sleep(random.uniform(0.006, 0.05))
        times = times[options.samples :]
        work.app.close()
    return {
        "latency_queues": queue_count,
        "samples": options.samples,
        **{f"p{percent}_us": percentile(times, percent) for percent in (50, 95, 99)},
        "max_us": max(times),
    }


def queue_names(count: int) -> list[str]:
    """Names of queues, the most important first."""
    return [f"q{number:04}" for number in range(count)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000, help="tasks of one drain (100 000); 0: no drains")
    parser.add_argument("--repeats", type=int, default=5, help="drains of each kind (5)")
    parser.add_argument("--retention", type=float, default=604_800, help="seconds a success is kept (a week)")
    parser.add_argument("--children", type=int, default=2, help="children of the worker (2)")
    parser.add_argument(
        "--queues", type=int, nargs="*", default=[1, 10, 1000], help="numbers of queues of the idle worker (1 10 1000)"
    )
    parser.add_argument("--settle-s", type=float, default=10.0, help="seconds before an idle worker is looked at (10)")
    parser.add_argument("--idle-s", type=float, default=20.0, help="seconds it is looked at (20)")
    parser.add_argument("--samples", type=int, default=200, help="tasks whose start is timed (200); 0: none")
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
