"""A model of the rate that children, cores, round trip and Redis allow, fed by the costs that a growth run measured.

    python bench/capacity.py --children 16 --cores 8 --round-trip-ms 0.5
    python bench/capacity.py --target 500000 --handler-us 200

A closed network in which each child goes round: compute (a station with as many servers as there are cores), the way
to Redis and back (no queue), Redis (one server, for it runs scripts one after the other). Exact mean value analysis
gives the rate. A turn costs Redis and the child a fixed part and a part for each task; both are fitted to the curve of
batches. How many tasks share a turn depends on the handler, as in `dtq.worker.child`: see turn_size. What the model
leaves out: how the scheduler takes turns, caches, and the pool's start.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.report import show

GROWTH = Path(__file__).resolve().parent / "results" / "growth.json"
BATCH = 100
"""Default of the setting claim_max."""
UTILISATION = 0.7
"""How busy a plan lets Redis and processors be: waiting grows as 1 / (1 - utilisation)."""
_CLAIM_BUDGET_US, _OLD_US, _SLOW_US = 20_000.0, 5_000.0, 1_000.0
"""A child claims so much work ahead; no outcome waits longer for its settle; before slower handlers it is settled."""
_STEPS = 60


@dataclass(frozen=True)
class Costs:
    """Microseconds of one CPU. Those `_turn_us` once a turn, whatever it carries; the others for each task."""

    redis_turn_us: float
    redis_task_us: float
    child_turn_us: float
    child_task_us: float
    redis_enqueue_us: float

    def redis_us(self, batch: float = BATCH) -> float:
        """Redis' time to claim and settle one task."""
        return self.redis_task_us + self.redis_turn_us / batch

    def child_us(self, batch: float = BATCH) -> float:
        """A child's time for one task whose handler does nothing."""
        return self.child_task_us + self.child_turn_us / batch


def turn_size(handler_us: float) -> float:
    """Tasks for each turn, of children at their defaults that have enough to do."""
    if handler_us >= _SLOW_US:
        return 1.0
    return 1 / (1 / min(BATCH, _CLAIM_BUDGET_US / max(handler_us, 1.0)) + handler_us / _OLD_US)


