"""Growth: how the rate of a drain changes with children, batch, payload, backlog, queues and round-trip time.

python bench/growth.py                                   every curve; bench/results/growth.json, .svg, the page
python bench/growth.py --full                            with a backlog of ten million: 3.8 GB of memory, minutes
python bench/growth.py --curves children,round_trip      these only; bench/results/growth-part.json, no page
python bench/growth.py --quick                           a tenth of the tasks, once; growth-part as well
python bench/growth.py --report FILE                     FILE is the recorded run: chart and page from it

The page is the section "Growth" of docs/performance.md. Work is no-ops of 150 bytes with results kept, unless a curve
says otherwise. The points of a curve are measured in rounds, in an order drawn anew for each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.delay import delayed
from bench.drain import Drained, drain
from bench.report import rounded
from bench.servers import Server, open_server
from bench.workload import PAYLOAD_BYTES, Workload

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
RECORDED = RESULTS / "growth.json"
WEEK_S = 604_800.0
TASKS = 100_000
MOST_BYTES = 200_000_000
"""Payloads of one run, together."""
CHECKED = 1_000_000
"""So many ids are kept at most, to ask for afterwards."""
PINGS = 100
CPUS = os.cpu_count() or 1


@dataclass(frozen=True)
class Point:
    """One place of a curve. x: where. round_trip_s: None is the server itself, else through the delaying proxy."""

    curve: str
    x: float
    tasks: int = TASKS
    children: int = CPUS
    payload_bytes: int = PAYLOAD_BYTES
    queues: int = 1
    round_trip_s: float | None = None
    retention: float = WEEK_S
    environment: dict[str, str] = field(default_factory=dict[str, str])


def points(full: bool) -> list[Point]:
    """Every point of every curve."""
    found = [Point("children", number, children=number) for number in (1, 2, 3, 4, 6, 8, 12, 16)]
    found += [
        Point("batch", size, tasks=TASKS if size > 3 else TASKS // 5, environment={"DTQ_CLAIM_MAX": str(size)})
        for size in (1, 3, 10, 30, 100, 300, 1000)
    ]
    found += [
        Point("payload", kib, tasks=min(TASKS, int(MOST_BYTES / (1024 * kib))), payload_bytes=round(1024 * kib))
        for kib in (0.1, 1, 4, 16, 64, 256)
    ]
    found += [
        Point("backlog", 10**power, tasks=10**power, retention=0.0) for power in (3, 4, 5, 6, *([7] if full else []))
    ]
    found += [
        Point("queues", number, queues=number, tasks=TASKS // (5 if number == 1000 else 1))
        for number in (1, 10, 100, 1000)
    ]
    found += [
        Point("round_trip", milliseconds, children=children, round_trip_s=milliseconds / 1000)
        for milliseconds in (0, 1, 5)
        for children in (2, 8, 16)
    ]
    return found


def main() -> int:
    """Measure and report; 1 when a task of some run did not end exactly once."""
    options = _arguments()
    if options.report:
        if options.report != RECORDED:
            RESULTS.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(options.report, RECORDED)
        _draw(RECORDED)
        _write_page()
        return 0
    started = time.monotonic()
    chosen = [point for point in points(options.full) if not options.curves or point.curve in options.curves]
    with open_server("redis") as server:
        report = {"machine": machine.describe(server.version), "repeats": options.repeats, "curves": {}, "problems": []}
        for curve in dict.fromkeys(point.curve for point in chosen):
            _measure([point for point in chosen if point.curve == curve], server, options, report)
            report["seconds"] = time.monotonic() - started
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rounded(report), indent=1) + "\n")
    _draw(options.out)
    if options.out == RECORDED:
        _write_page()
    print(f"{report['seconds'] / 60:.1f} minutes; {options.out}")
    return 1 if report["problems"] else 0


def _measure(chosen: list[Point], server: Server, options: argparse.Namespace, report: dict[str, Any]) -> None:
    """All rounds of one curve."""
    runs: dict[int, list[tuple[Drained, float]]] = {number: [] for number in range(len(chosen))}
    for repeat in range(options.repeats):
        for number in random.sample(range(len(chosen)), len(chosen)):
            point = chosen[number]
            if repeat and point.tasks >= 1_000_000:
                continue  # long enough to be steady by itself
            try:
                runs[number].append(_run(point, server, options.tenth))
            except RuntimeError as error:
                report["problems"].append(f"{_name(point)}: {error}")
                continue
            done = runs[number][-1][0]
            report["problems"] += [f"{_name(point)}: {text}" for text in done.problems[:3]]
            print(f"{repeat} {_name(point)}: {done.per_s:,.0f}/s", *done.problems[:3], sep="\n    ", flush=True)
    report["curves"][chosen[0].curve] = [_summary(chosen[number], each) for number, each in runs.items() if each]


def _name(point: Point) -> str:
    return f"{point.curve} {point.x:g}, {point.children} children"


def _run(point: Point, server: Server, tenth: bool) -> tuple[Drained, float]:
    """One drain, and the seconds of a round trip to where the pool finds the server."""
    tasks = max(point.queues, point.tasks // (10 if tenth and point.tasks > 1000 else 1))
    text = "x" * (point.payload_bytes - len('{"i":100000,"s":""}'))
    work = Workload(url=server.url, prefix=server.prefix)
    task = work.noop.options(retention=point.retention)
    queues = {
        name: work.noop.options(retention=point.retention, queue=name)
        for name in (f"q{number}" for number in range(point.queues))
    }
    try:
        with _reached(server, point.round_trip_s) as url:
            away_s = _round_trip(url)
            done = drain(
                server,
                work.app,
                task,
                ({"i": 100_000 + number, "s": text} for number in range(tasks - tasks % point.queues)),
                point.children,
                kept=point.retention > 0,
                queues=queues if point.queues > 1 else None,
                url=url,
                environment=point.environment,
                checked=-(-tasks // CHECKED),
            )
    finally:
        work.app.close()
        server.clear()
    return done, away_s


@contextmanager
def _reached(server: Server, round_trip_s: float | None) -> Iterator[str]:
    if round_trip_s is None:
        yield server.url
    else:
        with delayed(server.url, round_trip_s) as url:
            yield url


def _round_trip(url: str) -> float:
    """Median seconds of a PING."""
    seconds: list[float] = []
    with redis.Redis.from_url(url) as client:
        client.ping()
        for _ in range(PINGS):
            started = time.perf_counter()
            client.ping()
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _summary(point: Point, runs: list[tuple[Drained, float]]) -> dict[str, Any]:
    drained = [run for run, _ in runs]

    def median(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in drained))

    return {
        "x": point.x,
        "tasks": drained[0].tasks,
        "children": point.children,
        "batch": int(point.environment.get("DTQ_CLAIM_MAX", "100")),
        "payload_bytes": point.payload_bytes,
        "per_s": median("per_s"),
        "range_per_s": [min(run.per_s for run in drained), max(run.per_s for run in drained)],
        "enqueue_per_s": median("enqueue_per_s"),
        "redis_enqueue_us": median("enqueue_cpu_us"),
        "redis_drain_us": median("drain_cpu_us"),
        "child_us": median("child_cpu_us"),
        "redis_busy": median("redis_busy"),
        "others_busy": median("others_busy"),
        "queued_bytes": median("queued_bytes"),
        "child_private_mb": max(run.private_mb for run in drained),
        "round_trip_ms": statistics.median(away_s for _, away_s in runs) * 1000,
    }


def _draw(source: Path) -> None:
    """The chart beside the JSON file, if matplotlib is to be had."""
    from bench.peers.environments import Unavailable, chart_python

    try:
        subprocess.run([str(chart_python()), str(ROOT / "bench" / "growth_chart.py"), str(source)], check=True)
    except (Unavailable, subprocess.CalledProcessError) as reason:
        print(f"no chart: {reason}", file=sys.stderr)


def _write_page() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=lambda text: text.split(","), default=[], help="names of curves (all)")
    parser.add_argument("--full", action="store_true", help="a backlog of 10 000 000, too")
    parser.add_argument("--quick", dest="tenth", action="store_true", help="a tenth of the tasks, one round")
    parser.add_argument("--repeats", type=int, help="rounds (3); medians are reported")
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    parser.add_argument("--report", type=Path, metavar="FILE", help="only make chart and page from this JSON file")
    options = parser.parse_args()
    names = {point.curve for point in points(full=False)}
    if unknown := set(options.curves) - names:
        parser.error(f"no such curve: {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
    options.out = (
        options.out or RESULTS / f"growth{'-part' if options.tenth or options.curves else ''}.json"
    ).resolve()
    options.repeats = options.repeats or (1 if options.tenth else 3)
    if options.report:
        options.report = options.report.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