def costs(report: dict[str, Any]) -> Costs:
    """What a growth run measured. Raises KeyError when it has no curve of batches."""
    curve = report["curves"]["batch"]
    batches = [point["batch"] for point in curve]
    redis_task, redis_turn = _fit(batches, [point["redis_drain_us"] for point in curve])
    child_task, child_turn = _fit(batches, [point["child_us"] for point in curve])
    enqueue = sorted(point["redis_enqueue_us"] for point in curve)[len(curve) // 2]
    return Costs(redis_turn, redis_task, child_turn, child_task, enqueue)


def _fit(batches: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """a and b of a + b / batch, least squares of relative errors; neither is negative."""
    weights = [1 / value**2 for value in values]
    places = [1 / batch for batch in batches]
    total = sum(weights)
    mean_x = sum(w * x for w, x in zip(weights, places, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, values, strict=True)) / total
    above = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in zip(weights, places, values, strict=True))
    below = sum(w * (x - mean_x) ** 2 for w, x in zip(weights, places, strict=True))
    slope = max(0.0, above / below) if below else 0.0
    return max(0.0, mean_y - slope * mean_x), slope


def rate(
    of: Costs,
    children: int,
    cores: float,
    round_trip_ms: float,
    *,
    batch: float | None = None,
    handler_us: float = 0.0,
    redis_apart: bool = False,
) -> float:
    """Tasks a second that a backlog is drained at.

    cores: for the children, and for Redis too unless `redis_apart`. batch: tasks for each turn; default: turn_size.
    handler_us: CPU time of a handler.
    """
    batch = batch or turn_size(handler_us)
    compute = batch * (of.child_us(batch) + handler_us) / 1e6
    redis = batch * of.redis_us(batch) / 1e6
    away = round_trip_ms / 1000
    low, high = 0.0, min(1 / redis, cores / (compute if redis_apart else compute + redis))
    for _ in range(_STEPS):  # the more turns, the less of the cores Redis leaves: what goes in must come out
        turns = (low + high) / 2
        left = cores if redis_apart else cores - turns * redis
        if _turns(children, compute, max(left, 1e-3), redis, away) > turns:
            low = turns
        else:
            high = turns
    return low * batch


def _turns(children: int, compute: float, cores: float, redis: float, away: float) -> float:
    """Turns a second. A station of m servers is taken as one that is m times as fast, and the rest as a delay."""
    queued, apart = (compute / cores, compute * (cores - 1) / cores) if cores > 1 else (compute / cores, 0.0)
    waiting = [0.0, 0.0]
    turns = 0.0
    for number in range(1, children + 1):
        times = [queued * (1 + waiting[0]), redis * (1 + waiting[1])]
        turns = number / (sum(times) + apart + away)
        waiting = [turns * time for time in times]
    return turns


def at(point: dict[str, Any], of: Costs, cpus: int) -> float:
    """What the model says of a measured point: same children, batch and way, on the cores that others left."""
    return rate(
        of, point["children"], max(1.0, cpus - point["others_busy"]), point["round_trip_ms"], batch=point["batch"]
    )


@dataclass(frozen=True)
class Plan:
    """What a load needs: servers, and cores for the children."""

    tasks_per_s: float
    redis_servers: int
    child_cores: int
    children: int


def plan(of: Costs, tasks_per_s: float, *, handler_us: float = 0.0, round_trip_ms: float = 0.5) -> Plan:
    """For so many tasks a second, enqueued in bulk and drained at the same time, with room to spare (UTILISATION).

    Children: as few as drain that much by the model, though some wait for Redis while others compute.
    """
    size = turn_size(handler_us)
    redis_us = of.redis_enqueue_us + of.redis_us(size)
    cpu_us = of.child_us(size) + handler_us
    servers = math.ceil(tasks_per_s * redis_us / 1e6 / UTILISATION)
    cores = math.ceil(tasks_per_s * cpu_us / 1e6 / UTILISATION)
    share = max(1.0, cores / servers)
    children = math.ceil(share)
    while rate(of, children, share, round_trip_ms, handler_us=handler_us, redis_apart=True) < tasks_per_s / servers:
        children += 1
    return Plan(tasks_per_s, servers, cores, children * servers)


def main() -> int:
    """Print what the model says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=8, help="children, of all workers (8)")
    parser.add_argument("--cores", type=float, default=8, help="cores of the children (8)")
    parser.add_argument("--round-trip-ms", type=float, default=0.5, help="from a child to Redis and back (0.5)")
    parser.add_argument("--batch", type=float, help="tasks for each turn (by the handler, 100 at most)")
    parser.add_argument("--handler-us", type=float, default=0.0, help="CPU time of a handler (0)")
    parser.add_argument("--shared", action="store_true", help="Redis runs on the same cores")
    parser.add_argument("--target", type=float, help="tasks a second: how many servers and cores?")
    parser.add_argument("--costs", type=Path, default=GROWTH, help="a growth run's JSON file (bench/results)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    if not options.costs.exists():
        parser.error(f"{options.costs} does not exist; run bench/growth.py first")
    of = costs(json.loads(options.costs.read_text()))
    figures: dict[str, Any] = asdict(of)
    if options.target:
        figures |= asdict(plan(of, options.target, handler_us=options.handler_us, round_trip_ms=options.round_trip_ms))
    else:
        batch = options.batch or turn_size(options.handler_us)
        asked = {"batch": batch, "handler_us": options.handler_us, "redis_apart": not options.shared}
        figures["tasks_per_s"] = rate(of, options.children, options.cores, options.round_trip_ms, **asked)
        figures["limit_of_redis_per_s"] = 1e6 / of.redis_us(batch)
        figures["limit_of_cores_per_s"] = options.cores * 1e6 / (of.child_us(batch) + options.handler_us)
    show(figures, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
